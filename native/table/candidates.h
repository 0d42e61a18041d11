// Candidates: the keys of one shard that training has met but that have no row yet (feature admission), with how often
// and when last. One flat array of 16-byte entries, in the order of their hashes:
//
//   ┌──────┬───────┬──────┐
//   │ hash │ count │ time │  an entry; the place is free if count is 0
//   └──────┴───────┴──────┘
//   ┌────────────────────────────────────────────┬──────┐
//   │ home places                                │ tail │
//   └────────────────────────────────────────────┴──────┘
//
// An entry lies at its home place, which ascends with the hash, or as little behind it as the entries before it allow
// (linear probing in order). There is no wrap-around: what the last home places cannot hold is in the tail, whose last
// place stays free and so ends every search.
//
//   - The hash is a bijection, so it tells keys apart and gives the key back (UnhashKey): no key is stored.
//   - A search, for a key that is there or not, ends at the first hash that is not smaller: 3 entries on average at a
//     fill of 80 %, 5.5 at 90 %.
//   - The array grows by a quarter when 90 % of the home places are taken, so it falls to 72 %: at most 22.2 bytes a
//     key. That many small steps are cheap because a larger array has the same order: growing is one pass through both.
//     With page rounding and tail it is at most 24 bytes from 1,000 keys on, as long as keys only arrive.
//   - A removal shifts back what it displaced, so nothing is left behind. A fill below 40 % shrinks the array to one
//     of 75 %; the last key to go takes all memory with it.
//
// Time. A data time (int64, >= 0) is kept in 32 bits relative to `base_`, and yet every decision about an age below
// 2^31 is exact. Let M be the largest time seen since the object was last empty. The first time t sets base_ = t -
// 2^31, and a time that lies more than 2^32 - 1 above base_ moves base_ to 2^31 below itself; hence base_ <= M - 2^31
// always. A caller forgets what is `age` old with RemoveUntil(now - age), where now >= M and age < 2^31: a bound above
// base_. So a time below base_, kept as base_, is forgotten when it should be, and every other time is exact. Where
// times are so far apart, what ForEach and Remove report of the older ones depends on the order in which they came.
// Callers without timestamps pass 0 throughout, which is a time like any other.
//
// Thread rule: the const methods may run together; the others need the shard to themselves. A moved-from object may
// only be destroyed or assigned to.
#pragma once

#include <cstdint>

#include "base/hash.h"
#include "base/pages.h"
#include "base/status.h"

namespace mxrec {

struct Candidate {
  int64_t key;
  uint32_t count;  // at least 1
  int64_t time;
};

class Candidates {
 public:
  // For the keys of one of 2^shard_bits shards: all hashes share their top `shard_bits` bits, in [0, 8].
  explicit Candidates(int shard_bits = 0) : shard_bits_(shard_bits) {}

  // How often the key was met; 0 if it is unknown. `hash` is HashKey(key), here and below.
  uint32_t Count(uint64_t hash) const;

  // What is known of the key; false if nothing.
  bool Find(uint64_t hash, Candidate* found) const;

  // Inlined by force: GCC 12 takes a function that only prefetches for one without effect, and drops calls of it that
  // it did not inline at once.
  [[gnu::always_inline]] void Prefetch(uint64_t hash) const {
    if (size_ > 0) __builtin_prefetch(entries() + Home(hash));
  }

  // Adds `weight` >= 1 to the key's count, saturating at UINT32_MAX, and moves its time forward to `time` (never back:
  // the maximum of both). *is_new: whether the key was unknown. ResourceExhausted if memory ends; then nothing changed.
  Status Add(uint64_t hash, uint32_t weight, int64_t time, bool* is_new);

  // Forgets the key; false if it was unknown. `found` may be null.
  bool Remove(uint64_t hash, Candidate* found);

  // Forgets every key whose time is `time` or earlier; returns how many.
  int64_t RemoveUntil(int64_t time);

  // Calls fn(const Candidate&) for every key, ascending by hash: an order that depends on nothing else.
  template <typename Fn>
  void ForEach(Fn fn) const {
    for (uint64_t at = 0, left = size_; left > 0; ++at) {
      if (entries()[at].count == 0) continue;
      fn(Reveal(entries()[at]));
      --left;
    }
  }

  void Clear();

  int64_t size() const { return static_cast<int64_t>(size_); }
  int64_t bytes() const { return static_cast<int64_t>(pages_.bytes()); }

 private:
  struct Entry {
    uint64_t hash;
    uint32_t count;
    uint32_t time;  // since base_
  };
  static_assert(sizeof(Entry) == 16, "four entries a cache line");

  Entry* entries() const { return static_cast<Entry*>(pages_.data()); }
  uint64_t places() const { return pages_.bytes() / sizeof(Entry); }
  uint64_t Home(uint64_t hash) const { return PlaceInShard(hash, shard_bits_, home_); }
  Candidate Reveal(const Entry& entry) const { return {UnhashKey(entry.hash), entry.count, base_ + entry.time}; }

  // The place of the first entry that is free or has no smaller hash, from the key's home on. REQUIRES: memory.
  uint64_t Search(uint64_t hash) const;
  bool Holds(uint64_t at, uint64_t hash) const { return entries()[at].count != 0 && entries()[at].hash == hash; }

  // `time` as it is stored; moves base_ if it must.
  uint32_t Stamp(int64_t time);
  // Moves all entries to an array of `home` home places and a tail of `tail` or more.
  Status Rebuild(uint64_t home, uint64_t tail);
  // Gives memory back if the array has become sparse.
  void Shrink();

  int shard_bits_;
  Pages pages_;  // none if there are no keys
  uint64_t home_ = 0;
  uint64_t size_ = 0;
  int64_t base_ = 0;
};

}  // namespace mxrec
