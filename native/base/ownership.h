// Ownership: which keys one of several ranks has.
#pragma once

#include <cstdint>

#include "base/hash.h"

namespace mxrec {

// The rank, out of `ranks`, that has a key. It depends on the key alone, by a hash that says nothing of its shard.
inline int OwnerOf(int64_t key, int ranks) {
  const uint64_t hash = Mix64(HashKey(key) ^ 0x2545f4914f6cdd1dULL);
  return static_cast<int>((static_cast<unsigned __int128>(hash) * static_cast<unsigned>(ranks)) >> 64);
}

// The keys of a rank; without ranks, or of a table that every rank has whole, all keys.
struct Ownership {
  int rank = 0;
  int ranks = 1;

  bool has_all() const { return ranks == 1; }
  bool Has(int64_t key) const { return has_all() || OwnerOf(key, ranks) == rank; }
};

}  // namespace mxrec
