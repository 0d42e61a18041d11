#include "store/uses.h"

#include <gtest/gtest.h>

#include <random>
#include <set>
#include <thread>

namespace mxrec {
namespace {

TEST(Uses, TheOldestIsTheLowestUnderWayOrTheNext) {
  Uses uses;
  std::set<int64_t> running;
  int64_t last = 0;
  std::mt19937_64 random(1);
  for (int i = 0; i < 2000; ++i) {
    if (running.empty() || random() % 2 == 0) {
      const int64_t use = uses.Begin();
      ASSERT_GT(use, last);
      last = use;
      running.insert(use);
    } else {
      const auto it = std::next(running.begin(), random() % running.size());
      uses.End(*it);
      running.erase(it);
    }
    ASSERT_EQ(uses.oldest(), running.empty() ? last + 1 : *running.begin());
    ASSERT_EQ(uses.running(), std::vector<int64_t>(running.begin(), running.end()));
  }
}

TEST(Uses, NoNumberIsZeroOrGivenTwice) {
  Uses uses;
  constexpr int kThreads = 4, kEach = 2000;
  std::vector<std::vector<int64_t>> numbers(kThreads);
  std::vector<int> too_old(kThreads, 0);
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < kEach; ++i) {
        const int64_t use = uses.Begin();
        too_old[t] += uses.oldest() > use;  // it is under way
        numbers[t].push_back(use);
        uses.End(use);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  std::set<int64_t> all;
  for (const auto& some : numbers) all.insert(some.begin(), some.end());
  EXPECT_EQ(all.size(), size_t{kThreads * kEach});
  EXPECT_EQ(all.count(0), 0u);
  EXPECT_EQ(too_old, std::vector<int>(kThreads, 0));
  EXPECT_TRUE(uses.running().empty());
  EXPECT_GT(uses.oldest(), *all.rbegin());
}

}  // namespace
}  // namespace mxrec
