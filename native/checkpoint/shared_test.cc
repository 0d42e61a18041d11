// Checkpoints that several ranks write together, and that any number of ranks load.
#include <gtest/gtest.h>

#include <map>
#include <random>
#include <thread>
#include <tuple>

#include "base/crc32c.h"
#include "checkpoint/checkpoint_fixture.h"
#include "table/tracking_fixture.h"

namespace mxrec {
namespace {

using namespace checkpoint_fixture;  // NOLINT(build/namespaces): written for these tests
using namespace table_fixture;       // NOLINT(build/namespaces)
using namespace tracking_fixture;    // NOLINT(build/namespaces)

constexpr int64_t kNow = 1700000000;
const std::vector<SlotSpec> kSlots = {{"accumulator", 0.25f}};

std::shared_ptr<Table> MakeEmpty(int64_t max_rows = 0) { return MakeTracked({3, 100, 1, 0}, Config(max_rows), kSlots); }

// All that tables of several ranks hold and know. No key is on two of them.
struct Everything {
  std::map<int64_t, std::pair<Floats, std::tuple<uint32_t, int64_t, uint32_t>>> rows;
  std::map<int64_t, std::pair<uint32_t, int64_t>> refused;

  void Add(const Table& table) {
    Keys keys;
    table.ForEach(
        [&](int64_t key, int64_t) { keys.push_back(key); },
        [&](const Candidate& c) { EXPECT_TRUE(refused.emplace(c.key, std::pair(c.count, c.time)).second) << c.key; });
    for (const int64_t key : keys) {
      const RowFacts facts = table.Facts(key);
      const auto known = std::tuple(facts.count, facts.time, facts.step);
      EXPECT_TRUE(rows.emplace(key, std::pair(ReadRow(table, key), known)).second) << key;
    }
  }
};

class SharedCheckpoint : public CheckpointTest {
 protected:
  // Tables of `ranks` ranks, each trained with what it owns.
  void Train(int ranks) {
    std::mt19937_64 random(ranks);
    tables_.clear();
    for (int r = 0; r < ranks; ++r) tables_.push_back(MakeEmpty());
    for (int step = 0; step < 8; ++step) {
      Keys ids(600);
      for (int64_t& id : ids) id = static_cast<int64_t>(random() % 1500) * (random() % 2 == 0 ? 1 : -7919);
      for (int r = 0; r < ranks; ++r) {
        Keys owned;
        for (const int64_t id : ids) {
          if (OwnerOf(id, ranks) == r) owned.push_back(id);
        }
        MustTrain(tables_[r], owned, {kNow + step});
      }
    }
    for (const auto& table : tables_) {
      table->ForEach(
          [&](int64_t key, int64_t handle) {
            float* row = table->Row(handle & kRowBits);
            for (int64_t i = 0; i < RowFloats(*table); ++i)
              row[i] = static_cast<float>(key % 1000) + static_cast<float>(i);
          },
          [](const Candidate&) {});
    }
  }

  // Every rank writes at the same time as the others, and their files are put together as manifests have them.
  void SaveTogether() {
    const int ranks = static_cast<int>(tables_.size());
    std::vector<std::unique_ptr<Snapshot>> snapshots(ranks);
    std::vector<WriteShare> shares(ranks);
    SnapshotNumbers all;
    for (int r = 0; r < ranks; ++r) {
      ASSERT_TRUE(Snapshot::Take(tables_[r], Changes::kNoMoment, true, &snapshots[r]).ok());
      const SnapshotNumbers own = NumbersOf(snapshots[r].get(), SerialFor());
      shares[r] = {r == 0 ? Writers::kFirst : Writers::kOther, all, {}};
      all.rows += own.rows;
      all.refused += own.refused;
      all.now = std::max(all.now, own.now);
    }
    std::vector<std::vector<CheckpointFile>> written(ranks);
    std::vector<std::thread> threads;
    for (int r = 0; r < ranks; ++r) {
      shares[r].all = all;
      threads.emplace_back([&, r] {
        int64_t rows;
        const Status status =
            WriteTable(Env::Posix(), snapshots[r].get(), directory_, &rows, &written[r], ThreadedFor(2), &shares[r]);
        EXPECT_TRUE(status.ok()) << status.message();
        EXPECT_EQ(rows, tables_[r]->size());
      });
    }
    for (std::thread& thread : threads) thread.join();
    files_ = written[0];
    for (int r = 1; r < ranks; ++r) {
      for (const CheckpointFile& part : written[r]) {
        const auto whole =
            std::find_if(files_.begin(), files_.end(), [&](auto& file) { return file.name == part.name; });
        ASSERT_NE(whole, files_.end()) << part.name;
        whole->crc32c = crc32c::Combine(whole->crc32c, part.crc32c, part.bytes);
        whole->bytes += part.bytes;
      }
    }
  }

  Status LoadOwned(Table* table, Ownership owned, bool is_verified = false) {
    std::unique_ptr<TableReader> reader;
    MXREC_RETURN_IF_ERROR(TableReader::Open(Env::Posix(), directory_, *table, false, &reader, {false, files_, owned}));
    if (is_verified) MXREC_RETURN_IF_ERROR(reader->Verify(files_, true, ThreadedFor(2)));
    return reader->Load(table, is_verified ? std::vector<CheckpointFile>() : files_, ThreadedFor(2));
  }

