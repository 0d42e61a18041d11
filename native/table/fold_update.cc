#include "table/fold_update.h"

#include <algorithm>
#include <cstring>

#include "batch/fold.h"
#include "update/vectorize.h"

namespace mxrec {
namespace {

// Keys ahead of the current one whose row and first gradient are on their way from memory.
constexpr int64_t kAhead = 8;

MXREC_VECTORIZED
void Add(float* __restrict sum, const float* __restrict term, int64_t dim) {
  for (int64_t j = 0; j < dim; ++j) sum[j] += term[j];
}

void FoldUpdateKeys(const FoldUpdateItem& item, const Rule& rule, const float* hyper, int64_t from, int64_t to) {
  const int64_t dim = item.table->config().dim;
  // Two sums: of the feature at hand, and of those before it. Adding whole features to each other is what TensorFlow
  // does with folded gradients, so both ways give the same bits.
  std::vector<float> scratch(2 * dim);
  float* total = scratch.data();
  float* part = total + dim;
  const FoldUpdateItem::Gradient& first = item.gradients.front();
  for (int64_t u = from; u < to; ++u) {
    if (u + kAhead < to) {
      item.table->PrefetchForUpdate(item.handles[u + kAhead], rule);
      const int32_t position = item.plan.positions[item.plan.offsets[u + kAhead]] - first.feature->first;
      if (position >= 0 && position < first.feature->size) __builtin_prefetch(first.values + position * dim);
    }
    const int64_t handle = item.handles[u];
    if (handle == kNoRow || (handle & kFrozen) != 0) continue;
    const float* gradient = nullptr;
    for (const FoldUpdateItem::Gradient& g : item.gradients) {
      const PositionRange range = PositionsIn(item.plan, *g.feature, u);
      if (range.begin == range.end) continue;
      const float* base = g.values - g.feature->first * dim;
      const float* sum = base + *range.begin * dim;  // a key that occurs once needs no copy
      if (range.end - range.begin > 1) {
        float* into = gradient == nullptr ? total : part;
        std::memcpy(into, sum, dim * sizeof(float));
        for (const int32_t* p = range.begin + 1; p < range.end; ++p) Add(into, base + *p * dim, dim);
        sum = into;
      }
      if (gradient == nullptr) {
        gradient = sum;
      } else {
        if (gradient != total) std::memcpy(total, gradient, dim * sizeof(float));
        Add(total, sum, dim);
        gradient = total;
      }
    }
    if (gradient != nullptr) item.table->UpdateRow(rule, hyper, handle, gradient);
  }
}

}  // namespace

void FoldUpdate(const std::vector<FoldUpdateItem>& items, const Rule& rule, const float* hyper,
                const ParallelFor& parallel) {
  // Units of this many keys: small enough to share out many small tables, large enough to prefetch ahead.
  constexpr int64_t kUnit = 512;
  std::vector<int64_t> sizes;
  int64_t units = 0, keys = 0, floats = 0;
  for (const FoldUpdateItem& item : items) {
    sizes.push_back((item.plan.keys_size + kUnit - 1) / kUnit);
    units += sizes.back();
    keys += item.plan.keys_size;
    floats += item.plan.keys_size * item.table->config().dim;
  }
  if (units == 0) return;
  const int64_t cost = (40 * keys + floats * (1 + rule.slots)) / units + 1;
  RunLists(parallel, sizes, cost, [&](size_t i, int64_t unit) {
    const int64_t from = unit * kUnit;
    FoldUpdateKeys(items[i], rule, hyper, from, std::min(from + kUnit, items[i].plan.keys_size));
  });
}

}  // namespace mxrec
