#include "store/disk_store.h"

#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <random>
#include <set>
#include <thread>

#include "base/scratch_fixture.h"

namespace mxrec {
namespace {

using namespace scratch_fixture;  // NOLINT(build/namespaces): written for such tests

constexpr int64_t kFloats = 255;  // not a whole multiple of 16 bytes
using Row = std::vector<float>;

Row RandomRow(std::mt19937_64* random) {
  Row row(kFloats);
  const uint64_t first = (*random)();
  for (int64_t i = 0; i < kFloats; ++i) row[i] = static_cast<float>((first >> i % 32) % 100000);
  return row;
}

// A store beside a map of its rows, filled and emptied as a table does it.
class Simulation {
 public:
  Simulation(uint64_t seed, ScratchEnv* env, std::vector<std::string> paths, int64_t max_rows, int shards)
      : random_(seed),

        store_(new DiskStore(*env, std::move(paths), kFloats * sizeof(float), max_rows, shards)),
        shards_(shards) {}

  DiskStore& store() { return *store_; }
  int64_t rows() const {
    int64_t rows = 0;
    for (const Shard& shard : shards_) rows += static_cast<int64_t>(shard.size());
    return rows;
  }
  int64_t shard_rows(int shard) const { return static_cast<int64_t>(shards_[shard].size()); }

  Status Append(int shard, int64_t n) {
    std::vector<char> records(n * store_->record_bytes());
    std::vector<int64_t> keys;
    std::vector<Row> rows;
    for (int64_t i = 0; i < n; ++i) {
      keys.push_back(next_key_++);
      rows.push_back(RandomRow(&random_));
      store_->Pack(keys[i], rows[i].data(), records.data() + i * store_->record_bytes());
    }
    std::vector<uint32_t> places(n);
    MXREC_RETURN_IF_ERROR(store_->Append(shard, records.data(), n, places.data()));
    for (int64_t i = 0; i < n; ++i) Put(shard, places[i], keys[i], rows[i]);
    return Status();
  }
  void Free(int shard, int64_t n) {
    for (; n > 0 && !shards_[shard].empty(); --n) {
      auto it = shards_[shard].lower_bound(kOnDisk | static_cast<uint32_t>(random_() % last_place_));
      if (it == shards_[shard].end()) it = shards_[shard].begin();
      store_->Free(shard, it->first);
      shards_[shard].erase(it);
    }
  }
  // As Table::Clean. False if there was nothing to do, or it could not be done.
  bool Clean(int shard) {
    uint32_t first;
    if (!store_->Wasteful(shard, &first)) return false;
    const int64_t bytes = store_->record_bytes();
    std::vector<char> records(store_->segment_rows() * bytes), live;
    if (!store_->Read(first, store_->segment_rows(), records.data()).ok()) return false;
    std::vector<uint32_t> from;
    for (uint32_t i = 0; i < store_->segment_rows(); ++i) {
      if (shards_[shard].count(first + i) == 0) continue;
      from.push_back(first + i);
      live.insert(live.end(), records.data() + i * bytes, records.data() + (i + 1) * bytes);
    }
    EXPECT_LT(static_cast<int64_t>(from.size()), store_->segment_rows()) << "there is nothing to win";
    std::vector<uint32_t> to(from.size());
    if (!store_->Append(shard, live.data(), static_cast<int64_t>(from.size()), to.data(), true).ok()) return false;
    for (size_t i = 0; i < from.size(); ++i) {
      const Known known = shards_[shard].at(from[i]);
      Put(shard, to[i], known.key, known.row);
      store_->Free(shard, from[i]);
      shards_[shard].erase(from[i]);
    }
    return true;
  }
  void Clear() {
    store_->Clear();
    for (Shard& shard : shards_) shard.clear();
  }

