// FoldUpdate: fold and update in one pass, for all tables of a step at once. Sums the gradients of a key over its
// positions and applies the rule to its row while the sum is still in the nearest cache; the folded gradient never
// exists in memory.
#pragma once

#include <cstdint>
#include <vector>

#include "base/parallel.h"
#include "base/status.h"
#include "batch/fold.h"
#include "batch/plan.h"
#include "table/nonfinite.h"
#include "table/table.h"
#include "update/rule.h"

namespace mxrec {

struct FoldUpdateItem {
  Table* table;
  TablePlan plan;
  const int64_t* handles;                  // [U], checked
  std::vector<FeatureGradient> gradients;  // at least one; added in this order
};

// Keys without a position in any of the gradients' features, without a row, or frozen, are passed over.
// InvalidArgument, and nothing is changed in any of the tables, if `mode` is kError and the summed gradient of a row is
// not finite; named is the first such table, and of its rows the one whose key comes first in the batch. REQUIRES: the
// rule's slots are in every table's layout.
Status FoldUpdate(const std::vector<FoldUpdateItem>& items, const Rule& rule, const float* hyper, Nonfinite mode,
                  const ParallelFor& parallel);

// InvalidArgument as of FoldUpdate with kError, without an update.
Status CheckFiniteSums(const std::vector<FoldUpdateItem>& items, const ParallelFor& parallel);

// Writes the summed gradient of key keys[i] to out[i], `dim` floats, for n keys. REQUIRES: each has a row that is not
// frozen, and a position in one of the features.
void FoldKeysInto(const FoldUpdateItem& item, const int32_t* keys, int64_t n, float* const* out);

}  // namespace mxrec
