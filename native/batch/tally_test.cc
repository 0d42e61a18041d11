#include "batch/tally.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <random>

namespace mxrec {
namespace {

using Ids = std::vector<int64_t>;

struct Feature {
  int64_t table;
  Ids ids;
  std::vector<int64_t> shape;
};

// A batch as the preparation stage writes it; tables are "t0", "t1"...
class Batch {
 public:
  Batch(int64_t tables, std::vector<Feature> features, Ids times = {})
      : features_(std::move(features)), times_(std::move(times)), groupings_(tables) {
    std::vector<PlanWriter::Table> parts;
    std::vector<FeaturePlan> plans;
    for (int64_t t = 0; t < tables; ++t) {
      std::vector<IdSpan> spans;
      for (const Feature& f : features_) {
        if (f.table == t) spans.push_back({f.ids.data(), static_cast<int64_t>(f.ids.size())});
      }
      groupings_[t].Build(spans, 2);
      parts.push_back({Name(t), &groupings_[t]});
    }
    for (const Feature& f : features_) plans.push_back({f.table, 0, static_cast<int64_t>(f.ids.size()), f.shape});
    const PlanWriter writer(std::move(parts), std::move(plans), {times_.data(), static_cast<int64_t>(times_.size())});
    words_.resize(writer.words(), -1);
    writer.Write(words_.data());
    const Status status = Plan::Parse(words_.data(), writer.words(), &plan_);
    EXPECT_TRUE(status.ok()) << status.message();
  }

  static std::string Name(int64_t t) { return "t" + std::to_string(t); }
  Status Make(int64_t t, int64_t coefficient, bool needs_time, Tally* tally) const {
    return Tally::Make(plan_, t, Name(t), coefficient, needs_time, tally);
  }
  Status::Code MakeCode(int64_t t, bool needs_time) const {
    Tally tally;
    return Make(t, 1, needs_time, &tally).code();
  }
  const TablePlan& table(int64_t t) const { return plan_.tables()[t]; }
  std::vector<int64_t>& words() { return words_; }
  Plan& plan() { return plan_; }

  // What the tally must say, from the ids alone.
  struct Expected {
    uint64_t occurrences = 0;
    int64_t time = 0;
  };
  std::map<int64_t, Expected> Count(int64_t t) const {
    std::map<int64_t, Expected> expected;
    for (const Feature& f : features_) {
      if (f.table != t) continue;
      for (size_t i = 0; i < f.ids.size(); ++i) {
        Expected& e = expected[f.ids[i]];
        ++e.occurrences;
        if (times_.empty()) continue;
        e.time = std::max(e.time, times_.size() == 1 ? times_[0] : times_[i / (f.ids.size() / times_.size())]);
      }
    }
    return expected;
  }

  void ExpectRight(int64_t coefficient) const {
    for (int64_t t = 0; t < static_cast<int64_t>(groupings_.size()); ++t) {
      Tally tally;
      const Status status = Make(t, coefficient, false, &tally);
      ASSERT_TRUE(status.ok()) << status.message();
      const auto expected = Count(t);
      ASSERT_EQ(table(t).keys_size, static_cast<int64_t>(expected.size()));
      for (int64_t u = 0; u < table(t).keys_size; ++u) {
        const Expected& e = expected.at(table(t).keys[u]);
        ASSERT_EQ(tally.weight(u), std::min<uint64_t>(UINT32_MAX, e.occurrences * coefficient));
        ASSERT_EQ(tally.time(u), e.time) << "key " << table(t).keys[u];
      }
      EXPECT_EQ(tally.latest(), times_.empty() ? 0 : *std::max_element(times_.begin(), times_.end()));
    }
  }

