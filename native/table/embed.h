// Embed: from the handles of a batch's keys to what a lookup returns, for all features of a step at once. Every
// position gets its key's row, or every bag of positions the sum of its rows; straight from the table, in the order of
// positions, so that the output is written once and in sequence.
#pragma once

#include <cstdint>
#include <vector>

#include "base/parallel.h"
#include "batch/plan.h"
#include "table/table.h"

namespace mxrec {

struct EmbedItem {
  const Table* table;
  TablePlan plan;
  const FeaturePlan* feature;
  const int64_t* handles;  // [U]
  int64_t bag;             // positions per row of the output; 1: no pooling. Divides feature->size
  float* out;              // feature->size / bag rows of dim floats,
  int64_t stride;          // this many floats apart: the features of a batch may lie side by side in one matrix
  // [U]: the rows of the keys that have one, where they are not the table's own (exchange/ranked_lookup.h).
  const float* const* rows = nullptr;
};

// Keys without a row count as zeros, and so do padding keys in a bag. The rows of a bag are added by SumBag
// (batch/fold.h).
void Embed(const std::vector<EmbedItem>& items, const ParallelFor& parallel);

}  // namespace mxrec
