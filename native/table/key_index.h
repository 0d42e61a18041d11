// KeyIndex: key -> row number, for the keys of one shard. Open addressing over chunks of one cache line:
//
//   ┌──────────────────────────┬─────────────────┬──────┬──────────┬───────┐
//   │ key × 5                  │ row × 5         │ used │ overflow │ spare │  64 bytes
//   └──────────────────────────┴─────────────────┴──────┴──────────┴───────┘
//
//   used      a bit per place; so every int64 is a legal key.
//   overflow  how many keys wanted this chunk but live further along their probe path; 0 ends a search (it saturates
//             at 255 and then never falls again).
//
// The keys are here and nowhere else: a search touches one line and no row. Tags of a byte instead, with the keys in a
// column beside the rows, cost one more cache line and page at random per search, which was a fifth of the time of an
// evaluation step.
//
// Growth doubles one shard's chunks, so no pause is longer than one shard's rehash, and each shard of a table doubles
// at another fill (between 53 % and 75 %), so they do not all pause in the same step.
//
// Thread rule: the const methods may run together; the others need the shard to themselves.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "base/hash.h"
#include "base/pages.h"
#include "base/status.h"

namespace mxrec {

class KeyIndex {
 public:
  static constexpr int64_t kNone = -1;

  // `stagger` in [0, 1): which part of the range of fills this shard doubles at.
  explicit KeyIndex(double stagger = 0.0);

  // The row of `key`, or kNone. `hash` is HashKey(key), here and below.
  int64_t Find(uint64_t hash, int64_t key) const;

  // How many chunks a search for `key` reads.
  int64_t ProbeLength(uint64_t hash, int64_t key) const;

  [[gnu::always_inline]] void Prefetch(uint64_t hash) const {  // by force: GCC 12 drops calls that only prefetch
    if (chunks_ != nullptr) __builtin_prefetch(chunks_ + (hash & mask_));
  }

  // Makes the next `n` Insert calls succeed without growing.
  Status Reserve(int64_t n);

  // REQUIRES: the key is absent; Reserve was called.
  void Insert(uint64_t hash, int64_t key, uint32_t row);

  // Gives the key another row, and returns the one it had. REQUIRES: the key is present.
  uint32_t Move(uint64_t hash, int64_t key, uint32_t row);

  // REQUIRES: the key is present.
  void Erase(uint64_t hash, int64_t key);

  void Clear();

  // Calls fn(key, row) for every key, in an order that the sequence of inserts and erases determines.
  template <typename Fn>
  void ForEach(Fn fn) const {
    for (uint64_t c = 0; chunks_ != nullptr && c <= mask_; ++c) {
      for (uint32_t used = chunks_[c].used; used != 0; used &= used - 1) {
        const int i = __builtin_ctz(used);
        fn(chunks_[c].keys[i], chunks_[c].rows[i]);
      }
    }
  }

  // Appends the first `count` keys in the order of ForEach, or all if there are fewer. Their place follows from their
  // hash, so they are as good as drawn by lot; and the others are not walked over.
  void AppendSome(int64_t count, std::vector<int64_t>* keys) const {
    for (uint64_t c = 0; chunks_ != nullptr && c <= mask_ && count > 0; ++c) {
      for (uint32_t used = chunks_[c].used; used != 0 && count > 0; used &= used - 1, --count) {
        keys->push_back(chunks_[c].keys[__builtin_ctz(used)]);
      }
    }
  }

  // Removes the keys for which is_victim(key, row) holds, in the order of ForEach. request(row) is called for every row
  // a little earlier, to request from memory what is_victim reads of it.
  template <typename Request, typename IsVictim>
  void EraseIf(Request request, IsVictim is_victim) {
    if (chunks_ == nullptr) return;
    constexpr uint64_t kAhead = 8;  // chunks, of three keys or four each
    auto request_chunk = [&](uint64_t c) {
      for (uint32_t used = chunks_[c].used; used != 0; used &= used - 1) request(chunks_[c].rows[__builtin_ctz(used)]);
    };
    for (uint64_t c = 0; c < std::min(kAhead, mask_ + 1); ++c) request_chunk(c);
    for (uint64_t c = 0; c <= mask_; ++c) {
      if (c + kAhead <= mask_) request_chunk(c + kAhead);
      for (uint32_t used = chunks_[c].used; used != 0; used &= used - 1) {
        const int i = __builtin_ctz(used);
        if (!is_victim(chunks_[c].keys[i], chunks_[c].rows[i])) continue;
        const uint64_t hash = HashKey(chunks_[c].keys[i]);
        for (uint64_t at = hash & mask_; at != c; at = (at + Step(hash)) & mask_) {
          if (chunks_[at].overflow != 255) --chunks_[at].overflow;
        }
        chunks_[c].used = static_cast<uint8_t>(chunks_[c].used & ~(1u << i));
        --size_;
      }
    }
  }

  int64_t size() const { return size_; }
  int64_t bytes() const { return static_cast<int64_t>(pages_.bytes()); }

 private:
  static constexpr int kPlaces = 5;
  struct alignas(64) Chunk {
    int64_t keys[kPlaces];
    uint32_t rows[kPlaces];
    uint8_t used;
    uint8_t overflow;
    uint8_t spare[2];
  };
  static_assert(sizeof(Chunk) == 64, "a chunk is one cache line");

  // The top byte of the hash chooses the shard (table.h) and the low bits the chunk; the step comes from between. An
  // odd step visits every chunk of a power-of-two array.
  static uint64_t Step(uint64_t hash) { return ((hash >> 48) & 0xff) * 2 + 1; }
  // A bit per place that holds `key`.
  static uint32_t Match(const Chunk& chunk, int64_t key);

  double max_fill_;
  Pages pages_;
  Chunk* chunks_ = nullptr;
  uint64_t mask_ = 0;
  int64_t size_ = 0;
  int64_t limit_ = 0;  // size at which the next growth is due
};

// out[i] = the row of keys[i], or kNone, in the index that index_of(hash) gives. The places to search are requested
// from memory in blocks, while those requested before are searched: requests that miss the TLB overlap only if they
// stand close together.
template <typename IndexOf>
void FindAll(const int64_t* keys, int64_t n, IndexOf index_of, int64_t* out) {
  constexpr int64_t kBlock = 16;
  struct Search {
    uint64_t hash;
    const KeyIndex* index;
  };
  Search searches[2][kBlock];
  auto request = [&](int64_t begin, Search* block) {
    const int64_t size = std::min(kBlock, n - begin);
    for (int64_t i = 0; i < size; ++i) {
      const uint64_t hash = HashKey(keys[begin + i]);
      block[i] = {hash, &index_of(hash)};
    }
    for (int64_t i = 0; i < size; ++i) block[i].index->Prefetch(block[i].hash);
  };
  if (n > 0) request(0, searches[0]);
  int now = 0;
  for (int64_t begin = 0; begin < n; begin += kBlock, now = 1 - now) {
    if (begin + kBlock < n) request(begin + kBlock, searches[1 - now]);
    const int64_t size = std::min(kBlock, n - begin);
    for (int64_t i = 0; i < size; ++i) {
      const Search& search = searches[now][i];
      out[begin + i] = search.index->Find(search.hash, keys[begin + i]);
    }
  }
}

}  // namespace mxrec
