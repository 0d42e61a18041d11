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
constexpr int64_t kRecordCost = 15;
constexpr int64_t kFetchCost = 400;  // of keys whose rows are on disk, of which there may be many

// Runs fn(item, unit) over all units of all items, which take `cost` nanoseconds together.
template <typename Fn>
void ForEachUnit(const std::vector<CommitItem>& items, int64_t cost, const ParallelFor& parallel, Fn fn) {
  std::vector<int64_t> sizes;
  int64_t units = 0;
  for (const CommitItem& item : items) {
    sizes.push_back(item.plan.units());
    units += sizes.back();
  }
  if (units == 0) return;
  RunLists(parallel, sizes, std::max<int64_t>(1, cost / units),
           [&](size_t i, int64_t unit) { fn(i, static_cast<int>(unit)); });
}

}  // namespace

Status Commit(const std::vector<CommitItem>& items, const ParallelFor& parallel) {
  auto tracks = [](const CommitItem& item) { return item.insert && item.table->history() != nullptr; };
  std::unique_ptr<std::atomic<int64_t>[]> missing(new std::atomic<int64_t>[items.size()]());
  int64_t cost = 0;
  for (const CommitItem& item : items) {
    if (item.insert) item.table->CountMutation();
    cost += kResolveCost * item.plan.keys_size;
  }
  ForEachUnit(items, cost, parallel, [&](size_t i, int unit) {
    const TablePlan& plan = items[i].plan;
    const int64_t begin = plan.unit_begin(unit), n = plan.unit_end(unit) - begin;
    if (n == 0) return;
    const int64_t seal = plan.seals == nullptr ? 0 : plan.seals[unit];
    const int64_t *keys = plan.keys + begin, *hints = plan.hints + begin;
    int64_t* handles = items[i].handles + begin;
    if (!plan.is_grouped()) return items[i].table->ResolveAny(keys, hints, n, handles, seal, items[i].use);
    int64_t absent = items[i].table->Resolve(unit, keys, hints, n, handles, seal, items[i].use);
    if (absent == 0 || !items[i].insert) return;
    if (tracks(items[i])) absent = items[i].table->Screen(unit, keys, items[i].tally, begin, n, handles);
    missing[i].fetch_add(absent, std::memory_order_relaxed);
  });

  for (size_t i = 0; i < items.size(); ++i) {
    if (missing[i] == 0) continue;
    const Status status = items[i].table->Claim(missing[i]);
    if (!status.ok()) {
      for (size_t j = 0; j < i; ++j) items[j].table->Release(missing[j]);
      return status;
    }
  }
  // All that can fail comes before anything is inserted or counted, but for a lack of memory.
  std::mutex mutex;
  Status failure;
  auto note = [&](const Status& status) {
    if (status.ok()) return;
    std::lock_guard<std::mutex> lock(mutex);
    if (failure.ok()) failure = status;
  };
  cost = 0;
  for (const CommitItem& item : items) cost += item.use == 0 ? 0 : kFetchCost * item.plan.keys_size;
  if (cost > 0) {
    ForEachUnit(items, cost, parallel, [&](size_t i, int unit) {
      if (items[i].use == 0) return;
      const TablePlan& plan = items[i].plan;
      const int64_t begin = plan.unit_begin(unit), n = plan.unit_end(unit) - begin;
      const int64_t* keys = plan.keys + begin;
      int64_t* handles = items[i].handles + begin;
      if (n == 0) return;
      note(plan.is_grouped() ? items[i].table->Fetch(unit, keys, n, items[i].use, items[i].insert, handles)
                             : items[i].table->FetchAny(keys, n, items[i].use, handles));
    });
    if (!failure.ok()) {
      for (size_t i = 0; i < items.size(); ++i) items[i].table->Release(missing[i]);
      return failure;
    }
  }

  std::vector<uint32_t> steps(items.size(), 0);
  cost = 0;
  for (size_t i = 0; i < items.size(); ++i) {
    cost += kInsertCost * missing[i];
    if (!tracks(items[i])) continue;
    cost += kRecordCost * items[i].plan.keys_size;
    steps[i] = items[i].table->history()->Advance(items[i].tally.latest());
  }
  if (cost == 0) return Status();

  std::unique_ptr<std::atomic<int64_t>[]> made(new std::atomic<int64_t>[items.size()]());
  ForEachUnit(items, cost, parallel, [&](size_t i, int shard) {
    const bool is_tracked = tracks(items[i]);
    if (missing[i] == 0 && !is_tracked) return;
    const TablePlan& plan = items[i].plan;
    const int64_t begin = plan.unit_begin(shard), n = plan.unit_end(shard) - begin;
    const int64_t* keys = plan.keys + begin;
    int64_t* handles = items[i].handles + begin;
    if (n == 0 || (!is_tracked && std::find(handles, handles + n, kNoRow) == handles + n)) return;
    int64_t inserted = 0;
    const Status status = is_tracked ? items[i].table->Record(shard, keys, items[i].tally, begin, n, steps[i], handles,
                                                              &inserted, items[i].use)
                                     : items[i].table->Insert(shard, keys, n, handles, &inserted, items[i].use);
    made[i].fetch_add(inserted, std::memory_order_relaxed);
    note(status);
  });
  for (size_t i = 0; i < items.size(); ++i) items[i].table->Release(missing[i] - made[i]);
  return failure;
}

}  // namespace mxrec
