// Lookup: the step's way from a plan to embeddings, for all its tables at once. Commit gives handles to the keys, embed
// a row to every position or bag, and gather the rows of the keys to whoever wants to see them.
#pragma once

#include <cstdint>
#include <vector>

#include "base/parallel.h"
#include "base/status.h"
#include "batch/plan.h"
#include "batch/pooling.h"
#include "table/table.h"

namespace mxrec {

struct LookupTable {
  Table* table = nullptr;      // nullptr: this one is not looked up
  int64_t in_plan = 0;         // its number among the plan's tables. REQUIRES: Plan::CheckTable
  bool insert = false;         // false for evaluation: the table changes in no byte
  bool pads = true;            // whether padding keys get rows
  int64_t capacity = 0;        // how many keys a batch may bring; 0: any number
  int64_t use = 0;             // of the table, under way until the handles are no longer needed
  int64_t* handles = nullptr;  // out, [U]
  float* rows = nullptr;       // out, [U, dim]; nullptr: they are not wanted
};

struct LookupFeature {
  int64_t table;               // its number among the tables that are looked up
  const FeaturePlan* feature;  // of the plan
  Bags bags;
  float* out;      // bags.count rows of dim floats,
  int64_t stride;  // this many floats apart: features may lie side by side in one matrix
};

// InvalidArgument unless the table's part of a plan is grouped as `grouped` says, and has no more keys than its
// capacity.
Status CheckLookup(const LookupTable& lookup, const TablePlan& part, bool grouped);

// InvalidArgument, and nothing is inserted or counted, if a table of the plan is grouped and `grouped` is false or the
// reverse, has more keys than its capacity, or if the plan is damaged; otherwise as Commit.
Status Lookup(const Plan& plan, bool grouped, const std::vector<LookupTable>& tables,
              const std::vector<LookupFeature>& features, const ParallelFor& parallel);

}  // namespace mxrec
