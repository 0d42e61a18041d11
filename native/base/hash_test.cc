#include "base/hash.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <random>

namespace mxrec {
namespace {

TEST(Hash, UnhashKeyUndoesHashKey) {
  for (const int64_t key : {int64_t{0}, int64_t{1}, int64_t{-1}, INT64_MIN, INT64_MIN + 1, INT64_MAX}) {
    EXPECT_EQ(UnhashKey(HashKey(key)), key);
    const uint64_t hash = static_cast<uint64_t>(key);
    EXPECT_EQ(HashKey(UnhashKey(hash)), hash);
  }
  for (int bit = 0; bit < 64; ++bit) {
    const uint64_t word = uint64_t{1} << bit;
    ASSERT_EQ(HashKey(UnhashKey(word)), word) << "bit " << bit;
    ASSERT_EQ(UnhashKey(HashKey(static_cast<int64_t>(word))), static_cast<int64_t>(word)) << "bit " << bit;
  }
  std::mt19937_64 random(1);
  for (int i = 0; i < 100000; ++i) {
    const uint64_t word = random();
    ASSERT_EQ(HashKey(UnhashKey(word)), word);
    ASSERT_EQ(UnhashKey(HashKey(static_cast<int64_t>(word))), static_cast<int64_t>(word));
  }
}

TEST(Hash, PlacesOfAShardAscendWithTheHashAndCoverTheRange) {
  std::mt19937_64 random(2);
  for (const int bits : {0, 1, 3, 8}) {
    const uint64_t shard = (uint64_t{1} << bits) - 1;
    const uint64_t first = shard << 1 << (63 - bits);  // the shard's lowest hash
    for (const uint64_t places : {uint64_t{1}, uint64_t{7}, uint64_t{1000003}, uint64_t{1} << 40}) {
      EXPECT_EQ(PlaceInShard(first, bits, places), 0u);
      EXPECT_EQ(PlaceInShard(UINT64_MAX, bits, places), places - 1);
      for (int i = 0; i < 1000; ++i) {
        const uint64_t a = first | random() >> bits, b = first | random() >> bits;
        ASSERT_EQ(ShardOf(a, bits), shard);
        ASSERT_LE(PlaceInShard(std::min(a, b), bits, places), PlaceInShard(std::max(a, b), bits, places));
      }
    }
  }
}

}  // namespace
}  // namespace mxrec
