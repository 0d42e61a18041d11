#include "table/admission_filter.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <random>
#include <set>
#include <utility>
#include <vector>

#include "base/hash.h"

namespace mxrec {
namespace {

constexpr uint32_t kMaxCount = AdmissionFilter::kMaxCount;

// The cells that a key counts in, found by adding it to an empty filter.
std::vector<int64_t> CellsOf(AdmissionFilter* filter, uint64_t hash) {
  filter->Add(hash, 1);
  std::vector<int64_t> cells;
  for (int64_t i = 0; i < filter->size(); ++i) {
    if (filter->cells()[i] != 0) cells.push_back(i);
  }
  filter->Clear();
  return cells;
}

// The share of keys, all met once, that count 2 or more with `load` keys a line: of the keys in a line, whose number is
// Poisson, some must cover all 4 cells of a given one. By inclusion and exclusion over the cells left uncovered; a key
// misses j given cells if its 4 are among the other 32 - j.
double ExpectedError(double load) {
  double share = 0, miss = 1, choose = 1;
  for (int j = 0; j <= 4; ++j) {
    share += (j % 2 == 0 ? choose : -choose) * std::exp(-load * (1 - miss));
    miss *= (28.0 - j) / (32.0 - j);
    choose *= (4.0 - j) / (j + 1.0);
  }
  return share;
}

double MeasuredError(int64_t bytes_per_key, int shard_bits) {
  AdmissionFilter filter(int64_t{8} << 20, shard_bits);
  std::mt19937_64 random(static_cast<uint64_t>(bytes_per_key));
  std::vector<uint64_t> hashes;
  for (int64_t i = 0; i < filter.size() * 2 / bytes_per_key; ++i) hashes.push_back(random() >> shard_bits);
  for (const uint64_t hash : hashes) filter.Add(hash, 1);
  int64_t early = 0;
  for (const uint64_t hash : hashes) early += filter.Count(hash) >= 2 ? 1 : 0;
  return static_cast<double>(early) / static_cast<double>(hashes.size());
}

TEST(AdmissionFilter, RoundsUpToWholeLines) {
  const std::vector<std::pair<int64_t, int64_t>> cases = {
      {INT64_MIN, 32}, {0, 32}, {1, 32}, {64, 32}, {65, 64}, {4096, 2048}, {4097, 2080}, {3 << 20, 3 << 19}};
  for (const auto& [bytes, cells] : cases) {
    AdmissionFilter filter(bytes, 0);
    ASSERT_TRUE(filter.usable());
    EXPECT_EQ(filter.size(), cells) << bytes;
    EXPECT_GE(filter.bytes(), cells * 2);
    EXPECT_LT(filter.bytes(), cells * 2 + 4096);  // whole pages
    for (int64_t i = 0; i < cells; ++i) ASSERT_EQ(filter.cells()[i], 0);
    for (const uint64_t hash : {uint64_t{0}, UINT64_MAX}) {
      filter.Prefetch(hash);
      filter.Add(hash, 3);
      EXPECT_EQ(filter.Count(hash), 3u);
    }
  }
}

TEST(AdmissionFilter, SaysWhenThereIsNoMemory) {
  AdmissionFilter filter(INT64_MAX, 0);
  EXPECT_FALSE(filter.usable());
  EXPECT_EQ(filter.bytes(), 0);
}

TEST(AdmissionFilter, EveryKeyHasFourCellsInOneLine) {
  for (const int bits : {0, 3, 8}) {
    AdmissionFilter filter(1024, bits);
    std::mt19937_64 random(1);
    std::set<std::vector<int64_t>> sets;
    std::vector<int> lines(16), cells(32);
    constexpr int kKeys = 20000;
    for (int i = 0; i < kKeys; ++i) {
      // Also keys that differ in the low bits alone, or in the high ones.
      const uint64_t hash = i < 100 ? static_cast<uint64_t>(i) : i < 200 ? ~static_cast<uint64_t>(i) : random();
      const std::vector<int64_t> found = CellsOf(&filter, hash);
      ASSERT_EQ(found.size(), 4u);
      ASSERT_EQ(found.front() / 32, found.back() / 32);
      ASSERT_EQ(found, CellsOf(&filter, hash));
      sets.insert(found);
      ++lines[static_cast<size_t>(found.front() / 32)];
      for (const int64_t cell : found) ++cells[static_cast<size_t>(cell % 32)];
    }
    // Lines and cells are used alike, and hardly two keys share all four.
    const auto [fewest_line, most_line] = std::minmax_element(lines.begin(), lines.end());
    EXPECT_GT(*fewest_line, kKeys / 16 * 0.85);
    EXPECT_LT(*most_line, kKeys / 16 * 1.2);
    const auto [fewest_cell, most_cell] = std::minmax_element(cells.begin(), cells.end());
    EXPECT_GT(*fewest_cell, kKeys / 8 * 0.9);
    EXPECT_LT(*most_cell, kKeys / 8 * 1.1);
    EXPECT_GT(sets.size(), kKeys * 0.97);
  }
}

TEST(AdmissionFilter, ACountIsNeverTooLow) {
  for (const uint64_t seed : {1, 2, 3}) {
    for (const int64_t bytes : {64, 1000, 50000}) {
      AdmissionFilter filter(bytes, 3);
      std::map<uint64_t, uint32_t> counts;
      std::mt19937_64 random(seed);
      for (int i = 0; i < 50000; ++i) {
        const uint64_t id = std::min({random() % 5000, random() % 5000, random() % 5000});  // some more often
        const uint64_t hash = HashKey(static_cast<int64_t>(id)) >> 3;
        const uint32_t weight = static_cast<uint32_t>(random() % 4);
        filter.Add(hash, weight);
        counts[hash] = std::min(counts[hash] + weight, kMaxCount);
        ASSERT_GE(filter.Count(hash), counts[hash]);
      }
      for (const auto& [hash, count] : counts) ASSERT_GE(filter.Count(hash), count);
    }
  }
}

TEST(AdmissionFilter, AKeyAloneCountsExactly) {
  AdmissionFilter filter(1 << 20, 0);
  std::mt19937_64 random(4);
  for (int i = 0; i < 1000; ++i) {
    const uint64_t hash = random();
    filter.Add(hash, 5);
    filter.Add(hash, 6);
    ASSERT_EQ(filter.Count(hash), 11u);
    filter.Subtract(hash, 11);
    ASSERT_EQ(filter.Count(hash), 0u);
  }
  for (int64_t i = 0; i < filter.size(); ++i) ASSERT_EQ(filter.cells()[i], 0);
}

TEST(AdmissionFilter, TheErrorIsTheExpectedOne) {
  for (const int bits : {0, 3}) {
    for (const int64_t bytes_per_key : {4, 8, 16, 32}) {
      const double expected = ExpectedError(64.0 / static_cast<double>(bytes_per_key));
      const double measured = MeasuredError(bytes_per_key, bits);
      EXPECT_NEAR(measured, expected, 0.05 * expected) << bytes_per_key << " bytes a key";
    }
    EXPECT_LT(MeasuredError(16, bits), 0.043);  // one key for 8 cells
  }
}

TEST(AdmissionFilter, SubtractTakesOutWhatAKeyBroughtIn) {
  AdmissionFilter filter(20000, 0);
  std::mt19937_64 random(5);
  std::vector<std::pair<uint64_t, uint32_t>> stay, go;
  for (int i = 0; i < 4000; ++i) {
    auto& group = i % 2 == 0 ? stay : go;
    group.emplace_back(random(), 1 + static_cast<uint32_t>(random() % 5));
  }
  for (const auto& [hash, weight] : stay) filter.Add(hash, weight);
  const std::vector<uint16_t> before(filter.cells(), filter.cells() + filter.size());
  for (const auto& [hash, weight] : go) filter.Add(hash, weight);
  for (const auto& [hash, weight] : go) {
    filter.Subtract(hash, weight);
    for (size_t i = 0; i < 3; ++i) ASSERT_GE(filter.Count(stay[i].first), stay[i].second);
  }
  EXPECT_EQ(std::vector<uint16_t>(filter.cells(), filter.cells() + filter.size()), before);
}

TEST(AdmissionFilter, CellsStopAtBothEnds) {
  AdmissionFilter filter(64, 0);
  const uint64_t hash = HashKey(1);
  filter.Add(hash, kMaxCount - 1);
  EXPECT_EQ(filter.Count(hash), kMaxCount - 1);
  filter.Add(hash, 1);
  filter.Add(hash, 1);
  filter.Add(hash, UINT32_MAX);
  EXPECT_EQ(filter.Count(hash), kMaxCount);
  filter.Subtract(hash, 5);
  EXPECT_EQ(filter.Count(hash), kMaxCount - 5);
  filter.Subtract(hash, UINT32_MAX);
  EXPECT_EQ(filter.Count(hash), 0u);
  filter.Subtract(hash, 1);
  EXPECT_EQ(filter.Count(hash), 0u);
  for (int64_t i = 0; i < filter.size(); ++i) ASSERT_EQ(filter.cells()[i], 0);
}

TEST(AdmissionFilter, HalveHalvesEveryCell) {
  AdmissionFilter filter(5000, 0);
  std::mt19937_64 random(6);
  std::vector<uint16_t> expected;
  for (int64_t i = 0; i < filter.size(); ++i) {
    filter.cells()[i] = i == 0 ? kMaxCount : static_cast<uint16_t>(random());
    expected.push_back(filter.cells()[i] / 2);
  }
  filter.Halve();
  const std::vector<uint16_t> halved(filter.cells(), filter.cells() + filter.size());
  EXPECT_EQ(halved, expected);
  for (int i = 0; i < 16; ++i) filter.Halve();
  for (int64_t i = 0; i < filter.size(); ++i) ASSERT_EQ(filter.cells()[i], 0);
}

TEST(AdmissionFilter, CountsSurviveACopyOfTheCellsAndEndWithClear) {
  AdmissionFilter filter(5000, 3), copy(5000, 3);
  std::mt19937_64 random(7);
  std::vector<uint64_t> hashes;
  for (int i = 0; i < 1000; ++i) hashes.push_back(random() >> 3);
  for (const uint64_t hash : hashes) filter.Add(hash, 2);
  const AdmissionFilter& saved = filter;
  std::copy(saved.cells(), saved.cells() + saved.size(), copy.cells());
  for (const uint64_t hash : hashes) ASSERT_EQ(copy.Count(hash), filter.Count(hash));
  filter.Clear();
  for (const uint64_t hash : hashes) ASSERT_EQ(filter.Count(hash), 0u);
  filter = std::move(copy);
  for (const uint64_t hash : hashes) ASSERT_GE(filter.Count(hash), 2u);
}

}  // namespace
}  // namespace mxrec
