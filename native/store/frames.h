// Frames: the rows in memory of a table that has rows on disk, too: whose they are, and which of them shall make room
// for another. Two queues per shard:
//
//                        ┌── used again ──▶ main: a hand goes round, takes one from each row's counter and
//   new row ──▶ small ───┤                        stops at a row whose counter is 0 ──▶ leaves
//                        └── not ──▶ leaves
//
// Every use of a row adds to its counter, up to kMaxCount. So a row that is used once passes through the small queue, a
// tenth of all, and never pushes out a row that is used often; and each step costs O(1), as the hand can only take what
// uses have added. Hit rates on 5 million keys, Zipf 1.05, batches of 65,536, with a fifth (a twentieth) of the keys in
// memory, after 1,600 batches: 79.5 % (62.9 %); LRU 74.4 % (52.6 %), CLOCK 73.5 % (51.7 %), CLOCK with such a counter
// 76.9 % (56.4 %), the most popular keys 82.0 % (65.3 %). store/frames_bench.cc measures this code.
//
// Thread rule: Touch and the const methods need the shard's lock (table.h), shared or not; the others need it alone.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <vector>

#include "store/row_column.h"

namespace mxrec {

class Frames {
 public:
  static constexpr uint64_t kMaxCount = 3;

  // `rows`: how many there will be in all.
  Frames(int64_t rows, int shards)
      : small_((rows + shards - 1) / shards / 10), column_(rows), shards_(static_cast<size_t>(shards)) {}

  bool usable() const { return column_.usable(); }

  // The row now belongs to `key` and is in use.
  Status Occupy(int shard, uint32_t row, int64_t key, int64_t use);
  // The row belongs to nobody.
  void Vacate(int shard, uint32_t row);
  // The row is in use.
  void Touch(uint32_t row, int64_t use) {
    std::atomic<uint64_t>& word = column_.at(row).word;
    uint64_t now = word.load(std::memory_order_relaxed);
    uint64_t next;
    do {
      const int64_t stamp = Stamp(now) < use ? use : Stamp(now);
      next = Word(stamp, Count(now) < kMaxCount ? Count(now) + 1 : kMaxCount);
    } while (next != now && !word.compare_exchange_weak(now, next, std::memory_order_relaxed));
  }
  void Prefetch(uint32_t row) const { __builtin_prefetch(&column_.at(row), 1); }

  // `n` rows of the shard that are not in use by `oldest` or later, to be Vacated or Spared next; fewer if there are no
  // more. All that a step needs in one call: each goes round the rows that are in use, and one by one, a step that
  // shares memory with another would take the square of their number.
  std::vector<uint32_t> Victims(int shard, int64_t oldest, int64_t n);
  // A victim that stays after all.
  void Spare(int shard, uint32_t row);

  int64_t KeyOf(uint32_t row) const { return column_.at(row).key; }
  int64_t occupied(int shard) const { return shards_[shard].occupied; }
  int64_t bytes(int shard) const;

  void Clear();

 private:
  // What is known of a row: bit 0: it is occupied; bit 1: it stands in a queue; then its counter; then the number of
  // its last use.
  static constexpr uint64_t kOccupied = 1, kQueued = 2;
  static constexpr int kCountShift = 2, kStampShift = 4;
  static_assert(kMaxCount < 1 << (kStampShift - kCountShift), "the counter has its bits");
  static int64_t Stamp(uint64_t word) { return static_cast<int64_t>(word >> kStampShift); }
  static uint64_t Count(uint64_t word) { return word >> kCountShift & kMaxCount; }
  static uint64_t Word(int64_t stamp, uint64_t count) {
    return static_cast<uint64_t>(stamp) << kStampShift | count << kCountShift | kQueued | kOccupied;
  }
  static constexpr uint32_t kHole = UINT32_MAX;

  struct Frame {
    int64_t key;
    std::atomic<uint64_t> word;
  };
  struct alignas(64) Shard {
    std::deque<uint32_t> small;
    std::vector<uint32_t> main;
    std::vector<uint32_t> holes;  // places in `main`; the last is the one that the hand left last
    size_t hand = 0;
    int64_t occupied = 0;
  };

  std::atomic<uint64_t>& word(uint32_t row) const { return column_.at(row).word; }
  static void PutInMain(Shard* shard, uint32_t row);
  void FromSmall(Shard* shard, int64_t keep, int64_t oldest, int64_t n, std::vector<uint32_t>* rows);
  void FromMain(Shard* shard, int64_t oldest, int64_t n, std::vector<uint32_t>* rows);

  const int64_t small_;  // rows of a shard that its small queue may have
  RowColumn<Frame> column_;
  std::vector<Shard> shards_;
};

}  // namespace mxrec
