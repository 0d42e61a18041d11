#include "batch/plan.h"

#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <numeric>
#include <random>

namespace mxrec {
namespace {

using Ids = std::vector<int64_t>;
using Words = std::vector<int64_t>;

// Three features over two tables, one of them empty, and three times, as a preparation stage would write them.
class PlanTest : public testing::Test {
 protected:
  PlanTest() {
    std::mt19937_64 random(1);
    for (int64_t& id : a_) id = static_cast<int64_t>(random() % 20);
    for (int64_t& id : b_) id = static_cast<int64_t>(random() % 20) - 10;
    user_.Build({{a_.data(), 24}, {b_.data(), 15}}, 3);
    item_.Build({{nullptr, 0}}, 0);
    features_.resize(3);
    features_[0] = {0, 0, 24, {2, 3, 4}};
    features_[1] = {1, 0, 0, {5, 0}};
    features_[2] = {0, 0, 15, {15}};
    words_ = Write(PlanWriter({{"user", &user_}, {"item", &item_}}, features_, {times_.data(), 3}));
  }

  static Words Write(const PlanWriter& writer) {
    Words words(writer.words(), 0x5555555555555555);  // what the writer leaves unwritten must not matter
    writer.Write(words.data());
    return words;
  }

  // Where the times begin: everything before says where things lie.
  int64_t HeaderWords() const { return 6 + 2 * 6 + 3 * 5 + (3 + 2 + 1); }

