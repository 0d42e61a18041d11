// What is done outside of steps to tables with rows on disk: slots, erasing, eviction, facts, reading, loading.
#include <gtest/gtest.h>

#include "table/bulk_loader.h"
#include "table/eviction.h"
#include "table/tier_fixture.h"

namespace mxrec {
namespace {

using namespace tier_fixture;  // NOLINT(build/namespaces): written for these tests
using Score = EvictionPolicy::Score;

class TierRows : public TierTest {
 protected:
  // Trains `keys` keys in batches that memory holds; some of them several times, at other times.
  void Fill(const std::shared_ptr<Table>& table, int64_t keys, Rows* rows) {
    const int64_t batch = table->config().tier.memory_rows / 2;
    for (int64_t first = 0; first < keys; first += batch / 2, ++step_) {
      const Keys ids = Range(first, std::min(keys, first + batch));
      const Status status = TrainStep(table, ids, step_, {1000 + 10 * step_});
      ASSERT_TRUE(status.ok()) << status.message();
      TrainRows(rows, *table, ids, step_);
    }
    ASSERT_GT(RowsOnDisk(*table), keys / 2);
    ASSERT_GT(RowsInMemory(*table), 0);
  }
  std::map<int64_t, RowFacts> FactsOf(const Table& table) {
    std::map<int64_t, RowFacts> facts;
    table.ForEach(
        [&](int64_t key, int64_t handle) { facts[key] = table.history()->facts(static_cast<uint32_t>(handle)); });
    return facts;
  }
  void ExpectSameFacts(const Table& table, const std::map<int64_t, RowFacts>& facts) {
    for (const auto& [key, known] : facts) {
      ExpectFacts(table, key, known.count, known.time, known.step);
      if (HasFailure()) return;
    }
  }

