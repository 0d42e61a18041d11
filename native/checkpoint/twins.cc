#include "checkpoint/twins.h"

#include <algorithm>
#include <mutex>
#include <vector>

#include "base/deal.h"
#include "base/hash.h"

namespace mxrec {
namespace {

// The number of buckets that hashes are dealt to before equal ones are sought: about 8 Ki to a bucket, so that a
// bucket's set stays in the second-level cache, but not more buckets than the TLB has entries for.
int BucketBits(int64_t n) {
  int bits = 0;
  while (bits < 11 && (n >> bits) > 8192) ++bits;
  return bits;
}

// Whether a value occurs twice; if so, which.
bool FindTwin(const uint64_t* values, int64_t n, uint64_t* twin) {
  uint64_t places = 16;
  while (places < 2 * static_cast<uint64_t>(n)) places *= 2;
  std::vector<uint64_t> set(places, 0);
  bool zero = false;  // 0 marks an empty place, so the value 0 is kept apart
  for (int64_t i = 0; i < n; ++i) {
    const uint64_t value = values[i];
    bool seen = false;
    if (value == 0) {
      seen = zero;
      zero = true;
    } else {
      uint64_t at = value & (places - 1);
      while (set[at] != 0 && set[at] != value) at = (at + 1) & (places - 1);
      seen = set[at] == value;
      set[at] = value;
    }
    if (seen) {
      *twin = value;
      return true;
    }
  }
  return false;
}

// Whether a hash occurs twice among those of the keys whose top `bits` are `top`; if so, which, the same whatever the
// threads.
bool FindTwinHash(const int64_t* keys, int64_t n, int64_t top, int bits, const ParallelFor& parallel, uint64_t* twin) {
  // Equal ones meet in one bucket, by the bits that follow.
  const int bucket_bits = BucketBits(n >> bits);
  const int64_t buckets = int64_t{1} << bucket_bits;
  std::vector<uint64_t> hashes;
  const std::vector<int64_t> starts = Deal(
      n, buckets, parallel,
      [&](int64_t i) {
        const uint64_t hash = HashKey(keys[i]);
        const bool is_meant = static_cast<int64_t>(ShardOf(hash, bits)) == top;
        return is_meant ? static_cast<int64_t>(ShardOf(hash << bits, bucket_bits)) : kNoBucket;
      },
      [&](int64_t count) { hashes.resize(count); },
      [&](int64_t i, int64_t place) { hashes[place] = HashKey(keys[i]); });

  std::mutex mutex;
  int64_t found_in = buckets;  // the lowest bucket with a twin, so that threads do not decide which one is reported
  parallel.Run(buckets, 40'000, [&](int64_t begin, int64_t end) {
    for (int64_t b = begin; b < end; ++b) {
      uint64_t found;
      if (!FindTwin(hashes.data() + starts[b], starts[b + 1] - starts[b], &found)) continue;
      std::lock_guard<std::mutex> lock(mutex);
      if (b < found_in) {
        found_in = b;
        *twin = found;
      }
    }
  });
  return found_in < buckets;
}

}  // namespace

bool FindTwins(const int64_t* keys, int64_t n, const ParallelFor& parallel, int64_t* first, int64_t* second,
               int64_t memory) {
  int bits = 0;
  while (bits < 3 && (n >> bits) * static_cast<int64_t>(sizeof(uint64_t)) > memory) ++bits;
  // HashKey is a bijection: equal hashes are equal keys.
  uint64_t hash;
  bool is_found = false;
  for (int64_t top = 0; top < int64_t{1} << bits && !is_found; ++top) {
    is_found = FindTwinHash(keys, n, top, bits, parallel, &hash);
  }
  if (!is_found) return false;
  const int64_t key = UnhashKey(hash);
  *first = std::find(keys, keys + n, key) - keys;
  *second = std::find(keys + *first + 1, keys + n, key) - keys;
  return true;
}

}  // namespace mxrec
