// Writer and reader together: what is saved is what is loaded, and what was damaged is told and changes nothing.
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <limits>
#include <map>
#include <memory>

#include "base/crc32c.h"
#include "checkpoint/checkpoint_fixture.h"

namespace mxrec {
namespace {

using namespace checkpoint_fixture;  // NOLINT(build/namespaces): written for these tests
namespace fs = std::filesystem;
using Rows = std::map<int64_t, std::vector<float>>;

const std::vector<SlotSpec> kTwoSlots = {{"LazyAdam_momentum", 0.0f}, {"LazyAdam_velocity", 0.5f}};

std::shared_ptr<Table> MakeTable(int dim, const std::vector<SlotSpec>& slots, int64_t max_rows = 0) {
  TableConfig config;
  config.name = "item";
  config.dim = dim;
  config.max_rows = max_rows;
  std::shared_ptr<Table> table;
  EXPECT_TRUE(Table::Create(config, &table).ok());
  EXPECT_TRUE(table->SetSlots(slots).ok());
  return table;
}

int64_t RowFloats(const Table& table) {
  return static_cast<int64_t>(table.config().dim) * (1 + table.layout().slots().size());
}

void Put(Table* table, int64_t key, float first) {
  std::vector<float> row(RowFloats(*table));
  for (size_t i = 0; i < row.size(); ++i) row[i] = first + 0.25f * static_cast<float>(i);
  std::vector<const float*> parts;
  for (size_t i = 0; i < row.size(); i += table->config().dim) parts.push_back(row.data() + i);
  ASSERT_TRUE(table->Assign(key, parts.data()).ok());
}

Rows Content(const Table& table) {
  Rows rows;
  table.ForEach([&](int64_t key, int64_t handle) {
    const float* row = table.Row(handle);
    rows[key].assign(row, row + RowFloats(table));
  });
  EXPECT_EQ(static_cast<int64_t>(rows.size()), table.size());
  return rows;
}

class Checkpoint : public CheckpointTest {
 protected:
  // A table that is verified while it is loaded is empty if something is wrong.
  void ExpectNotLoaded(const std::string& file, const std::string& why) {
    auto copy = MakeTable(2, kTwoSlots);
    const Status status = Load(copy.get(), 2, files_);
    ExpectDataLoss(status, file);
    EXPECT_NE(status.message().find(why), std::string::npos) << status.message();
    EXPECT_TRUE(Content(*copy).empty());
  }
};

TEST_F(Checkpoint, LaysFilesOutAsTheOriginalDoes) {
  auto table = MakeTable(3, kTwoSlots);
  Put(table.get(), 7, 1.0f);
  Put(table.get(), -2, 2.0f);
  Save(*table);
  EXPECT_EQ(rows_, 2);

  std::vector<std::string> names;
  for (const CheckpointFile& file : files_) {
    names.push_back(file.name);
    const std::string content = ReadFile(directory_ + "/" + file.name);
    EXPECT_EQ(static_cast<int64_t>(content.size()), file.bytes);
    EXPECT_EQ(crc32c::Extend(0, content.data(), content.size()), file.crc32c);
  }
  EXPECT_EQ(names, (std::vector<std::string>{"key/slice.data", "key/slice.attribute", "embedding/slice.data",
                                             "embedding/slice.attribute", "LazyAdam_momentum/slice.data",
                                             "LazyAdam_momentum/slice.attribute", "LazyAdam_velocity/slice.data",
                                             "LazyAdam_velocity/slice.attribute"}));
  EXPECT_EQ(Numbers(ReadFile(directory_ + "/key/slice.attribute")), (std::vector<int64_t>{2, 8}));
  EXPECT_EQ(Numbers(ReadFile(directory_ + "/embedding/slice.attribute")), (std::vector<int64_t>{2, 3, 4}));
  EXPECT_EQ(Numbers(ReadFile(directory_ + "/LazyAdam_velocity/slice.attribute")), (std::vector<int64_t>{2, 3, 4}));

  // The same row order in every column.
  std::string embeddings, velocities;
  for (int64_t key : Numbers(ReadFile(directory_ + "/key/slice.data"))) {
    const std::vector<float> row = Content(*table)[key];
    embeddings += Bytes(std::vector<float>(row.begin(), row.begin() + 3));
    velocities += Bytes(std::vector<float>(row.begin() + 6, row.end()));
  }
  EXPECT_EQ(ReadFile(directory_ + "/embedding/slice.data"), embeddings);
  EXPECT_EQ(ReadFile(directory_ + "/LazyAdam_velocity/slice.data"), velocities);

  struct stat facts;
  ASSERT_EQ(stat((directory_ + "/key").c_str(), &facts), 0);
  EXPECT_EQ(facts.st_mode & 0777 & ~0750u, 0u);
  ASSERT_EQ(stat((directory_ + "/key/slice.data").c_str(), &facts), 0);
  EXPECT_EQ(facts.st_mode & 0777 & ~0640u, 0u);
}

TEST_F(Checkpoint, SaveThenLoadIsTheIdentity) {
  for (const auto& slots : {std::vector<SlotSpec>{}, kTwoSlots}) {
    auto table = MakeTable(5, slots);
    for (int64_t key :
         {int64_t{0}, int64_t{-1}, std::numeric_limits<int64_t>::min(), std::numeric_limits<int64_t>::max()}) {
      Put(table.get(), key, static_cast<float>(key % 1000));
    }
    for (int64_t key = 1; key < 50000; ++key) Put(table.get(), key * 1024, static_cast<float>(key));
    const int64_t gone[] = {1024, 2048};
    table->Erase(gone, 2);
    Save(*table);

    for (int threads : {1, 3}) {
      auto copy = MakeTable(5, slots);
      Put(copy.get(), 123456789, 1.0f);  // what was there before goes
      ASSERT_TRUE(Verify(*copy).ok());
      const Status status = Load(copy.get(), threads);
      ASSERT_TRUE(status.ok()) << status.message();
      EXPECT_EQ(Content(*copy), Content(*table));
      EXPECT_EQ(copy->inserted(), copy->size() + copy->erased());
      // Found by key too, not only when walked.
      std::vector<float> row(RowFloats(*copy));
      bool found = false;
      EXPECT_TRUE(copy->Read(std::numeric_limits<int64_t>::min(), row.data(), &found).ok());
      EXPECT_TRUE(found);
      EXPECT_TRUE(copy->Read(1024, row.data(), &found).ok());
      EXPECT_FALSE(found);
    }
  }
}

TEST_F(Checkpoint, SavingALoadedTableGivesTheSameFiles) {
  auto table = MakeTable(4, kTwoSlots);
  for (int64_t key = 0; key < 3000; ++key) Put(table.get(), key * key - 7, static_cast<float>(key));
  Save(*table);
  const std::vector<CheckpointFile> before = files_;
  auto copy = MakeTable(4, kTwoSlots);
  ASSERT_TRUE(Load(copy.get()).ok());
  Save(*copy);
  ASSERT_EQ(files_.size(), before.size());
  for (size_t i = 0; i < before.size(); ++i) EXPECT_EQ(files_[i].crc32c, before[i].crc32c) << before[i].name;
}

TEST_F(Checkpoint, TheNumberOfThreadsChangesNoFile) {
  auto table = MakeTable(7, kTwoSlots);
  for (int64_t key = 0; key < 50000; ++key) Put(table.get(), key * 7919, static_cast<float>(key));  // buffers fill
  Save(*table);
  std::vector<std::string> contents;
  for (const CheckpointFile& file : files_) {
    contents.push_back(ReadFile(directory_ + "/" + file.name));
    EXPECT_EQ(crc32c::Extend(0, contents.back().data(), contents.back().size()), file.crc32c) << file.name;
  }
  const std::vector<CheckpointFile> expected = files_;
  std::filesystem::remove_all(directory_);
  ASSERT_TRUE(WriteAll(Env::Posix(), *table, directory_, &rows_, &files_, ThreadedFor(5)).ok());
  ASSERT_EQ(files_.size(), expected.size());
  for (size_t i = 0; i < files_.size(); ++i) {
    EXPECT_EQ(files_[i].name, expected[i].name);
    EXPECT_EQ(files_[i].crc32c, expected[i].crc32c) << files_[i].name;
    EXPECT_TRUE(ReadFile(directory_ + "/" + files_[i].name) == contents[i]) << files_[i].name;
  }
}

TEST_F(Checkpoint, AnEmptyTableIsSavedAndLoaded) {
  auto table = MakeTable(4, kTwoSlots);
  Save(*table);
  EXPECT_EQ(rows_, 0);
  EXPECT_EQ(fs::file_size(directory_ + "/embedding/slice.data"), 0u);
  EXPECT_EQ(Numbers(ReadFile(directory_ + "/embedding/slice.attribute")), (std::vector<int64_t>{0, 4, 4}));
  auto copy = MakeTable(4, kTwoSlots);
  Put(copy.get(), 5, 1.0f);
  ASSERT_TRUE(Verify(*copy).ok());
  ASSERT_TRUE(Load(copy.get()).ok());
  EXPECT_EQ(copy->size(), 0);
}

TEST_F(Checkpoint, EveryFlippedByteIsFoundByChecksum) {
  auto table = MakeTable(2, kTwoSlots);
  Put(table.get(), 1, 1.0f);
  Put(table.get(), 2, 2.0f);
  Save(*table);
  for (const CheckpointFile& file : files_) {
    const std::string path = directory_ + "/" + file.name, good = ReadFile(path);
    for (size_t i = 0; i < good.size(); ++i) {
      std::string bad = good;
      bad[i] = static_cast<char>(bad[i] ^ 0x10);
      WriteFile(path, bad);
      const Status status = Verify(*table);
      ExpectDataLoss(status, file.name);
      EXPECT_NE(status.message().find("CRC32C"), std::string::npos) << status.message();
      ExpectNotLoaded(file.name, "CRC32C");
    }
    WriteFile(path, good);
  }
  EXPECT_TRUE(Verify(*table).ok());
  auto copy = MakeTable(2, kTwoSlots);
  ASSERT_TRUE(Load(copy.get(), 2, files_).ok());
  EXPECT_EQ(Content(*copy), Content(*table));
}

TEST_F(Checkpoint, EveryTruncationIsFoundWithAndWithoutChecksums) {
  auto table = MakeTable(2, kTwoSlots);
  Put(table.get(), 1, 1.0f);
  Put(table.get(), 2, 2.0f);
  Save(*table);
  for (const CheckpointFile& file : files_) {
    const std::string path = directory_ + "/" + file.name, good = ReadFile(path);
    for (size_t size = 0; size < good.size(); ++size) {
      WriteFile(path, good.substr(0, size));
      for (bool with_checksums : {true, false}) {
        const Status status = Verify(*table, with_checksums);
        ExpectDataLoss(status, file.name);
        EXPECT_NE(status.message().find("ends at offset " + std::to_string(size) + ", expected " +
                                        std::to_string(good.size())),
                  std::string::npos)
            << status.message();
      }
      ExpectNotLoaded(file.name, "ends at offset " + std::to_string(size));
    }
    WriteFile(path, good + "x");
    ExpectNotLoaded(file.name, "expected " + std::to_string(good.size()));
    ExpectDataLoss(Verify(*table), file.name);
    ExpectDataLoss(Verify(*table, false), file.name);
    WriteFile(path, good);
  }
}

TEST_F(Checkpoint, EveryMissingFileIsNamed) {
  auto table = MakeTable(2, kTwoSlots);
  Put(table.get(), 1, 1.0f);
  Save(*table);
  for (const CheckpointFile& file : files_) {
    const std::string path = directory_ + "/" + file.name, good = ReadFile(path);
    fs::remove(path);
    ExpectDataLoss(Verify(*table), file.name);
    ExpectDataLoss(Load(table.get()), file.name);
    WriteFile(path, good);
  }
  EXPECT_EQ(table->size(), 1);
}

TEST_F(Checkpoint, AttributesThatContradictAreFoundWithoutChecksums) {
  auto table = MakeTable(2, {});
  Put(table.get(), 1, 1.0f);
  Save(*table);
  const std::string key = directory_ + "/key/slice.attribute", embedding = directory_ + "/embedding/slice.attribute";
  const std::string good_key = ReadFile(key), good_embedding = ReadFile(embedding);
  for (int64_t n : {int64_t{-1}, int64_t{0}, int64_t{2}, std::numeric_limits<int64_t>::max()}) {
    WriteFile(key, Bytes<int64_t>({n, 8}));
    EXPECT_EQ(Verify(*table, false).code(), Status::Code::kDataLoss);
  }
  WriteFile(key, Bytes<int64_t>({1, 4}));
  ExpectDataLoss(Verify(*table, false), "key/slice.attribute");
  WriteFile(key, good_key);
  WriteFile(embedding, Bytes<int64_t>({3, 2, 4}));
  ExpectDataLoss(Verify(*table, false), "embedding/slice.attribute");
  WriteFile(embedding, Bytes<int64_t>({1, 2, 2}));
  ExpectDataLoss(Verify(*table, false), "embedding/slice.attribute");
  WriteFile(embedding, good_embedding);
  EXPECT_TRUE(Verify(*table, false).ok());
}

TEST_F(Checkpoint, AnotherDimIsToldWithBothValues) {
  auto table = MakeTable(16, {});
  Put(table.get(), 1, 1.0f);
  Save(*table);
  auto wider = MakeTable(32, {});
  Put(wider.get(), 9, 9.0f);
  for (const Status& status : {Verify(*wider), Load(wider.get())}) {
    EXPECT_EQ(status.code(), Status::Code::kInvalidArgument);
    EXPECT_NE(status.message().find("table 'item' has dim 16"), std::string::npos) << status.message();
    EXPECT_NE(status.message().find("32 in the model"), std::string::npos) << status.message();
  }
  EXPECT_EQ(wider->size(), 1);
}

TEST_F(Checkpoint, MoreRowsThanTheLimitLeaveTheTableAsItWas) {
  auto table = MakeTable(2, {});
  for (int64_t key = 0; key < 11; ++key) Put(table.get(), key, 1.0f);
  Save(*table);
  auto small = MakeTable(2, {}, 10);
  Put(small.get(), 99, 1.0f);
  for (const Status& status : {Verify(*small), Load(small.get())}) {
    EXPECT_EQ(status.code(), Status::Code::kResourceExhausted) << status.message();
  }
  EXPECT_EQ(small->size(), 1);
}

TEST_F(Checkpoint, SlotsWithoutAColumnStartAtTheirInitialValue) {
  auto table = MakeTable(2, {{"Adagrad_accumulator", 0.0f}});
  Put(table.get(), 1, 1.0f);
  Save(*table);
  auto other = MakeTable(2, kTwoSlots);
  ASSERT_TRUE(Verify(*other).ok());
  ASSERT_TRUE(Load(other.get()).ok());
  EXPECT_EQ(Content(*other), (Rows{{1, {1.0f, 1.25f, 0.0f, 0.0f, 0.5f, 0.5f}}}));
  // A table without an optimizer takes the embeddings alone; the columns it does not read may be damaged.
  WriteFile(directory_ + "/Adagrad_accumulator/slice.data", "");
  auto plain = MakeTable(2, {});
  ASSERT_TRUE(Verify(*plain).ok());
  ASSERT_TRUE(Load(plain.get()).ok());
  EXPECT_EQ(Content(*plain), (Rows{{1, {1.0f, 1.25f}}}));
}

TEST_F(Checkpoint, RowsAloneAreLoadedFromFilesThatListMore) {
  auto table = MakeTable(2, kTwoSlots);
  Put(table.get(), 7, 1.0f);
  Save(*table);
  auto copy = MakeTable(2, kTwoSlots);
  std::unique_ptr<TableReader> reader;
  const ReadScope scope = {true, files_};
  ASSERT_TRUE(TableReader::Open(Env::Posix(), directory_, *copy, false, &reader, scope).ok());
  const Status status = reader->Load(copy.get(), files_, SerialFor());
  ASSERT_TRUE(status.ok()) << status.message();
  EXPECT_EQ(Content(*copy), (Rows{{7, {1.0f, 1.25f, 0.0f, 0.0f, 0.5f, 0.5f}}}));
}

TEST_F(Checkpoint, AKeyThatOccursTwiceIsNamed) {
  auto table = MakeTable(1, {});
  for (int64_t n : {int64_t{2}, int64_t{100000}}) {
    std::vector<int64_t> keys(n);
    for (int64_t i = 0; i < n; ++i) keys[i] = i * 3 - 50;
    keys[n - 1] = keys[0];
    fs::remove_all(directory_);
    fs::create_directories(directory_ + "/key");
    fs::create_directories(directory_ + "/embedding");
    WriteFile(directory_ + "/key/slice.data", Bytes(keys));
    WriteFile(directory_ + "/key/slice.attribute", Bytes<int64_t>({n, 8}));
    WriteFile(directory_ + "/embedding/slice.data", Bytes(std::vector<float>(n, 1.0f)));
    WriteFile(directory_ + "/embedding/slice.attribute", Bytes<int64_t>({n, 1, 4}));
    const Status status = Verify(*table, false);
    ExpectDataLoss(status, "key/slice.data");
    EXPECT_NE(status.message().find("the key -50 twice, in rows 0 and " + std::to_string(n - 1)), std::string::npos)
        << status.message();
    // Unverified, it is found while loading; nothing of it stays.
    EXPECT_EQ(Load(table.get()).message(), status.message());
    EXPECT_EQ(table->size(), 0);
    EXPECT_TRUE(Content(*table).empty());
  }
}

TEST_F(Checkpoint, ASlotNameThatIsNoDirectoryNameIsRefused) {
  for (const std::string& name : {std::string("a/b"), std::string(".."), std::string("key"), std::string(256, 'x')}) {
    auto table = MakeTable(1, {{name, 0.0f}});
    EXPECT_EQ(WriteAll(Env::Posix(), *table, directory_, &rows_, &files_).code(), Status::Code::kInvalidArgument);
    EXPECT_FALSE(fs::exists(directory_));
  }
}

TEST_F(Checkpoint, EveryFailingFileOperationIsReported) {
  auto table = MakeTable(64, kTwoSlots);
  for (int64_t key = 0; key < 5000; ++key) Put(table.get(), key, static_cast<float>(key));  // more than one buffer
  FailingEnv healthy(-1);
  ASSERT_TRUE(WriteAll(healthy, *table, directory_, &rows_, &files_).ok());
  EXPECT_GT(healthy.operations(), 30);
  for (int n = 0; n < healthy.operations(); ++n) {
    fs::remove_all(directory_);
    FailingEnv env(n);
    const Status status = WriteAll(env, *table, directory_, &rows_, &files_);
    EXPECT_EQ(status.code(), Status::Code::kIoError) << "operation " << n;
    EXPECT_EQ(status.message(), "the test said so");
  }

  Save(*table);
  for (int n = 0; n < 8; ++n) {
    FailingEnv env(n);
    std::unique_ptr<TableReader> reader;
    EXPECT_EQ(TableReader::Open(env, directory_, *table, false, &reader).code(), Status::Code::kIoError);
  }
  EXPECT_EQ(table->size(), 5000);

  // Reads, too: while verifying, and while loading what was not verified before.
  auto load = [&](FailingEnv* env, bool verify, Table* to) {
    std::unique_ptr<TableReader> reader;
    MXREC_RETURN_IF_ERROR(TableReader::Open(*env, directory_, *to, false, &reader));
    return verify ? reader->Verify(files_, true, SerialFor()) : reader->Load(to, files_, SerialFor());
  };
  for (const bool verify : {true, false}) {
    auto copy = MakeTable(64, kTwoSlots);
    FailingEnv reading(-1);
    ASSERT_TRUE(load(&reading, verify, copy.get()).ok());
    EXPECT_GE(reading.operations(), 8 + 8);  // files opened; files read
    for (int n = 8; n < reading.operations(); ++n) {
      FailingEnv env(n);
      auto other = MakeTable(64, kTwoSlots);
      const Status status = load(&env, verify, other.get());
      EXPECT_EQ(status.code(), Status::Code::kIoError) << "operation " << n;
      EXPECT_EQ(status.message(), "the test said so");
      EXPECT_EQ(other->size(), 0);
    }
  }
}

TEST_F(Checkpoint, ErrorsOfTheSystemNamePathAndCause) {
  Env& env = Env::Posix();
  std::unique_ptr<WritableFile> file;
  std::unique_ptr<FileView> view;
  const std::string nowhere = root_ + "/nowhere/x";
  for (const Status& status :
       {env.Create(nowhere, &file), env.Map(nowhere, &view), env.MakeDirectory(nowhere), env.JoinDirectory(nowhere),
        env.SyncDirectory(nowhere), env.Rename(nowhere, root_), env.Remove(nowhere)}) {
    EXPECT_FALSE(status.ok());
    EXPECT_NE(status.message().find("'" + nowhere + "': No such file or directory"), std::string::npos)
        << status.message();
  }
  EXPECT_EQ(env.Create(nowhere, &file).code(), Status::Code::kIoError);
  EXPECT_EQ(env.Map(nowhere, &view).code(), Status::Code::kNotFound);
  EXPECT_EQ(env.Map(root_, &view).code(), Status::Code::kIoError);
  EXPECT_EQ(env.MakeDirectory(root_).code(), Status::Code::kIoError);
  EXPECT_TRUE(env.JoinDirectory(root_).ok());

  ASSERT_TRUE(env.Create(root_ + "/a", &file).ok());
  ASSERT_TRUE(file->Append("abc", 3).ok());
  ASSERT_TRUE(file->Close().ok());
  ASSERT_TRUE(env.Rename(root_ + "/a", root_ + "/b").ok());
  ASSERT_TRUE(env.Map(root_ + "/b", &view).ok());
  EXPECT_EQ(std::string(view->data(), view->size()), "abc");
  ASSERT_TRUE(env.Remove(root_ + "/b").ok());
  EXPECT_FALSE(fs::exists(root_ + "/b"));
}

}  // namespace
}  // namespace mxrec
