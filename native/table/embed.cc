#include "table/embed.h"

#include <algorithm>
#include <cstring>

#include "batch/fold.h"

namespace mxrec {
namespace {

// Rows requested from memory together, while those requested before are worked on.
constexpr int64_t kBlock = 16;
// Positions that a thread takes at a time: small enough to share out many small features.
constexpr int64_t kUnit = 2048;

// Gives fn(i, row or nullptr) for positions [from, to) of the item's feature. Padding has no row in a bag.
template <bool kPooled, typename Fn>
void ForEachRow(const EmbedItem& item, int64_t from, int64_t to, Fn fn) {
  const int64_t first = item.feature->first;
  for (int64_t i = from; item.rows != nullptr && i < to; ++i) {
    if (i + kBlock < to) __builtin_prefetch(item.rows[item.plan.key_at(first + i + kBlock)]);
    const int64_t u = item.plan.key_at(first + i);
    const bool is_absent = kPooled ? (item.handles[u] & kFrozen) != 0 : item.handles[u] == kNoRow;
    fn(i, is_absent ? nullptr : item.rows[u]);
  }
  if (item.rows != nullptr) return;
  int64_t handles[2][kBlock];
  auto request = [&](int64_t begin, int64_t* block) {
    const int64_t n = std::min(kBlock, to - begin);
    for (int64_t i = 0; i < n; ++i) block[i] = item.handles[item.plan.key_at(first + begin + i)];
    item.table->PrefetchEmbeddings(block, n);
  };
  int now = 0;
  request(from, handles[0]);
  for (int64_t begin = from; begin < to; begin += kBlock, now = 1 - now) {
    if (begin + kBlock < to) request(begin + kBlock, handles[1 - now]);
    const int64_t n = std::min(kBlock, to - begin);
    for (int64_t i = 0; i < n; ++i) {
      // kNoRow has all bits set, that of frozen rows, too.
      const bool is_absent = kPooled ? (handles[now][i] & kFrozen) != 0 : handles[now][i] == kNoRow;
      fn(begin + i, is_absent ? nullptr : item.table->Row(handles[now][i]));
    }
  }
}

// A copy of a constant length is a few moves; of a length unknown to the compiler, a call (5 ns). 0 stands for that.
template <int64_t kDim>
void Copy(const EmbedItem& item, int64_t from, int64_t to) {
  const int64_t dim = kDim > 0 ? kDim : item.table->config().dim;
  const int64_t stride = item.stride;
  float* out = item.out;
  ForEachRow<false>(item, from, to, [=](int64_t i, const float* row) {
    if (row == nullptr) {
      std::memset(out + i * stride, 0, dim * sizeof(float));
    } else {
      std::memcpy(out + i * stride, row, dim * sizeof(float));
    }
  });
}

void Pool(const EmbedItem& item, int64_t from, int64_t to) {
  const int64_t dim = item.table->config().dim;
  std::vector<const float*> rows(item.bag);
  std::vector<float> scratch(4 * dim, 0.0f);
  const float* zeros = scratch.data() + 3 * dim;
  float* out = item.out + from / item.bag * item.stride;
  int64_t next = 0;
  ForEachRow<true>(item, from, to, [&](int64_t, const float* row) {
    rows[next++] = row == nullptr ? zeros : row;
    if (next < item.bag) return;
    SumBag(rows.data(), item.bag, dim, scratch.data(), out);
    out += item.stride;
    next = 0;
  });
}

void EmbedUnit(const EmbedItem& item, int64_t from, int64_t to) {
  if (item.bag != 1) return Pool(item, from, to);
  switch (item.table->config().dim) {
    case 8:
      return Copy<8>(item, from, to);
    case 16:
      return Copy<16>(item, from, to);
    case 32:
      return Copy<32>(item, from, to);
    case 64:
      return Copy<64>(item, from, to);
    default:
      return Copy<0>(item, from, to);
  }
}

// Whole bags.
int64_t UnitOf(const EmbedItem& item) { return std::max<int64_t>(1, kUnit / item.bag) * item.bag; }

}  // namespace

void Embed(const std::vector<EmbedItem>& items, const ParallelFor& parallel) {
  std::vector<int64_t> sizes;
  int64_t units = 0, cost = 0;
  for (const EmbedItem& item : items) {
    const int64_t unit = UnitOf(item);
    sizes.push_back((item.feature->size + unit - 1) / unit);
    units += sizes.back();
    cost += item.feature->size * (15 + item.table->config().dim / 4);  // nanoseconds
  }
  if (units == 0) return;
  RunLists(parallel, sizes, cost / units + 1, [&](size_t i, int64_t number) {
    const int64_t unit = UnitOf(items[i]), from = number * unit;
    EmbedUnit(items[i], from, std::min(from + unit, items[i].feature->size));
  });
}

}  // namespace mxrec
