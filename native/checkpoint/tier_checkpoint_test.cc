// Checkpoints of tables with rows on disk.
#include <gtest/gtest.h>

#include "checkpoint/checkpoint_fixture.h"
#include "table/bulk_loader.h"
#include "table/tier_fixture.h"

namespace mxrec {
namespace {

using namespace tier_fixture;  // NOLINT(build/namespaces): written for such tests

class TierCheckpoint : public checkpoint_fixture::CheckpointTest {
 protected:
  std::shared_ptr<Table> MakeOne(int64_t memory_rows, int64_t max_rows, bool tracked) {
    TableConfig config = Config(max_rows);
    if (memory_rows > 0) {
      config.tier = {memory_rows, max_rows - memory_rows, {scratch_.path()}, &env_};
    }
    std::shared_ptr<Table> table = Make(config, SmallRow());
    if (tracked) {
      EXPECT_TRUE(table->Track({0, 100, 1, 0}).ok());
    }
    return table;
  }
  void Fill(const std::shared_ptr<Table>& table, int64_t keys, int64_t batch) {
    for (int64_t first = 0; first + batch <= keys; first += batch / 2) {
      const Status status = TrainStep(table, Range(first, first + batch), first, {1000 + first});
      ASSERT_TRUE(status.ok()) << status.message();
    }
  }

  TemporaryDirectory scratch_;
  ScratchEnv env_;
};

TEST_F(TierCheckpoint, GoesFromAnyKindOfTableToAnyOther) {
  constexpr int64_t kMax = 20000, kKeys = 15000;
  for (const bool tracked : {false, true}) {
    for (const int64_t from : {0, 800, 8192}) {
      const auto table = MakeOne(from, kMax, tracked);
      Fill(table, kKeys, 600);
      Save(*table);
      EXPECT_EQ(rows_, table->size());
      const Rows rows = RowsOf(*table);
      for (const int64_t to : {0, 50, 8192, 19000}) {
        SCOPED_TRACE(testing::Message() << from << " to " << to << " rows in memory, tracked " << tracked);
        const auto copy = MakeOne(to, kMax, tracked);
        ASSERT_TRUE(
            BulkLoader(copy.get(), SerialFor()).Insert(Keys{-7}.data(), std::vector<const float*>(2).data(), 1).ok());
        ASSERT_TRUE(Verify(*copy).ok());
        const Status status = Load(copy.get());
        ASSERT_TRUE(status.ok()) << status.message();
        EXPECT_TRUE(RowsOf(*copy) == rows);
        ExpectNumbersAddUp(*copy, table->size());
        if (to > 0) {
          EXPECT_LE(RowsInMemory(*copy), MostInMemory(*copy));
        }
        for (int64_t key = 0; tracked && key < kKeys; key += 11) {
          const RowFacts facts = table->Facts(key);
          ExpectFacts(*copy, key, facts.count, facts.time, facts.step);
        }
        // Both go on alike.
        if (to == 50 || HasFailure()) continue;
        Rows expected = rows;
        ASSERT_TRUE(TrainStep(copy, Range(100, 700), 5, {5}).ok());
        TrainRows(&expected, *copy, Range(100, 700), 5);
        EXPECT_TRUE(RowsOf(*copy) == expected);
      }
      if (HasFailure()) return;
    }
  }
}

TEST_F(TierCheckpoint, LoadsAgainAndAgainInTheSameSpace) {
  const auto table = MakeOne(50, 3000, true);
  Fill(table, 2000, 40);
  Save(*table);
  const Rows rows = RowsOf(*table);
  int64_t bytes = 0;
  for (int i = 0; i < 10; ++i) {
    ASSERT_TRUE(Load(table.get()).ok());
    EXPECT_TRUE(RowsOf(*table) == rows);
    for (int64_t first = 0; first < 2000; first += 40) {
      const Status status = TrainStep(table, Range(first, first + 40), first, {1});
      ASSERT_TRUE(status.ok()) << status.message();
    }
    if (i == 0) bytes = table->tier()->disk->bytes();
    EXPECT_EQ(table->tier()->disk->bytes(), bytes);
  }
}

TEST_F(TierCheckpoint, IsNotSavedOrLoadedIfTheDiskFails) {
  const auto table = MakeOne(50, 3000, true);
  Fill(table, 2000, 40);
  Save(*table);
  const Rows rows = RowsOf(*table);
  for (const Fault& fault : kFaults) {
    SCOPED_TRACE(fault.name);
    env_.Fail(fault);
    if (fault.operation == Operation::kRead) {
      std::filesystem::remove_all(directory_);
      const Status status = checkpoint_fixture::WriteAll(Env::Posix(), *table, directory_, &rows_, &files_);
      EXPECT_EQ(status.code(), Status::Code::kIoError);
      EXPECT_TRUE(Contains(status, "'user'")) << status.message();
      env_.Lift();
      Save(*table);
      continue;
    }
    const auto copy = MakeOne(50, 3000, true);
    const Status status = Load(copy.get());
    EXPECT_EQ(status.code(), fault.code);
    EXPECT_TRUE(Contains(status, "'user'")) << status.message();
    ExpectNumbersAddUp(*copy, 0);  // it failed after it had begun
    EXPECT_EQ(RowsOnDisk(*copy), 0);
    env_.Lift();
    ASSERT_TRUE(Load(copy.get()).ok());
    EXPECT_TRUE(RowsOf(*copy) == rows);
  }
}

}  // namespace
}  // namespace mxrec
