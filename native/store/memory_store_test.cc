#include "store/memory_store.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <random>
#include <set>
#include <thread>

namespace mxrec {
namespace {

constexpr int64_t kVacant = MemoryStore::kVacant;

uint32_t Allocate(MemoryStore* store, int shard, int64_t key) {
  uint32_t row = 0;
  const Status status = store->Allocate(shard, key, &row);
  EXPECT_TRUE(status.ok()) << status.message();
  return row;
}

std::vector<uint32_t> RowsOf(const MemoryStore& store, int shard) {
  std::vector<uint32_t> rows;
  store.ForEach(shard, [&](uint32_t row) { rows.push_back(row); });
  return rows;
}

std::vector<int64_t> KeysOf(const MemoryStore& store, int shard) {
  std::vector<int64_t> keys;
  store.ForEach(shard, [&](uint32_t row) { keys.push_back(store.key(row)); });
  return keys;
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

TEST(MemoryStore, GivesEveryKeyARowOfItsOwn) {
  MemoryStore store(RowLayout(4, {{"m", 0}}), 4);
  std::map<uint32_t, int64_t> key_of;
  for (int64_t key = -500; key < 500; ++key) {
    const uint32_t row = Allocate(&store, static_cast<int>(key & 3), key);
    EXPECT_TRUE(key_of.emplace(row, key).second) << "row " << row << " was given out twice";
    Mark(store, row);
  }
  for (const auto& [row, key] : key_of) {
    EXPECT_TRUE(store.Contains(row));
    EXPECT_EQ(store.key(row), key);
    EXPECT_TRUE(IsMarked(store, row));
  }
}

TEST(MemoryStore, RowsKeepAddressAndContentWhileTheStoreGrowsOverSlabs) {
  MemoryStore store(RowLayout(2, {}), 3);
  const uint32_t count = 2 * MemoryStore::kSlabRows + 1000;
  std::vector<uint32_t> rows;
  std::vector<float*> addresses;
  for (uint32_t i = 0; i < count; ++i) {
    const uint32_t row = Allocate(&store, i % 3, i);
    Mark(store, row);
    rows.push_back(row);
    addresses.push_back(store.row(row));
  }
  EXPECT_GE(store.end(), count);
  EXPECT_GT(*std::max_element(rows.begin(), rows.end()), 2 * MemoryStore::kSlabRows);
  for (uint32_t i = 0; i < count; ++i) {
    ASSERT_EQ(store.row(rows[i]), addresses[i]);
    ASSERT_EQ(store.key(rows[i]), i);
    ASSERT_TRUE(IsMarked(store, rows[i]));
  }
  std::sort(addresses.begin(), addresses.end());
  for (uint32_t i = 1; i < count; ++i) ASSERT_GE(addresses[i] - addresses[i - 1], store.layout().stride());
}

TEST(MemoryStore, AlignsRows) {
  for (const int dim : {1, 2, 3, 4, 5, 8, 12, 16, 20, 48, 64}) {
    MemoryStore store(RowLayout(dim, {}), 1);
    for (int i = 0; i < 100; ++i) {
      const uintptr_t at = reinterpret_cast<uintptr_t>(store.row(Allocate(&store, 0, i)));
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
  const uint32_t row = Allocate(&store, 0, 5);
  EXPECT_TRUE(store.Contains(row));
  EXPECT_TRUE(store.Contains(row + 1));
  EXPECT_EQ(store.key(row + 1), kVacant);  // never handed out
  EXPECT_FALSE(store.Contains(MemoryStore::kSlabRows));
  EXPECT_FALSE(store.Contains(UINT32_MAX));
}

TEST(MemoryStore, ReusesFreedRowsBeforeTakingNewOnes) {
  MemoryStore store(RowLayout(2, {}), 2);
  std::set<uint32_t> freed;
  for (int i = 0; i < 200; ++i) {
    const uint32_t row = Allocate(&store, 1, i);
    if (i % 2 == 0) freed.insert(row);
  }
  for (const uint32_t row : freed) {
    store.Free(1, row);
    EXPECT_EQ(store.key(row), kVacant);
  }
  const uint32_t end = store.end();
  for (int i = 0; i < 100; ++i) EXPECT_EQ(freed.erase(Allocate(&store, 1, 1000 + i)), 1u);
  EXPECT_EQ(store.end(), end);
}

TEST(MemoryStore, AShardNeverGetsAnotherShardsFreedRows) {
  MemoryStore store(RowLayout(2, {}), 2);
  std::set<uint32_t> freed;
  for (int i = 0; i < 50; ++i) freed.insert(Allocate(&store, 0, i));
  for (const uint32_t row : freed) store.Free(0, row);
  for (int i = 0; i < 50; ++i) EXPECT_EQ(freed.count(Allocate(&store, 1, i)), 0u);
}

TEST(MemoryStore, WalksLiveRowsAgainstAModel) {
  constexpr int kShards = 3;
  MemoryStore store(RowLayout(1, {}), kShards);
  std::vector<std::map<uint32_t, int64_t>> model(kShards);
  std::mt19937_64 random(1);
  for (int step = 0; step < 20000; ++step) {
    const int shard = static_cast<int>(random() % kShards);
    auto& live = model[shard];
    if (!live.empty() && random() % 5 < 2) {
      const auto victim = std::next(live.begin(), random() % std::min<size_t>(live.size(), 20));
      store.Free(shard, victim->first);
      live.erase(victim);
    } else {
      const int64_t key = static_cast<int64_t>(random());
      ASSERT_TRUE(live.emplace(Allocate(&store, shard, key), key).second);
    }
  }
  for (int shard = 0; shard < kShards; ++shard) {
    std::map<uint32_t, int64_t> walked;
    store.ForEach(shard, [&](uint32_t row) { EXPECT_TRUE(walked.emplace(row, store.key(row)).second); });
    EXPECT_EQ(walked, model[shard]);
  }
}

TEST(MemoryStore, WalksInOrderOfAllocation) {
  MemoryStore store(RowLayout(1, {}), 2);
  std::vector<int64_t> keys;
  for (int64_t i = 0; i < 1000; ++i) {
    Allocate(&store, 0, i * 7);
    if (i % 3 == 0) Allocate(&store, 1, i);  // runs of the two shards alternate
    keys.push_back(i * 7);
  }
  EXPECT_EQ(KeysOf(store, 0), keys);
}

TEST(MemoryStore, OrderDependsOnlyOnTheShardsOwnCalls) {
  // The same calls for shard 0, with and without a busy neighbour.
  auto run = [](bool neighbour) {
    MemoryStore store(RowLayout(1, {}), 2);
    std::vector<uint32_t> rows;
    for (int64_t i = 0; i < 500; ++i) {
      if (neighbour) {
        Allocate(&store, 1, i);
        Allocate(&store, 1, -i);
      }
      rows.push_back(Allocate(&store, 0, i));
      if (i % 3 == 2) store.Free(0, rows[i / 2]);
      if (i % 3 == 2) rows[i / 2] = Allocate(&store, 0, 10000 + i);
    }
    return KeysOf(store, 0);
  };
  EXPECT_EQ(run(false), run(true));
}

TEST(MemoryStore, TheVacantMarkIsAlsoALegalKey) {
  MemoryStore store(RowLayout(1, {}), 2);
  Allocate(&store, 0, 1);
  const uint32_t row = Allocate(&store, 0, kVacant);
  Allocate(&store, 0, 2);
  EXPECT_EQ(store.key(row), kVacant);
  EXPECT_EQ(KeysOf(store, 0), (std::vector<int64_t>{1, kVacant, 2}));

  store.Free(0, row);
  EXPECT_EQ(KeysOf(store, 0), (std::vector<int64_t>{1, 2}));
  EXPECT_EQ(Allocate(&store, 0, 3), row);
  EXPECT_EQ(KeysOf(store, 0), (std::vector<int64_t>{1, 3, 2}));
  Allocate(&store, 0, kVacant);
  EXPECT_EQ(KeysOf(store, 0), (std::vector<int64_t>{1, 3, 2, kVacant}));
}

TEST(MemoryStore, KeepsExtremeKeys) {
  MemoryStore store(RowLayout(1, {}), 1);
  const std::vector<int64_t> keys = {0, -1, INT64_MIN, INT64_MAX, ~kVacant, kVacant};
  for (const int64_t key : keys) Allocate(&store, 0, key);
  EXPECT_EQ(KeysOf(store, 0), keys);
}

TEST(MemoryStore, RelayoutKeepsEmbeddingsAndSharedSlots) {
  const RowLayout before(3, {{"m", 7}, {"v", 8}});
  const RowLayout after(3, {{"v", 9}, {"fresh", 0.25f}});
  MemoryStore store(before, 2);
  const uint32_t count = MemoryStore::kSlabRows + 500;
  std::vector<uint32_t> rows;
  for (uint32_t i = 0; i < count; ++i) {
    rows.push_back(Allocate(&store, i % 2, i));
    Mark(store, rows[i]);
  }
  store.Free(0, rows[2]);
  const std::vector<uint32_t> live[] = {RowsOf(store, 0), RowsOf(store, 1)};

  ASSERT_TRUE(store.Relayout(after).ok());
  EXPECT_EQ(store.layout().slots(), after.slots());
  EXPECT_EQ(store.layout().stride(), after.stride());
  for (int shard = 0; shard < 2; ++shard) EXPECT_EQ(RowsOf(store, shard), live[shard]);
  for (uint32_t i = 0; i < count; ++i) {
    if (i == 2) continue;
    ASSERT_EQ(store.key(rows[i]), i);
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
  for (int i = 0; i < 100; ++i) rows.push_back(Allocate(&store, 0, i));
  ASSERT_TRUE(store.Relayout(RowLayout(2, {{"a", 0}, {"b", 0}, {"c", 0}})).ok());
  for (uint32_t i = 100; i < MemoryStore::kSlabRows + 100; ++i) rows.push_back(Allocate(&store, 0, i));
  for (const uint32_t row : rows) Mark(store, row);
  for (size_t i = 0; i < rows.size(); ++i) {
    ASSERT_TRUE(IsMarked(store, rows[i]));
    ASSERT_EQ(store.key(rows[i]), static_cast<int64_t>(i));
  }
}

TEST(MemoryStore, RelayoutOfAnEmptyStoreOnlyChangesTheLayout) {
  MemoryStore store(RowLayout(2, {}), 1);
  ASSERT_TRUE(store.Relayout(RowLayout(2, {{"a", 0}})).ok());
  EXPECT_EQ(store.end(), 0u);
  const uint32_t row = Allocate(&store, 0, 1);
  Mark(store, row);
  EXPECT_TRUE(IsMarked(store, row));
}

TEST(MemoryStore, ClearForgetsEverythingAndStartsAnew) {
  MemoryStore store(RowLayout(2, {{"a", 0}}), 2);
  for (uint32_t i = 0; i < MemoryStore::kSlabRows + 100; ++i) Allocate(&store, i % 2, i == 50 ? kVacant : i);
  EXPECT_GT(store.bytes(), 0);
  store.Clear();
  EXPECT_EQ(store.end(), 0u);
  EXPECT_EQ(store.bytes(), 0);
  EXPECT_FALSE(store.Contains(0));
  EXPECT_FALSE(store.Contains(MemoryStore::kSlabRows));
  for (int shard = 0; shard < 2; ++shard) EXPECT_TRUE(RowsOf(store, shard).empty());

  EXPECT_EQ(store.layout().slots().size(), 1u);
  Mark(store, Allocate(&store, 1, 77));
  EXPECT_TRUE(KeysOf(store, 0).empty());
  EXPECT_EQ(KeysOf(store, 1), std::vector<int64_t>{77});
}

TEST(MemoryStore, SmallStoresStaySmall) {
  MemoryStore store(RowLayout(16, {}), 8);
  for (int shard = 0; shard < 8; ++shard) Allocate(&store, shard, shard);
  EXPECT_LE(store.end(), 8 * MemoryStore::kRun);
  EXPECT_LE(store.bytes(), static_cast<int64_t>(8 * MemoryStore::kRun * (64 + 8)));
}

TEST(MemoryStore, ShardsAllocateSideBySide) {
  constexpr int kShards = 4;
  MemoryStore store(RowLayout(2, {}), kShards);
  const int64_t count = MemoryStore::kSlabRows / 2;  // two slabs in all
  std::vector<std::thread> threads;
  for (int shard = 0; shard < kShards; ++shard) {
    threads.emplace_back([&store, shard, count] {
      for (int64_t i = 0; i < count; ++i) Mark(store, Allocate(&store, shard, i * kShards + shard));
    });
  }
  for (std::thread& t : threads) t.join();
  std::set<uint32_t> rows;
  for (int shard = 0; shard < kShards; ++shard) {
    int64_t i = 0;
    store.ForEach(shard, [&](uint32_t row) {
      ASSERT_EQ(store.key(row), i++ * kShards + shard);
      ASSERT_TRUE(IsMarked(store, row));
      rows.insert(row);
    });
    EXPECT_EQ(i, count);
  }
  EXPECT_EQ(rows.size(), static_cast<size_t>(kShards * count));
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)  // they need the address space for themselves

void LimitAddressSpace(rlim_t extra) {
  long pages = 0;
  std::FILE* statm = std::fopen("/proc/self/statm", "r");
  if (statm == nullptr || std::fscanf(statm, "%ld", &pages) != 1) std::abort();
  std::fclose(statm);
  rlimit limit;
  getrlimit(RLIMIT_AS, &limit);
  limit.rlim_cur = extra == RLIM_INFINITY ? limit.rlim_max : static_cast<rlim_t>(pages) * 4096 + extra;
  setrlimit(RLIMIT_AS, &limit);
}

// Runs in a child process; says by its exit code how far it came.
[[noreturn]] void RunOutOfAddressSpaceAndRecover() {
  MemoryStore store(RowLayout(8192, {}), 2);  // 2 GiB a slab, of which next to nothing is touched
  uint32_t row;
  LimitAddressSpace(rlim_t{256} << 20);
  for (int shard = 0; shard < 2; ++shard) {
    if (store.Allocate(shard, 1, &row).code() != Status::Code::kResourceExhausted) std::exit(1);
  }
  LimitAddressSpace(RLIM_INFINITY);
  if (!store.Relayout(RowLayout(8192, {{"m", 0}})).ok()) std::exit(2);
  store.Clear();  // must also forget what the failed calls had mapped:
  const Pages next_owner(MemoryStore::kKeySlabRows * sizeof(int64_t), Pages::Kind::kLazy);
  std::memset(next_owner.data(), 0xff, next_owner.bytes());
  if (!store.Allocate(0, 1, &row).ok() || store.key(row + 1) != kVacant) std::exit(3);
  Mark(store, row);
  LimitAddressSpace(rlim_t{256} << 20);
  if (store.Relayout(RowLayout(8192, {})).code() != Status::Code::kResourceExhausted) std::exit(4);
  if (store.layout().slots().size() != 1 || !IsMarked(store, row)) std::exit(5);
  LimitAddressSpace(RLIM_INFINITY);
  if (!store.Allocate(1, 2, &row).ok()) std::exit(6);
  if (KeysOf(store, 0) != std::vector<int64_t>{1} || KeysOf(store, 1) != std::vector<int64_t>{2}) std::exit(7);
  store.Clear();
  std::exit(0);
}

TEST(MemoryStoreDeathTest, SurvivesRunningOutOfMemory) {
  EXPECT_EXIT(RunOutOfAddressSpaceAndRecover(), testing::ExitedWithCode(0), "");
}

#endif

}  // namespace
}  // namespace mxrec
