// Fold: from positions back to distinct keys. The gradients of a key's positions are summed, always in ascending
// position order, so the result has the same bits for any number of threads.
#pragma once

#include <cstdint>

#include "base/parallel.h"
#include "batch/plan.h"

namespace mxrec {

// The positions of key `u` that lie in `feature`, ascending. REQUIRES: the table is grouped.
struct PositionRange {
  const int32_t* begin;
  const int32_t* end;
};
PositionRange PositionsIn(const TablePlan& table, const FeaturePlan& feature, int64_t u);

// Exact division of numbers below 2^32 by a number known late: one multiplication (1 ns) instead of a division (3 to
// 8). By 0 it divides as by 1: no batch may end the process.
class Divider {
 public:
  explicit Divider(uint32_t divisor) : magic_(divisor <= 1 ? 0 : UINT64_MAX / divisor + 1) {}
  uint32_t operator()(uint32_t x) const {
    return magic_ == 0 ? x : static_cast<uint32_t>((static_cast<unsigned __int128>(x) * magic_) >> 64);
  }

 private:
  uint64_t magic_;
};

// The gradient of what a lookup of `feature` gave: one row for every `bag` positions, `stride` floats apart. A lookup
// without pooling has bags of one.
struct FeatureGradient {
  const FeaturePlan* feature = nullptr;
  const float* values = nullptr;
  int64_t stride = 0;
  Divider bag{1};

  const float* row(int32_t position) const {
    return values + bag(static_cast<uint32_t>(position - feature->first)) * stride;
  }
};

// sum[dim] = rows[0] + rows[1] + ... added in this order. REQUIRES: n >= 1; no row overlaps `sum`.
void SumRows(const float* const* rows, int64_t n, int64_t dim, float* sum);

// The same sum in the order in which tf.reduce_sum adds along the axis before the last one, to the bit (Eigen's
// InnerMostDimPreserver): 16 rows and more are added up in four interleaved sums, which are then added to each other.
// (TensorFlow itself deviates from it in columns that do not fill a vector, so where dim is no multiple of 8.)
// `scratch` holds 3 * dim floats.
void SumBag(const float* const* rows, int64_t n, int64_t dim, float* scratch, float* sum);

// out[U, dim] = per key, the sum of the gradient over its positions within the feature; zeros without any. In a table
// that is not grouped every position is a key.
void Fold(const TablePlan& table, const FeatureGradient& gradient, int64_t dim, float* out,
          const ParallelFor& parallel);

}  // namespace mxrec
