#include "table/update_rows.h"

#include <atomic>
#include <vector>

#include "batch/fold.h"
#include "batch/grouping.h"
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
                  int64_t n, Nonfinite mode, const ParallelFor& parallel) {
  const int64_t dim = table->config().dim;
  if (mode == Nonfinite::kError && !AllFinite(gradient, n, dim, parallel)) {
    NonfiniteRows found;
    for (int64_t i = 0; i < n; ++i) {
      if (handles[i] == kNoRow || (handles[i] & kFrozen) != 0) continue;
      ++found.rows;
      if (!IsFinite(gradient + i * dim, dim)) found.Add({0, 1, i, i});
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

Status UpdateRepeatedRows(Table* table, const Rule& rule, const float* hyper, const int64_t* handles,
                          const float* gradient, int64_t n, Nonfinite mode, const ParallelFor& parallel) {
  if (n >= INT32_MAX) return Status::InvalidArgument("too many gradients in one step");
  const int64_t dim = table->config().dim;
  // Addresses of one row may differ in their tags.
  std::vector<int64_t> rows_of(handles, handles + n);
  for (int64_t& handle : rows_of) handle = handle == kNoRow ? kNoRow : handle & (kFrozen | kRowBits);
  Grouping grouping;
  grouping.Build({{rows_of.data(), n}}, 0);
  const int64_t rows = grouping.keys_size();
  TablePlan groups;
  groups.shards = 1;
  groups.positions_size = n;
  groups.keys_size = rows;
  groups.offsets = grouping.offsets().data();
  groups.positions = grouping.positions().data();
  FeaturePlan everything;
  everything.size = n;
  std::vector<float> sums(rows * dim);
  Fold(groups, {&everything, gradient, dim}, dim, sums.data(), parallel);
  // Grouping lists the rows as they first appear, so the first bad row is that of the first bad gradient.
  return UpdateRows(table, rule, hyper, grouping.keys().data(), sums.data(), rows, mode, parallel);
}

}  // namespace mxrec