  int64_t step_ = 1;
};

TEST_F(TierRows, FactsTravelWithTheirRows) {
  const auto table = Make(Tiered(40, 1000), LargeRow());
  ASSERT_TRUE(table->Track({0, 100, 2, 0}).ok());
  std::map<int64_t, RowFacts> facts;
  for (int i = 1; i <= 150; ++i) {
    const Keys ids = Draw(25, 300);
    const int64_t time = 1000 + static_cast<int64_t>(random_() % 100);
    ASSERT_TRUE(TrainStep(table, ids, i, {time}).ok());
    for (const int64_t id : ids) {
      RowFacts& known = facts[id];
      known = {std::max(known.time, time), known.count + 2, static_cast<uint32_t>(i)};
    }
    if (i % 10 == 0) {
      const int64_t key = ids[0];
      facts[key] = {i, static_cast<uint32_t>(1000 + i), 1};
      ASSERT_TRUE(table->SetFacts(key, facts[key]).ok());
      const int64_t other = static_cast<int64_t>(random_() % 300);  // on disk, probably
      if (facts.count(other) == 0) continue;
      facts[other] = {i, static_cast<uint32_t>(2000 + i), 2};
      ASSERT_TRUE(table->SetFacts(other, facts[other]).ok());
    }
  }
  EXPECT_GT(table->tier()->moved, 100);
  EXPECT_GT(table->tier()->promotions, 1000);
  ExpectSameFacts(*table, facts);
  ExpectLives(*table, static_cast<int64_t>(facts.size()), 0, 0);
}

TEST_F(TierRows, KeysThatWereRefusedGetTheirRowsWithTheirCounts) {
  const auto table = Make(Tiered(40, 1000), SmallRow());
  ASSERT_TRUE(table->Track({3, Tracking::kOff, 1, 0}).ok());
  std::map<int64_t, uint32_t> counts;
  int64_t rows = 0;
  for (int i = 0; i < 200; ++i) {
    const Keys ids = Draw(25, 400);
    ASSERT_TRUE(TrainStep(table, ids, i).ok());
    for (const int64_t id : ids) ++counts[id];
    ASSERT_LE(RowsInMemory(*table), 40);
  }
  for (const auto& [key, count] : counts) {
    ASSERT_EQ(table->Facts(key).count, count);
    ASSERT_EQ(HasRow(*table, key), count >= 3) << key;
    rows += count >= 3;
  }
  ExpectLives(*table, static_cast<int64_t>(counts.size()), static_cast<int64_t>(counts.size()) - rows,
              static_cast<int64_t>(counts.size()) - rows);
}

TEST_F(TierRows, TrackingCanBeginWhenRowsAreOnDisk) {
  const auto table = Make(Tiered(40, 1000), SmallRow());
  Rows rows;
  Fill(table, 300, &rows);
  ASSERT_TRUE(table->Track({0, 100, 1, 0}).ok());
  for (const auto& row : rows) ExpectFacts(*table, row.first, 0, 0, 0);
  ASSERT_TRUE(TrainStep(table, Range(0, 30), 1, {5}).ok());
  ASSERT_TRUE(TrainStep(table, Range(100, 130), 1, {6}).ok());
  ExpectFacts(*table, 7, 1, 5, 1);
  ExpectFacts(*table, 107, 1, 6, 2);
  ExpectFacts(*table, 207, 0, 0, 0);
}

TEST_F(TierRows, SlotsAreAddedToRowsOnDiskAndFactsStay) {
  for (const int64_t memory_rows : {40, 8192}) {  // one shard and two
    SCOPED_TRACE(memory_rows);
    const auto table = Make(Tiered(memory_rows, 10 * memory_rows));
    ASSERT_TRUE(table->Track({0, 100, 1, 0}).ok());
    for (int64_t first = 0; first < 5 * memory_rows; first += memory_rows / 2) {
      ASSERT_TRUE(Step({table}, {Range(first, first + memory_rows / 2)}, {1000 + first}).Train().ok());
    }
    Rows rows = RowsOf(*table);
    for (const auto& [key, row] : rows) ASSERT_EQ(row, InitialRow(key));
    const std::map<int64_t, RowFacts> facts = FactsOf(*table);
    const int64_t on_disk = RowsOnDisk(*table);
    ASSERT_GT(on_disk, 3 * memory_rows);

    const Status status = table->SetSlots({{"accumulator", 0.25f}, {"other", -1.5f}});
    ASSERT_TRUE(status.ok()) << status.message();
    for (auto& [key, row] : rows) row = FreshRow(*table, key);
    EXPECT_EQ(RowsOnDisk(*table), on_disk);
    EXPECT_TRUE(RowsOf(*table) == rows);
    ExpectSameFacts(*table, facts);
    for (int i = 0; i < 10; ++i) {
      const Keys ids = Draw(memory_rows / 2, 5 * memory_rows);
      ASSERT_TRUE(TrainStep(table, ids, i, {1}).ok());
      TrainRows(&rows, *table, ids, i);
    }
    EXPECT_TRUE(RowsOf(*table) == rows);
    if (HasFailure()) return;
  }
}

TEST_F(TierRows, AFailureToAddSlotsLeavesAllAsItWas) {
  const auto table = Make(Tiered(40, 1000));
  for (int64_t first = 0; first < 300; first += 20) ASSERT_TRUE(Step({table}, {Range(first, first + 20)}).Train().ok());
  const Rows rows = RowsOf(*table);
  for (const Fault& fault : kFaults) {
    env_.Fail(fault, fault.operation == Operation::kWrite ? 100 : 0);
    const Status status = table->SetSlots(SmallRow());
    env_.Lift();
    EXPECT_EQ(status.code(), fault.code) << fault.name;
    EXPECT_TRUE(Contains(status, "'user'")) << status.message();
    EXPECT_TRUE(table->layout().slots().empty());
    EXPECT_TRUE(RowsOf(*table) == rows) << fault.name;
  }
  EXPECT_TRUE(table->SetSlots(SmallRow()).ok());
  EXPECT_EQ(RowsOf(*table).at(5), FreshRow(*table, 5));
}

TEST_F(TierRows, ClearForgetsAllAndTheTableStartsAnew) {
  const auto table = Make(Tiered(40, 1000), LargeRow());
  int64_t erased = 0, bytes = 0;
  for (int life = 0; life < 4; ++life) {
    Rows rows;
    Fill(table, 300, &rows);
    for (int i = 0; i < 60; ++i) {
      const Keys ids = Draw(20, 300);
      ASSERT_TRUE(TrainStep(table, ids, i).ok());
      TrainRows(&rows, *table, ids, i);
    }
    EXPECT_TRUE(RowsOf(*table) == rows);
    if (life == 0) bytes = table->tier()->disk->bytes();
    EXPECT_EQ(table->tier()->disk->bytes(), bytes);
    erased += table->size();
    table->Clear();
    EXPECT_EQ(table->erased(), erased);
    ExpectNumbersAddUp(*table, 0);
    EXPECT_EQ(RowsOnDisk(*table), 0);
    EXPECT_EQ(table->tier()->disk->bytes(), 0);
    EXPECT_FALSE(HasRow(*table, 7));
    EXPECT_TRUE(RowsOf(*table).empty());
  }
}

TEST_F(TierRows, ErasedRowsAreGoneWhereverTheyWere) {
  const auto table = Make(Tiered(40, 1000), LargeRow());
  Rows rows;
  Fill(table, 300, &rows);
  for (int i = 0; i < 100; ++i) {
    const Keys gone = Draw(10, 320);
    int64_t erased = 0;
    for (const int64_t key : gone) erased += static_cast<int64_t>(rows.erase(key));
    ASSERT_EQ(table->Erase(gone.data(), 10), erased);
    const Keys ids = Draw(20, 320);
    ASSERT_TRUE(TrainStep(table, ids, i).ok());  // who comes back starts from the beginning
    TrainRows(&rows, *table, ids, i);
    ExpectNumbersAddUp(*table, static_cast<int64_t>(rows.size()));
    ASSERT_LE(RowsInMemory(*table), 40);
  }
  EXPECT_TRUE(RowsOf(*table) == rows);
}

TEST_F(TierRows, EvictionTakesTheSameRowsAsWithoutADisk) {
  for (const Score score : {Score::kTime, Score::kStep, Score::kCount, Score::kNorm}) {
    for (const int64_t keep : {-1, 100}) {
      SCOPED_TRACE(testing::Message() << "score " << static_cast<int>(score) << ", keep " << keep);
      // Times, steps, counts and norms such that about half of the rows are below the threshold.
      const double thresholds[] = {250, 25, 4, 0.9};
      std::shared_ptr<Table> tables[] = {Make(Tiered(40, 1000), SmallRow()), Make(Config(1040), SmallRow())};
      for (auto& table : tables) {
        ASSERT_TRUE(table->Track({0, 100, 1, 0}).ok());
        std::mt19937_64 random(3);
        for (int i = 0; i < 60; ++i) {
          Keys ids(25);
          for (int64_t& id : ids) id = static_cast<int64_t>(random() % 300);
          ASSERT_TRUE(TrainStep(table, ids, i, {1000 + 10 * i}).ok());
        }
        const int64_t before = table->size();
        std::unique_ptr<Eviction> eviction;
        ASSERT_TRUE(Eviction::Begin(table, {score, thresholds[static_cast<int>(score)], keep}, &eviction).ok());
        while (!eviction->Run(50)) {
        }
        EXPECT_EQ(table->size(), before - eviction->evicted());
        EXPECT_GT(eviction->evicted(), 20);
        EXPECT_GT(table->size(), 20);
        ExpectLivesAddUp(*table);
      }
      EXPECT_EQ(tables[0]->size(), tables[1]->size());
      // With a number to keep, rows of equal scores may go from one or the other.
      if (keep < 0 || score == Score::kNorm) {
        EXPECT_TRUE(RowsOf(*tables[0]) == RowsOf(*tables[1]));
      }
      ASSERT_TRUE(TrainStep(tables[0], Range(0, 40), 99, {5000}).ok());
    }
  }
}

TEST_F(TierRows, AreReadAssignedAndWalkedWhereverTheyAre) {
  const auto table = Make(Tiered(40, 1000), SmallRow());
  Rows rows;
  Fill(table, 300, &rows);
  for (int64_t key = 0; key < 310; ++key) {
    Floats row(RowFloats(*table), -99.0f);
    ASSERT_EQ(ReadInto(*table, key, row.data()), rows.count(key) != 0);
    ASSERT_EQ(row, rows.count(key) != 0 ? rows[key] : Floats(RowFloats(*table), 0.0f));
  }
  for (int64_t key = 0; key < 320; key += 7) {  // some are new
    rows[key] = Floats(RowFloats(*table), static_cast<float>(key));
    ASSERT_TRUE(AssignRow(table.get(), key, rows[key]).ok());
    ASSERT_LE(RowsInMemory(*table), 40);
  }
  ExpectNumbersAddUp(*table, static_cast<int64_t>(rows.size()));

  int64_t last = -1, on_disk = 0;
  Rows read;
  table->ForEach([&](int64_t key, int64_t handle) {
    EXPECT_GT(handle, last);  // those on disk last
    last = handle;
    on_disk += (handle & kOnDisk) != 0;
    Floats buffer;
    const float* row = nullptr;
    const Status status = table->ReadRow(key, handle, &buffer, &row);
    ASSERT_TRUE(status.ok()) << status.message();
    read[key].assign(row, row + RowFloats(*table));
  });
  EXPECT_EQ(on_disk, RowsOnDisk(*table));
  EXPECT_TRUE(read == rows);
  EXPECT_TRUE(RowsOf(*table) == rows);
}

TEST_F(TierRows, RowsInsertedAtOnceFillMemoryAndThenTheDisk) {
  for (const bool is_growing : {false, true}) {
    SCOPED_TRACE(is_growing);
    const int64_t n = 2000;
    const auto table = Make(is_growing ? Growing(300, 1000) : Tiered(300, 5000), SmallRow());
    Floats embeddings, slots;
    for (int64_t i = 0; i < n * kDim; ++i) embeddings.push_back(static_cast<float>(i));
    const float* columns[] = {embeddings.data(), nullptr};
    const Keys keys = DrawDistinct(n, 100000);
    ASSERT_TRUE(BulkLoader(table.get(), ThreadedFor(2)).Insert(keys.data(), columns, n).ok());
    Rows rows;
    for (int64_t i = 0; i < n; ++i) {
      rows[keys[i]].assign(embeddings.begin() + i * kDim, embeddings.begin() + (i + 1) * kDim);
      rows[keys[i]].resize(2 * kDim, 0.25f);
    }
    EXPECT_TRUE(RowsOf(*table) == rows);
    ExpectNumbersAddUp(*table, n);
    if (is_growing) {
      EXPECT_GE(RowsOnDisk(*table), 1000);
      EXPECT_LE(RowsOnDisk(*table), 1256);  // written in batches of 256
    } else {
      EXPECT_EQ(RowsInMemory(*table), 300);
    }

    // A key that has a row, here or there, or comes twice, is an error; no other row is lost by it.
    for (const Keys& more : {Keys{-1, -2, keys[0]}, Keys{-3, -4, keys[n - 1]}, Keys{-5, -6, -6}}) {
      const Status status = BulkLoader(table.get(), SerialFor()).Insert(more.data(), columns, 3);
      EXPECT_EQ(status.code(), Status::Code::kAlreadyExists) << status.message();
      for (int64_t i = 0; i < 2; ++i) {
        if (!HasRow(*table, more[i])) continue;
        rows[more[i]].assign(embeddings.begin() + i * kDim, embeddings.begin() + (i + 1) * kDim);
        rows[more[i]].resize(2 * kDim, 0.25f);
      }
      ExpectNumbersAddUp(*table, static_cast<int64_t>(rows.size()));
      EXPECT_TRUE(RowsOf(*table) == rows);
    }
  }
}

}  // namespace
}  // namespace mxrec
