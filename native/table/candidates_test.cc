#include "table/candidates.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <limits>
#include <map>
#include <random>
#include <utility>
#include <vector>

#include "base/address_space_fixture.h"
#include "base/hash.h"

namespace mxrec {
namespace {

constexpr uint32_t kMaxCount = std::numeric_limits<uint32_t>::max();
constexpr int64_t kMaxAge = (int64_t{1} << 31) - 1;

// Candidates of one shard and the std::map they must agree with. The map keeps every time in full.
class Checked {
 public:
  explicit Checked(int shard_bits = 0) : candidates_(shard_bits) {}

  void Add(uint64_t hash, uint32_t weight = 1, int64_t time = 0) {
    bool is_new;
    ASSERT_TRUE(candidates_.Add(hash, weight, time, &is_new).ok());
    ASSERT_EQ(is_new, model_.count(hash) == 0);
    Fact& fact = model_[hash];
    fact.count = static_cast<uint32_t>(std::min<uint64_t>(kMaxCount, uint64_t{fact.count} + weight));
    fact.time = std::max(fact.time, time);
    latest_ = std::max(latest_, time);
    ExpectSame(hash);
  }

  void Remove(uint64_t hash) {
    const auto it = model_.find(hash);
    Candidate found{1, 2, 3};
    ASSERT_EQ(candidates_.Remove(hash, &found), it != model_.end());
    if (it == model_.end()) {
      ASSERT_EQ(found.count, 2u);  // untouched
      return;
    }
    ExpectSame(found, *it);
    model_.erase(it);
    if (model_.empty()) latest_ = 0;
    ExpectSame(hash);
  }

  // REQUIRES: `time` lies less than 2^31 below latest().
  void RemoveUntil(int64_t time) {
    int64_t removed = 0;
    for (auto it = model_.begin(); it != model_.end();) {
      if (it->second.time > time) {
        ++it;
        continue;
      }
      it = model_.erase(it);
      ++removed;
    }
    if (model_.empty()) latest_ = 0;
    ASSERT_EQ(candidates_.RemoveUntil(time), removed);
  }

  void Clear() {
    candidates_.Clear();
    model_.clear();
    latest_ = 0;
  }

  void ExpectSame(uint64_t hash) const {
    const auto it = model_.find(hash);
    ASSERT_EQ(candidates_.Count(hash), it == model_.end() ? 0 : it->second.count) << "hash " << hash;
    ASSERT_EQ(candidates_.size(), static_cast<int64_t>(model_.size()));
  }

  void ExpectSameForAll() const {
    auto it = model_.begin();
    candidates_.ForEach([&](const Candidate& candidate) {
      ASSERT_NE(it, model_.end());
      ExpectSame(candidate, *it++);
    });
    ASSERT_EQ(it, model_.end());
    for (const auto& entry : model_) ExpectSame(entry.first);
    ASSERT_EQ(candidates_.bytes() == 0, model_.empty());
  }

  bool Has(uint64_t hash) const { return model_.count(hash) != 0; }
  int64_t size() const { return candidates_.size(); }
  double BytesPerKey() const { return static_cast<double>(candidates_.bytes()) / static_cast<double>(size()); }
  int64_t latest() const { return latest_; }
  Candidates& candidates() { return candidates_; }

 private:
  struct Fact {
    uint32_t count = 0;
    int64_t time = 0;
  };

  void ExpectSame(const Candidate& candidate, const std::pair<const uint64_t, Fact>& entry) const {
    ASSERT_EQ(candidate.key, UnhashKey(entry.first));
    ASSERT_EQ(candidate.count, entry.second.count);
    if (latest_ - entry.second.time <= kMaxAge) {
      ASSERT_EQ(candidate.time, entry.second.time);
    } else {
      ASSERT_GE(candidate.time, entry.second.time);
      ASSERT_GT(latest_ - candidate.time, kMaxAge);  // still too old for every bound
    }
  }

