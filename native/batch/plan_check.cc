#include "batch/plan_check.h"

#include <algorithm>
#include <atomic>

#include "base/vectorize.h"

namespace mxrec {
namespace {

// Numbers that a thread takes at a time, and rough nanoseconds for each.
constexpr int64_t kUnit = 16384;
constexpr double kCost = 0.4;

// Whether all numbers are in [0, end): as one unsigned maximum, which compilers turn into vectors.
MXREC_VECTORIZED
uint32_t Largest(const int32_t* numbers, int64_t n) {
  uint32_t largest = 0;
  for (int64_t i = 0; i < n; ++i) largest = std::max(largest, static_cast<uint32_t>(numbers[i]));
  return largest;
}

// How many of numbers[0, n) are not greater than the one before them. REQUIRES: there is one before the first.
MXREC_VECTORIZED
int64_t Descents(const int32_t* numbers, int64_t n) {
  int32_t descents = 0;
  for (int64_t i = 0; i < n; ++i) descents += numbers[i] <= numbers[i - 1] ? 1 : 0;
  return descents;
}

// [begin, end) of unit `unit` out of n numbers.
struct Range {
  int64_t begin, end;
};
Range RangeOf(int64_t unit, int64_t n) { return {std::min(n, unit * kUnit), std::min(n, (unit + 1) * kUnit)}; }

bool AreIn(const int32_t* numbers, Range range, int64_t end) {
  if (range.begin == range.end) return true;
  return static_cast<int64_t>(Largest(numbers + range.begin, range.end - range.begin)) < end;
}

bool AreShardsInOrder(const TablePlan& table) {
  if (table.shard_starts[0] != 0 || table.shard_starts[table.shards] != table.keys_size) return false;
  return std::is_sorted(table.shard_starts, table.shard_starts + table.shards + 1);
}

}  // namespace

Status CheckContents(const std::vector<PlanRead>& reads, const ParallelFor& parallel) {
  std::vector<int64_t> sizes;
  std::vector<std::atomic<int64_t>> misplaced(reads.size());
  std::atomic<bool> is_good{true};
  for (const PlanRead& read : reads) {
    const TablePlan& table = *read.table;
    sizes.push_back(0);
    if (!table.is_grouped()) continue;
    sizes.back() = (table.positions_size + kUnit - 1) / kUnit;  // there are no more keys than positions
    if (!AreShardsInOrder(table) ||
        (read.groups && (table.offsets[0] != 0 || table.offsets[table.keys_size] != table.positions_size))) {
      is_good = false;
    }
  }
  RunLists(parallel, sizes, static_cast<int64_t>(kUnit * kCost), [&](size_t r, int64_t unit) {
    const TablePlan& table = *reads[r].table;
    const Range positions = RangeOf(unit, table.positions_size), keys = RangeOf(unit, table.keys_size);
    if (!AreIn(table.index, positions, table.keys_size)) is_good = false;
    if (!reads[r].groups) return;
    // Every key has a position: the offsets ascend, and so stay between the first and the last.
    const int64_t first = std::max<int64_t>(1, positions.begin);
    if (Descents(table.offsets + keys.begin + 1, keys.end - keys.begin) != 0 ||
        !AreIn(table.positions, positions, table.positions_size)) {
      is_good = false;
      return;
    }
    // Positions may descend only where another key begins: there are as many descents in all as there.
    int64_t descents = positions.end > first ? Descents(table.positions + first, positions.end - first) : 0;
    for (int64_t u = std::max<int64_t>(1, keys.begin); u < keys.end; ++u) {
      const uint32_t at = static_cast<uint32_t>(table.offsets[u]);
      // Another unit may find that this one is out of range.
      if (at == 0 || at >= static_cast<uint64_t>(table.positions_size)) {
        is_good = false;
        return;
      }
      descents -= table.positions[at] <= table.positions[at - 1] ? 1 : 0;
    }
    misplaced[r].fetch_add(descents, std::memory_order_relaxed);
  });
  for (const std::atomic<int64_t>& count : misplaced) is_good = is_good && count == 0;
  if (is_good) return Status();
  return Status::InvalidArgument(
      "the prepared batch is damaged (positions): pass the tensor that the insert function added to the batch, "
      "unchanged");
}

}  // namespace mxrec
