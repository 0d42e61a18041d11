// Many threads in one table with rows on disk.
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "table/tier_fixture.h"

namespace mxrec {
namespace {

using namespace tier_fixture;  // NOLINT(build/namespaces): written for these tests

class TierThreads : public TierTest {};

// The keys of thread `t` are its own.
Keys KeysOf(int t, int64_t n, int64_t universe, std::mt19937_64* random) {
  Keys keys(n);
  for (int64_t& key : keys) key = static_cast<int64_t>((*random)() % universe) * 4 + t;
  return keys;
}

TEST_F(TierThreads, StepsAtTheSameTimeEqualStepsOneAfterAnother) {
  constexpr int kTrainers = 2, kSteps = 30;
  constexpr int64_t kMemory = 8192, kUniverse = 6000, kBatch = 500;
  env_.SetReadTime(std::chrono::microseconds(2));
  const auto table = Make(Tiered(kMemory, 40000), SmallRow());
  ASSERT_EQ(table->shards(), 2);
  ASSERT_TRUE(table->Track({0, 100, 1, 0}).ok());
  Rows rows;
  std::map<int64_t, uint32_t> counts;
  // Rows that are only evaluated, most of them on disk.
  Keys fixed;
  for (int64_t i = 0; i < kUniverse; ++i) fixed.push_back(4 * i + 2);
  for (int64_t first = 0; first < kUniverse; first += kBatch) {
    const Keys ids(fixed.begin() + first, fixed.begin() + first + kBatch);
    ASSERT_TRUE(TrainStep(table, ids, 1, {1000}).ok());
    TrainRows(&rows, *table, ids, 1);
  }
  const Rows known = rows;

  // A step that finds no room, as an older one holds what came after it, too, is repeated.
  auto repeat = [](const auto& step) {
    Status status;
    for (int i = 0; i < 100000; ++i) {
      status = step();
      if (status.code() != Status::Code::kResourceExhausted) break;
      std::this_thread::yield();
    }
    return status;
  };
  std::atomic<int> training{kTrainers};
  std::vector<std::string> failures(5);
  std::vector<std::thread> threads;
  for (int t = 0; t < kTrainers; ++t) {
    threads.emplace_back([&, t] {
      std::mt19937_64 random(t);
      for (int i = 0; i < kSteps; ++i) {
        const Keys ids = KeysOf(t, kBatch, kUniverse, &random);
        const Status status = repeat([&] { return TrainStep(table, ids, i, {1000 + i}, ThreadedFor(2)); });
        if (!status.ok()) failures[t] += status.message();
      }
      --training;
    });
  }
  threads.emplace_back([&] {
    std::mt19937_64 random(2);
    while (training > 0) {
      const Keys ids = KeysOf(2, kBatch, kUniverse, &random);
      Floats embeddings;
      const Status status = repeat([&] { return EvaluateAny(table.get(), ids, &embeddings); });
      if (!status.ok()) failures[2] += status.message();
      for (size_t i = 0; status.ok() && i < ids.size(); ++i) {
        const Floats& row = known.at(ids[i]);
        if (!std::equal(row.begin(), row.begin() + kDim, embeddings.begin() + i * kDim)) {
          failures[2] += "wrong values of key " + std::to_string(ids[i]) + "; ";
        }
      }
    }
  });
  threads.emplace_back([&] {  // prepares, and asks for numbers
    std::mt19937_64 random(3);
    while (training > 0) {
      const Step step({table}, {KeysOf(static_cast<int>(random() % 4), kBatch, kUniverse, &random)});
      if (table->bytes() <= 0 || table->size() < 0 || table->capacity() != kMemory + 40000) failures[3] = "numbers";
      if (table->lives().seen < kUniverse) failures[3] = "lives";
    }
  });
  threads.emplace_back([&] {  // reads single rows
    std::mt19937_64 random(4);
    while (training > 0) {
      const int64_t key = KeysOf(2, 1, kUniverse, &random)[0];
      Floats row(RowFloats(*table));
      bool found = false;
      const Status status = table->Read(key, row.data(), &found);
      if (!status.ok() || !found || row != known.at(key)) failures[4] = "wrong row of key " + std::to_string(key);
      if (table->Facts(key).count != 1) failures[4] = "wrong facts of key " + std::to_string(key);
    }
  });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(failures, std::vector<std::string>(5));

  for (int t = 0; t < kTrainers; ++t) {
    std::mt19937_64 random(t);
    for (int i = 0; i < kSteps; ++i) {
      const Keys ids = KeysOf(t, kBatch, kUniverse, &random);
      TrainRows(&rows, *table, ids, i);
      for (const int64_t id : ids) ++counts[id];
    }
  }
  EXPECT_TRUE(RowsOf(*table) == rows);
  ExpectNumbersAddUp(*table, static_cast<int64_t>(rows.size()));
  for (const auto& [key, count] : counts) ASSERT_EQ(table->Facts(key).count, count) << key;
  EXPECT_GT(table->tier()->promotions, 5000);
  ASSERT_TRUE(TrainStep(table, {1, 2, 3}, 1, {1}).ok());
}

}  // namespace
}  // namespace mxrec
