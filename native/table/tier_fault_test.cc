// Tables with rows on disk when the disk fails.
#include <gtest/gtest.h>

#include "table/assign_embeddings.h"
#include "table/eviction.h"
#include "table/tier_fixture.h"

namespace mxrec {
namespace {

using namespace tier_fixture;  // NOLINT(build/namespaces): written for these tests

constexpr int64_t kMemory = 16, kKeys = 64, kBatch = 8;

class TierFault : public TierTest {
 protected:
  // Trains 40 steps while `count` operations from number `at` on fail. A step that fails must leave no trace, and
  // succeed when it is repeated. Returns how many operations failed.
  int64_t Run(const Fault& fault, int64_t at, int64_t count) {
    const TemporaryDirectory directory;
    ScratchEnv env;
    TableConfig config = Tiered(kMemory, kKeys);
    config.tier.paths = {directory.path()};
    config.tier.env = &env;
    const auto table = Make(config, LargeRow());
    const bool is_tracked = at % 2 == 0;
    if (is_tracked) {
      EXPECT_TRUE(table->Track({0, 100, 1, 0}).ok());
    }
    rows_.clear();
    counts_.clear();
    random_.seed(3);
    env.Fail(fault, at, count);
    int steps_left = 40;
    for (int64_t i = 1; steps_left > 0; ++i, --steps_left) {
      const Keys ids = DrawDistinct(kBatch, kKeys);
      Status status = TrainStep(table, ids, i, {1000 + i});
      if (!status.ok()) {
        env.Lift();
        EXPECT_EQ(status.code(), fault.code) << status.message();
        EXPECT_TRUE(Contains(status, "'user'")) << status.message();
        EXPECT_TRUE(Contains(status, directory.path())) << status.message();
        ExpectSame(*table, i - 1);
        status = TrainStep(table, ids, i, {1000 + i});
        EXPECT_TRUE(status.ok()) << status.message();
        steps_left = 3;
      }
      TrainRows(&rows_, *table, ids, i);
      for (const int64_t id : ids) ++counts_[id];
      if (HasFailure()) return 0;
      if (steps_left > 1) continue;
      env.Lift();
      ExpectSame(*table, i);
    }
    moved_ += table->tier()->moved;
    return env.failures();
  }

  void ExpectSame(const Table& table, int64_t steps) {
    EXPECT_TRUE(RowsOf(table) == rows_);
    ExpectNumbersAddUp(table, static_cast<int64_t>(rows_.size()));
    EXPECT_LE(RowsInMemory(table), kMemory);
    if (table.history() == nullptr) return;
    EXPECT_EQ(table.history()->step(), static_cast<uint32_t>(steps));
    EXPECT_EQ(table.history()->now(), steps == 0 ? 0 : 1000 + steps);
    for (int64_t key = 0; key < kKeys; ++key) EXPECT_EQ(table.Facts(key).count, counts_[key]) << key;
    ExpectLives(table, static_cast<int64_t>(rows_.size()), 0, 0);
  }

