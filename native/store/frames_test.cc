#include "store/frames.h"

#include <gtest/gtest.h>

#include <chrono>
#include <map>
#include <memory>
#include <random>
#include <set>

namespace mxrec {
namespace {

// Frames against a map that knows whose each row is and the last use of it. Which row leaves is Frames' decision; that
// it may leave is checked.
class Simulation {
 public:
  Simulation(uint64_t seed, int64_t rows, int shards) : random_(seed), rows_(rows), frames_(rows, shards) {
    for (int64_t row = 0; row < rows; ++row) free_.push_back(static_cast<uint32_t>(row));
    shards_.resize(shards);
  }

  void Run(int steps) {
    for (int i = 0; i < steps; ++i) {
      SCOPED_TRACE(i);
      const int shard = static_cast<int>(random_() % shards_.size());
      const uint64_t dice = random_() % 100;
      if (dice < 40) {
        Occupy(shard);
      } else if (dice < 70) {
        Touch(shard);
      } else if (dice < 80) {
        Vacate(shard);
      } else if (dice < 90) {
        TakeSome(shard, static_cast<int64_t>(random_() % 4));
      } else if (dice < 92) {
        TakeSome(shard, INT64_MAX);
      } else {
        use_ += static_cast<int64_t>(random_() % 3);
        oldest_ = std::max(oldest_, use_ - static_cast<int64_t>(random_() % 20));
      }
      ExpectSame();
      if (testing::Test::HasFailure()) return;
    }
  }
  int64_t taken() const { return taken_; }
  int64_t refused() const { return refused_; }

 private:
  struct Row {
    int64_t key;
    int64_t use;
  };
  using Shard = std::map<uint32_t, Row>;

  uint32_t Draw(const Shard& shard) { return std::next(shard.begin(), random_() % shard.size())->first; }

  void Occupy(int shard) {
    if (free_.empty()) return;
    std::swap(free_[random_() % free_.size()], free_.back());
    const Row row = {static_cast<int64_t>(random_()), random_() % 3 == 0 ? 0 : use_};
    ASSERT_TRUE(frames_.Occupy(shard, free_.back(), row.key, row.use).ok());
    shards_[shard][free_.back()] = row;
    free_.pop_back();
  }
  void Touch(int shard) {
    if (shards_[shard].empty()) return;
    const uint32_t row = Draw(shards_[shard]);
    // A use that began earlier does not undo a later one.
    const int64_t use = std::max<int64_t>(oldest_, use_ - static_cast<int64_t>(random_() % 4));
    frames_.Touch(row, use);
    shards_[shard][row].use = std::max(shards_[shard][row].use, use);
  }
  void Leave(int shard, uint32_t row) {
    frames_.Vacate(shard, row);
    shards_[shard].erase(row);
    vacant_[shard].push_back(row);
  }
  void Vacate(int shard) {
    if (shards_[shard].empty()) return;
    Leave(shard, Draw(shards_[shard]));
    Return(shard);
  }
  // A row goes back to the shard that had it, as in a table: it may still stand in one of the shard's queues.
  void Return(int shard) {
    while (!vacant_[shard].empty() && random_() % 2 == 0) {
      const uint32_t row = vacant_[shard].back();
      vacant_[shard].pop_back();
      const Row again = {static_cast<int64_t>(random_()), use_};
      ASSERT_TRUE(frames_.Occupy(shard, row, again.key, again.use).ok());
      shards_[shard][row] = again;
    }
  }
  void TakeSome(int shard, int64_t n) {
    std::set<uint32_t> unused;
    for (const auto& [row, known] : shards_[shard]) {
      if (known.use < oldest_) unused.insert(row);
    }
    const std::vector<uint32_t> victims = frames_.Victims(shard, oldest_, n);
    ASSERT_LE(static_cast<int64_t>(victims.size()), std::max<int64_t>(n, 0));
    for (const uint32_t row : victims) {
      ASSERT_EQ(unused.erase(row), 1u) << row << " is in use, or nobody's, or there twice";
    }
    if (static_cast<int64_t>(victims.size()) < n) {
      ASSERT_TRUE(unused.empty()) << unused.size() << " unused rows were not found";
      ++refused_;
    }
    taken_ += static_cast<int64_t>(victims.size());
    const uint64_t share = random_() % 3;  // none, some or all of them stay after all
    for (const uint32_t victim : victims) {
      ASSERT_EQ(frames_.KeyOf(victim), shards_[shard].at(victim).key);
      if (random_() % 2 < share) {
        Leave(shard, victim);
      } else {
        frames_.Spare(shard, victim);
        shards_[shard][victim].use = 0;
      }
    }
    Return(shard);
  }
  void ExpectSame() {
    int64_t queued = 0;
    for (size_t s = 0; s < shards_.size(); ++s) {
      ASSERT_EQ(frames_.occupied(static_cast<int>(s)), static_cast<int64_t>(shards_[s].size()));
      queued += frames_.bytes(static_cast<int>(s)) / 20;
    }
    // A row stands in one queue at most, and a place in the main one that it has left is used again.
    ASSERT_LE(queued, 2 * rows_);
  }

