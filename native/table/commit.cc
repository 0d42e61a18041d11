#include "table/commit.h"

#include <algorithm>
#include <atomic>
#include <memory>
#include <mutex>

namespace mxrec {
namespace {

// Rough nanoseconds per key, to let the caller's pool cut the range well.
constexpr int64_t kResolveCost = 5;
constexpr int64_t kInsertCost = 200;

// Runs fn(item, unit) over all units of all items.
template <typename Fn>
void ForEachUnit(const std::vector<CommitItem>& items, int64_t cost_per_key, const ParallelFor& parallel, Fn fn) {
  std::vector<int64_t> sizes;
  int64_t units = 0, keys = 0;
  for (const CommitItem& item : items) {
    sizes.push_back(item.plan.units());
    units += sizes.back();
    keys += item.plan.keys_size;
  }
  if (keys == 0) return;
  RunLists(parallel, sizes, std::max<int64_t>(1, keys * cost_per_key / units),
           [&](size_t i, int64_t unit) { fn(i, static_cast<int>(unit)); });
}

}  // namespace

Status Commit(const std::vector<CommitItem>& items, const ParallelFor& parallel) {
  std::unique_ptr<std::atomic<int64_t>[]> missing(new std::atomic<int64_t>[items.size()]());
  ForEachUnit(items, kResolveCost, parallel, [&](size_t i, int unit) {
    const TablePlan& plan = items[i].plan;
    const int64_t begin = plan.unit_begin(unit), n = plan.unit_end(unit) - begin;
    if (n == 0) return;
    const int64_t seal = plan.seals == nullptr ? 0 : plan.seals[unit];
    const int64_t *keys = plan.keys + begin, *hints = plan.hints + begin;
    if (!plan.is_grouped()) return items[i].table->ResolveAny(keys, hints, n, items[i].handles + begin, seal);
    const int64_t absent = items[i].table->Resolve(unit, keys, hints, n, items[i].handles + begin, seal);
    if (absent > 0 && items[i].insert) missing[i].fetch_add(absent, std::memory_order_relaxed);
  });

  bool any = false;
  for (size_t i = 0; i < items.size(); ++i) {
    if (missing[i] == 0) continue;
    any = true;
    const Status status = items[i].table->Claim(missing[i]);
    if (!status.ok()) {
      for (size_t j = 0; j < i; ++j) items[j].table->Release(missing[j]);
      return status;
    }
  }
  if (any) {
    std::mutex mutex;
    Status failure;
    std::unique_ptr<std::atomic<int64_t>[]> made(new std::atomic<int64_t>[items.size()]());
    ForEachUnit(items, kInsertCost, parallel, [&](size_t i, int shard) {
      if (missing[i] == 0) return;
      const TablePlan& plan = items[i].plan;
      const int64_t begin = plan.unit_begin(shard), n = plan.unit_end(shard) - begin;
      int64_t* handles = items[i].handles + begin;
      if (std::find(handles, handles + n, kNoRow) == handles + n) return;
      int64_t inserted = 0;
      const Status status = items[i].table->Insert(shard, plan.keys + begin, n, handles, &inserted);
      made[i].fetch_add(inserted, std::memory_order_relaxed);
      if (!status.ok()) {
        std::lock_guard<std::mutex> lock(mutex);
        failure = status;
      }
    });
    for (size_t i = 0; i < items.size(); ++i) items[i].table->Release(missing[i] - made[i]);
    return failure;
  }
  return Status();
}

}  // namespace mxrec
