#include "table/fold_update.h"

#include <algorithm>

namespace mxrec {
namespace {

// Rows and first gradients are requested from memory a few keys at a time, up to 16 keys and 4 KiB of rows ahead. Fewer
// at a time: their searches for pages wait for each other (one by one: 1.3 to 1.5 times as long); more: they come too
// early or all at once (8: 1.0 to 1.6 times).
constexpr int64_t kGroup = 4;
int64_t AheadOf(const Table& table, const Rule& rule) {
  const int64_t bytes = table.config().dim * (1 + rule.slots) * static_cast<int64_t>(sizeof(float));
  return std::max<int64_t>(1, std::min<int64_t>(16, 4096 / bytes) / kGroup) * kGroup;
}

void FoldUpdateKeys(const FoldUpdateItem& item, const Rule& rule, const float* hyper, int64_t from, int64_t to) {
  const int64_t dim = item.table->config().dim;
  // Sums: of the feature at hand, and of those before it. Adding whole features to each other is what TensorFlow does
  // with folded gradients, so both ways give the same bits.
  std::vector<float> scratch(3 * dim);
  float *part = scratch.data(), *totals[2] = {part + dim, part + 2 * dim};
  std::vector<const float*> rows;
  const FeatureGradient& first = item.gradients.front();
  const int64_t ahead = AheadOf(*item.table, rule);
  auto request = [&](int64_t begin, int64_t n) {
    const int64_t end = std::min(to, begin + n);
    item.table->PrefetchForUpdate(item.handles + begin, end - begin, rule);
    for (int64_t u = begin; u < end; ++u) {
      const int32_t position = item.plan.positions[item.plan.offsets[u]];
      if (position < first.feature->first || position >= first.feature->first + first.feature->size) continue;
      const float* gradient = first.row(position);
      for (int64_t j = 0; j < dim; j += 16) __builtin_prefetch(gradient + j);
    }
  };
  request(from, ahead);
  for (int64_t u = from; u < to; ++u) {
    if ((u - from) % kGroup == 0 && u + ahead < to) request(u + ahead, kGroup);
    const int64_t handle = item.handles[u];
    if (handle == kNoRow || (handle & kFrozen) != 0) continue;
    const float* gradient = nullptr;
    int next = 0;
    for (const FeatureGradient& g : item.gradients) {
      const PositionRange range = PositionsIn(item.plan, *g.feature, u);
      if (range.begin == range.end) continue;
      const float* sum = g.row(*range.begin);  // a key that occurs once needs no copy
      if (range.end - range.begin > 1) {
        rows.clear();
        for (const int32_t* p = range.begin; p < range.end; ++p) rows.push_back(g.row(*p));
        float* into = gradient == nullptr ? totals[next++ % 2] : part;
        SumRows(rows.data(), range.end - range.begin, dim, into);
        sum = into;
      }
      if (gradient != nullptr) {
        const float* both[] = {gradient, sum};
        float* total = totals[next++ % 2];
        SumRows(both, 2, dim, total);
        sum = total;
      }
      gradient = sum;
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
