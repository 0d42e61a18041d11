// The hash of a key. One function serves the shard choice (top bits), the probe step (bits 48 to 55), the chunk (low
// bits) and the per-key random numbers, so it must mix every input bit into every output bit: users' ids are often
// sequential, multiples of a power of two, or packed fields.
#pragma once

#include <cstdint>

namespace mxrec {

// The SplitMix64 finaliser: a bijection of 64-bit words.
inline uint64_t Mix64(uint64_t x) {
  x ^= x >> 30;
  x *= 0xbf58476d1ce4e5b9ULL;
  x ^= x >> 27;
  x *= 0x94d049bb133111ebULL;
  x ^= x >> 31;
  return x;
}

// Key 0 must not hash to 0 and neighbours must part at once, hence the odd offset first.
inline uint64_t HashKey(int64_t key) { return Mix64(static_cast<uint64_t>(key) + 0x9e3779b97f4a7c15ULL); }

// The one key with this hash. Every step of HashKey is undone in reverse order: the factors are the inverses modulo
// 2^64, and x ^= x >> n is undone by xoring x with itself shifted by n, 2n, 3n... as far as 64 bits reach.
inline int64_t UnhashKey(uint64_t hash) {
  hash ^= hash >> 31 ^ hash >> 62;
  hash *= 0x319642b2d24d8ec3ULL;
  hash ^= hash >> 27 ^ hash >> 54;
  hash *= 0x96de1b173f119089ULL;
  hash ^= hash >> 30 ^ hash >> 60;
  return static_cast<int64_t>(hash - 0x9e3779b97f4a7c15ULL);
}

// The shard of a key with this hash, out of 2^bits; bits in [0, 8]. Shifting by 64 is undefined; by 1 and 63 it is not.
inline uint64_t ShardOf(uint64_t hash, int bits) { return hash >> 1 >> (63 - bits); }

// Which of `places` a key with this hash gets within its shard, out of 2^bits shards. Ascends with the hash.
inline uint64_t PlaceInShard(uint64_t hash, int bits, uint64_t places) {
  return static_cast<uint64_t>((static_cast<unsigned __int128>(hash << bits) * places) >> 64);
}

}  // namespace mxrec
