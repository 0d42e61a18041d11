// Rows that come from files in parts and blocks of any size are the rows that were written, and so are their checksums.
#include "checkpoint/row_loader.h"

#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/crc32c.h"
#include "base/scratch_fixture.h"
#include "checkpoint/checkpoint_fixture.h"

namespace mxrec {
namespace {

using checkpoint_fixture::FailingEnv;
using scratch_fixture::TemporaryDirectory;
using Rows = std::map<int64_t, std::vector<float>>;

constexpr int kDim = 3;
constexpr int64_t kRows = 1000;
const std::vector<SlotSpec> kSlots = {{"first", 0.5f}, {"second", 0.25f}};

class RowLoader : public ::testing::Test {
 protected:
  void SetUp() override {
    for (int64_t i = 0; i < kRows; ++i) keys_.push_back((i * 7919) % kRows - 300);
    for (int c = 0; c < 3; ++c) {
      std::vector<float> column(kRows * kDim);
      for (size_t i = 0; i < column.size(); ++i) column[i] = static_cast<float>(i) + 0.125f * static_cast<float>(c);
      bytes_.emplace_back(reinterpret_cast<const char*>(column.data()), column.size() * sizeof(float));
      columns_.push_back(column);
      checkpoint_fixture::WriteFile(Path(c), bytes_.back());
    }
    for (int64_t i = 0; i < kRows; ++i) {
      for (int c = 0; c < 3; ++c) {
        const float* at = columns_[c].data() + i * kDim;
        rows_[keys_[i]].insert(rows_[keys_[i]].end(), at, at + kDim);
      }
    }
  }

  std::string Path(int column) const { return directory_.path() + "/" + std::to_string(column); }

  RowSource Open(Env& env, std::vector<std::unique_ptr<FileView>>* views) {
    RowSource source = {keys_.data(), kRows, {}};
    for (int c = 0; c < 3; ++c) {
      views->emplace_back();
      EXPECT_TRUE(env.Map(Path(c), &views->back()).ok());
      source.columns.push_back(views->back().get());
    }
    return source;
  }

  // `in_memory` rows of it; 0: all.
  std::shared_ptr<Table> MakeTable(int64_t in_memory) {
    TableConfig config;
    config.name = "item";
    config.dim = kDim;
    config.max_rows = 10 * kRows;
    if (in_memory > 0) {
      config.tier.memory_rows = in_memory;
      config.tier.disk_rows = 10 * kRows;
      config.tier.paths = {scratch_.path()};
    }
    std::shared_ptr<Table> table;
    const Status status = Table::Create(config, &table);
    EXPECT_TRUE(status.ok()) << status.message();
    EXPECT_TRUE(table->SetSlots(kSlots).ok());
    return table;
  }

  static Rows Content(const Table& table) {
    Rows rows;
    std::vector<float> row(kDim * 3);
    table.ForEach([&](int64_t key, int64_t) { rows[key]; });
    for (auto& [key, values] : rows) {
      bool found;
      EXPECT_TRUE(table.Read(key, row.data(), &found).ok());
      EXPECT_TRUE(found);
      values = row;
    }
    return rows;
  }

  TemporaryDirectory directory_, scratch_;
  std::vector<int64_t> keys_;
  std::vector<std::vector<float>> columns_;
  std::vector<std::string> bytes_;
  Rows rows_;
};

TEST_F(RowLoader, LoadsTheSameInPartsAndBlocksOfAnySize) {
  for (const LoadSizes& sizes : {LoadSizes(), LoadSizes{1, 1, 1}, LoadSizes{7, 100, 100}, LoadSizes{300, 2000, 2000},
                                 LoadSizes{kRows, 1 << 20, kRows * 36}}) {
    for (const int threads : {1, 3}) {
      for (const int64_t in_memory : {0, 128}) {
        SCOPED_TRACE(testing::Message() << sizes.part_rows << " rows, " << sizes.block_bytes << " bytes, " << threads
                                        << " threads, " << in_memory << " in memory");
        const auto table = MakeTable(in_memory);
        std::vector<std::unique_ptr<FileView>> views;
        const RowSource source = Open(Env::Posix(), &views);
        std::vector<uint32_t> sums;
        const Status status = LoadRows(table.get(), source, false, ThreadedFor(threads), &sums, sizes);
        ASSERT_TRUE(status.ok()) << status.message();
        EXPECT_EQ(table->size(), kRows);
        EXPECT_TRUE(Content(*table) == rows_);
        ASSERT_EQ(sums.size(), 3u);
        for (int c = 0; c < 3; ++c) EXPECT_EQ(sums[c], crc32c::Extend(0, bytes_[c].data(), bytes_[c].size()));
      }
    }
  }
}

TEST_F(RowLoader, WithoutAColumnRowsHaveItsInitialValue) {
  for (const int64_t in_memory : {0, 128}) {
    const auto table = MakeTable(in_memory);
    std::vector<std::unique_ptr<FileView>> views;
    RowSource source = Open(Env::Posix(), &views);
    source.columns[1] = nullptr;
    std::vector<uint32_t> sums;
    ASSERT_TRUE(LoadRows(table.get(), source, false, ThreadedFor(2), &sums, {100, 500, 500}).ok());
    Rows expected = rows_;
    for (auto& [key, row] : expected) std::fill_n(row.begin() + kDim, kDim, 0.5f);
    EXPECT_TRUE(Content(*table) == expected);
    EXPECT_EQ(sums[1], 0u);
  }
}

TEST_F(RowLoader, ReplacesRowsAndLeavesTheOthers) {
  for (const int64_t in_memory : {0, 128}) {
    const auto table = MakeTable(in_memory);
    Rows expected = rows_;
    for (const int64_t key : {keys_[5], keys_[900], int64_t{123456}}) {
      const std::vector<float> old(kDim, -1.0f);
      const float* parts[] = {old.data(), old.data(), old.data()};
      ASSERT_TRUE(table->Assign(key, parts).ok());
      if (key == 123456) expected[key].assign(3 * kDim, -1.0f);
    }
    std::vector<std::unique_ptr<FileView>> views;
    const RowSource source = Open(Env::Posix(), &views);
    ASSERT_TRUE(LoadRows(table.get(), source, true, ThreadedFor(2), nullptr, {100, 500, 500}).ok());
    EXPECT_TRUE(Content(*table) == expected);
    EXPECT_EQ(table->size(), kRows + 1);
  }
}

TEST_F(RowLoader, EveryReadThatFailsIsReported) {
  const LoadSizes sizes = {100, 500, 500};
  for (const int64_t in_memory : {0, 128}) {
    FailingEnv healthy(-1);
    std::vector<std::unique_ptr<FileView>> views;
    std::vector<uint32_t> sums;
    RowSource source = Open(healthy, &views);
    ASSERT_TRUE(LoadRows(MakeTable(in_memory).get(), source, false, SerialFor(), &sums, sizes).ok());
    EXPECT_GT(healthy.operations(), 3 + 3 * 30);
    for (int n = 3; n < healthy.operations(); ++n) {
      FailingEnv env(n);
      views.clear();
      source = Open(env, &views);
      const Status status = LoadRows(MakeTable(in_memory).get(), source, false, SerialFor(), &sums, sizes);
      EXPECT_EQ(status.code(), Status::Code::kIoError) << "operation " << n;
      EXPECT_EQ(status.message(), "the test said so");
    }
  }
}

}  // namespace
}  // namespace mxrec
