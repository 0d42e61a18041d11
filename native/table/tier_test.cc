// Steps over a table with rows on disk. What happens outside of steps: tier_rows_test.cc; what fails:
// tier_fault_test.cc.
#include "table/tier.h"

#include <gtest/gtest.h>

#include "table/tier_fixture.h"

namespace mxrec {
namespace {

using namespace tier_fixture;  // NOLINT(build/namespaces): written for these tests

class TierStep : public TierTest {};

TEST_F(TierStep, RowsComeBackAsTheyWere) {
  struct Case {
    int64_t memory_rows, keys, batch;
    int steps;
    std::vector<SlotSpec> slots;
  };
  // One shard and small segments; one shard; two shards.
  for (const Case& c : {Case{50, 400, 30, 250, LargeRow()}, Case{100, 400, 90, 100, SmallRow()},
                        Case{8192, 30000, 3000, 40, SmallRow()}}) {
    SCOPED_TRACE(testing::Message() << c.memory_rows << " rows in memory");
    const auto table = Make(Tiered(c.memory_rows, c.keys), c.slots);
    Rows rows;
    for (int i = 0; i < c.steps; ++i) {
      const Keys ids = Draw(c.batch, c.keys);
      Step step({table}, {ids});
      const Status status = step.Train();
      ASSERT_TRUE(status.ok()) << status.message();
      for (const int64_t id : ids) rows.emplace(id, FreshRow(*table, id));
      for (size_t p = 0; p < ids.size(); p += 17) {
        ExpectEmbeddings(rows, {ids[p]}, step.embedding(0, static_cast<int64_t>(p)));
      }
      ASSERT_TRUE(UpdateRows(table.get(), step, i).ok());
      step.End();
      TrainRows(&rows, *table, ids, i);
      ASSERT_LE(RowsInMemory(*table), MostInMemory(*table));
      ExpectNumbersAddUp(*table, static_cast<int64_t>(rows.size()));
    }
    ASSERT_TRUE(RowsOf(*table) == rows);
    const Tier& tier = *table->tier();
    EXPECT_EQ(table->shards(), c.memory_rows > 8000 ? 2 : 1);
    EXPECT_GT(tier.promotions, 1000);
    EXPECT_GT(tier.hits, 500);
    EXPECT_EQ(tier.demotions - tier.promotions, RowsOnDisk(*table));
    if (c.slots.size() > 1) {
      EXPECT_GT(tier.moved, 100);  // segments were emptied, too
    }
    EXPECT_EQ(directory_.names(), 0);
  }
}

TEST_F(TierStep, ABatchMayFillTheMemory) {
  const auto table = Make(Tiered(50, 100), SmallRow());
  Rows rows;
  for (int i = 0; i < 200; ++i) {
    const Keys ids = DrawDistinct(i % 3 == 0 ? 50 : 20 + i % 30, 150);
    const Status status = TrainStep(table, ids, i);
    ASSERT_TRUE(status.ok()) << "step " << i << ": " << status.message();
    TrainRows(&rows, *table, ids, i);
    ASSERT_LE(RowsInMemory(*table), 50);
  }
  EXPECT_TRUE(RowsOf(*table) == rows);
}

TEST_F(TierStep, ABatchLargerThanTheMemoryIsRefusedWithoutATrace) {
  for (const bool tracked : {false, true}) {
    SCOPED_TRACE(tracked);
    const auto table = Make(Tiered(50, 1000), SmallRow());
    if (tracked) {
      ASSERT_TRUE(table->Track({0, 100, 1, 0}).ok());
    }
    Rows rows;
    ASSERT_TRUE(TrainStep(table, Range(0, 40), 0, {5}).ok());
    TrainRows(&rows, *table, Range(0, 40), 0);
    ASSERT_TRUE(TrainStep(table, Range(30, 70), 1, {6}).ok());
    TrainRows(&rows, *table, Range(30, 70), 1);
    // Keys that are there, that are new, and some of both.
    for (const Keys& ids : {Range(0, 60), Range(100, 151), Range(20, 120)}) {
      const Status status = TrainStep(table, ids, 9, {7});
      EXPECT_EQ(status.code(), Status::Code::kResourceExhausted);
      EXPECT_TRUE(Contains(status, "'user'")) << status.message();
      EXPECT_TRUE(Contains(status, std::to_string(ids.size()) + " rows")) << status.message();
      EXPECT_TRUE(Contains(status, "host_vocabulary_size is 50")) << status.message();
      EXPECT_TRUE(RowsOf(*table) == rows);
      ExpectNumbersAddUp(*table, 70);
      if (!tracked) continue;
      EXPECT_EQ(table->history()->step(), 2u);
      EXPECT_EQ(table->history()->now(), 6);
      for (int64_t key = 0; key < 70; ++key) {
        ExpectFacts(*table, key, key >= 30 && key < 40 ? 2 : 1, key < 30 ? 5 : 6, key < 30 ? 1 : 2);
      }
      ExpectFacts(*table, 110, 0, 0, 0);
      ExpectLives(*table, 70, 0, 0);
    }
    EXPECT_TRUE(TrainStep(table, Range(80, 130), 2, {8}).ok());
  }
}

TEST_F(TierStep, WhenTheTableIsFullNothingIsInserted) {
  const auto table = Make(Tiered(50, 50), SmallRow());
  ASSERT_TRUE(TrainStep(table, Range(0, 50), 0).ok());
  ASSERT_TRUE(TrainStep(table, Range(50, 98), 0).ok());
  const Status status = TrainStep(table, Range(95, 101), 1);
  EXPECT_EQ(status.code(), Status::Code::kResourceExhausted);
  EXPECT_TRUE(Contains(status, "ssd_vocabulary_size) is 100")) << status.message();
  ExpectNumbersAddUp(*table, 98);
  EXPECT_TRUE(TrainStep(table, Range(95, 100), 1).ok());
  ExpectNumbersAddUp(*table, 100);
}

TEST_F(TierStep, HandlesAreGoodUntilTheirUseEnds) {
  const auto table = Make(Tiered(50, 1000), SmallRow());
  Step first({table}, {Range(0, 20)}), second({table}, {Range(10, 30)});
  ASSERT_TRUE(first.Train().ok());
  ASSERT_TRUE(second.Train().ok());
  const Keys of_first = first.handles(0), of_second = second.handles(0);
  auto check = [&](const Keys& handles) {
    return table->CheckHandles(handles.data(), static_cast<int64_t>(handles.size()));
  };
  EXPECT_TRUE(check(of_first).ok());
  EXPECT_TRUE(check(of_second).ok());
  Keys mixed = of_first;
  for (const int64_t handle : of_second) mixed.insert(mixed.end(), {handle, kNoRow});
  EXPECT_TRUE(check(mixed).ok());

  first.End();
  const Status status = check(of_first);
  EXPECT_EQ(status.code(), Status::Code::kInvalidArgument);
  EXPECT_TRUE(Contains(status, "'user'")) << status.message();
  EXPECT_TRUE(Contains(status, std::to_string(of_first[0]))) << status.message();
  EXPECT_FALSE(check(mixed).ok());
  EXPECT_TRUE(check(of_second).ok());

  for (const int64_t bad :
       {int64_t{0}, int64_t{3}, int64_t{-2}, int64_t{-3}, INT64_MIN, INT64_MAX, of_second[0] | int64_t{kOnDisk},
        of_second[0] | int64_t{1} << 35, of_second[0] + (int64_t{1} << 41)}) {
    EXPECT_FALSE(check({of_second[0], bad}).ok()) << bad;
  }
  second.End();
  EXPECT_FALSE(check(of_second).ok());
  EXPECT_TRUE(check({kNoRow, kNoRow}).ok());
}

TEST_F(TierStep, StepsAtTheSameTimeKeepTheRowsOfBothInMemory) {
  const auto table = Make(Tiered(50, 1000), SmallRow());
  Rows rows;
  ASSERT_TRUE(TrainStep(table, Range(100, 150), 0).ok());
  TrainRows(&rows, *table, Range(100, 150), 0);
  Step first({table}, {Range(0, 30)}), second({table}, {Range(25, 45)});
  ASSERT_TRUE(first.Train().ok());
  ASSERT_TRUE(second.Train().ok());
  for (int64_t key = 0; key < 45; ++key) rows.emplace(key, FreshRow(*table, key));

  auto expect_rows = [&](const Step& step) {
    for (size_t u = 0; u < step.keys(0).size(); ++u) {
      const float* row = table->Row(step.handles(0)[u]);
      ASSERT_EQ(Floats(row, row + RowFloats(*table)), rows.at(step.keys(0)[u])) << "key " << step.keys(0)[u];
    }
  };
  // Others use what is left, again and again, and cannot have more. (What they used stays while an older step runs.)
  for (int64_t i = 0; i < 20; ++i) {
    const Keys ids = Range(100, 105);
    const Status status = TrainStep(table, ids, i);
    ASSERT_TRUE(status.ok()) << status.message();
    TrainRows(&rows, *table, ids, i);
    EXPECT_EQ(TrainStep(table, Range(200, 206), i).code(), Status::Code::kResourceExhausted);
    expect_rows(first);
    expect_rows(second);
    ASSERT_LE(RowsInMemory(*table), 50);
  }
  ASSERT_TRUE(UpdateRows(table.get(), first, 50).ok());
  TrainRows(&rows, *table, Range(0, 30), 50);
  first.End();
  EXPECT_TRUE(TrainStep(table, Range(200, 225), 60).ok());
  TrainRows(&rows, *table, Range(200, 225), 60);
  ASSERT_TRUE(UpdateRows(table.get(), second, 51).ok());
  TrainRows(&rows, *table, Range(25, 45), 51);
  expect_rows(second);
  second.End();
  EXPECT_TRUE(RowsOf(*table) == rows);
}

TEST_F(TierStep, EvaluationFindsRowsAnywhereAndChangesNothing) {
  for (const int64_t memory_rows : {60, 8192}) {
    const auto table = Make(Tiered(memory_rows, 5 * memory_rows), SmallRow());
    ASSERT_TRUE(table->Track({0, Tracking::kOff, 1, 0}).ok());
    const int64_t batch = memory_rows / 2, keys = 4 * memory_rows;
    Rows rows;
    for (int64_t first = 0; first < keys; first += batch) {
      const Keys ids = Range(first, first + batch);
      ASSERT_TRUE(TrainStep(table, ids, first).ok());
      TrainRows(&rows, *table, ids, first);
    }
    const int64_t promoted = table->tier()->promotions;
    for (int i = 0; i < 30; ++i) {
      SCOPED_TRACE(i);
      const ThreadedFor parallel(i % 2 == 0 ? 1 : 3);
      const Keys ids = Draw(batch, keys + keys / 4);  // some are unknown, some come twice
      Step step({table}, {ids});
      ASSERT_TRUE(step.Evaluate(parallel).ok());
      step.End();
      for (size_t p = 0; p < ids.size(); ++p) {
        ExpectEmbeddings(rows, {ids[p]}, step.embedding(0, static_cast<int64_t>(p)));
      }
      Floats embeddings;
      const Keys others = Draw(batch, keys + keys / 4);
      const Status status = EvaluateAny(table.get(), others, &embeddings, parallel);
      ASSERT_TRUE(status.ok()) << status.message();
      ExpectEmbeddings(rows, others, embeddings);
      ASSERT_LE(RowsInMemory(*table), MostInMemory(*table));
      if (memory_rows > 1000 && i == 6) break;
    }
    EXPECT_GT(table->tier()->promotions, promoted + 100);
    ExpectNumbersAddUp(*table, keys);
    EXPECT_TRUE(RowsOf(*table) == rows);
    for (int64_t key = 0; key < keys; key += 7) ExpectFacts(*table, key, 1, 0, static_cast<uint32_t>(1 + key / batch));
  }
}

TEST_F(TierStep, PaddingKeysGoToDiskAndStayAsTheyAre) {
  const auto table = Make(Tiered(50, 1000, {3, 77}), SmallRow());
  Rows rows;
  for (int i = 0; i < 60; ++i) {
    Keys ids = Draw(40, 300);
    if (i % 5 == 0) ids.insert(ids.end(), {3, 77});
    Step step({table}, {ids});
    ASSERT_TRUE(step.Train().ok());
    for (size_t u = 0; u < step.keys(0).size(); ++u) {
      const bool is_padding = step.keys(0)[u] == 3 || step.keys(0)[u] == 77;
      ASSERT_EQ((step.handles(0)[u] & kFrozen) != 0, is_padding);
    }
    ASSERT_TRUE(UpdateRows(table.get(), step, i).ok());
    TrainRows(&rows, *table, ids, i);
  }
  EXPECT_TRUE(RowsOf(*table) == rows);
  EXPECT_EQ(ReadRow(*table, 3), FreshRow(*table, 3));
}

TEST_F(TierStep, WithoutALimitMemoryGrowsWhenTheDiskHasItsRows) {
  const auto table = Make(Growing(50, 100), SmallRow());
  EXPECT_EQ(table->shards(), 1);
  Rows rows;
  for (int i = 0; i < 60; ++i) {
    const Keys ids = Range(8 * i, 8 * i + 40);  // some of them known
    const Status status = TrainStep(table, ids, i);
    ASSERT_TRUE(status.ok()) << status.message();
    TrainRows(&rows, *table, ids, i);
    ASSERT_LE(RowsOnDisk(*table), 100);
    ASSERT_LE(RowsInMemory(*table), std::max<int64_t>(50, table->size() - 100 + 40));
  }
  EXPECT_GT(RowsInMemory(*table), 300);
  EXPECT_TRUE(RowsOf(*table) == rows);
  // And a batch may be larger than what memory should hold.
  EXPECT_TRUE(TrainStep(table, Range(0, 300), 99).ok());
  TrainRows(&rows, *table, Range(0, 300), 99);
  EXPECT_TRUE(RowsOf(*table) == rows);
}

TEST_F(TierStep, WithoutALimitAFullDiskIsNoReasonToStop) {
  env_.SetSpace(directory_.path(), 200000);  // one segment
  const auto table = Make(Growing(50, 100000), LargeRow());
  Rows rows;
  for (int i = 0; i < 30; ++i) {
    const Keys ids = Draw(40, 300);
    const Status status = TrainStep(table, ids, i);
    ASSERT_TRUE(status.ok()) << status.message();
    TrainRows(&rows, *table, ids, i);
  }
  EXPECT_GT(RowsInMemory(*table), 200);
  EXPECT_TRUE(RowsOf(*table) == rows);
}

}  // namespace
}  // namespace mxrec
