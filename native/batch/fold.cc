#include "batch/fold.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "base/vectorize.h"

namespace mxrec {

PositionRange PositionsIn(const TablePlan& table, const FeaturePlan& feature, int64_t u) {
  const int32_t* begin = table.positions + table.offsets[u];
  const int32_t* end = table.positions + table.offsets[u + 1];
  if (feature.size == table.positions_size) return {begin, end};
  begin = std::lower_bound(begin, end, static_cast<int32_t>(feature.first));
  return {begin, std::lower_bound(begin, end, static_cast<int32_t>(feature.first + feature.size))};
}

namespace {

// Parameters, for the word __restrict (base/vectorize.h); inlined into each version of SumRows.
inline __attribute__((always_inline)) void Two(float* __restrict sum, const float* __restrict a,
                                               const float* __restrict b, int64_t dim) {
  for (int64_t j = 0; j < dim; ++j) sum[j] = a[j] + b[j];
}
inline __attribute__((always_inline)) void AddTwo(float* __restrict sum, const float* __restrict a,
                                                  const float* __restrict b, int64_t dim) {
  for (int64_t j = 0; j < dim; ++j) sum[j] = (sum[j] + a[j]) + b[j];
}
inline __attribute__((always_inline)) void AddOne(float* __restrict sum, const float* __restrict a, int64_t dim) {
  for (int64_t j = 0; j < dim; ++j) sum[j] += a[j];
}

}  // namespace

MXREC_VECTORIZED
void SumRows(const float* const* rows, int64_t n, int64_t dim, float* sum) {
  if (n == 1) {
    std::memcpy(sum, rows[0], dim * sizeof(float));
    return;
  }
  // Two rows at a time: half the loads and stores of the sum, and the additions in the same order.
  Two(sum, rows[0], rows[1], dim);
  int64_t i = 2;
  for (; i + 1 < n; i += 2) AddTwo(sum, rows[i], rows[i + 1], dim);
  if (i < n) AddOne(sum, rows[i], dim);
}

MXREC_VECTORIZED
void SumBag(const float* const* rows, int64_t n, int64_t dim, float* scratch, float* sum) {
  if (n < 16) {
    SumRows(rows, n, dim, sum);
  } else {
    const int64_t whole = n / 4 * 4;
    float* sums[4] = {sum, scratch, scratch + dim, scratch + 2 * dim};
    for (int k = 0; k < 4; ++k) {
      Two(sums[k], rows[k], rows[4 + k], dim);
      int64_t i = 8 + k;
      for (; i + 4 < whole; i += 8) AddTwo(sums[k], rows[i], rows[i + 4], dim);
      if (i < whole) AddOne(sums[k], rows[i], dim);
    }
    AddTwo(sum, sums[1], sums[2], dim);
    AddOne(sum, sums[3], dim);
    for (int64_t i = whole; i < n; ++i) AddOne(sum, rows[i], dim);
  }
  for (int64_t j = 0; j < dim; ++j) sum[j] += 0.0f;  // TensorFlow begins with 0, so a sum of -0 is 0
}

void Fold(const TablePlan& table, const FeatureGradient& gradient, int64_t dim, float* out,
          const ParallelFor& parallel) {
  const int64_t cost = 20 + dim / 2;  // nanoseconds: a cache miss or two, and additions
  if (!table.is_grouped()) {
    const int64_t first = gradient.feature->first, end = first + gradient.feature->size;
    parallel.Run(table.keys_size, cost, [&, dim](int64_t from, int64_t to) {
      for (int64_t p = from; p < to; ++p) {
        if (p < first || p >= end) {
          std::memset(out + p * dim, 0, dim * sizeof(float));
        } else {
          std::memcpy(out + p * dim, gradient.row(static_cast<int32_t>(p)), dim * sizeof(float));
        }
      }
    });
    return;
  }
  parallel.Run(table.keys_size, cost, [&, dim](int64_t begin, int64_t end) {
    std::vector<const float*> rows;
    for (int64_t u = begin; u < end; ++u) {
      const auto [from, to] = PositionsIn(table, *gradient.feature, u);
      if (from == to) {
        std::memset(out + u * dim, 0, dim * sizeof(float));
        continue;
      }
      rows.clear();
      for (const int32_t* p = from; p < to; ++p) rows.push_back(gradient.row(*p));
      SumRows(rows.data(), to - from, dim, out + u * dim);
    }
  });
}

}  // namespace mxrec
