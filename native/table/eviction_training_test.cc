// Eviction and training of the same table, one after the other: what is evicted, what comes back, and what batches that
// were prepared before see of it.
#include <gtest/gtest.h>

#include <map>
#include <set>

#include "table/eviction.h"
#include "table/tracking_fixture.h"

namespace mxrec {
namespace {

using namespace table_fixture;     // NOLINT(build/namespaces): written for these tests
using namespace tracking_fixture;  // NOLINT(build/namespaces)
using Score = EvictionPolicy::Score;

constexpr int64_t kOff = Tracking::kOff;

int64_t Evict(const std::shared_ptr<Table>& table, const EvictionPolicy& policy) {
  std::unique_ptr<Eviction> eviction;
  EXPECT_TRUE(Eviction::Begin(table, policy, &eviction).ok());
  EXPECT_TRUE(eviction->Run(INT64_MAX));
  ExpectLivesAddUp(*table);
  return eviction->evicted();
}

int ShardOfKey(const Table& table, int64_t key) { return static_cast<int>(ShardOf(HashKey(key), table.shard_bits())); }

TEST(EvictionInTraining, RowsOfUnknownTimeBeginToAgeAtTheFirstPass) {
  for (const int64_t keep : {-1, 100}) {
    const auto table = Make(Config());
    MustInsert(table.get(), Range(0, 50));
    ASSERT_TRUE(table->Track({0, 10, 1, 0}).ok());
    MustTrain(table, {100}, {1000});
    EXPECT_EQ(Evict(table, {Score::kTime, 10, keep}), 0);
    ExpectFacts(*table, 7, 0, 1000, 0);
    MustTrain(table, {100}, {1009});
    EXPECT_EQ(Evict(table, {Score::kTime, 10, -1}), 0);
    MustTrain(table, {100}, {1010});
    EXPECT_EQ(Evict(table, {Score::kTime, 10, -1}), 50);
    EXPECT_TRUE(HasRow(*table, 100));
  }
}

TEST(EvictionInTraining, ByTimeRefusedKeysAreForgottenToo) {
  const auto table = MakeTracked({3, 10, 1, 0});
  MustTrain(table, {1, 2, 3, 3, 3}, {100});
  MustTrain(table, {2, 4}, {101});
  MustTrain(table, {5}, {110});
  // The other scores, and keep, are about rows.
  for (const EvictionPolicy& policy :
       {EvictionPolicy{Score::kTime, 0, 0}, EvictionPolicy{Score::kStep, 0, -1},
        EvictionPolicy{Score::kCount, 1000, -1}, EvictionPolicy{Score::kNorm, 1000, -1}}) {
    EXPECT_EQ(Evict(table, policy), policy.score == Score::kTime ? 1 : 0);  // 3 goes
    ExpectLives(*table, 5, 4, 4);
  }
  EXPECT_EQ(Evict(table, {Score::kTime, 10, -1}), 0);
  ExpectLives(*table, 5, 4, 3);
  ExpectFacts(*table, 1, 0, 0, 0);
  ExpectFacts(*table, 2, 2, 101, 0);
  MustTrain(table, {1, 1, 2}, {110});
  EXPECT_FALSE(HasRow(*table, 1));  // its former life does not count
  EXPECT_TRUE(HasRow(*table, 2));
  ExpectFacts(*table, 1, 2, 110, 0);
  ExpectFacts(*table, 2, 3, 110, 4);
}

TEST(EvictionInTraining, ByTimeAFilterIsHalved) {
  const auto table = MakeTracked({100, 10, 1, 1 << 20});
  MustTrain(table, Keys(9, 1), {100});
  MustTrain(table, {2}, {100});
  EXPECT_EQ(table->Facts(1).count, 9u);
  EXPECT_EQ(Evict(table, {Score::kTime, 10, -1}), 0);
  EXPECT_EQ(table->Facts(1).count, 4u);
  EXPECT_EQ(table->Facts(2).count, 0u);
  for (const EvictionPolicy& policy : {EvictionPolicy{Score::kTime, 0, 5}, EvictionPolicy{Score::kCount, 5, -1},
                                       EvictionPolicy{Score::kStep, 5, -1}, EvictionPolicy{Score::kNorm, 5, -1}}) {
    Evict(table, policy);
    EXPECT_EQ(table->Facts(1).count, 4u);
  }
}

TEST(EvictionInTraining, AnEvictedKeyComesBackAsANewOne) {
  const auto table = MakeTracked({2, 10, 1, 0}, Config(), {{"accumulator", 0.25f}});
  Step step({table}, {{1, 1, 2, 2, 3, 3, 3}}, {100});
  ASSERT_TRUE(step.Train().ok());
  const Floats gradient(3 * kDim, 1.0f), hyper = {0.1f, 1e-7f};
  table->Update(*FindRule("adagrad"), hyper.data(), step.handles(0).data(), gradient.data(), 3);
  Floats fresh = InitialRow(1);
  fresh.resize(2 * kDim, 0.25f);
  ASSERT_NE(ReadRow(*table, 1), fresh);
  const Floats trained = ReadRow(*table, 3);
  MustTrain(table, {3}, {110});
  EXPECT_EQ(Evict(table, {Score::kTime, 10, -1}), 2);
  EXPECT_EQ(ReadRow(*table, 3), trained);
  ExpectFacts(*table, 1, 0, 0, 0);
  EXPECT_EQ(ReadRow(*table, 1), Floats(2 * kDim, 0.0f));
  MustTrain(table, {1}, {111});
  EXPECT_FALSE(HasRow(*table, 1));
  ExpectFacts(*table, 1, 1, 111, 0);
  MustTrain(table, {1}, {112});
  EXPECT_EQ(ReadRow(*table, 1), fresh);
  ExpectFacts(*table, 1, 2, 112, 4);
  ExpectLives(*table, 4, 0, 0);
}

TEST(EvictionInTraining, AKeyThatOccursBetweenTwoSlicesIsJudgedByWhatIsKnownThen) {
  const Keys keys = Range(0, 1000);
  const auto table = MakeTracked({0, 10, 1, 0});
  MustTrain(table, keys, {100});
  MustTrain(table, {5000}, {200});
  std::unique_ptr<Eviction> eviction;
  ASSERT_TRUE(Eviction::Begin(table, {Score::kTime, 10, -1}, &eviction).ok());
  ASSERT_FALSE(eviction->Run(1));  // the first shard
  std::set<int64_t> left = {5000};
  Keys again;
  for (const int64_t key : keys) {
    const bool is_first = ShardOfKey(*table, key) == 0;
    EXPECT_EQ(HasRow(*table, key), !is_first);
    if (key % 2 == 0) again.push_back(key);
    if (key % 2 == 0 || (is_first && key % 4 == 1)) left.insert(key);
    if (is_first && key % 4 == 1) again.push_back(key);  // comes back, and the pass is past it
  }
  MustTrain(table, again, {201});
  ASSERT_TRUE(eviction->Run(INT64_MAX));
  for (const int64_t key : keys) EXPECT_EQ(HasRow(*table, key), left.count(key) != 0) << key;
  EXPECT_EQ(table->size(), static_cast<int64_t>(left.size()));
}

TEST(EvictionInTraining, WithKeepAKeyThatOccursAfterItWasScoredStays) {
  const auto table = MakeTracked({0, 10, 1, 0});
  MustTrain(table, Range(0, 500), {100});
  MustTrain(table, Range(500, 1000), {200});
  std::unique_ptr<Eviction> eviction;
  ASSERT_TRUE(Eviction::Begin(table, {Score::kTime, 0, 500}, &eviction).ok());
  ASSERT_FALSE(eviction->Run(1000 + 63));  // all shards are scored
  EXPECT_EQ(table->size(), 1000);
  MustTrain(table, Range(0, 100), {201});
  ASSERT_TRUE(eviction->Run(INT64_MAX));
  for (int64_t key = 0; key < 1000; ++key) EXPECT_EQ(HasRow(*table, key), key < 100 || key >= 500) << key;
}

TEST(EvictionInTraining, BatchesPreparedBeforeSeeWhatIsThereNow) {
  const auto table = MakeTracked({1, 10, 1, 0});
  MustTrain(table, Range(0, 400), {100});
  MustTrain(table, Range(200, 400), {110});
  Step old_step({table}, {Range(0, 400)}, {120});
  Step old_reading({table}, {Range(0, 400)});
  ASSERT_EQ(Evict(table, {Score::kTime, 10, -1}), 200);
  MustTrain(table, Range(1000, 1400), {115});  // takes the rows of the evicted ones

  ASSERT_TRUE(old_reading.Evaluate().ok());
  for (int64_t key = 0; key < 400; ++key) {
    EXPECT_EQ(old_reading.embedding(0, key), key < 200 ? Floats(kDim, 0.0f) : InitialRow(key)) << key;
  }
  ASSERT_TRUE(old_step.Train().ok());
  for (int64_t key = 0; key < 400; ++key) {
    EXPECT_EQ(old_step.embedding(0, key), InitialRow(key)) << key;
    ExpectFacts(*table, key, key < 200 ? 1 : 3, 120, 4);
  }
  for (int64_t key = 1000; key < 1400; ++key) ExpectFacts(*table, key, 1, 115, 3);  // nobody counted in their rows
  EXPECT_EQ(table->size(), 800);
}

TEST(EvictionInTraining, NewKeysTakeTheRowsOfEvictedOnes) {
  const auto table = MakeTracked({0, 10, 1, 0});
  MustTrain(table, Range(0, 20000), {100});
  std::map<int, int64_t> free;
  for (int64_t key = 0; key < 20000; ++key) ++free[ShardOfKey(*table, key)];
  const int64_t rows = table->capacity(), bytes = table->bytes();
  for (int round = 1; round <= 3; ++round) {
    ASSERT_EQ(Evict(table, {Score::kTime, 0, -1}), 20000);
    // As many keys for each shard.
    std::map<int, int64_t> left = free;
    Keys fresh;
    for (int64_t key = round * 1000000; fresh.size() < 20000; ++key) {
      if (left[ShardOfKey(*table, key)]-- > 0) fresh.push_back(key);
    }
    MustTrain(table, fresh, {100 + round});
    EXPECT_EQ(table->size(), 20000);
    EXPECT_EQ(table->capacity(), rows);
    EXPECT_EQ(table->bytes(), bytes);
    ExpectFacts(*table, fresh[0], 1, 100 + round, static_cast<uint32_t>(1 + round));
  }
}

TEST(EvictionInTraining, AFullTableTakesNewKeysAfterEviction) {
  const auto table = MakeTracked({kOff, 10, 1, 0}, Config(100));
  MustTrain(table, Range(0, 100), {100});
  Step step({table}, {Range(100, 150)}, {120});
  EXPECT_EQ(step.Train().code(), Status::Code::kResourceExhausted);
  EXPECT_EQ(Evict(table, {Score::kTime, 10, -1}), 0);  // the clock of a step that failed does not count
  EXPECT_EQ(Evict(table, {Score::kStep, 0, 60}), 40);
  EXPECT_EQ(step.Train().code(), Status::Code::kResourceExhausted);
  EXPECT_EQ(Evict(table, {Score::kStep, 0, 50}), 10);
  ASSERT_TRUE(step.Train().ok());
  EXPECT_EQ(table->size(), 100);
}

}  // namespace
}  // namespace mxrec