 private:
  std::vector<Feature> features_;
  Ids times_;
  std::vector<Grouping> groupings_;
  std::vector<int64_t> words_;
  Plan plan_;
};

int64_t KeyNumber(const TablePlan& table, int64_t key) {
  return std::find(table.keys, table.keys + table.keys_size, key) - table.keys;
}

TEST(Tally, CountsTheOccurrencesOfAKeyInAllFeaturesOfItsTable) {
  const Batch batch(2, {{0, {7, 8, 7}, {3}}, {1, {7}, {1}}, {0, {9, 7}, {2}}});
  Tally tally;
  ASSERT_TRUE(batch.Make(0, 1, false, &tally).ok());
  EXPECT_EQ(tally.weight(KeyNumber(batch.table(0), 7)), 3u);
  EXPECT_EQ(tally.weight(KeyNumber(batch.table(0), 8)), 1u);
  EXPECT_EQ(tally.weight(KeyNumber(batch.table(0), 9)), 1u);
  ASSERT_TRUE(batch.Make(1, 1, false, &tally).ok());  // the same object, for another table
  EXPECT_EQ(tally.weight(KeyNumber(batch.table(1), 7)), 1u);
}

TEST(Tally, TheCoefficientMultipliesAndTheProductSaturates) {
  Ids ids(5, 1);
  ids.push_back(2);
  ids.insert(ids.end(), 2, 3);
  const Batch batch(1, {{0, ids, {8}}});
  const int64_t one = KeyNumber(batch.table(0), 1), two = KeyNumber(batch.table(0), 2),
                three = KeyNumber(batch.table(0), 3);
  Tally tally;
  ASSERT_TRUE(batch.Make(0, 10, false, &tally).ok());
  EXPECT_EQ(tally.weight(one), 50u);
  EXPECT_EQ(tally.weight(two), 10u);
  ASSERT_TRUE(batch.Make(0, 858993459, false, &tally).ok());  // a fifth of UINT32_MAX
  EXPECT_EQ(tally.weight(one), UINT32_MAX);
  ASSERT_TRUE(batch.Make(0, 858993460, false, &tally).ok());
  EXPECT_EQ(tally.weight(one), UINT32_MAX);
  EXPECT_EQ(tally.weight(two), 858993460u);
  ASSERT_TRUE(batch.Make(0, INT32_MAX, false, &tally).ok());
  EXPECT_EQ(tally.weight(one), UINT32_MAX);
  EXPECT_EQ(tally.weight(two), uint32_t{INT32_MAX});
  EXPECT_EQ(tally.weight(three), UINT32_MAX - 1);
}

TEST(Tally, WithoutTimesAllAreUnknown) {
  const Batch batch(1, {{0, {1, 2, 1, 3}, {4}}});
  Tally tally;
  ASSERT_TRUE(batch.Make(0, 1, false, &tally).ok());
  EXPECT_EQ(tally.latest(), 0);
  for (int64_t u = 0; u < 3; ++u) EXPECT_EQ(tally.time(u), 0);
}

TEST(Tally, OneTimeIsThatOfEveryKey) {
  const Batch batch(2, {{0, {1, 2, 1, 3, 4}, {5}}, {1, {6, 7}, {2, 1}}}, {1234567890123});  // need not divide 5
  for (int64_t t = 0; t < 2; ++t) {
    Tally tally;
    ASSERT_TRUE(batch.Make(t, 1, true, &tally).ok());
    EXPECT_EQ(tally.latest(), 1234567890123);
    for (int64_t u = 0; u < batch.table(t).keys_size; ++u) EXPECT_EQ(tally.time(u), 1234567890123);
  }
}

TEST(Tally, AKeyHasTheLatestTimeOfTheSamplesThatHoldIt) {
  // Three samples: one id each, bags of two, and [3, 2, 2]; in all features sample 1 is the latest.
  const Batch batch(1,
                    {{0, {10, 11, 12}, {3}},
                     {0, {12, 12, 13, 10, 14, 15}, {3, 2}},
                     {0, {}, {0}},
                     {0, {16, 16, 16, 16, 14, 16, 17, 16, 18, 18, 18, 11}, {3, 2, 2}}},
                    {50, 70, 60});
  const std::map<int64_t, int64_t> expected = {{10, 70}, {11, 70}, {12, 60}, {13, 70}, {14, 70},
                                               {15, 60}, {16, 70}, {17, 70}, {18, 60}};
  Tally tally;
  ASSERT_TRUE(batch.Make(0, 1, true, &tally).ok());
  EXPECT_EQ(tally.latest(), 70);
  ASSERT_EQ(batch.table(0).keys_size, static_cast<int64_t>(expected.size()));
  for (int64_t u = 0; u < batch.table(0).keys_size; ++u) {
    EXPECT_EQ(tally.time(u), expected.at(batch.table(0).keys[u])) << batch.table(0).keys[u];
  }
}

TEST(Tally, AnyMixtureOfFeaturesTablesAndTimesEqualsAPlainCount) {
  std::mt19937_64 random(4);
  for (int round = 0; round < 300; ++round) {
    SCOPED_TRACE(round);
    const int64_t tables = 1 + static_cast<int64_t>(random() % 3), samples = 1 + static_cast<int64_t>(random() % 40);
    Ids times(random() % 3 == 0 ? random() % 2 : samples);
    for (int64_t& time : times) time = 1 + static_cast<int64_t>(random() % (random() % 2 == 0 ? 5 : uint64_t{1} << 62));
    std::vector<Feature> features;
    for (uint64_t f = random() % 6; f > 0; --f) {
      const int64_t bag = static_cast<int64_t>(random() % 5);  // 0: an empty feature
      Feature feature{static_cast<int64_t>(random() % tables), Ids(samples * bag), {samples, bag}};
      for (int64_t& id : feature.ids) id = static_cast<int64_t>(random() % 30) - 10;
      if (bag == 1 && random() % 2 == 0) feature.shape = {samples};
      features.push_back(std::move(feature));
    }
    const int64_t coefficients[] = {1, 3, 1000000000, INT32_MAX};
    Batch(tables, std::move(features), std::move(times)).ExpectRight(coefficients[random() % 4]);
    if (HasFatalFailure()) return;
  }
}

TEST(Tally, WithoutATimeATableThatNeedsOneSaysHowToGiveIt) {
  const Batch batch(1, {{0, {1}, {1}}});
  Tally tally;
  const Status status = batch.Make(0, 1, true, &tally);
  EXPECT_EQ(status.code(), Status::Code::kInvalidArgument);
  for (const char* word : {"'t0'", "timestamp"}) {
    EXPECT_NE(status.message().find(word), std::string::npos) << status.message();
  }
  EXPECT_EQ(batch.MakeCode(0, false), Status::Code::kOk);
}

TEST(Tally, ATimeThatIsNotPositiveIsNamed) {
  for (const int64_t bad : {int64_t{0}, int64_t{-17}, INT64_MIN}) {
    for (const Ids& times : {Ids{bad}, Ids{5, bad, 6}, Ids{bad, 5, 6}, Ids{5, 6, bad}}) {
      const Batch batch(1, {{0, {1, 2, 3}, {3}}}, times);
      for (const bool needs_time : {true, false}) {
        Tally tally;
        const Status status = batch.Make(0, 1, needs_time, &tally);
        EXPECT_EQ(status.code(), Status::Code::kInvalidArgument);
        EXPECT_NE(status.message().find("got " + std::to_string(bad)), std::string::npos) << status.message();
        EXPECT_NE(status.message().find("'t0'"), std::string::npos) << status.message();
      }
    }
  }
}

TEST(Tally, AFeatureThatHasNotAsManySamplesAsTimesIsAnError) {
  const Batch batch(2, {{0, {1, 2, 3, 4}, {4}}, {1, {1, 2, 3, 4, 5, 6}, {6}}, {1, {1, 2, 3, 4, 5}, {5}}}, {5, 6, 7, 8});
  EXPECT_EQ(batch.MakeCode(0, true), Status::Code::kOk);  // the other table's features do not matter
  Tally tally;
  const Status status = batch.Make(1, 1, true, &tally);
  EXPECT_EQ(status.code(), Status::Code::kInvalidArgument);
  for (const char* word : {"'t1'", "4 timestamps", "6 ids"}) {
    EXPECT_NE(status.message().find(word), std::string::npos) << status.message();
  }
  // More times than ids.
  EXPECT_EQ(Batch(1, {{0, {1, 2}, {2}}}, {5, 6, 7}).MakeCode(0, true), Status::Code::kInvalidArgument);
}

TEST(Tally, AnEmptyBatchNeedsNoTime) {
  for (const Ids& times : {Ids{}, Ids{9}, Ids{9, 8}}) {
    const Batch batch(2, {{0, {}, {0}}, {0, {}, {2, 0}}}, times);  // nothing reads the second table at all
    for (int64_t t = 0; t < 2; ++t) {
      Tally tally;
      ASSERT_TRUE(batch.Make(t, 1, true, &tally).ok());
      EXPECT_EQ(tally.latest(), times.empty() ? 0 : 9);
    }
  }
}

TEST(Tally, FeaturesThatDoNotCoverTheirTableAreAnError) {
  // A damaged plan: the second feature says that it begins later, or that it is shorter, than its ids.
  const std::vector<Feature> features = {{0, {1, 2, 3, 4}, {4}}, {0, {5, 6, 7, 8}, {4}}};
  const Ids times = {5, 6};
  constexpr int64_t kSecond = 6 + 6 + 5, kShape = 6 + 6 + 2 * 5 + 1;
  for (const std::vector<std::pair<int64_t, int64_t>>& damage :
       {std::vector<std::pair<int64_t, int64_t>>{{kSecond + 2, 2}, {kShape, 2}},
        {{kSecond + 1, 6}, {kSecond + 2, 2}, {kShape, 2}},
        {{kSecond + 1, 0}}}) {
    Batch batch(1, features, times);
    for (const auto& [word, value] : damage) batch.words()[word] = value;
    ASSERT_TRUE(Plan::Parse(batch.words().data(), static_cast<int64_t>(batch.words().size()), &batch.plan()).ok());
    EXPECT_EQ(batch.MakeCode(0, true), Status::Code::kInvalidArgument);
  }
}

}  // namespace
}  // namespace mxrec
