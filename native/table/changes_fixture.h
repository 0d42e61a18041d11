// What the tests of snapshots share: tables of every kind under random training, and all that can be known of a table.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <random>
#include <string>
#include <tuple>
#include <vector>

#include "table/eviction.h"
#include "table/snapshot.h"
#include "table/tier_fixture.h"

namespace mxrec {
namespace changes_fixture {

using namespace tier_fixture;  // NOLINT(build/namespaces): written for such tests

struct Kind {
  const char* name;
  Tracking tracking{};
  bool has_disk = false;
};

inline std::vector<Kind> AllKinds() {
  constexpr int64_t kOff = Tracking::kOff;
  return {{"plain"},
          {"counted", {0, 100, 1, 0}},
          {"admitted", {3, 200, 1, 0}},
          {"filtered", {3, kOff, 1, 4096}},
          {"on disk", {}, true},
          {"on disk, admitted", {2, 100, 1, 0}, true}};
}

// A table's rows, and what it knows of all keys below a number.
struct Everything {
  Rows rows;
  std::vector<std::tuple<uint32_t, int64_t, uint32_t>> facts;
  int64_t now = 0;
  std::vector<uint16_t> filter;

  bool operator==(const Everything& other) const {
    return rows == other.rows && facts == other.facts && now == other.now && filter == other.filter;
  }
};

inline Everything EverythingOf(const Table& table, int64_t keys) {
  Everything all;
  all.rows = RowsOf(table);
  const History* history = table.history();
  if (history == nullptr) return all;
  all.now = history->now();
  for (int64_t key = 0; key < keys; ++key) {
    const RowFacts facts = table.Facts(key);
    all.facts.emplace_back(facts.count, facts.time, facts.step);
  }
  for (int s = 0; s < table.shards() && history->filter(s) != nullptr; ++s) {
    all.filter.insert(all.filter.end(), history->filter(s)->cells(),
                      history->filter(s)->cells() + history->filter(s)->size());
  }
  return all;
}

// A table under training, evaluation and eviction at random.
class Trainee {
 public:
  static constexpr int64_t kKeys = 2000;

  Trainee(const Kind& kind, uint64_t seed) : kind_(kind), random_(seed), table_(MakeTable()) {}

  const std::shared_ptr<Table>& table() const { return table_; }
  Everything everything() const { return EverythingOf(*table_, kKeys); }
  uint64_t Dice(uint64_t n) { return random_() % n; }

  // Another table of the same kind.
  std::shared_ptr<Table> MakeTable() {
    TableConfig config = Config(2 * kKeys, {0, 7});
    std::vector<SlotSpec> slots = {{"accumulator", 0.25f}};
    if (kind_.has_disk) {
      for (int i = 1; i < 20; ++i) slots.push_back({"idle_" + std::to_string(i), 1.0f});
      config.tier = {100, 2 * kKeys - 100, {scratch_.path()}, &env_};
    }
    std::shared_ptr<Table> table = Make(config, slots);
    EXPECT_TRUE(table->Track(kind_.tracking).ok());
    return table;
  }

  void Act(const ParallelFor& parallel = SerialFor()) {
    const uint64_t dice = Dice(100);
    if (dice < 75) {
      const Keys times = {1700000000 + 10 * number_ - static_cast<int64_t>(Dice(30))};
      const Status status = TrainStep(table_, Draw(80), number_++, times, parallel);
      ASSERT_TRUE(status.ok()) << status.message();
    } else if (dice < 82) {
      Floats out;
      ASSERT_TRUE(EvaluateAny(table_.get(), Draw(80), &out, parallel).ok());
    } else if (dice < 90) {
      const Keys keys = Draw(static_cast<int64_t>(Dice(60)));
      table_->Erase(keys.data(), static_cast<int64_t>(keys.size()));
    } else if (dice < 94) {
      ASSERT_TRUE(AssignRow(table_.get(), Draw(1)[0], Floats(RowFloats(*table_), static_cast<float>(Dice(100)))).ok());
    } else if (dice < 97 && table_->history() != nullptr) {
      ASSERT_TRUE(table_->SetFacts(Draw(1)[0], {1700000000, static_cast<uint32_t>(1 + Dice(10)), 1}).ok());
    } else {
      Evict();
    }
  }

 private:
  Keys Draw(int64_t n) {
    Keys keys(n);
    for (int64_t& key : keys) key = static_cast<int64_t>(Dice(Dice(3) == 0 ? kKeys / 20 : kKeys));
    return keys;
  }
  void Evict() {
    using Score = EvictionPolicy::Score;
    const Score score = table_->history() == nullptr ? Score::kNorm : static_cast<Score>(Dice(4));
    const double thresholds[] = {1500, 100, 2, 0.5};
    std::unique_ptr<Eviction> eviction;
    ASSERT_TRUE(Eviction::Begin(table_, {score, thresholds[static_cast<int>(score)], -1}, &eviction).ok());
    while (!eviction->Run(100)) {
    }
  }

  const Kind kind_;
  std::mt19937_64 random_;
  TemporaryDirectory scratch_;
  ScratchEnv env_;
  std::shared_ptr<Table> table_;
  int64_t number_ = 0;
};

}  // namespace changes_fixture
}  // namespace mxrec
