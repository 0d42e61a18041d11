// A table whose refused keys share an AdmissionFilter.
#include <gtest/gtest.h>

#include <map>
#include <random>

#include "table/tracking_fixture.h"

namespace mxrec {
namespace {

using namespace table_fixture;     // NOLINT(build/namespaces): written for these tests
using namespace tracking_fixture;  // NOLINT(build/namespaces)

constexpr int64_t kOff = Tracking::kOff;

// Trains batches of random keys, all of them below the threshold; returns how often each occurred.
std::map<int64_t, int64_t> TrainBelow(const std::shared_ptr<Table>& table, int64_t keys, int batches) {
  std::map<int64_t, int64_t> counts;
  std::mt19937_64 random(batches);
  for (int i = 0; i < batches; ++i) {
    Keys ids(200);
    for (int64_t& id : ids) ++counts[id = static_cast<int64_t>(random() % keys)];
    MustTrain(table, ids);
  }
  EXPECT_EQ(table->size(), 0);
  return counts;
}

TEST(TableWithAdmissionFilter, NeverRefusesAKeyThatReachedTheThresholdIfNoneWasAdmittedBefore) {
  for (const int64_t bytes : {int64_t{64}, int64_t{16384}, int64_t{1} << 20}) {  // crowded, full, ample
    SCOPED_TRACE(bytes);
    const auto table = MakeTracked({AdmissionFilter::kMaxCount, kOff, 1, bytes});
    const std::map<int64_t, int64_t> counts = TrainBelow(table, 3000, 40);
    ASSERT_TRUE(table->Track({4, kOff, 1, bytes}).ok());
    Keys ids;
    int64_t ripe = 0;
    for (const auto& [key, count] : counts) {
      ids.push_back(key);
      ripe += count + 1 >= 4;
    }
    ASSERT_GT(ripe, 100);
    ASSERT_LT(ripe, static_cast<int64_t>(counts.size()) - 100);
    MustTrain(table, ids);  // all are judged before the first is admitted
    int64_t early = 0;
    for (const auto& [key, count] : counts) {
      if (count + 1 >= 4) {
        EXPECT_TRUE(HasRow(*table, key)) << "count " << count + 1;
        EXPECT_GE(table->Facts(key).count, 1u);
      } else {
        early += HasRow(*table, key);
      }
    }
    EXPECT_EQ(table->size(), ripe + early);
    if (bytes == int64_t{1} << 20) EXPECT_LE(early, 1);  // 350 bytes a key
    if (bytes == 64) EXPECT_GT(early, 0);                // 47 keys share a line: the test does strain it
    ExpectLivesAddUp(*table);
  }
}

TEST(TableWithAdmissionFilter, CountsGoFromTheFilterToTheRow) {
  const auto table = MakeTracked({3, kOff, 1, 1 << 20});
  MustTrain(table, {1, 1, 2});
  ExpectFacts(*table, 1, 2, 0, 0);
  ExpectFacts(*table, 2, 1, 0, 0);
  ExpectLives(*table, 2, 2, 2);
  MustTrain(table, {1});
  ExpectFacts(*table, 1, 3, 0, 2);
  ExpectFacts(*table, 2, 1, 0, 0);
  ExpectLives(*table, 2, 1, 1);
  const Keys gone = {1};
  ASSERT_EQ(table->Erase(gone.data(), 1), 1);
  ExpectFacts(*table, 1, 0, 0, 0);  // nothing was left behind in the filter
  MustTrain(table, {1});
  EXPECT_FALSE(HasRow(*table, 1));
  ExpectLives(*table, 3, 2, 2);
  table->Clear();
  ExpectFacts(*table, 2, 0, 0, 0);
  ExpectLives(*table, 3, 2, 0);
}

TEST(TableWithAdmissionFilter, ItsMemoryDoesNotGrow) {
  constexpr int64_t kBytes = 1 << 18;
  const auto table = MakeTracked({AdmissionFilter::kMaxCount, kOff, 1, kBytes});
  const int64_t before = table->bytes();
  EXPECT_GE(before, kBytes);
  TrainBelow(table, int64_t{1} << 40, 100);
  EXPECT_EQ(table->bytes(), before);
}

TEST(TableWithAdmissionFilter, LivesAddUpHoweverCrowdedItIs) {
  for (const int64_t bytes : {64, 4096, 1 << 20}) {
    const auto table = MakeTracked({3, 100, 1, bytes});
    std::mt19937_64 random(9);
    for (int i = 0; i < 100; ++i) {
      Keys ids(50);
      for (int64_t& id : ids) id = static_cast<int64_t>(random() % 2000);
      MustTrain(table, ids, {1000 + i});
      if (i % 7 == 0) table->Erase(ids.data(), 20);
      if (i % 20 == 0) {
        for (int s = 0; s < table->shards(); ++s) table->history()->ForgetUntil(s, 1000 + i);
      }
      if (i == 60) table->Clear();
      ExpectLivesAddUp(*table);
    }
    EXPECT_GT(table->size(), 0);
  }
}

}  // namespace
}  // namespace mxrec
