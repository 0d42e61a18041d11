#include "store/memory_store.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <random>
#include <set>
#include <thread>

#include "base/address_space_fixture.h"

namespace mxrec {
namespace {

uint32_t Allocate(MemoryStore* store, int shard) {
  uint32_t row = 0;
  const Status status = store->Allocate(shard, &row);
  EXPECT_TRUE(status.ok()) << status.message();
  return row;
}

// Marks every float of a row, slots included, with a number that belongs to it alone.
void Mark(const MemoryStore& store, uint32_t row) {
  const int64_t floats = store.layout().dim() * (1 + store.layout().slots().size());
  for (int64_t i = 0; i < floats; ++i) store.row(row)[i] = static_cast<float>(row) + 0.125f * i;
}

bool IsMarked(const MemoryStore& store, uint32_t row) {
  const int64_t floats = store.layout().dim() * (1 + store.layout().slots().size());
  for (int64_t i = 0; i < floats; ++i) {
    if (store.row(row)[i] != static_cast<float>(row) + 0.125f * i) return false;
  }
  return true;
}

TEST(MemoryStore, GivesARowToOneOwnerOnly) {
  MemoryStore store(RowLayout(4, {{"m", 0}}), 4);
  std::set<uint32_t> rows;
  for (int i = 0; i < 1000; ++i) {
    const uint32_t row = Allocate(&store, i & 3);
    EXPECT_TRUE(rows.insert(row).second) << "row " << row << " was given out twice";
    Mark(store, row);
  }
  for (const uint32_t row : rows) {
    EXPECT_TRUE(store.Contains(row));
    EXPECT_TRUE(IsMarked(store, row));
  }
}

TEST(MemoryStore, RowsKeepAddressAndContentWhileTheStoreGrowsOverSlabs) {
  MemoryStore store(RowLayout(2, {}), 3);
  const uint32_t count = 2 * MemoryStore::kSlabRows + 1000;
  std::vector<uint32_t> rows;
  std::vector<float*> addresses;
  for (uint32_t i = 0; i < count; ++i) {
    const uint32_t row = Allocate(&store, i % 3);
    Mark(store, row);
    rows.push_back(row);
    addresses.push_back(store.row(row));
  }
  EXPECT_GE(store.end(), count);
  EXPECT_GT(*std::max_element(rows.begin(), rows.end()), 2 * MemoryStore::kSlabRows);
  for (uint32_t i = 0; i < count; ++i) {
    ASSERT_EQ(store.row(rows[i]), addresses[i]);
    ASSERT_TRUE(IsMarked(store, rows[i]));
  }
  std::sort(addresses.begin(), addresses.end());
  for (uint32_t i = 1; i < count; ++i) ASSERT_GE(addresses[i] - addresses[i - 1], store.layout().stride());
}

TEST(MemoryStore, AlignsRows) {
  for (const int dim : {1, 2, 3, 4, 5, 8, 12, 16, 20, 48, 64}) {
    MemoryStore store(RowLayout(dim, {}), 1);
    for (int i = 0; i < 100; ++i) {
      const uintptr_t at = reinterpret_cast<uintptr_t>(store.row(Allocate(&store, 0)));
      const uintptr_t bytes = dim * sizeof(float);
      if (bytes <= 64) {
        EXPECT_EQ(at / 64, (at + bytes - 1) / 64) << "dim " << dim << ": row straddles a cache line";
      } else {
        EXPECT_EQ(at % 32, 0u) << "dim " << dim;
      }
    }
  }
}

TEST(MemoryStore, ContainsRowsOfMappedSlabsOnly) {
  MemoryStore store(RowLayout(2, {}), 1);
  EXPECT_FALSE(store.Contains(0));
  EXPECT_FALSE(store.Contains(UINT32_MAX));
  const uint32_t row = Allocate(&store, 0);
  EXPECT_TRUE(store.Contains(row));
  EXPECT_TRUE(store.Contains(row + 1));
  EXPECT_FALSE(store.Contains(MemoryStore::kSlabRows));
  EXPECT_FALSE(store.Contains(UINT32_MAX));
}

TEST(MemoryStore, ReusesFreedRowsBeforeTakingNewOnes) {
  MemoryStore store(RowLayout(2, {}), 2);
  std::set<uint32_t> freed;
  for (int i = 0; i < 200; ++i) {
    const uint32_t row = Allocate(&store, 1);
    if (i % 2 == 0) freed.insert(row);
  }
  for (const uint32_t row : freed) store.Free(1, row);
  const uint32_t end = store.end();
  for (int i = 0; i < 100; ++i) EXPECT_EQ(freed.erase(Allocate(&store, 1)), 1u);
  EXPECT_EQ(store.end(), end);
}

TEST(MemoryStore, AShardNeverGetsAnotherShardsFreedRows) {
  MemoryStore store(RowLayout(2, {}), 2);
  std::set<uint32_t> freed;
  for (int i = 0; i < 50; ++i) freed.insert(Allocate(&store, 0));
  for (const uint32_t row : freed) store.Free(0, row);
  for (int i = 0; i < 50; ++i) EXPECT_EQ(freed.count(Allocate(&store, 1)), 0u);
}

TEST(MemoryStore, ALiveRowIsNeverGivenOutAgain) {
  constexpr int kShards = 3;
  MemoryStore store(RowLayout(1, {}), kShards);
  std::vector<std::set<uint32_t>> live(kShards);
  std::set<uint32_t> all;
  std::mt19937_64 random(1);
  for (int step = 0; step < 20000; ++step) {
    const int shard = static_cast<int>(random() % kShards);
    if (!live[shard].empty() && random() % 5 < 2) {
      const auto victim = std::next(live[shard].begin(), random() % std::min<size_t>(live[shard].size(), 20));
      store.Free(shard, *victim);
      all.erase(*victim);
      live[shard].erase(victim);
    } else {
      const uint32_t row = Allocate(&store, shard);
      ASSERT_TRUE(all.insert(row).second);
      live[shard].insert(row);
    }
  }
}

TEST(MemoryStore, AShardTakesFreshRowsInAscendingOrder) {
  MemoryStore store(RowLayout(1, {}), 2);
  int64_t last = -1;
  for (int64_t i = 0; i < 1000; ++i) {
    const uint32_t row = Allocate(&store, 0);
    EXPECT_GT(row, last);
    last = row;
    if (i % 3 == 0) Allocate(&store, 1);  // runs of the two shards alternate
  }
}

TEST(MemoryStore, RelayoutKeepsEmbeddingsAndSharedSlots) {
  const RowLayout before(3, {{"m", 7}, {"v", 8}});
  const RowLayout after(3, {{"v", 9}, {"fresh", 0.25f}});
  MemoryStore store(before, 2);
  const uint32_t count = MemoryStore::kSlabRows + 500;
  std::vector<uint32_t> rows;
  for (uint32_t i = 0; i < count; ++i) {
    rows.push_back(Allocate(&store, i % 2));
    Mark(store, rows[i]);
  }
  store.Free(0, rows[2]);

  ASSERT_TRUE(store.Relayout(after).ok());
  EXPECT_EQ(store.layout().slots(), after.slots());
  EXPECT_EQ(store.layout().stride(), after.stride());
  for (uint32_t i = 0; i < count; ++i) {
    if (i == 2) continue;
    const float* row = store.row(rows[i]);
    for (int j = 0; j < 3; ++j) {
      ASSERT_EQ(row[j], static_cast<float>(rows[i]) + 0.125f * j);
      ASSERT_EQ(row[3 + j], static_cast<float>(rows[i]) + 0.125f * (6 + j));  // "v" was the second slot
      ASSERT_EQ(row[6 + j], 0.25f);
    }
  }
}

TEST(MemoryStore, GrowsOnAfterRelayout) {
  MemoryStore store(RowLayout(2, {}), 1);
  std::vector<uint32_t> rows;
  for (int i = 0; i < 100; ++i) rows.push_back(Allocate(&store, 0));
  ASSERT_TRUE(store.Relayout(RowLayout(2, {{"a", 0}, {"b", 0}, {"c", 0}})).ok());
  for (uint32_t i = 100; i < MemoryStore::kSlabRows + 100; ++i) rows.push_back(Allocate(&store, 0));
  for (const uint32_t row : rows) Mark(store, row);
  for (const uint32_t row : rows) ASSERT_TRUE(IsMarked(store, row));
}

TEST(MemoryStore, RelayoutOfAnEmptyStoreOnlyChangesTheLayout) {
  MemoryStore store(RowLayout(2, {}), 1);
  ASSERT_TRUE(store.Relayout(RowLayout(2, {{"a", 0}})).ok());
  EXPECT_EQ(store.end(), 0u);
  const uint32_t row = Allocate(&store, 0);
  Mark(store, row);
  EXPECT_TRUE(IsMarked(store, row));
}

TEST(MemoryStore, ResetKeepsTheMemoryUntilTrimGivesBackWhatIsLeftOfIt) {
  MemoryStore store(RowLayout(1, {}), 1);
  for (uint32_t i = 0; i < 3 * MemoryStore::kSlabRows; ++i) Allocate(&store, 0);
  const float* const first = store.row(0);
  store.Reset();
  EXPECT_EQ(store.end(), 0u);
  EXPECT_TRUE(store.Contains(2 * MemoryStore::kSlabRows));
  for (uint32_t i = 0; i < MemoryStore::kSlabRows + 1; ++i) ASSERT_EQ(Allocate(&store, 0), i);
  EXPECT_EQ(store.row(0), first);
  store.Trim();
  EXPECT_TRUE(store.Contains(MemoryStore::kSlabRows));
  EXPECT_FALSE(store.Contains(2 * MemoryStore::kSlabRows));
  EXPECT_EQ(store.OwnerOf(MemoryStore::kSlabRows), 0);
  for (uint32_t i = MemoryStore::kSlabRows + 1; i < 3 * MemoryStore::kSlabRows; ++i) ASSERT_EQ(Allocate(&store, 0), i);
}

TEST(MemoryStore, ClearForgetsEverythingAndStartsAnew) {
  MemoryStore store(RowLayout(2, {{"a", 0}}), 2);
  for (uint32_t i = 0; i < MemoryStore::kSlabRows + 100; ++i) Allocate(&store, i % 2);
  EXPECT_GT(store.bytes(), 0);
  store.Clear();
  EXPECT_EQ(store.end(), 0u);
  EXPECT_EQ(store.bytes(), 0);
  EXPECT_FALSE(store.Contains(0));
  EXPECT_FALSE(store.Contains(MemoryStore::kSlabRows));

  EXPECT_EQ(store.layout().slots().size(), 1u);
  const uint32_t row = Allocate(&store, 1);
  EXPECT_LT(row, MemoryStore::kRun);
  Mark(store, row);
  EXPECT_TRUE(IsMarked(store, row));
}

TEST(MemoryStore, SmallStoresStaySmall) {
  MemoryStore store(RowLayout(16, {}), 8);
  for (int shard = 0; shard < 8; ++shard) Allocate(&store, shard);
  EXPECT_LE(store.end(), 8 * MemoryStore::kRun);
  EXPECT_LE(store.bytes(), static_cast<int64_t>(8 * MemoryStore::kRun * 64));
}

TEST(MemoryStore, ShardsAllocateSideBySide) {
  constexpr int kShards = 4;
  MemoryStore store(RowLayout(2, {}), kShards);
  const int64_t count = MemoryStore::kSlabRows / 2;  // two slabs in all
  std::vector<std::vector<uint32_t>> rows(kShards);
  std::vector<std::thread> threads;
  for (int shard = 0; shard < kShards; ++shard) {
    threads.emplace_back([&store, &rows, shard, count] {
      for (int64_t i = 0; i < count; ++i) {
        rows[shard].push_back(Allocate(&store, shard));
        Mark(store, rows[shard].back());
      }
    });
  }
  for (std::thread& t : threads) t.join();
  std::set<uint32_t> all;
  for (int shard = 0; shard < kShards; ++shard) {
    for (const uint32_t row : rows[shard]) {
      ASSERT_TRUE(IsMarked(store, row));
      ASSERT_TRUE(all.insert(row).second);
    }
  }
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)  // they need the address space for themselves

// Runs in a child process; says by its exit code how far it came.
[[noreturn]] void RunOutOfAddressSpaceAndRecover() {
  MemoryStore store(RowLayout(8192, {}), 2);  // 2 GiB a slab, of which next to nothing is touched
  uint32_t row;
  LimitAddressSpace(rlim_t{256} << 20);
  for (int shard = 0; shard < 2; ++shard) {
    if (store.Allocate(shard, &row).code() != Status::Code::kResourceExhausted) std::exit(1);
  }
  LimitAddressSpace(RLIM_INFINITY);
  if (!store.Relayout(RowLayout(8192, {{"m", 0}})).ok()) std::exit(2);
  store.Clear();
  if (!store.Allocate(0, &row).ok()) std::exit(3);
  Mark(store, row);
  LimitAddressSpace(rlim_t{256} << 20);
  if (store.Relayout(RowLayout(8192, {})).code() != Status::Code::kResourceExhausted) std::exit(4);
  if (store.layout().slots().size() != 1 || !IsMarked(store, row)) std::exit(5);
  LimitAddressSpace(RLIM_INFINITY);
  uint32_t other;
  if (!store.Allocate(1, &other).ok() || other == row) std::exit(6);
  store.Clear();
  std::exit(0);
}

TEST(MemoryStoreDeathTest, SurvivesRunningOutOfMemory) {
  EXPECT_EXIT(RunOutOfAddressSpaceAndRecover(), testing::ExitedWithCode(0), "");
}

#endif

}  // namespace
}  // namespace mxrec
