// Commit: the step's side of a lookup, for all tables of a batch at once. Turns the keys of a plan into handles,
// inserting new keys where the step trains. In tables that track their keys it counts and dates them, and inserts those
// that are admitted.
//
// All tables share one call so that many small tables keep all threads busy; the unit of work is a shard of a table. If
// any table is full, or there is no memory for the rows, nothing is inserted into any of them and nothing is counted:
// Commit makes room for all rows before it makes the first. (It may still need memory afterwards: for counts of refused
// keys, and a little for the queues of a disk tier.)
#pragma once

#include <vector>

#include "base/parallel.h"
#include "base/status.h"
#include "batch/plan.h"
#include "batch/tally.h"
#include "table/table.h"

namespace mxrec {

struct CommitItem {
  Table* table;
  TablePlan plan;              // REQUIRES: grouped for this table's shards; not grouped only if nothing is inserted
  int64_t* handles;            // out, [U]
  bool insert;                 // false for evaluation: the table changes in no byte
  Tally tally{};               // of the plan; only if the table tracks its keys
  int64_t use = 0;             // of the table, under way until the handles are no longer needed
  bool skips_padding = false;  // padding keys that have no row get none, and are not counted
};

Status Commit(const std::vector<CommitItem>& items, const ParallelFor& parallel);

}  // namespace mxrec
