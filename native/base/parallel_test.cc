#include "base/parallel.h"

#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <map>
#include <mutex>
#include <new>
#include <set>
#include <thread>
#include <vector>

namespace mxrec {
namespace {

// How often each item of [0, n) was covered.
std::vector<int> Coverage(const ParallelFor& parallel, int64_t n) {
  std::vector<std::atomic<int>> times(n);
  parallel.Run(n, 1, [&](int64_t begin, int64_t end) {
    EXPECT_LE(0, begin);
    EXPECT_LT(begin, end);
    EXPECT_LE(end, n);
    for (int64_t i = begin; i < end; ++i) times[i].fetch_add(1);
  });
  return std::vector<int>(times.begin(), times.end());
}

TEST(SerialFor, PassesTheWholeRangeOnceInTheCallingThread) {
  int calls = 0;
  SerialFor().Run(1000, 1, [&](int64_t begin, int64_t end) {
    ++calls;
    EXPECT_EQ(begin, 0);
    EXPECT_EQ(end, 1000);
  });
  EXPECT_EQ(calls, 1);
}

TEST(SerialFor, DoesNothingWithAnEmptyRange) {
  for (const int64_t n : {0, -1}) SerialFor().Run(n, 1, [](int64_t, int64_t) { FAIL(); });
}

TEST(ThreadedFor, CoversEachItemOnce) {
  for (int threads = 1; threads <= 9; ++threads) {
    for (const int64_t n : {1, 2, 3, 8, 9, 10, 1001}) {
      EXPECT_EQ(Coverage(ThreadedFor(threads), n), std::vector<int>(n, 1)) << threads << " threads, " << n << " items";
    }
  }
}

TEST(ThreadedFor, DoesNothingWithAnEmptyRange) {
  ThreadedFor(3).Run(0, 1, [](int64_t, int64_t) { FAIL(); });
}

TEST(ThreadedFor, UsesAsManyThreadsAsAskedEvenForFewItems) {
  std::mutex mutex;
  std::set<std::thread::id> seen;
  std::atomic<int> arrived{0};
  ThreadedFor(4).Run(4, 1, [&](int64_t, int64_t) {
    // All four must be alive at once, or a thread's id could be used twice.
    arrived.fetch_add(1);
    while (arrived.load() < 4) std::this_thread::yield();
    std::lock_guard<std::mutex> lock(mutex);
    seen.insert(std::this_thread::get_id());
  });
  EXPECT_EQ(seen.size(), 4u);
}

TEST(ThreadedFor, ReturnsOnlyWhenAllIsDone) {
  std::vector<int> squares(5000, -1);  // not atomic: the thread sanitizer would see a read that came too early
  ThreadedFor(3).Run(5000, 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) squares[i] = static_cast<int>(i * i % 1000);
  });
  for (int i = 0; i < 5000; ++i) ASSERT_EQ(squares[i], i * i % 1000);
}

TEST(RunLists, CallsEachUnitOfEachListOnce) {
  const std::vector<int64_t> sizes = {3, 0, 0, 5, 1, 0};
  for (int threads = 1; threads <= 10; ++threads) {
    std::mutex mutex;
    std::map<std::pair<size_t, int64_t>, int> calls;
    RunLists(ThreadedFor(threads), sizes, 1, [&](size_t list, int64_t unit) {
      std::lock_guard<std::mutex> lock(mutex);
      ++calls[{list, unit}];
    });
    std::map<std::pair<size_t, int64_t>, int> want;
    for (size_t list = 0; list < sizes.size(); ++list) {
      for (int64_t unit = 0; unit < sizes[list]; ++unit) want[{list, unit}] = 1;
    }
    EXPECT_EQ(calls, want) << threads << " threads";
  }
}

TEST(RunLists, DoesNothingWithoutUnits) {
  for (const std::vector<int64_t>& sizes : {std::vector<int64_t>{}, std::vector<int64_t>{0, 0}}) {
    RunLists(SerialFor(), sizes, 1, [](size_t, int64_t) { FAIL(); });
  }
}

TEST(ShareOut, CoversTheRangeOnce) {
  for (const int64_t n : {1, 2, 7, 1000}) {
    for (const int64_t blocks : {1, 2, 5, 7}) {
      if (blocks > n) continue;
      std::vector<std::thread> threads;
      std::vector<std::atomic<int>> seen(n);
      std::atomic<int64_t> calls{0};
      ShareOut(
          n, blocks, 3, [&](std::function<void()> work) { threads.emplace_back(std::move(work)); },
          [&](int64_t begin, int64_t end) {
            ++calls;
            EXPECT_LT(begin, end);
            for (int64_t i = begin; i < end; ++i) ++seen[i];
          });
      EXPECT_EQ(calls, blocks);
      for (const auto& count : seen) EXPECT_EQ(count, 1);
      for (std::thread& thread : threads) thread.join();
    }
  }
}

TEST(ShareOut, DoesNotWaitForHelpersThatHaveNotBegun) {
  std::vector<std::function<void()>> late;
  int64_t sum = 0;
  {
    const ParallelFor::Block add = [&](int64_t begin, int64_t end) { sum += end - begin; };
    ShareOut(100, 10, 2, [&](std::function<void()> work) { late.push_back(std::move(work)); }, add);
  }
  EXPECT_EQ(sum, 100);
  ASSERT_EQ(late.size(), 2u);
  for (const auto& work : late) work();  // finds nothing to do, and nothing that is gone
  EXPECT_EQ(sum, 100);
}

TEST(ShareOut, WaitsForBlocksThatOthersHaveTaken) {
  for (int round = 0; round < 200; ++round) {
    std::thread helper;
    std::vector<int> done(8, 0);
    ShareOut(
        8, 8, 1, [&](std::function<void()> work) { helper = std::thread(std::move(work)); },
        [&](int64_t begin, int64_t end) {
          for (int64_t i = begin; i < end; ++i) done[i] = 1;
        });
    EXPECT_EQ(done, std::vector<int>(8, 1));
    helper.join();
  }
}

TEST(ParallelFor, GivesTheCallerWhatAnyThreadThrows) {
  std::atomic<int> done{0};
  const auto fn = [&](int64_t begin, int64_t) {
    ++done;
    if (begin % 2 == 1) throw std::bad_alloc();
  };
  EXPECT_THROW(ThreadedFor(8).Run(8, 1, fn), std::bad_alloc);
  EXPECT_EQ(done, 8) << "every block was over before";
  std::vector<std::thread> threads;
  const auto launch = [&](std::function<void()> work) { threads.emplace_back(std::move(work)); };
  EXPECT_THROW(ShareOut(64, 64, 3, launch, fn), std::bad_alloc);
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(done, 72);
}

TEST(ParallelFor, DoesTheWorkWithoutHelpersIfTheyCannotBeHad) {
  std::atomic<int> done{0};
  ShareOut(
      16, 16, 3, [](const std::function<void()>&) { throw std::bad_alloc(); },
      [&](int64_t begin, int64_t end) { done += static_cast<int>(end - begin); });
  EXPECT_EQ(done, 16);
}

}  // namespace
}  // namespace mxrec