  Rows rows_;
  std::map<int64_t, uint32_t> counts_;
  int64_t moved_ = 0;
};

TEST_F(TierFault, AStepThatFailsAnywhereLeavesNoTraceAndCanBeRepeated) {
  for (const Fault& fault : kFaults) {
    int64_t runs = 0;
    for (int64_t at = 0;; ++at, ++runs) {
      SCOPED_TRACE(testing::Message() << fault.name << ", number " << at);
      const int64_t failures = Run(fault, at, 1);
      if (failures == 0 || HasFailure()) break;
    }
    EXPECT_GE(runs, fault.operation == Operation::kScratch || fault.operation == Operation::kReserve ? 1 : 30);
    if (HasFailure()) return;
  }
  EXPECT_GT(moved_, 500);  // segments were emptied, too
}

TEST_F(TierFault, AStepThatFailsUntilTheDiskIsRepairedLeavesNoTraceAndCanBeRepeated) {
  for (const Fault& fault : kFaults) {
    for (int64_t at = 0;; at += fault.operation == Operation::kRead ? 7 : 2) {
      SCOPED_TRACE(testing::Message() << fault.name << ", from number " << at << " on");
      const int64_t failures = Run(fault, at, INT64_MAX / 2);
      if (failures == 0) break;
      if (HasFailure()) return;
    }
  }
}

TEST_F(TierFault, EmbeddingsThatCannotBeAssignedForADiskThatFailsOnceLeaveNoTrace) {
  const Keys keys = Range(kKeys / 2, kKeys + kKeys / 2);  // some on disk, some new
  const Floats embeddings(keys.size() * kDim, 3.0f);
  const auto table = Make(Tiered(kMemory, 2 * kKeys), LargeRow());
  Rows rows;
  for (int64_t first = 0; first < kKeys; first += kBatch) {
    ASSERT_TRUE(TrainStep(table, Range(first, first + kBatch), 1).ok());
    TrainRows(&rows, *table, Range(first, first + kBatch), 1);
  }
  for (const Fault& fault : kFaults) {
    if (fault.operation != Operation::kWrite && fault.operation != Operation::kRead) continue;
    for (const int64_t at : {0, 3, 20}) {
      SCOPED_TRACE(testing::Message() << fault.name << ", number " << at);
      env_.Fail(fault, at, 1);
      const Status status =
          AssignEmbeddings(table.get(), keys.data(), static_cast<int64_t>(keys.size()), embeddings.data());
      env_.Lift();
      EXPECT_EQ(env_.failures(), 1);
      ASSERT_EQ(status.code(), fault.code) << status.message();
      EXPECT_TRUE(RowsOf(*table) == rows);
      ExpectNumbersAddUp(*table, static_cast<int64_t>(rows.size()));
    }
  }
  ASSERT_TRUE(AssignEmbeddings(table.get(), keys.data(), static_cast<int64_t>(keys.size()), embeddings.data()).ok());
}

TEST_F(TierFault, OfSeveralTablesNoneIsTouchedByAStepThatFailsInOne) {
  const auto tiered = Make(Tiered(kMemory, kKeys), SmallRow());
  const auto plain = Make(Config(), SmallRow());
  ASSERT_TRUE(plain->Track({0, 100, 1, 0}).ok());
  Rows rows;
  for (int64_t first = 0; first < kKeys; first += kBatch) {
    ASSERT_TRUE(TrainStep(tiered, Range(first, first + kBatch), 1).ok());
    TrainRows(&rows, *tiered, Range(first, first + kBatch), 1);
  }
  for (const Fault& fault : kFaults) {
    if (fault.operation != Operation::kWrite && fault.operation != Operation::kRead) continue;
    env_.Fail(fault);
    Step step({plain, tiered}, {Range(0, 10), {kKeys, 1, 2, 3}}, {7});  // one is new, the others are on disk
    EXPECT_EQ(step.Train().code(), fault.code);
    env_.Lift();
    ExpectNumbersAddUp(*plain, 0);
    EXPECT_EQ(plain->history()->step(), 0u);
    EXPECT_TRUE(RowsOf(*tiered) == rows);
    ExpectNumbersAddUp(*tiered, static_cast<int64_t>(rows.size()));
  }
}

TEST_F(TierFault, ADamagedRowIsDataLossAndNotTrained) {
  const auto table = Make(Tiered(kMemory, kKeys), SmallRow());
  Rows rows;
  for (int64_t first = 0; first < kKeys; first += kBatch) {
    ASSERT_TRUE(TrainStep(table, Range(first, first + kBatch), 1).ok());
    TrainRows(&rows, *table, Range(first, first + kBatch), 1);
  }
  env_.Fail({Operation::kRead, Status::Code::kIoError, true});
  for (const Keys& ids : {Keys{3}, Range(0, 10)}) {
    const Status status = TrainStep(table, ids, 2);
    EXPECT_EQ(status.code(), Status::Code::kDataLoss);
    EXPECT_TRUE(Contains(status, "table 'user': the row of key ")) << status.message();
  }
  Floats row(RowFloats(*table));
  bool found;
  EXPECT_EQ(table->Read(3, row.data(), &found).code(), Status::Code::kDataLoss);
  EXPECT_EQ(table->ForEachRow([](int64_t, int64_t, const float*) { return Status(); }).code(), Status::Code::kDataLoss);
  // What is in memory can be trained all the same.
  EXPECT_TRUE(TrainStep(table, Range(kKeys - 5, kKeys), 3).ok());
  TrainRows(&rows, *table, Range(kKeys - 5, kKeys), 3);
  env_.Lift();
  EXPECT_TRUE(RowsOf(*table) == rows);
}

TEST_F(TierFault, RowsThatCannotBeReadAreNotEvictedForTheirNorm) {
  const auto table = Make(Tiered(kMemory, kKeys), SmallRow());
  for (int64_t first = 0; first < kKeys; first += kBatch) {
    ASSERT_TRUE(TrainStep(table, Range(first, first + kBatch), 1).ok());
  }
  const int64_t in_memory = RowsInMemory(*table);
  env_.Fail({Operation::kRead});
  std::unique_ptr<Eviction> eviction;
  ASSERT_TRUE(Eviction::Begin(table, {EvictionPolicy::Score::kNorm, 1e9, -1}, &eviction).ok());
  EXPECT_TRUE(eviction->Run(INT64_MAX));
  EXPECT_EQ(eviction->evicted(), in_memory);
  ExpectNumbersAddUp(*table, kKeys - in_memory);
}

TEST_F(TierFault, AFullDiskHasRoomAgainWhenRowsAreErased) {
  for (const int64_t memory_rows : {40, 8192}) {
    SCOPED_TRACE(memory_rows);
    const bool is_small = memory_rows == 40;
    env_.SetSpace(directory_.path(), 5 << 20);
    const auto table = Make(Tiered(memory_rows, 1000000), is_small ? LargeRow() : SmallRow());
    const int64_t batch = memory_rows / 2;
    Rows rows;
    int64_t first = 0;
    for (;; first += batch) {
      const Status status = TrainStep(table, Range(first, first + batch), 1);
      if (!status.ok()) {
        ASSERT_EQ(status.code(), Status::Code::kResourceExhausted);
        ASSERT_TRUE(Contains(status, "no space for more rows on disk")) << status.message();
        break;
      }
      TrainRows(&rows, *table, Range(first, first + batch), 1);
    }
    ASSERT_GT(RowsOnDisk(*table), 10 * memory_rows / (is_small ? 1 : 2));
    // Every segment keeps some rows.
    for (int64_t key = 0; key < first; ++key) {
      if (key % 3 != 0) rows.erase(key), table->Erase(&key, 1);
    }
    const int64_t room = first / 3;  // half of what was erased
    for (int64_t more = 0; more + batch <= room; more += batch) {
      const Keys ids = Range(1000000 + more, 1000000 + more + batch);
      const Status status = TrainStep(table, ids, 2);
      ASSERT_TRUE(status.ok()) << status.message();
      TrainRows(&rows, *table, ids, 2);
    }
    EXPECT_TRUE(RowsOf(*table) == rows);
  }
}

TEST_F(TierFault, SlowReadsOnlyTakeTime) {
  const auto table = Make(Tiered(kMemory, kKeys), SmallRow());
  env_.SetReadTime(std::chrono::microseconds(50));
  Rows rows;
  for (int64_t i = 0; i < 60; ++i) {
    const Keys ids = DrawDistinct(kBatch, kKeys);
    ASSERT_TRUE(TrainStep(table, ids, i).ok());
    TrainRows(&rows, *table, ids, i);
  }
  EXPECT_TRUE(RowsOf(*table) == rows);
  EXPECT_GE(table->tier()->read_time, 50000 * table->tier()->promotions);
}

}  // namespace
}  // namespace mxrec
