// Commit: the step's side of a lookup, for all tables of a batch at once. Turns the keys of a plan into handles,
// inserting new keys where the step trains. In tables that track their keys it counts and dates them, and inserts those
// that are admitted.
//
// All tables share one call so that threads are kept busy across many small tables; the unit of work is a shard of a
// table. If any table is full, or there is no memory for the rows, nothing is inserted into any of them, and nothing is
// counted: room for all rows is made before the first one is. (Counts of refused keys may need memory later; a table
// with a disk tier, a little for its queues.)
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
