#include "checkpoint/served_tables.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "checkpoint/checkpoint_fixture.h"

namespace mxrec {
namespace {

using namespace checkpoint_fixture;  // NOLINT(build/namespaces): written for these tests

constexpr int kDim = 2;

TableConfig Config(const std::string& name) {
  TableConfig config;
  config.name = name;
  config.dim = kDim;
  return config;
}

class ServedTables : public CheckpointTest {
 protected:
  // Exports a table of `rows` rows; key k has the embedding [k, -k].
  ServedTable Export(const std::string& name, int64_t rows) {
    std::shared_ptr<Table> table;
    EXPECT_TRUE(Table::Create(Config(name), &table).ok());
    for (int64_t key = 1; key <= rows; ++key) {
      const float row[kDim] = {static_cast<float>(key), static_cast<float>(-key)};
      const float* parts[] = {row};
      EXPECT_TRUE(table->Assign(key, parts).ok());
    }
    ServedTable served = {Config(name + "@served"), name, {}};
    EXPECT_TRUE(WriteAll(Env::Posix(), *table, root_ + "/" + name, &rows, &served.files).ok());
    return served;
  }

  Status Serve(const std::vector<ServedTable>& tables) {
    return LoadServed(Env::Posix(), root_, tables, &registry_, ThreadedFor(2));
  }

  std::shared_ptr<Table> Find(const std::string& name) {
    std::shared_ptr<Table> table;
    EXPECT_TRUE(registry_.Find(name, &table).ok());
    return table;
  }

  Registry registry_;
};

TEST_F(ServedTables, HaveTheRowsOfTheExport) {
  ASSERT_TRUE(Serve({Export("user", 300), Export("item", 20)}).ok());
  EXPECT_EQ(Find("user@served")->size(), 300);
  EXPECT_EQ(Find("item@served")->size(), 20);
  float row[kDim];
  bool found = false;
  ASSERT_TRUE(Find("user@served")->Read(7, row, &found).ok());
  EXPECT_TRUE(found);
  EXPECT_EQ(row[0], 7.0f);
  EXPECT_EQ(row[1], -7.0f);
}

TEST_F(ServedTables, AreLoadedOnce) {
  const std::vector<ServedTable> tables = {Export("user", 300)};
  ASSERT_TRUE(Serve(tables).ok());
  std::filesystem::remove_all(root_ + "/user");
  EXPECT_TRUE(Serve(tables).ok());
  EXPECT_EQ(Find("user@served")->size(), 300);
}

TEST_F(ServedTables, StayEmptyIfAFileIsDamaged) {
  const ServedTable user = Export("user", 300);
  directory_ = root_ + "/user";
  std::string content = ReadFile(directory_ + "/embedding/slice.data");
  content[100] ^= 1;
  WriteFile(directory_ + "/embedding/slice.data", content);
  ExpectDataLoss(Serve({user}), "embedding/slice.data");
  EXPECT_EQ(Find("user@served")->size(), 0);
}

TEST_F(ServedTables, HaveOneConfigurationEach) {
  ServedTable user = Export("user", 3);
  ASSERT_TRUE(Serve({user}).ok());
  user.config.dim = 1;
  EXPECT_EQ(Serve({user}).code(), Status::Code::kAlreadyExists);
}

}  // namespace
}  // namespace mxrec
