#include "table/update_rows.h"

#include <atomic>

#include "update/finite.h"

namespace mxrec {
namespace {

bool AllFinite(const float* values, int64_t n, int64_t dim, const ParallelFor& parallel) {
  std::atomic<bool> finite{true};
  parallel.Run(n, 1 + dim / 8, [&](int64_t begin, int64_t end) {
    if (!IsFinite(values + begin * dim, (end - begin) * dim)) finite.store(false, std::memory_order_relaxed);
  });
  return finite;
}

// An address has no way back to its key but through the index. Only errors take it.
int64_t KeyOf(const Table& table, int64_t handle) {
  int64_t found = -1;
  for (int s = 0; s < table.shards(); ++s) {
    table.ForEachIn(s, [&](int64_t key, int64_t row) {
      if (row == (handle & kRowBits)) found = key;
    });
  }
  return found;
}

}  // namespace

Status UpdateRows(Table* table, const Rule& rule, const float* hyper, const int64_t* handles, const float* gradient,
                  int64_t n, Nonfinite mode, const ParallelFor& parallel, const int32_t* positions) {
  const int64_t dim = table->config().dim;
  if (mode == Nonfinite::kError && !AllFinite(gradient, n, dim, parallel)) {
    NonfiniteRows found;
    for (int64_t i = 0; i < n; ++i) {
      if (handles[i] == kNoRow || (handles[i] & kFrozen) != 0) continue;
      ++found.rows;
      if (!IsFinite(gradient + i * dim, dim)) found.Add({0, 1, positions == nullptr ? i : positions[i], i});
    }
    if (found.count > 0) {
      table->CountNonfinite(found.count);
      return NonfiniteError(*table, KeyOf(*table, handles[found.first]), gradient + found.first * dim, found);
    }
  }
  table->CountMutation();  // the addresses may come from a lookup long ago
  parallel.Run(n, 30 + dim * (1 + rule.slots) / 2, [&](int64_t begin, int64_t end) {
    table->Update(rule, hyper, handles + begin, gradient + begin * dim, end - begin, mode == Nonfinite::kSkip);
  });
  return Status();
}

}  // namespace mxrec
