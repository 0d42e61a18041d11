#include "checkpoint/twins.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <random>
#include <vector>

#include "base/hash.h"

namespace mxrec {
namespace {

constexpr int64_t kLittle = 1024;  // bytes: the keys are walked as often as is allowed

TEST(Twins, FindsTheTwoPlacesOfTheOneKeyThatComesTwice) {
  std::mt19937_64 random(1);
  for (const int64_t n : {2, 3, 1000, 100000}) {
    for (int round = 0; round < 10; ++round) {
      std::vector<int64_t> keys(n);
      const uint64_t factor = round % 2 == 0 ? 1 : 0x9e3779b97f4a7c15;  // neighbours, or all over the range
      for (int64_t i = 0; i < n; ++i) keys[i] = static_cast<int64_t>(static_cast<uint64_t>(i) * factor);
      const int64_t a = static_cast<int64_t>(random() % n), b = static_cast<int64_t>(random() % n);
      for (const int threads : {1, 3}) {
        for (const int64_t memory : {kTwinMemory, kLittle}) {
          int64_t first = -1, second = -1;
          EXPECT_FALSE(FindTwins(keys.data(), n, ThreadedFor(threads), &first, &second, memory));
        }
      }
      if (a == b) continue;
      keys[a] = keys[b];
      for (const int threads : {1, 3}) {
        for (const int64_t memory : {kTwinMemory, kLittle}) {
          int64_t first = -1, second = -1;
          ASSERT_TRUE(FindTwins(keys.data(), n, ThreadedFor(threads), &first, &second, memory)) << n;
          EXPECT_EQ(first, std::min(a, b));
          EXPECT_EQ(second, std::max(a, b));
        }
      }
    }
  }
}

TEST(Twins, OfManyTheSameAreFoundWhateverTheThreads) {
  std::vector<int64_t> keys(50000);
  for (size_t i = 0; i < keys.size(); ++i) keys[i] = static_cast<int64_t>(i % 20000);
  for (const int64_t memory : {kTwinMemory, kLittle}) {
    int64_t first, second;
    ASSERT_TRUE(FindTwins(keys.data(), 50000, SerialFor(), &first, &second, memory));
    EXPECT_EQ(second, first + 20000);
    for (const int threads : {2, 4, 7}) {
      int64_t same_first, same_second;
      ASSERT_TRUE(FindTwins(keys.data(), 50000, ThreadedFor(threads), &same_first, &same_second, memory));
      EXPECT_EQ(same_first, first);
      EXPECT_EQ(same_second, second);
    }
  }
}

// A checkpoint can be made to have any keys: such that all are met in one walk, and there in one bucket; and the one
// whose hash is 0.
TEST(Twins, AreFoundAmongKeysWithTheSameLeadingBits) {
  std::vector<int64_t> keys;
  for (uint64_t hash = 0; hash < 30000; ++hash) keys.push_back(UnhashKey(hash));
  int64_t first, second;
  for (const int64_t memory : {kTwinMemory, kLittle}) {
    EXPECT_FALSE(FindTwins(keys.data(), 30000, ThreadedFor(2), &first, &second, memory));
    keys.push_back(keys[0]);
    ASSERT_TRUE(FindTwins(keys.data(), 30001, ThreadedFor(2), &first, &second, memory));
    EXPECT_EQ(first, 0);
    EXPECT_EQ(second, 30000);
    keys.pop_back();
  }
}

}  // namespace
}  // namespace mxrec
