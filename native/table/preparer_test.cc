#include "table/preparer.h"

#include <gtest/gtest.h>

#include <random>
#include <set>
#include <thread>

#include "table/plan_fixture.h"

namespace mxrec {
namespace {

using namespace table_fixture;  // NOLINT(build/namespaces): written for these tests
using plan_fixture::Ids;
using plan_fixture::Prepared;

Preparer::Tables MakeTables() {
  TableConfig item = Config(100000);
  item.name = "item";
  const Preparer::Tables tables = {Make(Config()), Make(item)};
  MustInsert(tables[0].get(), Range(0, 500));
  return tables;
}

// One table's ids are so many that all threads work on them together.
std::vector<Ids> MakeBatch(int seed) {
  std::mt19937_64 random(seed);
  std::vector<Ids> batch = {{0, {}, {20000}}, {1, {}, {30, 10}}, {0, {}, {7}}};
  for (Ids& f : batch) {
    int64_t size = 1;
    for (const int64_t dim : f.shape) size *= dim;
    for (int64_t i = 0; i < size; ++i) f.ids.push_back(static_cast<int64_t>(random() % 1000));
  }
  return batch;
}

TEST(Preparer, GivesTheSamePlanForAnyNumberOfThreads) {
  const Preparer::Tables tables = MakeTables();
  for (const bool grouped : {false, true}) {
    Preparer preparer;
    const Prepared serial(&preparer, tables, MakeBatch(1), grouped);
    for (int threads = 1; threads <= 4; ++threads) {
      EXPECT_EQ(Prepared(&preparer, tables, MakeBatch(1), grouped, ThreadedFor(threads)).words, serial.words);
    }
  }
}

TEST(Preparer, GroupsTheKeysOfATableAndHintsAtTheirRows) {
  const Preparer::Tables tables = MakeTables();
  Preparer preparer;
  const std::vector<Ids> batch = MakeBatch(2);
  const Prepared prepared(&preparer, tables, batch);
  const TablePlan& user = prepared.plan.tables()[0];
  std::set<int64_t> distinct(batch[0].ids.begin(), batch[0].ids.end());
  distinct.insert(batch[2].ids.begin(), batch[2].ids.end());
  EXPECT_TRUE(user.is_grouped());
  EXPECT_EQ(std::set<int64_t>(user.keys, user.keys + user.keys_size), distinct);
  EXPECT_EQ(user.keys_size, static_cast<int64_t>(distinct.size()));
  for (int64_t u = 0; u < user.keys_size; ++u) EXPECT_EQ(user.hints[u] >= 0, user.keys[u] < 500) << user.keys[u];
  for (size_t i = 0; i < batch[2].ids.size(); ++i) {
    EXPECT_EQ(user.keys[user.key_at(prepared.plan.features()[2].first + i)], batch[2].ids[i]);
  }
  EXPECT_EQ(tables[0]->size(), 500);
  EXPECT_EQ(tables[1]->size(), 0);
}

TEST(Preparer, LeavesTheIdsOfABatchThatIsOnlyReadAsTheyCome) {
  const Preparer::Tables tables = MakeTables();
  Preparer preparer;
  const std::vector<Ids> batch = MakeBatch(3);
  const Prepared prepared(&preparer, tables, batch, false);
  const TablePlan& item = prepared.plan.tables()[1];
  EXPECT_FALSE(item.is_grouped());
  EXPECT_EQ(Keys(item.keys, item.keys + item.keys_size), batch[1].ids);
}

TEST(Preparer, PreparesSeveralBatchesAtOnce) {
  const Preparer::Tables tables = MakeTables();
  Preparer preparer, alone;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 5; ++i) {
        const Prepared own(&preparer, tables, MakeBatch(10 * t + i));
        Preparer fresh;
        EXPECT_EQ(own.words, Prepared(&fresh, tables, MakeBatch(10 * t + i)).words);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST(Preparer, SaysWhatItCannotPrepare) {
  const Preparer::Tables tables = {Make(Config())};
  Preparer preparer;
  const auto none = [](int64_t) -> int64_t* { return nullptr; };
  const Keys ids = {1, 2};
  const std::vector<FeaturePlan> features = {{0, 0, 2, {2}}};
  EXPECT_EQ(preparer.Prepare(tables, {{{ids.data(), 2}}}, features, {}, true, SerialFor(), none).code(),
            Status::Code::kResourceExhausted);
  const Status status = preparer.Prepare(tables, {{{nullptr, INT32_MAX}}}, features, {}, true, SerialFor(), none);
  EXPECT_EQ(status.code(), Status::Code::kInvalidArgument);
  EXPECT_NE(status.message().find("'user'"), std::string::npos) << status.message();
}

}  // namespace
}  // namespace mxrec
