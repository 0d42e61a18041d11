// Expand and fold: from distinct keys to positions and back. Expand gives every position its key's row; fold sums the
// positions' gradients per key, always in ascending position order, so the result has the same bits for any number of
// threads.
#pragma once

#include <cstdint>

#include "base/parallel.h"
#include "batch/plan.h"

namespace mxrec {

// The positions of key `u` that lie in `feature`, ascending.
struct PositionRange {
  const int32_t* begin;
  const int32_t* end;
};
PositionRange PositionsIn(const TablePlan& table, const FeaturePlan& feature, int64_t u);

// out[size, dim] = rows[index[first + i], :] for the positions of one feature.
void Expand(const TablePlan& table, const FeaturePlan& feature, const float* rows, int64_t dim, float* out,
            const ParallelFor& parallel);

// out[U, dim] = per key, the sum of gradient[size, dim] over its positions within the feature; zeros without any.
void Fold(const TablePlan& table, const FeaturePlan& feature, const float* gradient, int64_t dim, float* out,
          const ParallelFor& parallel);

}  // namespace mxrec
