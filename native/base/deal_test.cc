#include "base/deal.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

namespace mxrec {
namespace {

// What one thread would do with a sort.
std::vector<int64_t> Sorted(const std::vector<int64_t>& bucket_of) {
  std::vector<int64_t> items;
  for (size_t i = 0; i < bucket_of.size(); ++i) {
    if (bucket_of[i] != kNoBucket) items.push_back(static_cast<int64_t>(i));
  }
  std::stable_sort(items.begin(), items.end(), [&](int64_t a, int64_t b) { return bucket_of[a] < bucket_of[b]; });
  return items;
}

TEST(Deal, SortsItemsByBucketWhateverTheThreads) {
  std::mt19937_64 random(1);
  for (const int64_t n : {0, 1, 2, 1000, 16384, 33000, 300000}) {
    for (const int64_t buckets : {1, 3, 64}) {
      for (const bool leaves_out : {false, true}) {
        std::vector<int64_t> bucket_of(n);
        for (int64_t& bucket : bucket_of) {
          bucket = leaves_out && random() % 3 == 0 ? kNoBucket : static_cast<int64_t>(random() % buckets);
        }
        const std::vector<int64_t> expected = Sorted(bucket_of);
        for (const int threads : {1, 2, 5}) {
          std::vector<int64_t> dealt;
          const std::vector<int64_t> starts = Deal(
              n, buckets, ThreadedFor(threads), [&](int64_t i) { return bucket_of[i]; },
              [&](int64_t count) { dealt.resize(count, -1); }, [&](int64_t i, int64_t place) { dealt[place] = i; });
          ASSERT_TRUE(dealt == expected) << n << " items, " << buckets << " buckets, " << threads << " threads";
          ASSERT_EQ(static_cast<int64_t>(starts.size()), buckets + 1);
          EXPECT_EQ(starts[0], 0);
          for (int64_t b = 0; b < buckets; ++b) {
            EXPECT_EQ(starts[b + 1] - starts[b], std::count(bucket_of.begin(), bucket_of.end(), b));
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace mxrec
