#include "table/table.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <random>
#include <set>
#include <thread>

#include "base/hash.h"
#include "table/table_fixture.h"

namespace mxrec {
namespace {

using namespace table_fixture;  // NOLINT(build/namespaces): written for these tests

// ---- The path of a batch. ----

TEST(Table, NewRowsStartFromTheKeysInitialValuesInAnyOrder) {
  const auto a = Make(Config()), b = Make(Config());
  Keys keys = Range(-300, 300);
  MustInsert(a.get(), keys);
  std::reverse(keys.begin(), keys.end());
  for (const int64_t key : keys) MustInsert(b.get(), {key});
  for (const int64_t key : keys) {
    EXPECT_EQ(ReadRow(*a, key), InitialRow(key));
    EXPECT_EQ(ReadRow(*b, key), InitialRow(key));
  }
}

TEST(Table, SomeKeysAreDistinctAndHaveRows) {
  const auto table = Make(Config());
  EXPECT_TRUE(table->SomeKeys(10).empty());
  MustInsert(table.get(), Range(0, 500));
  for (const int64_t count : {0, 1, 10, 499, 500, 1000}) {
    const Keys keys = table->SomeKeys(count);
    EXPECT_EQ(keys.size(), std::min<int64_t>(count, 500));
    const std::set<int64_t> distinct(keys.begin(), keys.end());
    EXPECT_EQ(distinct.size(), keys.size());
    if (!distinct.empty()) {
      EXPECT_GE(*distinct.begin(), 0);
      EXPECT_LT(*distinct.rbegin(), 500);
    }
  }
}

TEST(Table, EvaluationChangesNoByte) {
  const auto table = Make(Config(), {{"m", 0.5f}});
  MustInsert(table.get(), Range(0, 200));
  const Content before = Walk(*table);
  const int64_t bytes = table->bytes();
  Batch batch(*table, Range(100, 400));
  batch.Hint(*table);
  EXPECT_EQ(batch.Resolve(*table), 200);
  const Floats rows = batch.Gather(*table);
  for (int64_t u = 0; u < batch.size(); ++u) {
    const Floats row(rows.begin() + u * kDim, rows.begin() + (u + 1) * kDim);
    EXPECT_EQ(row, batch.keys()[u] < 200 ? InitialRow(batch.keys()[u]) : Floats(kDim, 0.0f));
  }
  EXPECT_TRUE(Walk(*table) == before);
  EXPECT_EQ(table->bytes(), bytes);
  ExpectNumbersAddUp(*table, 200);
}

TEST(Table, TrueHintsLeadToTheKeysOwnRows) {
  const auto table = Make(Config());
  MustInsert(table.get(), Range(0, 20000));
  Batch batch(*table, Range(0, 20000));
  batch.Hint(*table);
  EXPECT_EQ(batch.Resolve(*table), 0);
  int64_t right = 0;
  for (int64_t u = 0; u < batch.size(); ++u) right += batch.hints[u] == RowOf(batch.handles[u]);
  EXPECT_GE(right, 19000);  // the others cost a second search, not a wrong row
  const Floats rows = batch.Gather(*table);
  for (int64_t u = 0; u < batch.size(); ++u) {
    ASSERT_EQ(Floats(&rows[u * kDim], &rows[u * kDim] + kDim), InitialRow(batch.keys()[u]));
  }
}

TEST(Table, InsertGivesAKeyThatComesTwiceOneRow) {
  const auto table = Make(Config());
  const int64_t keys[] = {7, 7, 7};
  int64_t handles[] = {kNoRow, kNoRow, kNoRow}, inserted = 0;
  const int shard = static_cast<int>(HashKey(7) >> (64 - table->shard_bits()));
  ASSERT_TRUE(table->Claim(3).ok());
  ASSERT_TRUE(table->Insert(shard, keys, 3, handles, &inserted).ok());
  table->Release(3 - inserted);
  EXPECT_EQ(inserted, 1);
  EXPECT_EQ(handles[0], handles[1]);
  EXPECT_EQ(handles[0], handles[2]);
  ExpectNumbersAddUp(*table, 1);
}

TEST(Table, UpdateAppliesTheRuleToEachRowOnce) {
  const auto table = Make(Config());
  MustInsert(table.get(), Range(0, 100));
  Batch batch(*table, Range(0, 150));  // 50 without a row
  EXPECT_EQ(batch.Resolve(*table), 50);
  UpdateAll(table.get(), batch, "gradient_descent", {0.5f, 0.0f}, 0.25f);
  for (int64_t key = 0; key < 150; ++key) {
    Floats expected = InitialRow(key);
    for (float& x : expected) x -= 0.125f;
    EXPECT_EQ(ReadRow(*table, key), key < 100 ? expected : Floats(kDim, 0.0f));
  }
}

TEST(Table, HandlesStayGoodWhileTheTableGrows) {
  const auto table = Make(Config());
  Batch first(*table, Range(0, 1000));
  ASSERT_TRUE(first.Insert(table.get()).ok());
  const Floats before = first.Gather(*table);
  for (int64_t i = 1; i <= 60; ++i) MustInsert(table.get(), Range(2000 * i, 2000 * i + 2000));
  EXPECT_EQ(first.Gather(*table), before);
}

TEST(Table, PaddingKeysAreReadButNeverUpdated) {
  const Keys padding = {30, -7, 0};
  const auto table = Make(Config(0, padding), {{"accumulator", 0.5f}});
  Batch batch(*table, {-7, 1, 0, 2, 30, 3});
  ASSERT_TRUE(batch.Insert(table.get()).ok());
  for (int64_t u = 0; u < batch.size(); ++u) {
    const bool is_padding = std::count(padding.begin(), padding.end(), batch.keys()[u]) != 0;
    EXPECT_EQ((batch.handles[u] & kFrozen) != 0, is_padding) << batch.keys()[u];
  }
  const Floats before = batch.Gather(*table);
  UpdateAll(table.get(), batch, "adagrad", {0.1f, 0.0f}, 1.0f);
  Batch again(*table, {-7, 1, 0, 2, 30, 3});  // found, not inserted: marked all the same
  again.Hint(*table);
  EXPECT_EQ(again.Resolve(*table), 0);
  EXPECT_EQ(again.handles, batch.handles);
  UpdateAll(table.get(), again, "adagrad", {0.1f, 0.0f}, 1.0f);
  const Floats after = again.Gather(*table);
  for (int64_t u = 0; u < batch.size(); ++u) {
    const int64_t key = batch.keys()[u];
    const bool is_padding = std::count(padding.begin(), padding.end(), key) != 0;
    const Floats was(&before[u * kDim], &before[u * kDim] + kDim), is(&after[u * kDim], &after[u * kDim] + kDim);
    EXPECT_EQ(was, InitialRow(key));
    EXPECT_EQ(was == is, is_padding) << key;
    EXPECT_EQ(ReadRow(*table, key)[kDim], is_padding ? 0.5f : 2.5f) << "the slot of " << key;
  }
}

TEST(Table, ChecksHandlesBeforeTheyAreUsed) {
  const auto table = Make(Config(0, {5}));
  EXPECT_FALSE(table->CheckHandles(Keys{0}.data(), 1).ok()) << "an empty table has no rows";
  Batch batch(*table, Range(0, 50));
  ASSERT_TRUE(batch.Insert(table.get()).ok());
  EXPECT_TRUE(table->CheckHandles(batch.handles.data(), batch.size()).ok());
  EXPECT_TRUE(table->CheckHandles(Keys{kNoRow, batch.handles[0], kNoRow}.data(), 3).ok());
  EXPECT_TRUE(table->CheckHandles(nullptr, 0).ok());
  const int64_t good = batch.handles[0];
  for (const int64_t bad : {int64_t{-2}, INT64_MIN, INT64_MAX, int64_t{1} << 32, int64_t{UINT32_MAX}, good + (1 << 20),
                            good ^ kFrozen << 1, good ^ int64_t{1} << 35, RowOf(good), kFrozen - 1, -kFrozen}) {
    const Keys handles = {batch.handles[0], bad, -5};
    const Status status = table->CheckHandles(handles.data(), 3);
    EXPECT_EQ(status.code(), Status::Code::kInvalidArgument) << bad;
    EXPECT_NE(status.message().find("'user'"), std::string::npos) << status.message();
    EXPECT_NE(status.message().find(std::to_string(bad)), std::string::npos) << status.message();
  }
}

TEST(Table, HandlesOfBeforeAnEraseAreNoLongerGood) {
  const auto table = Make(Config());
  Batch batch(*table, Range(0, 50));
  ASSERT_TRUE(batch.Insert(table.get()).ok());
  MustInsert(table.get(), Range(100, 5000));
  EXPECT_TRUE(table->CheckHandles(batch.handles.data(), batch.size()).ok()) << "inserts move nothing";
  const Keys nobody = {7777};
  EXPECT_EQ(table->Erase(nobody.data(), 1), 0);
  EXPECT_TRUE(table->CheckHandles(batch.handles.data(), batch.size()).ok()) << "nothing was erased";
  const Keys one = {4000};
  EXPECT_EQ(table->Erase(one.data(), 1), 1);
  EXPECT_EQ(table->CheckHandles(batch.handles.data(), batch.size()).code(), Status::Code::kInvalidArgument);
  batch.Resolve(*table);
  EXPECT_TRUE(table->CheckHandles(batch.handles.data(), batch.size()).ok());
  table->Clear();
  MustInsert(table.get(), Range(0, 50));
  EXPECT_FALSE(table->CheckHandles(batch.handles.data(), batch.size()).ok());
}

// ---- Limits. ----

TEST(Table, AFullTableSaysSoAndLosesNothing) {
  const auto table = Make(Config(100), {{"m", 1}});
  MustInsert(table.get(), Range(0, 90));
  const Content before = Walk(*table);
  const Status status = Batch(*table, Range(80, 120)).Insert(table.get());
  EXPECT_EQ(status.code(), Status::Code::kResourceExhausted);
  for (const char* word : {"'user'", "90 rows", "30 new", "100", "device_vocabulary_size", "use_dynamic_expansion"}) {
    EXPECT_NE(status.message().find(word), std::string::npos) << word << " is not in: " << status.message();
  }
  EXPECT_TRUE(Walk(*table) == before);
  ExpectNumbersAddUp(*table, 90);

  MustInsert(table.get(), Range(90, 100));  // exactly full
  ExpectNumbersAddUp(*table, 100);
  MustInsert(table.get(), Range(0, 100));  // nothing new
  EXPECT_FALSE(Batch(*table, {100}).Insert(table.get()).ok());
  EXPECT_FALSE(AssignRow(table.get(), 100, Floats(2 * kDim, 0.0f)).ok());
  EXPECT_TRUE(AssignRow(table.get(), 99, Floats(2 * kDim, 0.0f)).ok());
  ExpectNumbersAddUp(*table, 100);

  const int64_t gone = 50;
  EXPECT_EQ(table->Erase(&gone, 1), 1);
  MustInsert(table.get(), {100});
  ExpectNumbersAddUp(*table, 100);
}

TEST(Table, AClaimThatFailsDisturbsNoOther) {
  const auto table = Make(Config(100));
  std::atomic<int> failed{0}, refused{0};
  std::thread greedy([&] {
    for (int i = 0; i < 100000; ++i) failed += !table->Claim(101).ok();
  });
  while (failed.load() == 0) std::this_thread::yield();
  while (failed.load() < 100000) {
    if (table->Claim(1).ok()) {
      table->Release(1);
    } else {
      ++refused;
    }
  }
  greedy.join();
  EXPECT_EQ(refused.load(), 0);
  EXPECT_EQ(table->size(), 0);
}

TEST(Table, CapacityIsTheLimitOrWhatIsAllocated) {
  EXPECT_EQ(Make(Config(1000))->capacity(), 1000);
  const auto table = Make(Config());
  EXPECT_EQ(table->capacity(), 0);
  MustInsert(table.get(), Range(0, 5000));
  EXPECT_GE(table->capacity(), 5000);
  EXPECT_GE(table->bytes(), static_cast<int64_t>(5000 * (kDim * sizeof(float) + sizeof(int64_t))));
}

TEST(Table, RefusesConfigurationsThatCannotWork) {
  auto refused = [](TableConfig config, const char* word) {
    std::shared_ptr<Table> table;
    const Status status = Table::Create(config, &table);
    EXPECT_EQ(status.code(), Status::Code::kInvalidArgument);
    EXPECT_NE(status.message().find(word), std::string::npos) << status.message();
    EXPECT_EQ(table, nullptr);
  };
  TableConfig config = Config();
  config.name = "";
  refused(config, "name");
  for (const int dim : {0, -1, 8193}) {
    config = Config();
    config.dim = dim;
    refused(config, "'user'");
    refused(config, std::to_string(dim).c_str());
  }
  config = Config(-5);
  refused(config, "-5");
  config = Config();
  config.initializer.a = NAN;
  refused(config, "'user'");
}

TEST(Table, ChoosesMoreShardsForLargerTables) {
  EXPECT_LT(Make(Config(1000))->shards(), Make(Config(10000000))->shards());
  for (const int64_t max_rows : {int64_t{0}, int64_t{1}, int64_t{1} << 24, int64_t{1} << 40}) {
    const auto table = Make(Config(max_rows));
    EXPECT_EQ(table->shards(), 1 << table->shard_bits());
    EXPECT_LE(table->shards(), 256);  // what a plan can carry
  }
}

// ---- Outside the step. ----

TEST(Table, SetSlotsKeepsEmbeddingsAndStartsSlotsAtTheirInitialValue) {
  const auto table = Make(Config());
  MustInsert(table.get(), Range(0, 500));
  ASSERT_TRUE(table->SetSlots({{"m", 0.5f}, {"v", 2.0f}}).ok());
  MustInsert(table.get(), Range(500, 600));
  const Content content = Walk(*table);
  ASSERT_EQ(content.size(), 600u);
  for (const auto& [key, row] : content) {
    Floats expected = InitialRow(key);
    expected.resize(2 * kDim, 0.5f);
    expected.resize(3 * kDim, 2.0f);
    EXPECT_EQ(row, expected);
  }
}

TEST(Table, KeepsTheSlotsOfOneOptimizerOnly) {
  const auto table = Make(Config(), {{"m", 0.5f}, {"v", 0}});
  MustInsert(table.get(), Range(0, 10));
  Floats row(3 * kDim, 9.0f);
  ASSERT_TRUE(AssignRow(table.get(), 4, row).ok());
  const Content before = Walk(*table);
  EXPECT_TRUE(table->SetSlots({{"m", 0.5f}, {"v", 0}}).ok());
  for (const std::vector<SlotSpec>& other :
       std::vector<std::vector<SlotSpec>>{{{"accumulator", 0.5f}}, {{"m", 0.5f}}, {{"m", 0.1f}, {"v", 0}}, {}}) {
    const Status status = table->SetSlots(other);
    EXPECT_EQ(status.code(), Status::Code::kFailedPrecondition);
    const std::string wanted = other.empty() ? "[]" : other[0].name;
    for (const std::string& word : {std::string("'user'"), std::string("m, v"), wanted}) {
      EXPECT_NE(status.message().find(word), std::string::npos) << status.message();
    }
  }
  EXPECT_TRUE(Walk(*table) == before);
}

TEST(Table, RowsAfterEraseStartAnewWithFreshSlots) {
  const auto table = Make(Config(), {{"m", 0.5f}, {"v", 0}});
  const Keys old_keys = Range(0, 300);
  Batch batch(*table, old_keys);
  ASSERT_TRUE(batch.Insert(table.get()).ok());
  for (int i = 0; i < 3; ++i) UpdateAll(table.get(), batch, "lazy_adam", {0.1f, 0.9f, 0.99f, 1e-8f}, 1.0f);
  EXPECT_NE(ReadRow(*table, 5)[kDim], 0.5f);
  EXPECT_EQ(table->Erase(old_keys.data(), 300), 300);
  ExpectNumbersAddUp(*table, 0);

  MustInsert(table.get(), Range(150, 450));  // old keys and new ones, in rows used before
  EXPECT_LE(table->capacity(), 300 + 2 * 64 * static_cast<int64_t>(MemoryStore::kRun));
  for (int64_t key = 150; key < 450; ++key) {
    Floats expected = InitialRow(key);
    expected.resize(2 * kDim, 0.5f);
    expected.resize(3 * kDim, 0.0f);
    ASSERT_EQ(ReadRow(*table, key), expected) << key;
  }
}

TEST(Table, AssignAddsAndReplacesWholeRows) {
  const auto table = Make(Config(), {{"m", 0.5f}});
  MustInsert(table.get(), {1});
  Floats row(2 * kDim);
  for (const int64_t key : {int64_t{1}, int64_t{2}, INT64_MIN, INT64_MAX}) {
    for (size_t i = 0; i < row.size(); ++i) row[i] = static_cast<float>(key % 100) + 0.5f * i;
    ASSERT_TRUE(AssignRow(table.get(), key, row).ok());
    EXPECT_EQ(ReadRow(*table, key), row);
  }
  ExpectNumbersAddUp(*table, 4);
  EXPECT_EQ(table->inserted(), 4);
}

TEST(Table, AFullTableOfOneRowSaysThatItsLimitIsADefault) {
  const auto table = Make(Config(1));
  const Status status = table->Claim(2);
  EXPECT_NE(status.message().find("default of device_vocabulary_size"), std::string::npos) << status.message();
  EXPECT_EQ(Make(Config(2))->Claim(3).message().find("default of"), std::string::npos);
}

TEST(Table, EraseCountsEachPresentKeyOnce) {
  const auto table = Make(Config());
  MustInsert(table.get(), Range(0, 10));
  const Keys keys = {3, 3, 100, 4, -1, 3};
  EXPECT_EQ(table->Erase(keys.data(), 6), 2);
  EXPECT_EQ(table->Erase(keys.data(), 6), 0);
  EXPECT_EQ(table->Erase(nullptr, 0), 0);
  ExpectNumbersAddUp(*table, 8);
  EXPECT_EQ(table->erased(), 2);
}

TEST(Table, ClearRemovesEverythingAndGivesTheMemoryBack) {
  const auto table = Make(Config(500), {{"m", 0.5f}});
  MustInsert(table.get(), Range(0, 500));
  Batch batch(*table, Range(0, 500));
  EXPECT_EQ(batch.Resolve(*table), 0);
  UpdateAll(table.get(), batch, "momentum", {0.1f, 0.9f, 0.0f}, 1.0f);
  table->Clear();
  EXPECT_EQ(table->bytes(), 0);
  ExpectNumbersAddUp(*table, 0);
  EXPECT_TRUE(Walk(*table).empty());
  EXPECT_EQ(batch.Resolve(*table), 500);
  MustInsert(table.get(), Range(0, 500));
  for (int64_t key = 0; key < 500; ++key) {
    Floats expected = InitialRow(key);
    expected.resize(2 * kDim, 0.5f);
    ASSERT_EQ(ReadRow(*table, key), expected);
  }
  ExpectNumbersAddUp(*table, 500);
}

TEST(Table, WalksEachKeyOnceInAnOrderThatTheOperationsDetermine) {
  auto run = [] {
    const auto table = Make(Config());
    MustInsert(table.get(), Range(0, 3000));
    const Keys gone = Range(500, 1500);
    table->Erase(gone.data(), 1000);
    MustInsert(table.get(), Range(1200, 4000));
    return Walk(*table);
  };
  const Content content = run();
  std::set<int64_t> keys;
  for (const auto& entry : content) EXPECT_TRUE(keys.insert(entry.first).second) << entry.first;
  EXPECT_EQ(keys.size(), 3300u);
  EXPECT_TRUE(run() == content);
}

// ---- Threads. ----

TEST(Table, InsertsAndErasesOfTheSameKeysFromManyThreadsLeaveAWholeTable) {
  const auto table = Make(Config(), {{"m", 0.5f}});
  constexpr int kThreads = 4;
  std::vector<std::thread> threads;
  std::atomic<int64_t> erased{0};
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      std::mt19937_64 random(t);
      for (int round = 0; round < 60; ++round) {
        Keys keys(100);
        for (int64_t& key : keys) key = static_cast<int64_t>(random() % 400);
        Batch batch(*table, keys);
        batch.Hint(*table);
        EXPECT_TRUE(batch.Insert(table.get()).ok());
        if (t % 2 == 0) erased += table->Erase(keys.data(), 50);
        Floats row(2 * kDim);
        ReadInto(*table, keys[99], row.data());
      }
    });
  }
  for (std::thread& t : threads) t.join();
  EXPECT_EQ(table->erased(), erased.load());
  const Content content = Walk(*table);
  ExpectNumbersAddUp(*table, static_cast<int64_t>(content.size()));
  std::set<int64_t> keys;
  for (const auto& [key, row] : content) {
    EXPECT_TRUE(keys.insert(key).second) << key << " has two rows";
    Floats expected = InitialRow(key);
    expected.resize(2 * kDim, 0.5f);
    EXPECT_EQ(row, expected);
  }
  for (int64_t key = 0; key < 400; ++key) {
    Floats row(2 * kDim);
    EXPECT_EQ(ReadInto(*table, key, row.data()), keys.count(key) != 0);
  }
}

TEST(Table, PreparationMayRunWhileTheTableIsCleared) {
  const auto table = Make(Config());
  std::atomic<bool> stop{false};
  std::thread prepare([&] {
    Batch batch(*table, Range(0, 2000));
    while (!stop) batch.Hint(*table);
  });
  for (int round = 0; round < 30; ++round) {
    MustInsert(table.get(), Range(0, 2000));
    table->Clear();
  }
  stop = true;
  prepare.join();
  ExpectNumbersAddUp(*table, 0);
}

}  // namespace
}  // namespace mxrec
