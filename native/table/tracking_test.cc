// Feature admission: what a table that tracks its keys counts, whom it gives a row, and what can be said of it.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <map>
#include <random>
#include <thread>

#include "base/address_space_fixture.h"
#include "table/bulk_loader.h"
#include "table/tracking_fixture.h"

namespace mxrec {
namespace {

using namespace table_fixture;     // NOLINT(build/namespaces): written for these tests
using namespace tracking_fixture;  // NOLINT(build/namespaces)

constexpr int64_t kOff = Tracking::kOff;

TEST(Tracking, AKeyGetsItsRowInTheStepThatReachesTheThreshold) {
  const auto table = MakeTracked({3, kOff, 1, 0});
  Step first({table}, {{5, 6, 6}}, {100});
  ASSERT_TRUE(first.Train().ok());
  EXPECT_EQ(first.handles(0), (Keys{kNoRow, kNoRow}));
  EXPECT_EQ(first.embedding(0, 0), Floats(kDim, 0.0f));
  ExpectFacts(*table, 5, 1, 100, 0);
  ExpectFacts(*table, 6, 2, 100, 0);
  ExpectLives(*table, 2, 2, 2);

  Step second({table}, {{6, 5}}, {90});  // of an earlier time
  ASSERT_TRUE(second.Train().ok());
  EXPECT_EQ(second.embedding(0, 0), InitialRow(6));
  EXPECT_EQ(second.embedding(0, 1), Floats(kDim, 0.0f));
  ExpectFacts(*table, 6, 3, 100, 2);
  ExpectFacts(*table, 5, 2, 100, 0);
  ExpectLives(*table, 2, 1, 1);

  Step third({table}, {{7, 7, 7, 7}}, {95});  // at once
  ASSERT_TRUE(third.Train().ok());
  EXPECT_EQ(third.embedding(0, 3), InitialRow(7));
  ExpectFacts(*table, 7, 4, 95, 3);
  ExpectLives(*table, 3, 1, 1);
  EXPECT_EQ(table->history()->now(), 100);
  EXPECT_EQ(table->history()->step(), 3u);
  ExpectFacts(*table, 8, 0, 0, 0);
}

TEST(Tracking, ARefusedKeyIsNotUpdated) {
  const auto table = MakeTracked({2, kOff, 1, 0});
  Step step({table}, {{1, 1, 2}});
  ASSERT_TRUE(step.Train().ok());
  const Floats gradient(2 * kDim, 1.0f), hyper = {0.5f, 0.0f};
  ASSERT_TRUE(table->CheckHandles(step.handles(0).data(), 2).ok());
  table->Update(*FindRule("gradient_descent"), hyper.data(), step.handles(0).data(), gradient.data(), 2);
  EXPECT_NE(ReadRow(*table, 1), InitialRow(1));
  EXPECT_EQ(table->size(), 1);
  MustTrain(table, {2});
  EXPECT_EQ(ReadRow(*table, 2), InitialRow(2));
}

TEST(Tracking, OneFullTableStopsTheCountingOfAllTables) {
  // Tracked, tracked and full, not tracked.
  const Tables tables = {MakeTracked({2, 100, 1, 0}), MakeTracked({2, 100, 1, 0}, Config(10)), Make(Config())};
  ASSERT_TRUE(Step(tables, {{1, 1, 2}, Range(0, 20), {1, 2, 3}}, {100}).Train().ok());
  for (const int threads : {1, 4}) {
    Step step(tables, {{1, 2, 3}, Range(0, 11), {1, 4}}, {200});
    const Status status = step.Train(ThreadedFor(threads));
    EXPECT_EQ(status.code(), Status::Code::kResourceExhausted);
    EXPECT_NE(status.message().find("10"), std::string::npos) << status.message();
  }
  ExpectFacts(*tables[0], 1, 2, 100, 1);
  ExpectFacts(*tables[0], 2, 1, 100, 0);
  ExpectFacts(*tables[0], 3, 0, 0, 0);
  ExpectLives(*tables[0], 2, 1, 1);
  for (int64_t key = 0; key < 20; ++key) ExpectFacts(*tables[1], key, 1, 100, 0);
  ExpectLives(*tables[1], 20, 20, 20);
  EXPECT_EQ(tables[2]->size(), 3);
  for (int t = 0; t < 2; ++t) {
    EXPECT_EQ(tables[t]->history()->now(), 100);
    EXPECT_EQ(tables[t]->history()->step(), 1u);
  }
  ASSERT_TRUE(Step(tables, {{}, Range(0, 10), {}}, {200}).Train().ok());  // what fits
  EXPECT_EQ(tables[1]->size(), 10);
  // A full table still counts what it refuses and what has a row.
  ASSERT_TRUE(Step(tables, {{}, {0, 30}, {}}, {300}).Train().ok());
  ExpectFacts(*tables[1], 0, 3, 300, 3);
  ExpectFacts(*tables[1], 30, 1, 300, 0);
}

TEST(Tracking, EvaluationChangesNothing) {
  const auto table = MakeTracked({2, 50, 1, 0});
  MustTrain(table, {1, 1, 2, 3, 3}, {100});
  const Content before = Walk(*table);
  const int64_t bytes = table->bytes();
  for (const int threads : {1, 4}) {
    Step step({table}, {{1, 2, 2, 2, 3, 4, 4, 4}}, {500});
    ASSERT_TRUE(step.Evaluate(ThreadedFor(threads)).ok());
    EXPECT_EQ(step.embedding(0, 0), InitialRow(1));
    EXPECT_EQ(step.embedding(0, 1), Floats(kDim, 0.0f));
  }
  EXPECT_TRUE(Walk(*table) == before);
  EXPECT_EQ(table->bytes(), bytes);
  ExpectFacts(*table, 1, 2, 100, 1);
  ExpectFacts(*table, 2, 1, 100, 0);
  ExpectFacts(*table, 4, 0, 0, 0);
  ExpectLives(*table, 3, 1, 1);
  EXPECT_EQ(table->history()->now(), 100);
  EXPECT_EQ(table->history()->step(), 1u);
}

TEST(Tracking, LivesAddUpThroughEverythingThatEndsOrBeginsOne) {
  const auto table = MakeTracked({2, kOff, 1, 0});
  MustTrain(table, {1, 1, 2, 3, 4, 5});
  ExpectLives(*table, 5, 4, 4);
  const Keys gone = {1, 2, 99};
  EXPECT_EQ(table->Erase(gone.data(), 3), 1);  // rows are counted; the candidate 2 is forgotten, too
  ExpectLives(*table, 5, 4, 3);
  ExpectFacts(*table, 2, 0, 0, 0);
  ASSERT_TRUE(AssignRow(table.get(), 3, Floats(kDim, 1.0f)).ok());  // a candidate gets its row, and takes its count
  ExpectFacts(*table, 3, 1, 0, 0);
  ExpectLives(*table, 5, 3, 2);
  ASSERT_TRUE(AssignRow(table.get(), 6, Floats(kDim, 1.0f)).ok());
  ExpectLives(*table, 6, 3, 2);
  const Keys fresh = {4, 7};
  const float* none[] = {nullptr};
  ASSERT_TRUE(BulkLoader(table.get(), ThreadedFor(2)).Insert(fresh.data(), none, 2).ok());
  ExpectFacts(*table, 4, 1, 0, 0);
  ExpectLives(*table, 7, 2, 1);
  MustTrain(table, {1, 2});  // new lives
  ExpectLives(*table, 9, 4, 3);
  table->Clear();
  ExpectLives(*table, 9, 4, 0);
  EXPECT_EQ(table->size(), 0);
  ExpectFacts(*table, 5, 0, 0, 0);
  MustTrain(table, {5});
  EXPECT_FALSE(HasRow(*table, 5));  // its first count is forgotten
  ExpectLives(*table, 10, 5, 1);
}

TEST(Tracking, TheSameSettingsAgainDoNotUndoWhatWasSetSince) {
  const Tracking declared{3, 100, 2, 0};
  const auto table = MakeTracked(declared);
  MustTrain(table, {1}, {100});
  table->history()->SetThresholds(50, 60, 7);
  ASSERT_TRUE(table->Track(declared).ok());
  EXPECT_TRUE(table->history()->tracking() == (Tracking{50, 60, 7, 0}));
  ExpectFacts(*table, 1, 2, 100, 0);
  ASSERT_TRUE(table->Track({3, 100, 5, 0}).ok());  // other settings apply
  EXPECT_TRUE(table->history()->tracking() == (Tracking{3, 100, 5, 0}));
  ExpectFacts(*table, 1, 2, 100, 0);
}

TEST(Tracking, TurnedOffEveryKeyGetsARowAndNoTimeIsNeeded) {
  const auto table = MakeTracked({3, 100, 1, 0});
  MustTrain(table, {1, 2}, {100});
  EXPECT_EQ(Step({table}, {{1}}).Train().code(), Status::Code::kInvalidArgument);
  ASSERT_TRUE(table->Track({kOff, kOff, 1, 0}).ok());
  MustTrain(table, {1, 3});
  EXPECT_TRUE(HasRow(*table, 1));
  EXPECT_TRUE(HasRow(*table, 3));
  ExpectFacts(*table, 1, 2, 100, 2);
  ExpectLives(*table, 3, 1, 1);

  const auto never = Make(Config());
  ASSERT_TRUE(never->Track({kOff, kOff, 1, 0}).ok());
  EXPECT_EQ(never->history(), nullptr);
  ExpectFacts(*never, 1, 0, 0, 0);
}

TEST(Tracking, AFilterCannotBeAddedRemovedOrResized) {
  for (const int64_t before : {0, 4096}) {
    const auto table = MakeTracked({3, kOff, 1, before});
    for (const int64_t after : {0, 4096, 8192}) {
      if (before == after) continue;
      const Status status = table->Track({5, kOff, 1, after});
      EXPECT_EQ(status.code(), Status::Code::kFailedPrecondition);
      EXPECT_NE(status.message().find(std::to_string(after)), std::string::npos) << status.message();
      EXPECT_EQ(table->history()->access_threshold(), 3);
    }
  }
}

TEST(Tracking, SettingsOutOfRangeAreNamed) {
  const auto table = Make(Config());
  const std::pair<Tracking, const char*> bad[] = {
      {{-2, kOff, 1, 0}, "access_threshold"},       {{int64_t{1} << 31, kOff, 1, 0}, "access_threshold"},
      {{65536, kOff, 1, 64}, "access_threshold"},   {{1, -2, 1, 0}, "eviction_threshold"},
      {{1, kOff, 0, 0}, "faae_coefficient"},        {{1, kOff, int64_t{1} << 31, 0}, "faae_coefficient"},
      {{1, kOff, 1, -1}, "admission_filter_bytes"}, {{1, int64_t{1} << 31, 1, 0}, "eviction_threshold"}};
  for (const auto& [tracking, word] : bad) {
    const Status status = table->Track(tracking);
    EXPECT_EQ(status.code(), Status::Code::kInvalidArgument) << word;
    EXPECT_NE(status.message().find(word), std::string::npos) << status.message();
    EXPECT_NE(status.message().find("'user'"), std::string::npos) << status.message();
  }
  EXPECT_EQ(table->history(), nullptr);
  EXPECT_TRUE(table->Track({65535, INT32_MAX, INT32_MAX, 64}).ok());
}

TEST(Tracking, RowsFromBeforeKnowNothingAndCountFromThen) {
  const auto table = Make(Config());
  const int64_t rows = FactsColumn::kSlabRows + 1000;  // more than one slab
  MustInsert(table.get(), Range(0, rows));
  ASSERT_TRUE(table->Track({5, 100, 1, 0}).ok());
  for (int64_t key = 0; key < rows; ++key) ASSERT_EQ(table->Facts(key).count, 0u);
  ExpectLives(*table, rows, 0, 0);
  MustTrain(table, {0, rows - 1, rows}, {77});
  ExpectFacts(*table, 0, 1, 77, 1);
  ExpectFacts(*table, rows - 1, 1, 77, 1);
  EXPECT_FALSE(HasRow(*table, rows));
}

TEST(Tracking, OneTableMayComeTwiceInACommit) {
  for (const int threads : {1, 4}) {
    const auto table = MakeTracked({2, kOff, 1, 0});
    Step step({table, table}, {{1, 1, 2, 3}, {1, 2, 4}});
    ASSERT_TRUE(step.Train(ThreadedFor(threads)).ok());
    EXPECT_EQ(table->Facts(1).count, 3u);
    EXPECT_EQ(table->Facts(2).count, 2u);  // refused in both parts; its next occurrence gets the row
    EXPECT_EQ(table->Facts(3).count, 1u);
    EXPECT_EQ(table->Facts(4).count, 1u);
    ExpectLives(*table, 4, 3, 3);
    MustTrain(table, {2});
    EXPECT_EQ(ReadRow(*table, 2), InitialRow(2));
  }
}

TEST(Tracking, AnEmptyBatchBringsNoLife) {
  const auto table = MakeTracked({2, 5, 1, 0});
  MustTrain(table, {});
  MustTrain(table, {}, {9});
  ExpectLives(*table, 0, 0, 0);
}

TEST(Tracking, RefusedKeysTakeAtMost24BytesEach) {
  constexpr int64_t kKeys = 200000;
  const auto table = MakeTracked({2, 100, 1, 0});
  const int64_t empty = table->bytes();
  for (int64_t first = 0; first < kKeys; first += 20000) MustTrain(table, Range(first, first + 20000), {100});
  ExpectLives(*table, kKeys, kKeys, kKeys);
  EXPECT_LE(table->bytes() - empty, 24 * kKeys);
  EXPECT_GE(table->bytes() - empty, 16 * kKeys);  // hash, count and time take no less
  table->Clear();
  EXPECT_EQ(table->bytes(), empty);
}

TEST(Tracking, BatchesOfTwoThreadsLoseNoCount) {
  constexpr int kRounds = 60;
  constexpr int64_t kKeys = 400;
  const auto table = MakeTracked({6, 100, 2, 0});
  std::map<int64_t, uint32_t> counts;
  std::map<int64_t, int64_t> latest;
  std::vector<std::vector<std::pair<Keys, Keys>>> batches(2);
  std::mt19937_64 random(8);
  for (auto& thread : batches) {
    for (int round = 0; round < kRounds; ++round) {
      Keys ids(100), times(100);
      for (int i = 0; i < 100; ++i) {
        ids[i] = static_cast<int64_t>(random() % kKeys * (random() % 4 == 0 ? 1 : random() % 2));
        times[i] = 1000 + static_cast<int64_t>(random() % 500);
        counts[ids[i]] += 2;
        latest[ids[i]] = std::max(latest[ids[i]], times[i]);
      }
      thread.push_back({ids, times});
    }
  }
  std::atomic<bool> stop{false};
  std::thread onlooker([&] {
    while (!stop) {
      for (int64_t key = 0; key < kKeys; key += 7) table->Facts(key);
      const Table::Lives lives = table->lives();
      EXPECT_GE(lives.seen, lives.refused);
      Step({table}, {Range(0, kKeys)}, {1});
    }
  });
  std::vector<std::thread> threads;
  for (size_t c = 0; c < 2; ++c) {
    threads.emplace_back([&, c] {
      for (const auto& [ids, times] : batches[c]) EXPECT_TRUE(Step({table}, {ids}, times).Train(ThreadedFor(2)).ok());
    });
  }
  for (std::thread& thread : threads) thread.join();
  stop = true;
  onlooker.join();

  int64_t rows = 0;
  for (int64_t key = 0; key < kKeys; ++key) {
    const RowFacts facts = table->Facts(key);
    EXPECT_EQ(facts.count, counts[key]) << key;
    EXPECT_EQ(facts.time, latest[key]) << key;
    rows += HasRow(*table, key);
    if (HasRow(*table, key)) EXPECT_GE(facts.count, 6u);
  }
  EXPECT_EQ(table->size(), rows);
  EXPECT_GT(rows, 0);
  EXPECT_EQ(table->history()->step(), 2u * kRounds);
  ExpectLivesAddUp(*table);
  // A key that two batches brought over the threshold at once, in neither of which it was enough, has it next time.
  MustTrain(table, Range(0, kKeys), {1});
  for (int64_t key = 0; key < kKeys; ++key) EXPECT_EQ(HasRow(*table, key), counts[key] + 2 >= 6) << key;
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)  // they need the address space for themselves

// Runs in a child process; says by its exit code how far it came.
[[noreturn]] void RunOutOfMemoryAndRecover() {
  TableConfig wide = Config();
  wide.dim = 8192;  // a slab is 2 GiB
  const auto table = MakeTracked({2, 100, 1, 0}, wide);
  Step first({table}, {{1}}, {100}), second({table}, {{1}}, {101});
  if (!first.Train().ok()) std::exit(1);
  LimitAddressSpace(rlim_t{256} << 20);
  if (second.Train().code() != Status::Code::kResourceExhausted) std::exit(2);
  const Keys keys = {1};
  const float* none[] = {nullptr};
  if (BulkLoader(table.get(), SerialFor()).Insert(keys.data(), none, 1).ok()) std::exit(3);
  if (table->Facts(1).count != 1 || table->Facts(1).time != 100) std::exit(4);  // it still waits, with its count
  if (table->lives().seen != 1 || table->lives().refused != 1 || table->lives().candidates != 1) std::exit(5);
  if (table->size() != 0 || table->inserted() != 0) std::exit(6);
  LimitAddressSpace(RLIM_INFINITY);
  if (!second.Train().ok() || table->size() != 1 || table->Facts(1).count != 2) std::exit(7);
  if (table->lives().seen != 1 || table->lives().refused != 0) std::exit(8);
  std::exit(0);
}

TEST(TrackingDeathTest, WithoutMemoryForItsRowAKeyKeepsItsCount) {
  EXPECT_EXIT(RunOutOfMemoryAndRecover(), testing::ExitedWithCode(0), "");
}

#endif

}  // namespace
}  // namespace mxrec
