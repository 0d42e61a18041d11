// AdmissionFilter: how often the keys of one shard were refused, in memory that never grows: a counting Bloom filter.
// A key counts in 4 different cells of 16 bits, all in one cache line, and its count is the smallest of them:
//
//   ┌───┬───┬───┬───┬───┬───┬───┬┄┄┄┬───┐
//   │   │ 2 │   │   │ 5 │ 1 │   │   │ 3 │  64 bytes, 32 cells
//   └───┴───┴───┴───┴───┴───┴───┴┄┄┄┴───┘
//
// The error. Without Subtract and Halve a count is never too low (up to kMaxCount, where it stays), and too high only
// by what other keys brought to all four cells. Subtract keeps that up if it takes out no more than the key brought in;
// after cells that had saturated, or after Halve, a count may be too low.
//
// Share of the keys that count more than they were met, measured in 256 MiB of cells whose keys were all met once
// (admission_filter_test.cc works out the first line):
//
//   bytes per refused key       4        8       16       32
//   count 2 or more          57.6 %   19.0 %    4.1 %    0.7 %
//   count 3 or more          15.4 %    1.1 %    0.05 %   0.00 %
//
// Thread rule: the const methods may run together; the others need the shard to themselves. A moved-from object may
// only be destroyed or assigned to.
#pragma once

#include <cstdint>

#include "base/hash.h"
#include "base/pages.h"

namespace mxrec {

class AdmissionFilter {
 public:
  static constexpr uint32_t kMaxCount = 65535;

  // For the keys of one of 2^shard_bits shards: all hashes share their top `shard_bits` bits, in [0, 8]. `bytes` is
  // rounded up to whole lines, at least one.
  AdmissionFilter(int64_t bytes, int shard_bits);

  // Whether there was memory. The other methods REQUIRE it.
  bool usable() const { return pages_.data() != nullptr; }

  // `hash` is HashKey(key), here and below.
  uint32_t Count(uint64_t hash) const;

  // Inlined by force: see candidates.h.
  [[gnu::always_inline]] void Prefetch(uint64_t hash) const { __builtin_prefetch(Line(hash)); }

  // Saturates at kMaxCount.
  void Add(uint64_t hash, uint32_t weight);

  // Takes out what a key brought in, when it is admitted: the others in its cells get their error back. Not below 0.
  void Subtract(uint64_t hash, uint32_t amount);

  // Halves every cell, rounding down: lets old counts fade.
  void Halve();

  void Clear();

  // All counts, to be saved and restored: they mean the same in a filter of the same size and shard.
  const uint16_t* cells() const { return static_cast<const uint16_t*>(pages_.data()); }
  uint16_t* cells() { return static_cast<uint16_t*>(pages_.data()); }
  int64_t size() const { return static_cast<int64_t>(lines_) * kLineCells; }  // cells
  int64_t bytes() const { return static_cast<int64_t>(pages_.bytes()); }

 private:
  static constexpr int kLineCells = 32;

  uint16_t* Line(uint64_t hash) const {
    return static_cast<uint16_t*>(pages_.data()) + PlaceInShard(hash, shard_bits_, lines_) * kLineCells;
  }

  int shard_bits_;
  uint64_t lines_;
  Pages pages_;
};

}  // namespace mxrec
