// The parts of memory that the gradients of a step lie in, each listed once, for a look at all values before the first
// row is changed.
#pragma once

#include <cstdint>
#include <vector>

#include "base/parallel.h"
#include "batch/fold.h"

namespace mxrec {

// `rows` rows of `width` floats, `stride` floats apart.
struct GradientSpan {
  const float* values;
  int64_t width;
  int64_t stride;
  int64_t rows;
};

// Features that were concatenated are columns of one wide tensor, and features that were added to each other have one
// gradient: each float is in one span only. A span may hold columns between those of the gradients, too, but not more
// of them than of theirs. `dims[i]` is the number of columns of `gradients[i]`.
std::vector<GradientSpan> SpansOf(const std::vector<FeatureGradient>& gradients, const std::vector<int64_t>& dims);

// The largest magnitude (update/finite.h) of all values.
int32_t LargestMagnitude(const std::vector<GradientSpan>& spans, const ParallelFor& parallel);

}  // namespace mxrec