  std::vector<std::shared_ptr<Table>> tables_;
};

TEST_F(SharedCheckpoint, IsLoadedByAnyNumberOfRanks) {
  for (const int ranks : {1, 2, 4}) {
    std::filesystem::remove_all(directory_);
    Train(ranks);
    SaveTogether();
    Everything saved;
    for (const auto& table : tables_) saved.Add(*table);
    ASSERT_FALSE(saved.refused.empty());
    for (const int others : {1, 3, 4}) {
      SCOPED_TRACE(std::to_string(ranks) + " to " + std::to_string(others));
      Everything loaded;
      for (int r = 0; r < others; ++r) {
        const auto table = MakeEmpty();
        const Status status = LoadOwned(table.get(), {r, others}, r % 2 == 1);
        ASSERT_TRUE(status.ok()) << status.message();
        EXPECT_EQ(table->history()->now(), kNow + 7);
        table->ForEach([&](int64_t key, int64_t) { EXPECT_EQ(OwnerOf(key, others), r); },
                       [&](const Candidate& c) { EXPECT_EQ(OwnerOf(c.key, others), r); });
        ExpectNumbersAddUp(*table, table->size());
        loaded.Add(*table);
      }
      EXPECT_EQ(loaded.rows, saved.rows);
      EXPECT_EQ(loaded.refused, saved.refused);
    }
  }
}

TEST_F(SharedCheckpoint, HasTheFilesOfOneWriter) {
  Train(3);
  SaveTogether();
  const auto alone = MakeEmpty();
  ASSERT_TRUE(LoadOwned(alone.get(), Ownership()).ok());
  std::vector<CheckpointFile> files;
  int64_t rows;
  ASSERT_TRUE(WriteAll(Env::Posix(), *alone, root_ + "/alone", &rows, &files).ok());
  ASSERT_EQ(files.size(), files_.size());
  for (size_t f = 0; f < files.size(); ++f) {
    EXPECT_EQ(files[f].name, files_[f].name);
    EXPECT_EQ(files[f].bytes, files_[f].bytes);
    const std::string content = ReadFile(directory_ + "/" + files_[f].name);
    EXPECT_EQ(static_cast<int64_t>(content.size()), files_[f].bytes);
    EXPECT_EQ(crc32c::Extend(0, content.data(), content.size()), files_[f].crc32c) << files_[f].name;
    if (IsAttribute(files_[f].name)) EXPECT_EQ(content, ReadFile(root_ + "/alone/" + files_[f].name));
  }
}

TEST_F(SharedCheckpoint, ARankWithoutRowsWritesNothing) {
  Train(2);
  tables_.insert(tables_.begin() + 1, MakeEmpty());
  SaveTogether();
  const auto table = MakeEmpty();
  ASSERT_TRUE(LoadOwned(table.get(), Ownership(), true).ok());
  EXPECT_EQ(table->size(), tables_[0]->size() + tables_[2]->size());
}

TEST_F(SharedCheckpoint, TheLimitIsThatOfAllRanks) {
  Train(2);
  SaveTogether();
  const int64_t rows = tables_[0]->size() + tables_[1]->size();
  EXPECT_TRUE(LoadOwned(MakeEmpty(rows).get(), {0, 2}, true).ok());
  EXPECT_EQ(LoadOwned(MakeEmpty(rows - 1).get(), {0, 2}, true).code(), Status::Code::kResourceExhausted);
}

TEST_F(SharedCheckpoint, ADamagedByteOfAnotherRanksRowsIsFoundToo) {
  Train(2);
  SaveTogether();
  const std::string file = directory_ + "/" + DataFile(kEmbeddingColumn);
  std::string content = ReadFile(file);
  content.front() ^= 1;  // of rank 0
  WriteFile(file, content);
  const auto table = MakeEmpty();
  ExpectDataLoss(LoadOwned(table.get(), {1, 2}), DataFile(kEmbeddingColumn));
  EXPECT_EQ(table->size(), 0);
}

// Each rank's rows in files of their own, as scripts save them whose paths hold the rank.
TEST_F(SharedCheckpoint, PartsInDirectoriesOfTheirOwnJoin) {
  Train(3);
  Everything saved, loaded;
  std::vector<std::vector<CheckpointFile>> files(3);
  for (int r = 0; r < 3; ++r) {
    saved.Add(*tables_[r]);
    int64_t rows;
    const std::string directory = root_ + "/" + std::to_string(r);
    ASSERT_TRUE(WriteAll(Env::Posix(), *tables_[r], directory, &rows, &files[r]).ok());
  }
  for (int r = 0; r < 2; ++r) {
    const auto table = MakeEmpty();
    MustInsert(table.get(), {-1, -2, -3});  // which the first part replaces
    for (int part = 0; part < 3; ++part) {
      std::unique_ptr<TableReader> reader;
      const ReadScope scope = {false, files[part], {r, 2}, part > 0};
      ASSERT_TRUE(
          TableReader::Open(Env::Posix(), root_ + "/" + std::to_string(part), *table, false, &reader, scope).ok());
      ASSERT_TRUE(reader->Load(table.get(), files[part], ThreadedFor(2)).ok());
    }
    loaded.Add(*table);
  }
  EXPECT_EQ(loaded.rows, saved.rows);
  EXPECT_EQ(loaded.refused, saved.refused);
}

}  // namespace
}  // namespace mxrec
