#include "table/eviction.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <random>
#include <set>

#include "table/tracking_fixture.h"

namespace mxrec {
namespace {

using namespace table_fixture;     // NOLINT(build/namespaces): written for these tests
using namespace tracking_fixture;  // NOLINT(build/namespaces)
using Score = EvictionPolicy::Score;

constexpr int64_t kOff = Tracking::kOff;
constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr int64_t kNow = 1700000000;

// A row with these facts.
void Put(Table* table, int64_t key, const RowFacts& facts, const Floats& row = Floats(kDim, 1.0f)) {
  ASSERT_TRUE(AssignRow(table, key, row).ok());
  if (table->history() != nullptr) ASSERT_TRUE(table->SetFacts(key, facts).ok());
}

// A whole pass in slices of `rows`; returns how many rows it evicted.
int64_t Evict(const std::shared_ptr<Table>& table, const EvictionPolicy& policy, int64_t rows = INT64_MAX) {
  const int64_t before = table->size();
  std::unique_ptr<Eviction> eviction;
  const Status status = Eviction::Begin(table, policy, &eviction);
  EXPECT_TRUE(status.ok()) << status.message();
  if (!status.ok()) return -1;
  int slices = 1;
  while (!eviction->Run(rows)) {
    if (++slices > 100000) {
      ADD_FAILURE() << "the pass does not end";
      break;
    }
  }
  EXPECT_TRUE(eviction->Run(rows));  // complete is complete
  EXPECT_EQ(table->size(), before - eviction->evicted());
  ExpectLivesAddUp(*table);
  return eviction->evicted();
}

std::set<int64_t> KeysOf(const Table& table) {
  std::set<int64_t> keys;
  for (const auto& entry : Walk(table)) EXPECT_TRUE(keys.insert(entry.first).second);
  return keys;
}

// Puts the rows into a fresh table, evicts by the threshold, and compares what is left with those `stays` holds for.
template <typename Stays>
void ExpectLeft(const std::map<int64_t, RowFacts>& rows, Score score, double threshold, Stays stays) {
  SCOPED_TRACE(testing::Message() << "threshold " << threshold);
  const auto table = MakeTracked({0, 10, 1, 0});
  table->history()->SetClock(kNow, 5000);
  std::set<int64_t> left;
  for (const auto& [key, facts] : rows) {
    Put(table.get(), key, facts);
    if (stays(facts)) left.insert(key);
  }
  EXPECT_EQ(Evict(table, {score, threshold, -1}), static_cast<int64_t>(rows.size() - left.size()));
  EXPECT_EQ(KeysOf(*table), left);
}

const double kThresholds[] = {-kInfinity, -3, -0.5, 0, 0.001, 0.5, 1, 4, 4.5, 5, 5.0001, 99, 100, 101, 1e30, kInfinity};

TEST(Eviction, ByTimeRowsGoThatAreAsOldAsTheThreshold) {
  std::map<int64_t, RowFacts> rows;
  for (int64_t age = -5; age <= 100; ++age) rows[age] = {kNow - age, 1, 1};  // some are later than the clock
  for (const double threshold : kThresholds) {
    ExpectLeft(rows, Score::kTime, threshold,
               [&](const RowFacts& f) { return static_cast<double>(kNow - f.time) < threshold; });
  }
}

TEST(Eviction, ByStepRowsGoThatAreAsOldAsTheThreshold) {
  std::map<int64_t, RowFacts> rows;
  for (uint32_t age = 0; age <= 100; ++age) rows[age] = {kNow, 1, 5000 - age};
  for (const double threshold : kThresholds) {
    ExpectLeft(rows, Score::kStep, threshold,
               [&](const RowFacts& f) { return static_cast<double>(5000 - f.step) < threshold; });
  }
}

TEST(Eviction, ByCountRowsGoThatHaveLess) {
  std::map<int64_t, RowFacts> rows;
  for (uint32_t count = 0; count <= 100; ++count) rows[count] = {kNow, count, 5000};
  rows[1000] = {kNow, UINT32_MAX, 5000};
  rows[1001] = {kNow, UINT32_MAX - 1, 5000};
  std::vector<double> thresholds(std::begin(kThresholds), std::end(kThresholds));
  thresholds.insert(thresholds.end(), {4294967294.0, 4294967294.5, 4294967295.0, 4294967296.0});
  for (const double threshold : thresholds) {
    ExpectLeft(rows, Score::kCount, threshold,
               [&](const RowFacts& f) { return static_cast<double>(f.count) >= threshold; });
  }
}

TEST(Eviction, ByNormRowsGoThatHaveLessAndThoseThatAreNoNumbers) {
  const float nan = std::nanf(""), inf = std::numeric_limits<float>::infinity();
  const float above5 = std::nextafter(5.0f, 6.0f), below5 = std::nextafter(5.0f, 4.0f);
  const std::map<int64_t, std::pair<Floats, float>> rows = {
      {1, {{3, -4, 0, 0, 0}, 5}},        {2, {{0, 0, 0, 0, above5}, above5}}, {3, {{0, below5, 0, 0, 0}, below5}},
      {4, {{0, 0, 0, 0, 0}, 0}},         {5, {{-0.0f, 0, 0, 0, 0}, 0}},       {6, {{1e-42f, 0, 0, 0, 0}, 1e-42f}},
      {7, {{0, 3e38f, 0, 0, 0}, 3e38f}}, {8, {{0, 0, -inf, 0, 0}, inf}},      {9, {{1, nan, 1, 1, 1}, nan}},
      {10, {{nan, inf, 0, 0, 0}, nan}},  {11, {{0.7f, 0, 0, 0, 0}, 0.7f}},    {12, {{1e-30f, 0, 0, 0, 0}, 1e-30f}}};
  for (const bool tracked : {true, false}) {
    for (const double threshold : {-kInfinity, -1.0, 0.0, 1e-300, 1e-42, 1e-20, 0.7, 4.0, 5.0, 5.1, 1e38, kInfinity}) {
      SCOPED_TRACE(threshold);
      const auto table = tracked ? MakeTracked({0, kOff, 1, 0}) : Make(Config());
      std::set<int64_t> left;
      for (const auto& [key, row] : rows) {
        Put(table.get(), key, {}, row.first);
        // Compared as floats, so that a row of 0.7f is not below 0.7; but zero, or no number, is below
        // every positive number.
        const float norm = row.second;
        const bool goes = norm > 0 ? norm < static_cast<float>(threshold) : threshold > 0;
        if (!goes) left.insert(key);
      }
      Evict(table, {Score::kNorm, threshold, -1});
      EXPECT_EQ(KeysOf(*table), left);
    }
  }
}

TEST(Eviction, AllThresholdsHoldForClocksOfAnySize) {
  for (const int64_t now : {int64_t{1}, int64_t{1700000000000000000}, INT64_MAX}) {  // seconds, nanoseconds
    for (const double threshold : {-kInfinity, -9e18, -1.0, 0.0, 1.0, 9e18, kInfinity}) {
      SCOPED_TRACE(testing::Message() << "now " << now << ", threshold " << threshold);
      const auto table = MakeTracked({0, 10, 1, 0});
      table->history()->SetClock(now, 1);
      Put(table.get(), 1, {now, 1, 1});
      EXPECT_EQ(Evict(table, {Score::kTime, threshold, -1}), threshold <= 0 ? 1 : 0);
    }
  }
}

TEST(Eviction, KeepLeavesTheHighestScoresHoweverManyAreEqual) {
  std::mt19937_64 random(6);
  for (const Score score : {Score::kTime, Score::kStep, Score::kCount, Score::kNorm}) {
    for (const int64_t different : {1, 3, 40, 1000000}) {
      constexpr int64_t kRows = 500;
      for (const int64_t keep : {int64_t{0}, int64_t{1}, int64_t{250}, kRows - 1, kRows, kRows + 5, INT64_MAX}) {
        SCOPED_TRACE(testing::Message() << "score " << static_cast<int>(score) << ", " << different << " values, keep "
                                        << keep);
        const auto table = MakeTracked({0, 10, 1, 0});
        table->history()->SetClock(kNow, 5000);
        std::map<int64_t, int64_t> score_of;
        for (int64_t key = 0; key < kRows; ++key) {
          const int64_t value = 1 + static_cast<int64_t>(random() % different);
          score_of[key] = value;
          RowFacts facts{score == Score::kTime ? value : 7, 7, 7};
          if (score == Score::kStep) facts.step = static_cast<uint32_t>(value);
          if (score == Score::kCount) facts.count = static_cast<uint32_t>(value);
          Put(table.get(), key, facts, Floats(kDim, score == Score::kNorm ? static_cast<float>(value) : 7.0f));
        }
        EXPECT_EQ(Evict(table, {score, 0, keep}, 100), std::max<int64_t>(0, kRows - keep));
        int64_t lowest_left = INT64_MAX, highest_gone = INT64_MIN;
        for (const auto& [key, value] : score_of) {
          if (HasRow(*table, key)) {
            lowest_left = std::min(lowest_left, value);
          } else {
            highest_gone = std::max(highest_gone, value);
          }
        }
        EXPECT_GE(lowest_left, highest_gone);
      }
    }
  }
}

TEST(Eviction, ByKeepAndNormRowsThatAreZeroOrNoNumbersGoFirst) {
  const auto table = Make(Config());
  Put(table.get(), 1, {}, Floats(kDim, std::nanf("")));
  Put(table.get(), 2, {}, Floats(kDim, 0.0f));
  Put(table.get(), 3, {}, Floats(kDim, 1e-40f));
  Put(table.get(), 4, {}, Floats(kDim, std::numeric_limits<float>::infinity()));
  EXPECT_EQ(Evict(table, {Score::kNorm, 0, 2}), 2);
  EXPECT_EQ(KeysOf(*table), (std::set<int64_t>{3, 4}));
}

TEST(Eviction, AnEmptyTableHasNothingToEvict) {
  const auto table = MakeTracked({0, 10, 1, 0});
  EXPECT_EQ(Evict(table, {Score::kTime, 0, -1}), 0);
  EXPECT_EQ(Evict(table, {Score::kTime, 0, 0}), 0);
  EXPECT_EQ(Evict(table, {Score::kCount, 0, 5}, 1), 0);
}

TEST(Eviction, SlicesEvictWhatOneCallDoes) {
  for (const EvictionPolicy& policy : {EvictionPolicy{Score::kTime, 500, -1}, EvictionPolicy{Score::kStep, 20, -1},
                                       EvictionPolicy{Score::kCount, 3, -1}, EvictionPolicy{Score::kNorm, 1.2, -1},
                                       EvictionPolicy{Score::kTime, 0, 700}, EvictionPolicy{Score::kStep, 0, 700},
                                       EvictionPolicy{Score::kCount, 0, 700}, EvictionPolicy{Score::kNorm, 0, 700}}) {
    std::vector<std::set<int64_t>> left;
    for (const int64_t rows : {INT64_MAX, int64_t{1}, int64_t{30}, int64_t{1000}}) {
      const auto table = MakeTracked({0, 10, 1, 0});
      std::mt19937_64 random(12);
      for (int step = 0; step < 50; ++step) {
        Keys ids(60);
        for (int64_t& id : ids) id = static_cast<int64_t>(random() % 2000);
        MustTrain(table, ids, {kNow + 20 * step});
      }
      const int64_t size = table->size();
      EXPECT_GT(Evict(table, policy, rows), 0);
      EXPECT_GT(table->size(), 0);
      EXPECT_LT(table->size(), size);
      left.push_back(KeysOf(*table));
    }
    for (const std::set<int64_t>& keys : left) EXPECT_EQ(keys, left[0]) << "score " << static_cast<int>(policy.score);
  }
}

TEST(Eviction, ASliceWalksAboutAsManyRowsAsItIsGiven) {
  const auto table = MakeTracked({0, 10, 1, 0});
  MustTrain(table, Range(0, 6400), {kNow});
  std::unique_ptr<Eviction> eviction;
  ASSERT_TRUE(Eviction::Begin(table, {Score::kTime, 0, -1}, &eviction).ok());
  int slices = 0;
  for (int64_t before = 0; !eviction->Run(1000); before = eviction->evicted(), ++slices) {
    EXPECT_GE(eviction->evicted() - before, 1000 - 64);
    EXPECT_LE(eviction->evicted() - before, 1000 + 200);  // a shard has about 100
  }
  EXPECT_GE(slices, 5);
  EXPECT_EQ(eviction->evicted(), 6400);
}

TEST(Eviction, WhatCannotBeJudgedIsAnError) {
  const auto table = Make(Config());
  std::unique_ptr<Eviction> eviction;
  for (const Score score : {Score::kTime, Score::kStep, Score::kCount}) {
    for (const int64_t keep : {-1, 5}) {
      const Status status = Eviction::Begin(table, {score, 1, keep}, &eviction);
      EXPECT_EQ(status.code(), Status::Code::kFailedPrecondition);
      EXPECT_NE(status.message().find("'user'"), std::string::npos) << status.message();
      EXPECT_EQ(eviction, nullptr);
    }
  }
  EXPECT_TRUE(Eviction::Begin(table, {Score::kNorm, 1, -1}, &eviction).ok());
  eviction.reset();

  // By time, if no batch had one.
  const auto counted = MakeTracked({0, kOff, 1, 0});
  MustTrain(counted, {1, 2});
  for (const int64_t keep : {-1, 1}) {
    EXPECT_EQ(Eviction::Begin(counted, {Score::kTime, 0, keep}, &eviction).code(), Status::Code::kFailedPrecondition);
    EXPECT_EQ(eviction, nullptr);
  }
  MustTrain(counted, {2}, {50});
  EXPECT_EQ(Evict(counted, {Score::kTime, 0, 1}), 1);
  EXPECT_EQ(Eviction::Begin(table, {Score::kNorm, std::nan(""), -1}, &eviction).code(), Status::Code::kInvalidArgument);
  EXPECT_EQ(eviction, nullptr);
}

}  // namespace
}  // namespace mxrec
