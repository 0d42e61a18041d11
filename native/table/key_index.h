// KeyIndex: hash -> row number, for the keys of one shard. Open addressing over chunks of one cache line:
//
//   ┌────────────────┬──────────┬───────┬──────────────────────────────┐
//   │ tag × 12       │ overflow │ spare │ row × 12                     │  64 bytes
//   └────────────────┴──────────┴───────┴──────────────────────────────┘
//
//   tag       one byte of the hash, never 0; 0 = the place is empty. All 12 are compared in one instruction.
//   overflow  how many keys wanted this chunk but live further along their probe path; 0 ends a search (it saturates
//             at 255 and then never falls again).
//
// The keys themselves are not here but in the row store's key column: emptiness is a tag, so every int64 is a legal
// key, and a place costs 5.3 bytes instead of 13. A tag match is a guess (wrong about once in 20 searches, more
// often after much erasing at a high fill); Find confirms it with the key column, Hint leaves that to whoever uses the
// hint.
//
// Growth doubles one shard's chunks, so no pause is longer than one shard's rehash, and each shard of a table doubles
// at another fill (between 43 % and 86 %), so they do not all pause in the same step.
//
// Thread rule: the const methods may run together; the others need the shard to themselves.
#pragma once

#include <cstdint>
#include <vector>

#include "base/pages.h"
#include "base/status.h"
#include "store/memory_store.h"

namespace mxrec {

class KeyIndex {
 public:
  static constexpr int64_t kNone = -1;

  // `stagger` in [0, 1): which part of the range of fills this shard doubles at.
  explicit KeyIndex(double stagger = 0.0);

  // The row of `key`, or kNone. `hash` is HashKey(key).
  int64_t Find(uint64_t hash, int64_t key, const MemoryStore& store) const;

  // A row whose key probably has this hash, or kNone.
  int64_t Hint(uint64_t hash) const;

  void Prefetch(uint64_t hash) const {
    if (chunks_ != nullptr) __builtin_prefetch(chunks_ + (hash & mask_));
  }

  // Makes the next `n` Insert calls succeed without growing. `store` tells the keys of the rows already here.
  Status Reserve(int64_t n, const MemoryStore& store);

  // REQUIRES: the key is absent; Reserve was called.
  void Insert(uint64_t hash, uint32_t row);

  // REQUIRES: `row` was inserted with `hash`.
  void Erase(uint64_t hash, uint32_t row);

  void Clear();

  int64_t size() const { return size_; }
  int64_t bytes() const { return static_cast<int64_t>(pages_.bytes()); }

 private:
  static constexpr int kPlaces = 12;
  struct alignas(64) Chunk {
    uint8_t tags[kPlaces];
    uint8_t overflow;
    uint8_t spare[3];
    uint32_t rows[kPlaces];
  };
  static_assert(sizeof(Chunk) == 64, "a chunk is one cache line");

  // The top byte chooses the shard (table.h) and the low bits the chunk; the tag comes from between.
  static uint8_t Tag(uint64_t hash) {
    const uint8_t tag = static_cast<uint8_t>(hash >> 48);
    return tag == 0 ? 1 : tag;
  }
  // An odd step visits every chunk of a power-of-two array.
  static uint64_t Step(uint8_t tag) { return 2 * static_cast<uint64_t>(tag) + 1; }
  static uint32_t Match(const Chunk& chunk, uint8_t tag);

  double max_fill_;
  Pages pages_;
  Chunk* chunks_ = nullptr;
  uint64_t mask_ = 0;
  int64_t size_ = 0;
  int64_t limit_ = 0;  // size at which the next growth is due
};

}  // namespace mxrec
