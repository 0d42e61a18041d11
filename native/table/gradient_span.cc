#include "table/gradient_span.h"

#include <algorithm>
#include <atomic>
#include <numeric>

#include "update/finite.h"

namespace mxrec {

std::vector<GradientSpan> SpansOf(const std::vector<FeatureGradient>& gradients, const std::vector<int64_t>& dims) {
  std::vector<GradientSpan> parts;
  for (size_t i = 0; i < gradients.size(); ++i) {
    const FeatureGradient& g = gradients[i];
    if (g.feature->size == 0) continue;
    parts.push_back({g.values, dims[i], g.stride, g.bag(static_cast<uint32_t>(g.feature->size - 1)) + int64_t{1}});
  }
  std::sort(parts.begin(), parts.end(),
            [](const GradientSpan& a, const GradientSpan& b) { return std::less<>()(a.values, b.values); });
  std::vector<GradientSpan> spans;
  int64_t covered = 0;  // columns of gradients in the last span
  for (const GradientSpan& part : parts) {
    if (!spans.empty()) {
      GradientSpan& last = spans.back();
      const int64_t column = part.values - last.values;  // less than a stride: columns of the same tensor
      const int64_t end = std::max(last.width, column + part.width), fresh = end - std::max(last.width, column);
      if (part.stride == last.stride && part.rows == last.rows && end <= last.stride && 2 * (covered + fresh) >= end) {
        last.width = end;
        covered += fresh;
        continue;
      }
    }
    spans.push_back(part);
    covered = part.width;
  }
  return spans;
}

int32_t LargestMagnitude(const std::vector<GradientSpan>& spans, const ParallelFor& parallel) {
  // Units of about this many floats, 64 KiB.
  constexpr int64_t kUnit = 1 << 14;
  std::vector<int64_t> sizes;
  for (const GradientSpan& span : spans) sizes.push_back((span.rows * span.width + kUnit - 1) / kUnit);
  std::atomic<int32_t> largest{0};
  RunLists(parallel, sizes, kUnit / 8, [&](size_t i, int64_t unit) {
    const GradientSpan& span = spans[i];
    const int64_t from = span.rows * unit / sizes[i], to = span.rows * (unit + 1) / sizes[i];
    int32_t mine = 0;
    if (span.width == span.stride) {
      mine = LargestMagnitude(span.values + from * span.stride, (to - from) * span.width);
    } else {
      for (int64_t r = from; r < to; ++r) {
        mine = std::max(mine, LargestMagnitude(span.values + r * span.stride, span.width));
      }
    }
    int32_t known = largest.load(std::memory_order_relaxed);
    while (mine > known && !largest.compare_exchange_weak(known, mine, std::memory_order_relaxed)) {
    }
  });
  return largest;
}

}  // namespace mxrec
