#include "table/commit.h"

#include <algorithm>
#include <atomic>
#include <memory>
#include <mutex>

namespace mxrec {
namespace {

// Rough nanoseconds per key, to let the caller's pool cut the range well.
constexpr int64_t kResolveCost = 10;
constexpr int64_t kInsertCost = 150;
constexpr int64_t kGatherCost = 25;

// Runs fn(item, shard) over all shards of all items.
template <typename Fn>
void ForEachShard(const std::vector<CommitItem>& items, int64_t cost_per_key, const ParallelFor& parallel, Fn fn) {
  std::vector<int64_t> starts(1, 0);
  int64_t keys = 0;
  for (const CommitItem& item : items) {
    starts.push_back(starts.back() + item.plan.shards);
    keys += item.plan.keys_size;
  }
  const int64_t units = starts.back();
  if (units == 0 || keys == 0) return;
  parallel.Run(units, std::max<int64_t>(1, keys * cost_per_key / units), [&](int64_t begin, int64_t end) {
    size_t i = std::upper_bound(starts.begin(), starts.end(), begin) - starts.begin() - 1;
    for (int64_t unit = begin; unit < end; ++unit) {
      while (unit >= starts[i + 1]) ++i;
      fn(i, static_cast<int>(unit - starts[i]));
    }
  });
}

}  // namespace

Status Commit(const std::vector<CommitItem>& items, const ParallelFor& parallel) {
  std::unique_ptr<std::atomic<int64_t>[]> missing(new std::atomic<int64_t>[items.size()]());
  ForEachShard(items, kResolveCost, parallel, [&](size_t i, int shard) {
    const TablePlan& plan = items[i].plan;
    const int64_t begin = plan.shard_starts[shard], n = plan.shard_starts[shard + 1] - begin;
    if (n == 0) return;
    const int64_t absent =
        items[i].table->Resolve(shard, plan.keys + begin, plan.hints + begin, n, items[i].handles + begin);
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
    ForEachShard(items, kInsertCost, parallel, [&](size_t i, int shard) {
      if (missing[i] == 0) return;
      const TablePlan& plan = items[i].plan;
      const int64_t begin = plan.shard_starts[shard], n = plan.shard_starts[shard + 1] - begin;
      int64_t inserted = 0;
      const Status status = items[i].table->Insert(shard, plan.keys + begin, n, items[i].handles + begin, &inserted);
      made[i].fetch_add(inserted, std::memory_order_relaxed);
      if (!status.ok()) {
        std::lock_guard<std::mutex> lock(mutex);
        failure = status;
      }
    });
    for (size_t i = 0; i < items.size(); ++i) items[i].table->Release(missing[i] - made[i]);
    MXREC_RETURN_IF_ERROR(failure);
  }

  ForEachShard(items, kGatherCost, parallel, [&](size_t i, int shard) {
    const TablePlan& plan = items[i].plan;
    const int64_t begin = plan.shard_starts[shard], n = plan.shard_starts[shard + 1] - begin;
    items[i].table->Gather(items[i].handles + begin, n, items[i].rows + begin * items[i].table->config().dim);
  });
  return Status();
}

}  // namespace mxrec