  Ids a_ = Ids(24), b_ = Ids(15);
  Grouping user_, item_;
  std::vector<FeaturePlan> features_;
  Words times_ = {300, 100, 200};
  Words words_;
};

template <typename T>
std::vector<T> Copy(const T* data, int64_t n) {
  return std::vector<T>(data, data + n);
}

void ExpectGrouping(const TablePlan& table, const Grouping& grouping) {
  EXPECT_EQ(table.shards + 1, static_cast<int64_t>(grouping.shard_starts().size()));
  ASSERT_EQ(table.positions_size, grouping.positions_size());
  ASSERT_EQ(table.keys_size, grouping.keys_size());
  EXPECT_EQ(Copy(table.keys, table.keys_size), grouping.keys());
  EXPECT_EQ(Copy(table.shard_starts, table.shards + 1), grouping.shard_starts());
  EXPECT_EQ(Copy(table.offsets, table.keys_size + 1), grouping.offsets());
  EXPECT_EQ(Copy(table.index, table.positions_size), grouping.index());
  EXPECT_EQ(Copy(table.positions, table.positions_size), grouping.positions());
}

// Reads all a view offers; the address sanitizer notices a step outside. Returns whether pointers stay within.
bool Walk(const Plan& plan, const int64_t* words, int64_t size) {
  bool inside = true;
  uint64_t sum = 0;
  auto read = [&](const auto* data, int64_t n) {
    const char* begin = reinterpret_cast<const char*>(data);
    const char* end = begin + n * sizeof(*data);
    inside = inside && n >= 0 && begin >= reinterpret_cast<const char*>(words) &&
             end <= reinterpret_cast<const char*>(words + size);
    if (!inside) return;
    for (int64_t i = 0; i < n; ++i) sum += static_cast<uint64_t>(data[i]);
  };
  for (const TablePlan& t : plan.tables()) {
    read(t.keys, t.keys_size);
    read(t.hints, t.keys_size);
    read(t.seals, t.units());
    if (!t.is_grouped()) {
      inside = inside && t.keys_size == t.positions_size && t.index == nullptr;
      continue;
    }
    read(t.shard_starts, t.shards + 1);
    read(t.offsets, t.keys_size + 1);
    read(t.index, t.positions_size);
    read(t.positions, t.positions_size);
  }
  for (const FeaturePlan& f : plan.features()) {
    inside = inside && f.table >= 0 && f.table < static_cast<int64_t>(plan.tables().size());
    if (!inside) return false;
    const TablePlan& table = plan.tables()[f.table];
    inside = f.first >= 0 && f.size >= 0 && f.first + f.size <= table.positions_size;
    // A tensor of this shape is made and `size` rows are written to it.
    int64_t product = 1;
    for (const int64_t d : f.shape) {
      if (d < 0 || __builtin_mul_overflow(product, d, &product)) return false;
    }
    inside = inside && product == f.size;
  }
  read(plan.times().data, plan.times().size);
  volatile uint64_t keep = sum;
  static_cast<void>(keep);
  return inside;
}

// Parses exactly these words, from a heap block that ends with the last of them.
testing::AssertionResult ErrorOrInside(const Words& words) {
  const int64_t size = static_cast<int64_t>(words.size());
  std::unique_ptr<int64_t[]> block(new int64_t[size]);
  std::memcpy(block.get(), words.data(), size * sizeof(int64_t));
  Plan plan;
  const Status status = Plan::Parse(block.get(), size, &plan);
  if (!status.ok()) {
    if (status.code() == Status::Code::kInvalidArgument && !status.message().empty())
      return testing::AssertionSuccess();
    return testing::AssertionFailure() << "wrong error: " << status.message();
  }
  if (Walk(plan, block.get(), size)) return testing::AssertionSuccess();
  return testing::AssertionFailure() << "accepted a view that leaves its words";
}

TEST_F(PlanTest, ReadsBackWhatWasWritten) {
  Plan plan;
  ASSERT_TRUE(Plan::Parse(words_.data(), words_.size(), &plan).ok());
  ASSERT_EQ(plan.tables().size(), 2u);
  ExpectGrouping(plan.tables()[0], user_);
  ExpectGrouping(plan.tables()[1], item_);
  ASSERT_EQ(plan.features().size(), 3u);
  const int64_t firsts[] = {0, 0, 24};  // features of one table follow each other
  for (int f = 0; f < 3; ++f) {
    EXPECT_EQ(plan.features()[f].table, features_[f].table);
    EXPECT_EQ(plan.features()[f].first, firsts[f]);
    EXPECT_EQ(plan.features()[f].size, features_[f].size);
    EXPECT_EQ(plan.features()[f].shape, features_[f].shape);
  }
  EXPECT_EQ(Copy(plan.times().data, plan.times().size), times_);
  EXPECT_TRUE(ErrorOrInside(words_));
}

TEST_F(PlanTest, CarriesNoTimeOneTimeOrOneForEachSample) {
  for (const int64_t n : {0, 1, 2, 1000}) {
    Words times(n);
    for (int64_t i = 0; i < n; ++i) times[i] = INT64_MAX - i * i;
    const Words words =
        Write(PlanWriter({{"user", &user_}, {"item", &item_}}, features_, {times.data(), static_cast<int64_t>(n)}));
    Plan plan;
    ASSERT_TRUE(Plan::Parse(words.data(), words.size(), &plan).ok());
    ASSERT_EQ(plan.times().size, n);
    EXPECT_EQ(Copy(plan.times().data, n), times);
    ExpectGrouping(plan.tables()[0], user_);
    EXPECT_EQ(plan.features()[0].shape, features_[0].shape);
  }
  Plan plan;  // also one that held others before
  ASSERT_TRUE(Plan::Parse(words_.data(), words_.size(), &plan).ok());
  const Words none = Write(PlanWriter({{"user", &user_}}, {{0, 0, 39, {39}}}));
  ASSERT_TRUE(Plan::Parse(none.data(), none.size(), &plan).ok());
  EXPECT_EQ(plan.times().size, 0);
}

TEST_F(PlanTest, TimesThatLieOutsideAreAnError) {
  const int64_t size = static_cast<int64_t>(words_.size());
  const std::pair<int64_t, int64_t> bad[] = {{-1, 0},    {INT64_MIN, 0},         {INT64_MAX, 0},        {size + 1, 0},
                                             {1, size},  {3, size - 2},          {0, size + 1},         {0, -1},
                                             {1, -1},    {3, INT64_MIN},         {3, INT64_MAX},        {2, -2},
                                             {-1, size}, {INT64_MAX, INT64_MAX}, {INT64_MIN, INT64_MIN}};
  for (const auto& [times, first] : bad) {
    Words damaged = words_;
    damaged[4] = times;
    damaged[5] = first;
    Plan plan;
    EXPECT_EQ(Plan::Parse(damaged.data(), damaged.size(), &plan).code(), Status::Code::kInvalidArgument)
        << times << " times from word " << first;
  }
}

TEST_F(PlanTest, CarriesTheHintsOfEveryTable) {
  Grouping other;
  other.Build({{b_.data(), 15}}, 4);
  const PlanWriter writer({{"user", &user_}, {"other", &other}}, {{0, 0, 39, {39}}, {1, 0, 15, {15}}});
  Words words = Write(writer);
  const Words before = words;
  const Grouping* groupings[] = {&user_, &other};
  for (int t = 0; t < 2; ++t) {
    for (int64_t u = 0; u < groupings[t]->keys_size(); ++u) writer.hints(words.data(), t)[u] = 1000 * t - u;
  }
  Plan plan;
  ASSERT_TRUE(Plan::Parse(words.data(), words.size(), &plan).ok());
  for (int t = 0; t < 2; ++t) {
    const TablePlan& table = plan.tables()[t];
    for (int64_t u = 0; u < table.keys_size; ++u) EXPECT_EQ(table.hints[u], 1000 * t - u);
    ExpectGrouping(table, *groupings[t]);
  }
}

TEST_F(PlanTest, DependsOnNothingButTheBatch) {
  // Written over different garbage, the words are the same except for the hints and seals, which are not written yet.
  const PlanWriter writer({{"user", &user_}, {"item", &item_}}, features_);
  Words zeros(writer.words(), 0), ones(writer.words(), -1);
  for (Words* words : {&zeros, &ones}) {
    writer.Write(words->data());
    for (const auto& [t, grouping] : {std::make_pair(0, &user_), std::make_pair(1, &item_)}) {
      std::fill_n(writer.hints(words->data(), t), grouping->keys_size(), -1);
      std::fill_n(writer.seals(words->data(), t), grouping->shard_starts().size() - 1, -1);
    }
  }
  EXPECT_EQ(zeros, ones);
}

TEST_F(PlanTest, ATableThatIsNotGroupedKeepsTheIdsAsTheyCame) {
  constexpr int64_t kUnit = TablePlan::kUnit;
  for (const int64_t n : {int64_t{0}, int64_t{1}, kUnit - 3, kUnit, kUnit + 1, 3 * kUnit}) {
    Ids ids(n);
    std::iota(ids.begin(), ids.end(), 100);
    const PlanWriter writer({{"user", &user_, {}}, {"item", nullptr, {{a_.data(), 3}, {ids.data(), n}}}},
                            {{0, 0, 39, {39}}, {1, 0, 3, {3}}, {1, 0, n, {n}}});
    Words words = Write(writer);
    Ids expected(a_.begin(), a_.begin() + 3);
    expected.insert(expected.end(), ids.begin(), ids.end());
    for (int64_t i = 0; i < n + 3; ++i) writer.hints(words.data(), 1)[i] = -7 - i;
    Plan plan;
    ASSERT_TRUE(Plan::Parse(words.data(), words.size(), &plan).ok());
    ExpectGrouping(plan.tables()[0], user_);
    const TablePlan& table = plan.tables()[1];
    EXPECT_FALSE(table.is_grouped());
    EXPECT_EQ(Copy(table.keys, table.keys_size), expected);
    ASSERT_EQ(table.positions_size, n + 3);
    EXPECT_EQ(plan.features()[2].first, 3);
    // The units cover the keys, each once.
    int64_t next = 0;
    for (int64_t u = 0; u < table.units(); ++u) {
      EXPECT_EQ(table.unit_begin(u), next);
      EXPECT_GT(table.unit_end(u), next);
      next = table.unit_end(u);
      writer.seals(words.data(), 1)[u] = u;
      EXPECT_EQ(table.seals[u], u);
    }
    EXPECT_EQ(next, n + 3);
    for (int64_t i = 0; i < n + 3; ++i) {
      ASSERT_EQ(table.key_at(i), i);
      ASSERT_EQ(table.hints[i], -7 - i);
    }
    EXPECT_TRUE(plan.CheckTable(1, "item", 8).ok());  // of any number of shards
    EXPECT_FALSE(plan.CheckTable(1, "user", 8).ok());
    EXPECT_TRUE(ErrorOrInside(words));
    if (n > kUnit) continue;
    for (int64_t w = 0; w < 6 + 2 * 6 + 3 * 5 + 3; ++w) {
      for (const int64_t value : {int64_t{0}, int64_t{1}, int64_t{-1}, int64_t{39}, INT64_MAX, INT64_MIN}) {
        Words damaged = words;
        damaged[w] = value;
        EXPECT_TRUE(ErrorOrInside(damaged)) << "word " << w << " = " << value;
      }
    }
  }
}

TEST_F(PlanTest, WithoutTablesIsAPlan) {
  const Words words = Write(PlanWriter({}, {}));
  Plan plan;
  ASSERT_TRUE(Plan::Parse(words.data(), words.size(), &plan).ok());
  EXPECT_TRUE(plan.tables().empty());
  EXPECT_TRUE(plan.features().empty());
  EXPECT_FALSE(plan.CheckTable(0, "user", 8).ok());
}

TEST_F(PlanTest, ScalarIdsHaveAnEmptyShape) {
  const int64_t id = 3;
  Grouping grouping;
  grouping.Build({{&id, 1}}, 0);
  const Words words = Write(PlanWriter({{"t", &grouping}}, {{0, 0, 1, {}}}));
  Plan plan;
  ASSERT_TRUE(Plan::Parse(words.data(), words.size(), &plan).ok());
  EXPECT_TRUE(plan.features()[0].shape.empty());
  EXPECT_EQ(plan.features()[0].size, 1);
}

TEST_F(PlanTest, ReparsingReplacesTheFormerContent) {
  const Words other = Write(PlanWriter({{"item", &item_}}, {}));
  Plan plan;
  ASSERT_TRUE(Plan::Parse(words_.data(), words_.size(), &plan).ok());
  ASSERT_TRUE(Plan::Parse(other.data(), other.size(), &plan).ok());
  EXPECT_EQ(plan.tables().size(), 1u);
  EXPECT_TRUE(plan.features().empty());
  EXPECT_TRUE(plan.CheckTable(0, "item", 1).ok());
}

TEST_F(PlanTest, CutShortAnywhereIsAnError) {
  for (size_t length = 0; length < words_.size(); ++length) {
    std::unique_ptr<int64_t[]> block(new int64_t[length]);
    std::memcpy(block.get(), words_.data(), length * sizeof(int64_t));
    Plan plan;
    EXPECT_EQ(Plan::Parse(block.get(), length, &plan).code(), Status::Code::kInvalidArgument) << length;
  }
}

TEST_F(PlanTest, CutShortWithALengthThatFitsStaysInside) {
  for (size_t length = 4; length < words_.size(); ++length) {
    Words cut(words_.begin(), words_.begin() + length);
    cut[3] = static_cast<int64_t>(length);
    EXPECT_TRUE(ErrorOrInside(cut)) << length;
  }
}

TEST_F(PlanTest, LongerThanWrittenIsAnError) {
  words_.push_back(0);
  Plan plan;
  EXPECT_FALSE(Plan::Parse(words_.data(), words_.size(), &plan).ok());
}

TEST_F(PlanTest, AnyDamagedHeaderWordIsAnErrorOrStaysInside) {
  const int64_t size = static_cast<int64_t>(words_.size());
  const Words bad = {0,
                     1,
                     2,
                     3,
                     39,
                     40,
                     255,
                     256,
                     257,
                     -1,
                     -2,
                     size - 1,
                     size,
                     size + 1,
                     INT32_MAX,
                     int64_t{INT32_MAX} + 1,
                     int64_t{1} << 32,
                     int64_t{1} << 60,
                     int64_t{1} << 61,
                     int64_t{1} << 62,
                     INT64_MAX / 8,
                     INT64_MAX - 1,
                     INT64_MAX,
                     INT64_MIN,
                     INT64_MIN + 1};
  for (int64_t at = 0; at < HeaderWords(); ++at) {
    Words values = bad;
    for (const int64_t delta : {-2, -1, 1, 2}) values.push_back(words_[at] + delta);
    for (const int64_t value : values) {
      Words damaged = words_;
      damaged[at] = value;
      EXPECT_TRUE(ErrorOrInside(damaged)) << "word " << at << " = " << value;
    }
  }
}

TEST_F(PlanTest, SeveralDamagedHeaderWordsAreAnErrorOrStayInside) {
  std::mt19937_64 random(2);
  for (int round = 0; round < 20000; ++round) {
    Words damaged = words_;
    for (int i = 0; i < 3; ++i) {
      // Never the magic: nearly every round would end there.
      const int64_t at = 1 + static_cast<int64_t>(random() % (HeaderWords() - 1));
      damaged[at] = random() % 2 == 0 ? static_cast<int64_t>(random() % 64) : damaged[random() % HeaderWords()];
    }
    ASSERT_TRUE(ErrorOrInside(damaged)) << "round " << round;
  }
}

TEST_F(PlanTest, MoreTablesOrFeaturesThanItsWordsCanHoldIsAnError) {
  // So small that each count alone would fit in its length.
  const Words words = Write(PlanWriter({{"item", &item_}}, {}));
  for (const int at : {1, 2}) {
    for (int64_t count = words[at] + 1; count < 10; ++count) {
      Words damaged = words;
      damaged[at] = count;
      EXPECT_TRUE(ErrorOrInside(damaged)) << "word " << at << " = " << count;
      Plan plan;
      EXPECT_FALSE(Plan::Parse(damaged.data(), damaged.size(), &plan).ok());
    }
  }
}

TEST_F(PlanTest, AShapeThatDoesNotHoldThePositionsIsAnError) {
  const int64_t shapes = HeaderWords() - 6;
  ASSERT_EQ(Copy(&words_[shapes], 3), (Words{2, 3, 4}));
  for (const int64_t d : {0, 1, 3, -2}) {
    Words damaged = words_;
    damaged[shapes] = d;
    Plan plan;
    EXPECT_FALSE(Plan::Parse(damaged.data(), damaged.size(), &plan).ok()) << d;
  }
  Plan plan;
  Words negative = words_;  // (-2) * (-3) * 4 = 24
  negative[shapes] = -2;
  negative[shapes + 1] = -3;
  EXPECT_FALSE(Plan::Parse(negative.data(), negative.size(), &plan).ok());
  Words wrapping = words_;  // (2^61 + 1) * 3 * 8 = 24 (mod 2^64)
  wrapping[shapes] = (int64_t{1} << 61) + 1;
  wrapping[shapes + 1] = 3;
  wrapping[shapes + 2] = 8;
  EXPECT_FALSE(Plan::Parse(wrapping.data(), wrapping.size(), &plan).ok());
}

TEST_F(PlanTest, RefusesATensorThatIsNoPlan) {
  const Words ids(200, 7);
  Plan plan;
  const Status status = Plan::Parse(ids.data(), ids.size(), &plan);
  EXPECT_EQ(status.code(), Status::Code::kInvalidArgument);
  EXPECT_NE(status.message().find("insert function"), std::string::npos) << status.message();
}

TEST_F(PlanTest, KnowsWhichTableItWasPreparedFor) {
  Plan plan;
  ASSERT_TRUE(Plan::Parse(words_.data(), words_.size(), &plan).ok());
  EXPECT_TRUE(plan.CheckTable(0, "user", 8).ok());
  EXPECT_TRUE(plan.CheckTable(1, "item", 1).ok());

  for (const char* name : {"item", "use", "userr", "resu", "USER", ""}) {
    const Status status = plan.CheckTable(0, name, 8);
    EXPECT_EQ(status.code(), Status::Code::kInvalidArgument) << name;
    EXPECT_NE(status.message().find("'" + std::string(name) + "'"), std::string::npos) << status.message();
  }
  for (const int64_t t : {int64_t{-1}, int64_t{2}, INT64_MAX, INT64_MIN}) {
    EXPECT_EQ(plan.CheckTable(t, "user", 8).code(), Status::Code::kInvalidArgument) << t;
  }
}

TEST_F(PlanTest, FindsTheFeaturesOfItsTables) {
  Plan plan;
  ASSERT_TRUE(Plan::Parse(words_.data(), words_.size(), &plan).ok());
  const int64_t features = static_cast<int64_t>(plan.features().size());
  for (int64_t f = 0; f < features; ++f) {
    const FeaturePlan* feature = nullptr;
    ASSERT_TRUE(plan.FindFeature(f, plan.features()[f].table, &feature).ok());
    EXPECT_EQ(feature, &plan.features()[f]);
    const Status status = plan.FindFeature(f, 1 - plan.features()[f].table, &feature);
    EXPECT_EQ(status.code(), Status::Code::kInvalidArgument);
    EXPECT_NE(status.message().find("feature " + std::to_string(f)), std::string::npos) << status.message();
  }
  const FeaturePlan* none = nullptr;
  for (const int64_t f : {int64_t{-1}, features, INT64_MAX, INT64_MIN}) {
    EXPECT_EQ(plan.FindFeature(f, 0, &none).code(), Status::Code::kInvalidArgument) << f;
  }
  EXPECT_EQ(none, nullptr);
}

TEST_F(PlanTest, NamesBothShardCountsWhenTheyDiffer) {
  Plan plan;
  ASSERT_TRUE(Plan::Parse(words_.data(), words_.size(), &plan).ok());
  const Status status = plan.CheckTable(0, "user", 64);
  EXPECT_EQ(status.code(), Status::Code::kInvalidArgument);
  for (const char* word : {"'user'", "8", "64"}) {
    EXPECT_NE(status.message().find(word), std::string::npos) << status.message();
  }
}

}  // namespace
}  // namespace mxrec