  std::mt19937_64 random_;
  const int64_t rows_;
  Frames frames_;
  std::vector<uint32_t> free_;
  std::vector<Shard> shards_;
  std::map<int, std::vector<uint32_t>> vacant_;
  int64_t use_ = 1, oldest_ = 1;
  int64_t taken_ = 0, refused_ = 0;
};

TEST(Frames, AnySequenceOfOperationsFindsTheUnusedRowsAndOnlyThose) {
  for (uint64_t seed = 0; seed < 12; ++seed) {
    SCOPED_TRACE(seed);
    Simulation simulation(seed, seed % 3 == 0 ? 7 : 150, 1 + static_cast<int>(seed % 4));
    simulation.Run(4000);
    EXPECT_GT(simulation.taken(), 20);
    EXPECT_GT(simulation.refused(), 20);
    if (HasFailure()) return;
  }
}

// Rows 0 to 99, of which the first `often` are in the main queue and the others in the small one; all used by use 1.
std::unique_ptr<Frames> HundredRows(uint32_t often) {
  std::unique_ptr<Frames> frames(new Frames(100, 1));
  for (uint32_t r = 0; r < 100; ++r) EXPECT_TRUE(frames->Occupy(0, r, r, 1).ok());
  for (uint32_t r = 0; r < often; ++r) frames->Touch(r, 1);
  for (const uint32_t row : frames->Victims(0, 2, 1)) {
    EXPECT_LT(row, often);  // it was the hand's first row
    frames->Spare(0, row);
  }
  return frames;
}

TEST(Frames, ThereIsNoVictimWhenAllAreInUse) {
  Frames frames(100, 1);
  EXPECT_TRUE(frames.Victims(0, 1, 1).empty());
  for (uint32_t r = 0; r < 100; ++r) ASSERT_TRUE(frames.Occupy(0, r, r, 5).ok());
  EXPECT_TRUE(frames.Victims(0, 5, 100).empty());
  EXPECT_EQ(frames.Victims(0, 6, 30).size(), 30u);
  EXPECT_EQ(frames.Victims(0, 6, 100).size(), 70u);
}

// The small queue may keep a tenth, but not at the price of refusing a step that fits.
TEST(Frames, RowsOfTheSmallQueueLeaveWhenAllOthersAreInUse) {
  const auto frames = HundredRows(90);
  for (uint32_t r = 0; r < 90; ++r) frames->Touch(r, 2);
  frames->Touch(95, 1);  // it is used again, and goes all the same
  const std::vector<uint32_t> victims = frames->Victims(0, 2, 100);
  EXPECT_EQ(std::set<uint32_t>(victims.begin(), victims.end()),
            (std::set<uint32_t>{90, 91, 92, 93, 94, 95, 96, 97, 98, 99}));
}

TEST(Frames, TheSmallQueueKeepsATenthOtherwise) {
  const auto frames = HundredRows(90);
  for (const uint32_t row : frames->Victims(0, 2, 90)) EXPECT_LT(row, 90u);
  EXPECT_EQ(frames->Victims(0, 2, 90).size(), 10u);
}

// Two steps at once: the rows of one, all in the small queue, are in the other's way. Gone round once for each victim,
// they would be read 10^10 times.
TEST(Frames, ManyVictimsAmongManyRowsInUseTakeNoTimeToSpeakOf) {
  constexpr uint32_t kRows = 300000;
  Frames frames(kRows, 1);
  for (uint32_t r = 0; r < kRows; ++r) ASSERT_TRUE(frames.Occupy(0, r, r, 1).ok());
  for (uint32_t r = 0; r < kRows / 3; ++r) frames.Touch(r, 1);
  const auto start = std::chrono::steady_clock::now();
  const std::vector<uint32_t> first = frames.Victims(0, 2, kRows / 3);
  EXPECT_EQ(first.size(), kRows / 3);
  for (const uint32_t row : first) frames.Vacate(0, row);
  for (uint32_t r = 2 * kRows / 3; r < kRows; ++r) frames.Touch(r, 2);
  EXPECT_EQ(frames.Victims(0, 2, kRows).size(), kRows / 3);
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(5));
}

TEST(Frames, RowsUsedOftenOutliveAScanOfRowsUsedOnce) {
  constexpr uint32_t kRows = 1000, kHot = 500;
  Frames frames(kRows, 1);
  int64_t use = 1;
  for (uint32_t r = 0; r < kRows; ++r) ASSERT_TRUE(frames.Occupy(0, r, r, use).ok());
  int64_t lost = 0;
  for (int64_t key = kRows; key < 20 * kRows; key += 100) {
    ++use;
    for (uint32_t r = 0; r < kHot; ++r) {
      if (frames.KeyOf(r) == r) frames.Touch(r, use);  // the hot keys are those of the first rows
    }
    const std::vector<uint32_t> rows = frames.Victims(0, use + 1, 100);  // the step that touched them has ended
    ASSERT_EQ(rows.size(), 100u);
    for (const uint32_t row : rows) {
      lost += frames.KeyOf(row) < kHot;
      frames.Vacate(0, row);
      ASSERT_TRUE(frames.Occupy(0, row, key + row, use + 1).ok());
    }
    ++use;
  }
  EXPECT_EQ(lost, 0);
}

TEST(Frames, ClearForgetsAllRows) {
  Frames frames(100, 2);
  for (uint32_t r = 0; r < 100; ++r) ASSERT_TRUE(frames.Occupy(static_cast<int>(r % 2), r, r, 1).ok());
  frames.Clear();
  for (int s = 0; s < 2; ++s) {
    EXPECT_EQ(frames.occupied(s), 0);
    EXPECT_EQ(frames.bytes(s), 0);
    EXPECT_TRUE(frames.Victims(s, 9, 1).empty());
  }
  ASSERT_TRUE(frames.Occupy(1, 3, 77, 0).ok());
  EXPECT_EQ(frames.Victims(1, 9, 2), std::vector<uint32_t>{3});
}

}  // namespace
}  // namespace mxrec
