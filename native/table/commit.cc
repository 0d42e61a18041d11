#include "table/commit.h"

#include <algorithm>
#include <atomic>
#include <memory>
#include <new>

#include "base/failure.h"

namespace mxrec {
namespace {

// Rough nanoseconds per key, to let the caller's pool cut the range well.
constexpr int64_t kResolveCost = 5;
constexpr int64_t kInsertCost = 200;
constexpr int64_t kRecordCost = 15;
constexpr int64_t kReserveCost = 20;
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

// The room that a batch claims for new rows, in the tables' limits and in memory. What is not used when it dies goes
// back, whatever went wrong.
class Claims {
 public:
  // `missing`: how many rows each table lacks; `made`: how many of them have been made.
  Claims(const std::vector<CommitItem>& items, const std::atomic<int64_t>* missing, const std::atomic<int64_t>* made)
      : items_(items), missing_(missing), made_(made) {}
  Claims(const Claims&) = delete;
  Claims& operator=(const Claims&) = delete;
  ~Claims() {
    for (size_t i = 0; i < claimed_; ++i) items_[i].table->Release(missing_[i] - made_[i]);
  }

  Status Make() {
    for (; claimed_ < items_.size(); ++claimed_) {
      const int64_t rows = missing_[claimed_];
      if (rows > 0) MXREC_RETURN_IF_ERROR(items_[claimed_].table->Claim(rows));
    }
    return Status();
  }

  // After a failure nothing is reserved.
  Status Reserve(int64_t cost, const ParallelFor& parallel) {
    std::vector<std::vector<char>> is_reserved;
    for (const CommitItem& item : items_) is_reserved.emplace_back(item.plan.units(), 0);
    Failure failure;
    ForEachUnit(items_, cost, parallel, [&](size_t i, int unit) {
      if (missing_[i] == 0 || failure.failed()) return;
      const TablePlan& plan = items_[i].plan;
      const int64_t begin = plan.unit_begin(unit), n = plan.unit_end(unit) - begin;
      if (n == 0) return;
      Status status;
      try {
        status = items_[i].table->Reserve(unit, items_[i].handles + begin, n);
      } catch (const std::bad_alloc&) {
        status = Status::ResourceExhausted("out of memory for new rows");
      }
      if (status.ok()) {
        is_reserved[i][unit] = 1;
      } else {
        failure.Set(status);
      }
    });
    for (size_t i = 0; failure.failed() && i < items_.size(); ++i) {
      const TablePlan& plan = items_[i].plan;
      for (int64_t unit = 0; unit < plan.units(); ++unit) {
        if (is_reserved[i][unit] == 0) continue;
        const int64_t begin = plan.unit_begin(unit);
        items_[i].table->Unreserve(static_cast<int>(unit), items_[i].handles + begin, plan.unit_end(unit) - begin);
      }
    }
    return failure.status();
  }

 private:
  const std::vector<CommitItem>& items_;
  const std::atomic<int64_t>* missing_;
  const std::atomic<int64_t>* made_;
  size_t claimed_ = 0;
};

}  // namespace

Status Commit(const std::vector<CommitItem>& items, const ParallelFor& parallel) {
  auto tracks = [](const CommitItem& item) { return item.insert && item.table->history() != nullptr; };
  std::unique_ptr<std::atomic<int64_t>[]> missing(new std::atomic<int64_t>[items.size()]());
  std::unique_ptr<std::atomic<int64_t>[]> made(new std::atomic<int64_t>[items.size()]());
  std::vector<uint32_t> steps(items.size(), 0);
  Failure failure;
  int64_t cost = 0;
  for (const CommitItem& item : items) cost += kResolveCost * item.plan.keys_size;
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
    if (!items[i].table->AreOf(unit, keys, handles, n)) {
      return failure.Set(Status::InvalidArgument(
          "table '" + items[i].table->config().name +
          "': the prepared batch is damaged (keys): pass the tensor that the insert function added, unchanged"));
    }
    if (items[i].skips_padding) absent -= items[i].table->MarkPadding(keys, n, handles);
    if (tracks(items[i])) absent = items[i].table->Screen(unit, keys, items[i].tally, begin, n, handles);
    missing[i].fetch_add(absent, std::memory_order_relaxed);
  });

  if (failure.failed()) return failure.status();

  Claims claims(items, missing.get(), made.get());
  MXREC_RETURN_IF_ERROR(claims.Make());
  // All that can fail comes before anything is inserted or counted.
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
      const Status status = plan.is_grouped()
                                ? items[i].table->Fetch(unit, keys, n, items[i].use, items[i].insert, handles)
                                : items[i].table->FetchAny(keys, n, items[i].use, handles);
      if (!status.ok()) failure.Set(status);
    });
    if (failure.failed()) return failure.status();
  }
  cost = 0;
  for (size_t i = 0; i < items.size(); ++i) cost += kReserveCost * missing[i];
  if (cost > 0) MXREC_RETURN_IF_ERROR(claims.Reserve(cost, parallel));

  for (const CommitItem& item : items) {
    if (item.insert) item.table->CountMutation();
  }
  cost = 0;
  for (size_t i = 0; i < items.size(); ++i) {
    cost += kInsertCost * missing[i];
    if (!tracks(items[i])) continue;
    cost += kRecordCost * items[i].plan.keys_size;
    steps[i] = items[i].table->history()->Advance(items[i].tally.latest());
  }
  auto unmark = [&] {
    for (const CommitItem& item : items) {
      if (item.skips_padding) Table::UnmarkPadding(item.handles, item.plan.keys_size);
    }
  };
  if (cost == 0) {
    unmark();
    return Status();
  }
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
    if (!status.ok()) failure.Set(status);
  });
  unmark();
  return failure.status();
}

}  // namespace mxrec
