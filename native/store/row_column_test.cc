#include <gtest/gtest.h>

#include <map>
#include <random>
#include <thread>

#include "store/row_facts.h"

namespace mxrec {
namespace {

void ExpectZero(const RowFacts& facts) {
  EXPECT_EQ(facts.time, 0);
  EXPECT_EQ(facts.count, 0u);
  EXPECT_EQ(facts.step, 0u);
}

TEST(FactsColumn, FactsNeverWrittenAreZeros) {
  FactsColumn column;
  ASSERT_TRUE(column.usable());
  const uint32_t rows[] = {0, 1, FactsColumn::kSlabRows - 1, FactsColumn::kSlabRows, 12345678, UINT32_MAX};
  for (const uint32_t row : rows) {
    ASSERT_TRUE(column.Reserve(row).ok());
    ExpectZero(column.at(row));
  }
  ExpectZero(column.at(2));  // of the same slab
}

TEST(FactsColumn, EveryRowHasItsOwnFactsAndKeepsThem) {
  FactsColumn column;
  std::map<uint32_t, int64_t> written;
  std::mt19937_64 random(1);
  for (int i = 0; i < 2000; ++i) {
    uint32_t row = static_cast<uint32_t>(random() % (5 * FactsColumn::kSlabRows));
    if (i % 100 == 0) row = UINT32_MAX - static_cast<uint32_t>(i);
    ASSERT_TRUE(column.Reserve(row).ok());
    ASSERT_TRUE(column.Reserve(row).ok());  // again changes nothing
    column.at(row) = {i + (int64_t{1} << 40), static_cast<uint32_t>(i), UINT32_MAX - static_cast<uint32_t>(i)};
    written[row] = i;
  }
  for (const auto& [row, i] : written) {
    EXPECT_EQ(column.at(row).time, i + (int64_t{1} << 40));
    EXPECT_EQ(column.at(row).count, static_cast<uint32_t>(i));
    EXPECT_EQ(column.at(row).step, UINT32_MAX - static_cast<uint32_t>(i));
  }
}

TEST(FactsColumn, ClearForgetsEverything) {
  FactsColumn column;
  const uint32_t rows[] = {3, 3 * FactsColumn::kSlabRows + 1};
  for (int round = 0; round < 3; ++round) {
    for (const uint32_t row : rows) {
      ASSERT_TRUE(column.Reserve(row).ok());
      ExpectZero(column.at(row));
      column.at(row) = {1, 2, 3};
    }
    column.Clear();
  }
}

TEST(FactsColumn, ThreadsMayReserveTheSameRowsAtOnce) {
  FactsColumn column;
  constexpr uint32_t kSlabs = 20;
  std::vector<std::thread> threads;
  for (uint32_t t = 0; t < 4; ++t) {
    threads.emplace_back([&column, t] {
      for (uint32_t slab = 0; slab < kSlabs; ++slab) {
        const uint32_t row = slab * FactsColumn::kSlabRows + t;
        ASSERT_TRUE(column.Reserve(row).ok());
        column.at(row).count = row + 1;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (uint32_t slab = 0; slab < kSlabs; ++slab) {
    for (uint32_t t = 0; t < 4; ++t) {
      const uint32_t row = slab * FactsColumn::kSlabRows + t;
      EXPECT_EQ(column.at(row).count, row + 1);  // no slab was mapped twice
    }
  }
}

}  // namespace
}  // namespace mxrec
