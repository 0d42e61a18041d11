#include "table/update_rows.h"

#include <algorithm>
#include <atomic>
#include <memory>
#include <vector>

#include "batch/fold.h"
#include "batch/grouping.h"
#include "table/requests.h"
#include "update/finite.h"

namespace mxrec {
namespace {

// Rows that a thread takes at a time.
constexpr int64_t kUnit = 512;

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

Status CheckFiniteRows(Table* table, const int64_t* handles, const float* gradient, int64_t n,
                       const ParallelFor& parallel) {
  const int64_t dim = table->config().dim;
  if (AllFinite(gradient, n, dim, parallel)) return Status();
  NonfiniteRows found;
  for (int64_t i = 0; i < n; ++i) {
    if (handles[i] == kNoRow || (handles[i] & kFrozen) != 0) continue;
    ++found.rows;
    if (!IsFinite(gradient + i * dim, dim)) found.Add({0, 1, i, i});
  }
  if (found.count == 0) return Status();
  table->CountNonfinite(found.count);
  return NonfiniteError(*table, KeyOf(*table, handles[found.first]), gradient + found.first * dim, found);
}

Status UpdateRows(Table* table, const Rule& rule, const float* hyper, const int64_t* handles, const float* gradient,
                  int64_t n, Nonfinite mode, const ParallelFor& parallel) {
  const int64_t dim = table->config().dim;
  if (mode == Nonfinite::kError) MXREC_RETURN_IF_ERROR(CheckFiniteRows(table, handles, gradient, n, parallel));
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

namespace {

// The gradients of a table's rows, row by row.
struct GroupedRows {
  std::shared_ptr<const RowGroups> known;
  Grouping grouping;  // if they are not known
  int64_t size = 0;
  const int64_t* handles = nullptr;  // [size], without tags unless they are known
  const int32_t* offsets = nullptr;
  const int32_t* positions = nullptr;
  std::vector<const float*> gradients;  // of each position

  void Build(const RepeatedRows& rows, const ParallelFor& parallel) {
    known = rows.table->TakeGroups();
    if (known != nullptr && known->Fit(rows.handles)) {
      size = known->size();
      handles = known->handles();
      offsets = known->offsets();
      positions = known->positions();
    } else {
      std::vector<int64_t> rows_of(rows.handles);
      for (int64_t& handle : rows_of) handle = handle == kNoRow ? kNoRow : handle & (kFrozen | kRowBits);
      const int64_t n = static_cast<int64_t>(rows_of.size());
      int shard_bits = 0;  // so that the set of a shard's rows stays in the nearest cache
      while (shard_bits < 8 && n >> shard_bits > 4096) ++shard_bits;
      grouping.Build({{rows_of.data(), n}}, shard_bits, parallel);
      size = grouping.keys_size();
      handles = grouping.keys().data();
      offsets = grouping.offsets().data();
      positions = grouping.positions().data();
    }
    gradients.reserve(rows.handles.size());
    for (const GradientSpan& span : rows.gradients) {
      for (int64_t i = 0; i < span.rows; ++i) gradients.push_back(span.values + i * span.stride);
    }
  }
  const float* First(int64_t u) const { return gradients[positions[offsets[u]]]; }
};

// Calls use(handle, sum of its gradients) for the rows numbered [from, to). request(begin, n) is called a little
// earlier, to request from memory what is needed for some rows.
template <typename Request, typename Use>
void SumGroups(const GroupedRows& rows, int64_t dim, int64_t from, int64_t to, int64_t ahead, Request request,
               Use use) {
  std::vector<float> sum(dim);
  std::vector<const float*> terms;
  request(from, ahead);
  for (int64_t u = from; u < to; ++u) {
    if ((u - from) % kRequested == 0 && u + ahead < to) request(u + ahead, kRequested);
    const int64_t handle = rows.handles[u];
    if (handle == kNoRow || (handle & kFrozen) != 0) continue;
    const int32_t begin = rows.offsets[u], end = rows.offsets[u + 1];
    if (end - begin == 1) {
      use(handle, rows.First(u));
      continue;
    }
    terms.clear();
    for (int32_t i = begin; i < end; ++i) terms.push_back(rows.gradients[rows.positions[i]]);
    SumRows(terms.data(), end - begin, dim, sum.data());
    use(handle, sum.data());
  }
}

// The error of the first table with a sum that is not finite.
Status CheckSums(const std::vector<RepeatedRows>& all, const std::vector<GroupedRows>& grouped) {
  const auto request_nothing = [](int64_t, int64_t) {};
  for (size_t t = 0; t < all.size(); ++t) {
    const int64_t dim = all[t].table->config().dim;
    NonfiniteRows found;
    std::vector<float> first(dim);
    int64_t row = 0, number = 0;
    SumGroups(grouped[t], dim, 0, grouped[t].size, kRequested, request_nothing,
              [&](int64_t handle, const float* gradient) {
                ++found.rows;
                if (!IsFinite(gradient, dim)) {
                  if (found.count == 0) std::copy_n(gradient, dim, first.data());
                  if (found.count == 0) row = handle;
                  found.Add({0, 1, number, number});
                }
                ++number;
              });
    if (found.count == 0) continue;
    all[t].table->CountNonfinite(found.count);
    return NonfiniteError(*all[t].table, KeyOf(*all[t].table, row), first.data(), found);
  }
  return Status();
}

}  // namespace

Status UpdateAllRepeatedRows(const std::vector<RepeatedRows>& all, const Rule& rule, const float* hyper, Nonfinite mode,
                             const ParallelFor& parallel) {
  std::vector<GradientSpan> spans;
  int64_t largest = 1, cost = 0;
  for (const RepeatedRows& rows : all) {
    const int64_t n = static_cast<int64_t>(rows.handles.size());
    if (n >= INT32_MAX) return Status::InvalidArgument("too many gradients in one step");
    spans.insert(spans.end(), rows.gradients.begin(), rows.gradients.end());
    largest = std::max(largest, n);
    cost += n * (30 + rows.table->config().dim * (2 + rule.slots) / 2);
  }
  // A look at all values, in the order of memory, brings them into the cache and tells whether a sum may overflow.
  const bool is_finite = mode != Nonfinite::kError || LargestMagnitude(spans, parallel) < SafeMagnitude(largest);

  // As in Preparer: small tables are shared out, large ones are each the work of all threads.
  constexpr int64_t kLarge = 16384;
  const auto is_large = [&](size_t t) { return all[t].handles.size() > kLarge; };
  std::vector<GroupedRows> grouped(all.size());
  parallel.Run(static_cast<int64_t>(all.size()), 1 + 20 * largest, [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) {
      if (!is_large(t)) grouped[t].Build(all[t], SerialFor());
    }
  });
  for (size_t t = 0; t < all.size(); ++t) {
    if (is_large(t)) grouped[t].Build(all[t], parallel);
  }
  if (!is_finite) MXREC_RETURN_IF_ERROR(CheckSums(all, grouped));

  std::vector<int64_t> sizes;
  int64_t units = 1;
  for (const GroupedRows& rows : grouped) {
    sizes.push_back((rows.size + kUnit - 1) / kUnit);
    units += sizes.back();
  }
  for (const RepeatedRows& rows : all) rows.table->CountMutation();
  RunLists(parallel, sizes, cost / units + 1, [&](size_t t, int64_t unit) {
    Table* table = all[t].table;
    const GroupedRows& rows = grouped[t];
    const int64_t dim = table->config().dim, from = unit * kUnit;
    const int64_t to = std::min(from + kUnit, rows.size);
    const auto request = [&](int64_t begin, int64_t n) {
      const int64_t end = std::min(to, begin + n);
      table->PrefetchForUpdate(rows.handles + begin, end - begin, rule);
      for (int64_t u = begin; u < end; ++u) {
        for (int64_t j = 0; j < dim; j += 16) __builtin_prefetch(rows.First(u) + j);
      }
    };
    int64_t skipped = 0;
    SumGroups(rows, dim, from, to, RequestedAhead(*table, rule), request, [&](int64_t handle, const float* gradient) {
      if (mode == Nonfinite::kSkip && !IsFinite(gradient, dim)) {
        ++skipped;
      } else {
        table->UpdateRow(rule, hyper, handle, gradient);
      }
    });
    if (skipped > 0) table->CountNonfinite(skipped);
  });
  return Status();
}

}  // namespace mxrec