  void ExpectSame() {
    ASSERT_EQ(store_->rows(), rows());
    std::vector<char> record(store_->record_bytes());
    Row row(kFloats);
    for (const Shard& shard : shards_) {
      for (const auto& [place, known] : shard) {
        const Status read = store_->Read(place, 1, record.data());
        ASSERT_TRUE(read.ok()) << read.message();
        ASSERT_EQ(DiskStore::KeyOf(record.data()), known.key);
        const Status unpacked = store_->Unpack(record.data(), known.key, row.data());
        ASSERT_TRUE(unpacked.ok()) << unpacked.message();
        ASSERT_EQ(row, known.row);
      }
    }
  }

 private:
  struct Known {
    int64_t key;
    Row row;
  };
  using Shard = std::map<uint32_t, Known>;  // by place

  void Put(int shard, uint32_t place, int64_t key, const Row& row) {
    EXPECT_NE(place & kOnDisk, 0u);
    for (const Shard& other : shards_) EXPECT_EQ(other.count(place), 0u) << "place " << place << " was given twice";
    shards_[shard][place] = {key, row};
    last_place_ = std::max(last_place_, (place & ~kOnDisk) + 1);
  }

  std::mt19937_64 random_;
  std::unique_ptr<DiskStore> store_;
  std::vector<Shard> shards_;
  int64_t next_key_ = -1000;
  uint32_t last_place_ = 1;
};

TEST(DiskStore, AnySequenceOfOperationsEqualsTheSameOnAMap) {
  for (uint64_t seed = 0; seed < 4; ++seed) {
    SCOPED_TRACE(seed);
    const TemporaryDirectory directory;
    ScratchEnv env;
    const int shards = seed % 2 == 0 ? 1 : 3;
    Simulation simulation(seed, &env, {directory.path()}, 4000, shards);
    std::mt19937_64 random(seed);
    for (int i = 0; i < 200; ++i) {
      const int shard = static_cast<int>(random() % shards);
      const int64_t most = seed < 2 ? 60 : 700;  // a few segments at once, too
      if (random() % 8 == 0) {
        simulation.Free(shard, INT64_MAX);
      } else if (random() % 2 == 0 && simulation.rows() < 3000) {
        const Status status = simulation.Append(shard, static_cast<int64_t>(random() % most));
        ASSERT_TRUE(status.ok()) << status.message();
      } else {
        simulation.Free(shard, static_cast<int64_t>(random() % most));
      }
      while (simulation.Clean(shard)) {
      }
      if (i % 20 == 0) simulation.ExpectSame();
      if (HasFailure()) return;
    }
    simulation.ExpectSame();
    EXPECT_EQ(directory.names(), 0);
  }
}

TEST(DiskStore, SpaceStaysBoundedWhileRowsComeAndGo) {
  const TemporaryDirectory directory;
  ScratchEnv env;
  constexpr int kShards = 3;
  Simulation simulation(1, &env, {directory.path()}, 12000, kShards);
  const int64_t segment_bytes = simulation.store().segment_rows() * simulation.store().record_bytes();
  for (int life = 0; life < 3; ++life) {
    SCOPED_TRACE(life);
    for (int s = 0; s < kShards; ++s) ASSERT_TRUE(simulation.Append(s, 4000).ok());
    for (int round = 0; round < 30; ++round) {
      for (int s = 0; s < kShards; ++s) {
        simulation.Free(s, 500);
        ASSERT_TRUE(simulation.Append(s, 500).ok());
        for (int64_t cleaned = 0; cleaned <= 1000 && simulation.Clean(s);
             cleaned += simulation.store().segment_rows()) {
        }
      }
    }
    // Half as much dead as live, a few segments for each shard, and what a file grows by.
    const int64_t live_bytes = simulation.rows() * simulation.store().record_bytes();
    EXPECT_LE(simulation.store().bytes(), live_bytes * 3 / 2 + 5 * kShards * segment_bytes + (8 << 20));
    simulation.ExpectSame();
    simulation.Clear();
    EXPECT_EQ(simulation.store().rows(), 0);
    EXPECT_EQ(simulation.store().bytes(), 0);
    if (HasFailure()) return;
  }
}

TEST(DiskStore, SegmentsOfOneShardServeAnother) {
  const TemporaryDirectory directory;
  ScratchEnv env;
  constexpr int kShards = 4;
  Simulation simulation(1, &env, {directory.path()}, 12000, kShards);
  ASSERT_TRUE(simulation.Append(0, 3000).ok());
  const int64_t bytes = simulation.store().bytes();
  for (int round = 0; round < 12; ++round) {
    simulation.Free(round % kShards, INT64_MAX);
    ASSERT_TRUE(simulation.Append((round + 1) % kShards, 2500).ok());
    ASSERT_EQ(simulation.store().bytes(), bytes);
  }
  simulation.ExpectSame();
}

TEST(DiskStore, WhatTheFirstDirectoryCannotTakeGoesToTheNext) {
  const TemporaryDirectory first, second;
  ScratchEnv env;
  env.SetSpace(first.path(), 1 << 20);
  env.SetSpace(second.path(), 3 << 20);
  Simulation simulation(1, &env, {first.path(), second.path()}, 20000, 1);
  int64_t appended = 0;
  Status status;
  while ((status = simulation.Append(0, 100)).ok()) appended += 100;
  // All of the space but for less than a segment in each of them, and one that is kept to empty others.
  const int64_t record_bytes = simulation.store().record_bytes();
  EXPECT_GT(appended, (4 << 20) / record_bytes - 3 * simulation.store().segment_rows() - 100);
  EXPECT_LE(appended, (4 << 20) / record_bytes);
  EXPECT_EQ(status.code(), Status::Code::kResourceExhausted);
  for (const auto* directory : {&first, &second}) {
    EXPECT_NE(status.message().find("'" + directory->path() + "'"), std::string::npos) << status.message();
  }
  simulation.ExpectSame();

  env.SetSpace(first.path(), 2 << 20);
  EXPECT_TRUE(simulation.Append(0, 500).ok());
  simulation.ExpectSame();
  while (simulation.Append(0, 100).ok()) {
  }
  simulation.Free(0, 3000);  // no file becomes smaller, but what is free is used
  while (simulation.Clean(0)) {
  }
  EXPECT_TRUE(simulation.Append(0, 1000).ok());
  simulation.ExpectSame();
}

TEST(DiskStore, ADirectoryThatIsMissingIsPassedOverAndNamedOnlyIfThereIsNoOther) {
  const TemporaryDirectory directory;
  const std::string missing = directory.path() + "/missing";
  ScratchEnv env;
  Simulation simulation(1, &env, {missing, directory.path()}, 1000, 1);
  EXPECT_TRUE(simulation.Append(0, 100).ok());
  simulation.ExpectSame();

  Simulation lost(1, &env, {missing}, 1000, 1);
  const Status status = lost.Append(0, 100);
  EXPECT_EQ(status.code(), Status::Code::kIoError);
  EXPECT_NE(status.message().find("'" + missing + "'"), std::string::npos) << status.message();
  EXPECT_EQ(lost.store().rows(), 0);
}

TEST(DiskStore, AFailureAtAnyOperationChangesNothingAndWorkGoesOn) {
  int64_t failures = 0;
  for (const Fault& fault : kFaults) {
    if (fault.operation == Operation::kRead) continue;
    for (const int64_t count : {int64_t{1}, INT64_MAX / 2}) {
      for (int64_t at = 0;; ++at) {
        SCOPED_TRACE(testing::Message() << fault.name << ", from number " << at);
        const TemporaryDirectory directory;
        ScratchEnv env;
        Simulation simulation(static_cast<uint64_t>(at), &env, {directory.path()}, 3000, 2);
        env.Fail(fault, at, count);
        for (int i = 0; i < 12; ++i) {
          const int shard = i % 2;
          // More than is left of a segment, and once more than a segment.
          const int64_t n = i == 5 ? 400 : 90;
          const int64_t before = simulation.rows();
          const Status status = simulation.Append(shard, n);
          if (!status.ok()) {
            ASSERT_EQ(status.code(), fault.code) << status.message();
            ASSERT_EQ(simulation.rows(), before);
            simulation.ExpectSame();
            if (count > 1) env.Lift();
            ASSERT_TRUE(simulation.Append(shard, n).ok());
          }
          simulation.Free(shard, 40);
          if (i == 7) simulation.Free(shard, INT64_MAX);
          simulation.Clean(shard);
        }
        simulation.ExpectSame();
        if (HasFailure()) return;
        failures += env.failures();
        if (env.failures() == 0) break;
      }
    }
  }
  EXPECT_GT(failures, 100);
}

TEST(DiskStore, AFlippedBitIsFound) {
  const TemporaryDirectory directory;
  ScratchEnv env;
  constexpr int64_t kKey = 0x0123456789abcdef;
  const DiskStore store(env, {directory.path()}, 7 * sizeof(float), 100, 1);
  const Row row = {1, 2, 3, 4, -5, 0, 7};
  std::vector<char> record(store.record_bytes());
  store.Pack(kKey, row.data(), record.data());
  Row read(7);
  ASSERT_TRUE(store.Unpack(record.data(), kKey, read.data()).ok());
  EXPECT_EQ(read, row);
  EXPECT_EQ(store.Unpack(record.data(), kKey + 1, read.data()).code(), Status::Code::kDataLoss);
  int found = 0;
  for (size_t bit = 0; bit < 8 * record.size(); ++bit) {
    record[bit / 8] = static_cast<char>(record[bit / 8] ^ 1 << bit % 8);
    const Status status = store.Unpack(record.data(), kKey, read.data());
    if (status.ok()) {
      ASSERT_EQ(read, row) << bit;  // one of the bytes that fill up
    } else {
      ASSERT_EQ(status.code(), Status::Code::kDataLoss);
      ++found;
    }
    record[bit / 8] = static_cast<char>(record[bit / 8] ^ 1 << bit % 8);
  }
  EXPECT_EQ(found, 8 * (8 + 4 + 28));
}

TEST(DiskStore, ReadAheadOutlivesWhatItReads) {
  const TemporaryDirectory directory;
  ScratchEnv env;
  Simulation simulation(1, &env, {directory.path()}, 1000, 1);
  ASSERT_TRUE(simulation.Append(0, 300).ok());
  DiskStore::ReadAhead ahead;
  for (uint32_t i = 0; i < 300; ++i) ahead.Add(simulation.store(), kOnDisk | i);
  ahead.Start();
  simulation.Clear();
  ahead.Start();
  DiskStore::ReadAhead().Start();
}

TEST(DiskStore, ShardsMayBeUsedTogether) {
  const TemporaryDirectory directory;
  ScratchEnv env;
  constexpr int kShards = 4;
  DiskStore store(env, {directory.path()}, kFloats * sizeof(float), 8000, kShards);
  std::vector<int> wrong(kShards, 0);
  std::vector<std::thread> threads;
  for (int s = 0; s < kShards; ++s) {
    threads.emplace_back([&, s] {
      std::mt19937_64 random(s);
      std::map<uint32_t, std::pair<int64_t, Row>> live;
      std::vector<char> record(store.record_bytes());
      Row read(kFloats);
      for (int64_t i = 0; i < 1500; ++i) {
        const Row row = RandomRow(&random);
        store.Pack(i, row.data(), record.data());
        uint32_t place;
        wrong[s] += !store.Append(s, record.data(), 1, &place).ok();
        live[place] = {i, row};
        if (random() % 2 == 0) continue;
        const auto it = std::next(live.begin(), random() % live.size());
        wrong[s] += !store.Read(it->first, 1, record.data()).ok() ||
                    !store.Unpack(record.data(), it->second.first, read.data()).ok() || read != it->second.second;
        store.Free(s, it->first);
        live.erase(it);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, std::vector<int>(kShards, 0));
}

}  // namespace
}  // namespace mxrec