  Candidates candidates_;
  std::map<uint64_t, Fact> model_;
  int64_t latest_ = 0;
};

// `hash` with the top bits of shard `shard` of 2^bits.
uint64_t InShard(uint64_t hash, int bits, uint64_t shard) { return hash << bits >> bits | shard << 1 << (63 - bits); }

enum class Keys { kRandom, kSequential, kStrided, kFarStrided, kExtremes, kCrowdedFirst, kCrowdedLast, kMixed };

// The i-th hash of a kind of keys, within one shard.
uint64_t HashAt(Keys keys, uint64_t i, int bits) {
  const uint64_t shard = (uint64_t{1} << bits) / 2;
  switch (keys) {
    case Keys::kSequential:
      return InShard(HashKey(static_cast<int64_t>(i)), bits, shard);
    case Keys::kStrided:
      return InShard(HashKey(static_cast<int64_t>(i << 20)), bits, shard);
    case Keys::kFarStrided:
      return InShard(HashKey(static_cast<int64_t>(i << 48)), bits, shard);
    case Keys::kExtremes:
      return InShard(HashKey(i % 2 == 0 ? INT64_MIN + static_cast<int64_t>(i) : INT64_MAX - static_cast<int64_t>(i)),
                     bits, shard);
    case Keys::kCrowdedFirst:
      return InShard(i, bits, shard);
    case Keys::kCrowdedLast:
      return InShard(UINT64_MAX - i, bits, shard);
    case Keys::kMixed:
      return HashAt(static_cast<Keys>(i % 7), i, bits);
    default:
      return InShard(Mix64(i * 0x9e3779b97f4a7c15ULL + 12345), bits, shard);
  }
}

TEST(Candidates, KnowsNothingWhenEmpty) {
  Candidates candidates(3);
  for (const uint64_t hash : {uint64_t{0}, UINT64_MAX, HashKey(0)}) {
    candidates.Prefetch(hash);
    EXPECT_EQ(candidates.Count(hash), 0u);
    EXPECT_FALSE(candidates.Remove(hash, nullptr));
  }
  EXPECT_EQ(candidates.RemoveUntil(INT64_MAX), 0);
  candidates.ForEach([](const Candidate&) { FAIL(); });
  candidates.Clear();
  EXPECT_EQ(candidates.size(), 0);
  EXPECT_EQ(candidates.bytes(), 0);
}

TEST(Candidates, EveryKeyAndHashIsLegal) {
  Checked checked;
  std::vector<uint64_t> hashes = {0, 1, UINT64_MAX - 1, UINT64_MAX};
  for (const int64_t key : {int64_t{0}, int64_t{1}, int64_t{-1}, INT64_MIN, INT64_MAX}) hashes.push_back(HashKey(key));
  for (const uint64_t hash : hashes) {
    checked.ExpectSame(hash);
    checked.Add(hash, 7, 1000);
    checked.candidates().Prefetch(hash);
  }
  checked.ExpectSameForAll();
  for (const uint64_t hash : hashes) {
    checked.Remove(hash);
    checked.Remove(hash);
    for (const uint64_t other : hashes) checked.ExpectSame(other);
  }
  EXPECT_EQ(checked.candidates().bytes(), 0);
}

struct Walk {
  Keys keys;
  int shard_bits;
  uint64_t universe;
  int steps;
};

class CandidatesWalk : public ::testing::TestWithParam<Walk> {};

TEST_P(CandidatesWalk, AgreesWithAMap) {
  const Walk walk = GetParam();
  for (const uint64_t seed : {1, 2, 3}) {
    Checked checked(walk.shard_bits);
    std::mt19937_64 random(seed);
    int64_t now = 1700000000;
    for (int step = 0; step < walk.steps; ++step) {
      const uint64_t hash = HashAt(walk.keys, random() % walk.universe, walk.shard_bits);
      checked.ExpectSame(hash);
      now += static_cast<int64_t>(random() % 4);
      if (random() % static_cast<uint64_t>(walk.steps) < 3) now += int64_t{1} << (28 + random() % 8);
      // Waves: mostly arrivals, then mostly removals.
      const bool growing = step / (walk.steps / 6) % 2 == 0;
      const uint64_t draw = random() % 100;
      if (draw < (growing ? 85u : 15u)) {
        const int64_t late = random() % 8 == 0 ? static_cast<int64_t>(random() % (uint64_t{1} << 33)) : 0;
        checked.Add(hash, 1 + static_cast<uint32_t>(random() % 3), std::max<int64_t>(0, now - late));
      } else {
        checked.Remove(hash);
      }
      if (random() % static_cast<uint64_t>(walk.steps) < 12) {
        const int64_t span = random() % 2 == 0 ? walk.steps * 3 : kMaxAge;
        checked.RemoveUntil(now - static_cast<int64_t>(random() % static_cast<uint64_t>(span)));
        checked.ExpectSameForAll();
      }
      if (random() % static_cast<uint64_t>(walk.steps) == 0) checked.Clear();
      if (::testing::Test::HasFatalFailure()) return;
    }
    checked.ExpectSameForAll();
    checked.RemoveUntil(now);
    EXPECT_EQ(checked.size(), 0);
    EXPECT_EQ(checked.candidates().bytes(), 0);
  }
}

INSTANTIATE_TEST_SUITE_P(
    Keys, CandidatesWalk,
    ::testing::Values(Walk{Keys::kRandom, 0, 3, 2000}, Walk{Keys::kRandom, 3, 40, 20000},
                      Walk{Keys::kRandom, 0, 800, 60000}, Walk{Keys::kRandom, 3, 30000, 200000},
                      Walk{Keys::kRandom, 8, 1u << 30, 100000}, Walk{Keys::kSequential, 0, 20000, 100000},
                      Walk{Keys::kSequential, 8, 20000, 100000}, Walk{Keys::kStrided, 3, 20000, 100000},
                      Walk{Keys::kFarStrided, 1, 20000, 100000}, Walk{Keys::kExtremes, 3, 5000, 50000},
                      Walk{Keys::kCrowdedFirst, 3, 1000, 20000}, Walk{Keys::kCrowdedLast, 0, 1000, 20000},
                      Walk{Keys::kCrowdedLast, 3, 1000, 20000}, Walk{Keys::kMixed, 3, 7000, 50000}));

TEST(Candidates, TakesAtMost24BytesAKeyWhereverGrowthStops) {
  for (const Keys keys : {Keys::kRandom, Keys::kSequential, Keys::kStrided}) {
    for (const int bits : {0, 3, 8}) {
      Candidates candidates(bits);
      double least = 1e9, most = 0;
      for (uint64_t i = 0; candidates.size() < 20000; ++i) {
        bool is_new;
        ASSERT_TRUE(candidates.Add(HashAt(keys, i, bits), 1, 0, &is_new).ok());
        if (candidates.size() < 1000) continue;
        const double bytes = static_cast<double>(candidates.bytes()) / static_cast<double>(candidates.size());
        least = std::min(least, bytes);
        most = std::max(most, bytes);
        ASSERT_LE(bytes, 24.0) << candidates.size() << " keys";
      }
      EXPECT_LE(most, 23.9);
      EXPECT_GE(least, 17.7);  // above 90 % full, searches would become long
    }
  }
}

TEST(Candidates, TakesAtMost24BytesAKeyUpToAMillion) {
  Candidates candidates(3);
  const std::vector<int64_t> sizes = {1001, 2000, 5000, 10000, 20000, 50000, 100000, 200000, 500000, 1000000};
  uint64_t i = 0;
  int64_t bytes = 0;
  for (const int64_t size : sizes) {
    for (; candidates.size() < size; ++i) {
      bool is_new;
      ASSERT_TRUE(candidates.Add(HashAt(Keys::kRandom, i, 3), 1, 0, &is_new).ok());
      if (candidates.bytes() == bytes || candidates.size() < 1000) continue;
      bytes = candidates.bytes();  // just grown: this is when a key takes most
      ASSERT_LE(bytes, 24 * candidates.size()) << candidates.size() << " keys";
    }
    EXPECT_LE(candidates.bytes(), 24 * size);
  }
}

TEST(Candidates, GivesMemoryBackAsKeysAreRemoved) {
  Checked checked(3);
  std::vector<uint64_t> hashes;
  for (uint64_t i = 0; i < 50000; ++i) hashes.push_back(HashAt(Keys::kRandom, i, 3));
  for (const uint64_t hash : hashes) checked.Add(hash);
  std::mt19937_64 random(1);
  std::shuffle(hashes.begin(), hashes.end(), random);
  for (const uint64_t hash : hashes) {
    checked.Remove(hash);
    if (checked.size() > 1000) {
      ASSERT_LE(checked.BytesPerKey(), 16 / 0.4 * 1.1);
    }
    if (checked.size() % 10000 == 0) checked.ExpectSameForAll();
  }
  EXPECT_EQ(checked.candidates().bytes(), 0);
  checked.Add(hashes[0]);  // and starts anew
  checked.ExpectSameForAll();
}

TEST(Candidates, GivesMemoryBackAfterRemoveUntil) {
  Checked checked;
  for (uint64_t i = 0; i < 100000; ++i) checked.Add(HashKey(static_cast<int64_t>(i)), 1, static_cast<int64_t>(i));
  const int64_t full = checked.candidates().bytes();
  checked.RemoveUntil(49999);  // not sparse enough to shrink
  EXPECT_EQ(checked.candidates().bytes(), full);
  checked.ExpectSameForAll();
  checked.RemoveUntil(94999);
  EXPECT_EQ(checked.size(), 5000);
  EXPECT_LE(checked.BytesPerKey(), 16 / 0.75 * 1.05);
  checked.ExpectSameForAll();
  checked.RemoveUntil(99999);
  EXPECT_EQ(checked.candidates().bytes(), 0);
  checked.ExpectSameForAll();
}

TEST(Candidates, ClearGivesTheMemoryBackAndStartsAnew) {
  Checked checked;
  for (uint64_t i = 0; i < 5000; ++i) checked.Add(HashKey(static_cast<int64_t>(i)), 1, int64_t{1} << 40);
  checked.Clear();
  checked.ExpectSameForAll();
  for (uint64_t i = 2500; i < 7500; ++i) checked.Add(HashKey(static_cast<int64_t>(i)), 1, 5);
  checked.ExpectSameForAll();
  checked.RemoveUntil(5);
  EXPECT_EQ(checked.size(), 0);
}

TEST(Candidates, KeysThatAllCrowdAtOneEndTakeBoundedMemory) {
  for (const Keys keys : {Keys::kCrowdedFirst, Keys::kCrowdedLast}) {
    for (const int bits : {0, 3}) {
      Checked checked(bits);
      for (uint64_t i = 0; i < 3000; ++i) {
        checked.Add(HashAt(keys, i * 2654435761 % 3001, bits));
        if (checked.size() > 1000) {
          ASSERT_LE(checked.BytesPerKey(), 80);
        }
      }
      checked.ExpectSameForAll();
      for (uint64_t i = 0; i < 3000; ++i) checked.Remove(HashAt(keys, i * 2654435761 % 3001, bits));
      EXPECT_EQ(checked.candidates().bytes(), 0);
    }
  }
}

TEST(Candidates, CountsSaturate) {
  Checked checked;
  const uint64_t hash = HashKey(1);
  checked.Add(hash, kMaxCount - 1);
  checked.Add(hash, 1);
  EXPECT_EQ(checked.candidates().Count(hash), kMaxCount);
  checked.Add(hash, 1);
  checked.Add(hash, kMaxCount);
  EXPECT_EQ(checked.candidates().Count(hash), kMaxCount);
  checked.Add(HashKey(2), kMaxCount);
  EXPECT_EQ(checked.candidates().Count(HashKey(2)), kMaxCount);
  checked.ExpectSameForAll();
}

TEST(Candidates, ATimeMovesForwardOnly) {
  Checked checked;
  checked.Add(HashKey(1), 1, 100);
  checked.Add(HashKey(1), 1, 40);
  checked.Add(HashKey(2), 1, 40);  // before the first time of all
  checked.Add(HashKey(2), 1, 60);
  checked.ExpectSameForAll();
  checked.RemoveUntil(59);
  EXPECT_EQ(checked.size(), 2);
  checked.RemoveUntil(60);  // "or earlier"
  EXPECT_EQ(checked.size(), 1);
  checked.RemoveUntil(99);
  EXPECT_EQ(checked.size(), 1);
  checked.RemoveUntil(100);
  EXPECT_EQ(checked.size(), 0);
}

TEST(Candidates, TimeZeroThroughoutIsATimeLikeAnyOther) {
  Checked checked;
  for (int64_t key = 0; key < 100; ++key) checked.Add(HashKey(key), 1, 0);
  checked.ExpectSameForAll();
  checked.RemoveUntil(-1);
  EXPECT_EQ(checked.size(), 100);
  checked.RemoveUntil(INT64_MIN);
  EXPECT_EQ(checked.size(), 100);
  checked.RemoveUntil(0);
  EXPECT_EQ(checked.size(), 0);
}

TEST(Candidates, AgesBelowTwoToThe31AreExactAtEveryDistance) {
  // Seconds, milliseconds and nanoseconds of our days, and the largest time there is.
  for (const int64_t now : {int64_t{1700000000}, int64_t{1700000000000}, int64_t{1700000000000000000}, INT64_MAX}) {
    for (const int64_t first : {now, now - kMaxAge, now - kMaxAge - 1, now - 3 * kMaxAge, int64_t{0}}) {
      if (first < 0) continue;
      Checked checked;
      checked.Add(HashKey(1), 1, first);
      checked.Add(HashKey(2), 1, now);
      int64_t key = 3;
      for (const int64_t age : {int64_t{0}, int64_t{1}, kMaxAge - 1, kMaxAge, kMaxAge + 1, 2 * kMaxAge, 5 * kMaxAge}) {
        if (age <= now) checked.Add(HashKey(key++), 1, now - age);
      }
      checked.ExpectSameForAll();
      for (const int64_t age : {kMaxAge, kMaxAge - 1, kMaxAge - 2, int64_t{2}, int64_t{1}, int64_t{0}}) {
        checked.RemoveUntil(now - age);
        checked.ExpectSameForAll();
      }
      EXPECT_EQ(checked.size(), 0);
    }
  }
}

TEST(Candidates, TimesSurviveJumpsBeyond32Bits) {
  Checked checked;
  constexpr int64_t kRange = int64_t{1} << 32;
  const int64_t base = 1000;
  const int64_t first = base + kMaxAge + 1;  // the base is 2^31 below the first time
  checked.Add(HashKey(1), 1, first);
  checked.Add(HashKey(2), 1, base + kRange - 1);  // the last time that fits
  checked.Add(HashKey(3), 1, base);
  checked.Add(HashKey(4), 1, base - 1);  // does not fit, and is as old as the base
  checked.ExpectSameForAll();
  checked.Add(HashKey(5), 1, base + kRange);  // moves the base
  checked.ExpectSameForAll();
  std::map<int64_t, int64_t> times;
  checked.candidates().ForEach([&](const Candidate& candidate) { times[candidate.key] = candidate.time; });
  const int64_t moved = base + kRange - kMaxAge - 1;
  const std::map<int64_t, int64_t> expected = {
      {1, moved}, {2, base + kRange - 1}, {3, moved}, {4, moved}, {5, base + kRange}};
  EXPECT_EQ(times, expected);
  checked.Add(HashKey(1), 1, first);  // older than what is kept of it
  checked.Add(HashKey(6), 1, int64_t{1} << 62);
  checked.Add(HashKey(7), 1, 0);
  checked.ExpectSameForAll();
  checked.RemoveUntil((int64_t{1} << 62) - kMaxAge);
  EXPECT_EQ(checked.size(), 1);
}

TEST(Candidates, TheOrderDependsOnTheKeysAlone) {
  std::vector<uint64_t> hashes;
  for (uint64_t i = 0; i < 7000; ++i) hashes.push_back(HashAt(Keys::kMixed, i, 3));
  std::sort(hashes.begin(), hashes.end());
  hashes.erase(std::unique(hashes.begin(), hashes.end()), hashes.end());
  std::vector<int64_t> expected;
  for (const uint64_t hash : hashes) expected.push_back(UnhashKey(hash));
  std::mt19937_64 random(5);
  for (int round = 0; round < 4; ++round) {
    std::shuffle(hashes.begin(), hashes.end(), random);
    Candidates candidates(3);
    bool is_new;
    for (const uint64_t hash : hashes) ASSERT_TRUE(candidates.Add(hash, 1, 0, &is_new).ok());
    for (uint64_t i = 0; i < 5000; ++i) {  // others come and go
      ASSERT_TRUE(candidates.Add(HashAt(Keys::kRandom, (1 << 20) + i, 3), 1, 0, &is_new).ok());
    }
    for (uint64_t i = 0; i < 5000; ++i)
      ASSERT_TRUE(candidates.Remove(HashAt(Keys::kRandom, (1 << 20) + i, 3), nullptr));
    std::vector<int64_t> walked;
    candidates.ForEach([&](const Candidate& candidate) { walked.push_back(candidate.key); });
    ASSERT_EQ(walked, expected);
  }
}

TEST(Candidates, MovesWithItsKeys) {
  std::vector<Candidates> shards;
  for (int shard = 0; shard < 8; ++shard) {
    shards.emplace_back(3);
    bool is_new;
    for (uint64_t i = 0; i < 500; ++i) {
      ASSERT_TRUE(shards.back().Add(InShard(Mix64(i), 3, static_cast<uint64_t>(shard)), 3, 70, &is_new).ok());
    }
  }
  std::swap(shards[0], shards[1]);
  for (int shard = 0; shard < 8; ++shard) {
    const Candidates& candidates = shards[static_cast<size_t>(shard < 2 ? 1 - shard : shard)];
    ASSERT_EQ(candidates.size(), 500);
    for (uint64_t i = 0; i < 500; ++i) {
      ASSERT_EQ(candidates.Count(InShard(Mix64(i), 3, static_cast<uint64_t>(shard))), 3u);
    }
  }
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)  // they need the address space for themselves

// Runs in a child process; says by its exit code how far it came.
[[noreturn]] void RunOutOfMemoryAndRecover() {
  Candidates candidates;
  LimitAddressSpace(rlim_t{16} << 20);
  Status status;
  int64_t key = 0;
  bool is_new = false;
  for (; key < 10000000; ++key) {
    is_new = false;
    status = candidates.Add(HashKey(key), 1, key, &is_new);
    if (!status.ok()) break;
  }
  if (status.code() != Status::Code::kResourceExhausted || is_new) std::exit(1);
  if (candidates.size() != key || candidates.Count(HashKey(key)) != 0) std::exit(2);
  for (int64_t i = 0; i < key; ++i) {
    if (candidates.Count(HashKey(i)) != 1) std::exit(3);
  }
  if (!candidates.Add(HashKey(0), 1, 0, &is_new).ok() || is_new) std::exit(4);  // a known key needs no memory
  LimitAddressSpace(RLIM_INFINITY);
  if (!candidates.Add(HashKey(key), 1, key, &is_new).ok() || !is_new) std::exit(5);

  LimitAddressSpace(0);  // nothing to shrink into
  const int64_t bytes = candidates.bytes();
  if (candidates.RemoveUntil(key * 3 / 4) != key * 3 / 4 + 1 || candidates.bytes() != bytes) std::exit(6);
  int64_t seen = 0;
  candidates.ForEach([&](const Candidate& candidate) { seen += candidate.key > key * 3 / 4 ? 1 : 0; });
  if (seen != candidates.size()) std::exit(7);
  std::exit(0);
}

TEST(CandidatesDeathTest, RunningOutOfMemoryChangesNothing) {
  EXPECT_EXIT(RunOutOfMemoryAndRecover(), testing::ExitedWithCode(0), "");
}

#endif

}  // namespace
}  // namespace mxrec
