#include "table/key_index.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <set>
#include <unordered_map>
#include <vector>

#include "base/hash.h"

namespace mxrec {
namespace {

// x with x * odd = 1 (mod 2^64), by Newton's iteration.
uint64_t Inverse(uint64_t odd) {
  uint64_t x = odd;
  for (int i = 0; i < 6; ++i) x *= 2 - odd * x;
  return x;
}

uint64_t UndoShift(uint64_t x, int shift) {
  uint64_t y = x;
  for (int known = shift; known < 64; known += shift) y = x ^ (y >> shift);
  return y;
}

// The one key with this hash: the hash is a bijection, so collisions can be made to order.
int64_t KeyWithHash(uint64_t hash) {
  uint64_t x = UndoShift(hash, 31);
  x *= Inverse(0x94d049bb133111ebULL);
  x = UndoShift(x, 27);
  x *= Inverse(0xbf58476d1ce4e5b9ULL);
  x = UndoShift(x, 30);
  return static_cast<int64_t>(x - 0x9e3779b97f4a7c15ULL);
}

// A hash by its parts: the chunk comes from the low bits, the step from bits 48 to 55, the rest only tells keys apart.
uint64_t MakeHash(uint64_t low32, uint8_t step, uint32_t rest) {
  return low32 | static_cast<uint64_t>(rest & 0xffff) << 32 | static_cast<uint64_t>(step) << 48 |
         static_cast<uint64_t>(rest >> 16 & 0xff) << 56;
}

// An index and the std::unordered_map it must agree with.
class Checked {
 public:
  explicit Checked(double stagger = 0.0) : index_(stagger) {}

  void Insert(int64_t key) {
    ASSERT_TRUE(index_.Reserve(1).ok());
    index_.Insert(HashKey(key), key, next_);
    ASSERT_TRUE(model_.emplace(key, next_).second);
    ++next_;
  }

  void Erase(int64_t key) {
    const auto it = model_.find(key);
    ASSERT_NE(it, model_.end());
    index_.Erase(HashKey(key), key);
    model_.erase(it);
  }

  // Erases the keys of these rows by one walk, every one of which is judged once, after its row was requested.
  void EraseRows(const std::set<uint32_t>& rows) {
    std::set<uint32_t> requested;
    std::unordered_map<int64_t, uint32_t> judged;
    index_.EraseIf([&](uint32_t row) { EXPECT_TRUE(requested.insert(row).second) << "row " << row; },
                   [&](int64_t key, uint32_t row) {
                     EXPECT_EQ(requested.count(row), 1u) << "row " << row;
                     EXPECT_TRUE(judged.emplace(key, row).second) << "key " << key;
                     return rows.count(row) != 0;
                   });
    ASSERT_EQ(judged, model_);
    for (const auto& entry : judged) {
      if (rows.count(entry.second) != 0) model_.erase(entry.first);
    }
  }

  void Clear() {
    index_.Clear();
    model_.clear();
  }

  int64_t Find(int64_t key) const { return index_.Find(HashKey(key), key); }
  int64_t ProbeLength(int64_t key) const { return index_.ProbeLength(HashKey(key), key); }
  bool Has(int64_t key) const { return model_.count(key) != 0; }

  void ExpectSame(int64_t key) const {
    const auto it = model_.find(key);
    ASSERT_EQ(Find(key), it == model_.end() ? KeyIndex::kNone : static_cast<int64_t>(it->second)) << "key " << key;
  }
  void ExpectSameForAll() const {
    std::unordered_map<int64_t, uint32_t> walked;
    index_.ForEach([&](int64_t key, uint32_t row) { EXPECT_TRUE(walked.emplace(key, row).second) << "key " << key; });
    ASSERT_EQ(walked, model_);
    ASSERT_EQ(index_.size(), static_cast<int64_t>(model_.size()));
    for (const auto& entry : model_) ExpectSame(entry.first);
  }

  const std::unordered_map<int64_t, uint32_t>& model() const { return model_; }
  KeyIndex& index() { return index_; }

 private:
  KeyIndex index_;
  uint32_t next_ = 0;  // row
  std::unordered_map<int64_t, uint32_t> model_;
};

// 50,000 keys i * stride, and as many between them that are absent.
void InsertAndFindStrided(uint64_t stride, uint64_t absent_offset) {
  constexpr uint64_t kCount = 50000;
  Checked checked;
  for (uint64_t i = 0; i < kCount; ++i) checked.Insert(static_cast<int64_t>(i * stride));
  checked.ExpectSameForAll();
  for (uint64_t i = 0; i < kCount; ++i) {
    const int64_t absent = static_cast<int64_t>(i * stride + absent_offset);
    ASSERT_FALSE(checked.Has(absent));
    ASSERT_EQ(checked.Find(absent), KeyIndex::kNone);
  }
}

TEST(KeyIndex, FindsNothingWhenEmpty) {
  Checked checked;
  for (const int64_t key : {int64_t{0}, int64_t{-1}, INT64_MIN, INT64_MAX}) {
    EXPECT_EQ(checked.Find(key), KeyIndex::kNone);
    EXPECT_EQ(checked.ProbeLength(key), 0);
  }
  EXPECT_EQ(checked.index().size(), 0);
  EXPECT_EQ(checked.index().bytes(), 0);
}

TEST(KeyIndex, TheInverseHashOfTheseTestsIsRight) {
  std::mt19937_64 random(1);
  for (int i = 0; i < 1000; ++i) {
    const uint64_t hash = random();
    ASSERT_EQ(HashKey(KeyWithHash(hash)), hash);
  }
}

TEST(KeyIndex, EveryInt64IsALegalKey) {
  const std::vector<int64_t> keys = {0,
                                     -1,
                                     1,
                                     INT64_MIN,
                                     INT64_MIN + 1,
                                     INT64_MAX,
                                     KeyWithHash(0),
                                     KeyWithHash(UINT64_MAX),
                                     KeyWithHash(MakeHash(0, 1, 0))};  // shares the tag of hash 0
  Checked checked;
  for (const int64_t key : keys) {
    checked.ExpectSame(key);
    checked.Insert(key);
  }
  checked.ExpectSameForAll();
  for (const int64_t key : keys) {
    checked.Erase(key);
    for (const int64_t other : keys) checked.ExpectSame(other);
  }
  EXPECT_EQ(checked.index().size(), 0);
}

TEST(KeyIndex, FindsEveryKeyAfterManyDoublings) {
  Checked checked;
  std::mt19937_64 random(2);
  std::vector<int64_t> keys;
  int doublings = 0;
  for (int i = 0; i < 200000; ++i) {
    const int64_t key = static_cast<int64_t>(random());
    const int64_t bytes = checked.index().bytes();
    checked.Insert(key);
    keys.push_back(key);
    if (checked.index().bytes() == bytes) continue;
    ++doublings;
    checked.ExpectSameForAll();
  }
  EXPECT_GE(doublings, 9);  // the first pages hold 64 chunks
  checked.ExpectSameForAll();
  for (int i = 0; i < 100000; ++i) checked.ExpectSame(static_cast<int64_t>(random()));
}

TEST(KeyIndex, FindsSequentialKeys) { InsertAndFindStrided(1, 1000000); }
TEST(KeyIndex, FindsMultiplesOfTwoToThe20) { InsertAndFindStrided(uint64_t{1} << 20, 1 << 19); }
TEST(KeyIndex, FindsMultiplesOfTwoToThe48) { InsertAndFindStrided(uint64_t{1} << 48, 1); }

TEST(KeyIndex, AgreesWithAMapOverRandomInsertsErasesAndFinds) {
  Checked checked;
  std::mt19937_64 random(3);
  // A universe small enough for keys to come back again and again, crossing several doublings.
  constexpr int kUniverse = 20000;
  for (int step = 0; step < 300000; ++step) {
    const int64_t key = static_cast<int64_t>(random() % kUniverse) * 0x10001 - 77;
    checked.ExpectSame(key);
    // Waves: mostly inserts, then mostly erases.
    const bool growing = step / 50000 % 2 == 0;
    const bool wants_insert = random() % 10 < (growing ? 8u : 2u);
    if (wants_insert && !checked.Has(key)) checked.Insert(key);
    if (!wants_insert && checked.Has(key)) checked.Erase(key);
  }
  checked.ExpectSameForAll();
}

TEST(KeyIndex, ManyKeysOnOneProbePathAreAllFoundErasedAndReinserted) {
  // 3000 keys share chunk, step and so their whole path: overflow counts pass 255 and saturate.
  Checked checked;
  auto key_at = [](uint32_t i) { return KeyWithHash(MakeHash(0x12345678, 77, i)); };
  for (uint32_t i = 0; i < 3000; ++i) checked.Insert(key_at(i));
  checked.ExpectSameForAll();
  for (uint32_t i = 3000; i < 3100; ++i) checked.ExpectSame(key_at(i));

  for (uint32_t i = 0; i < 3000; i += 2) checked.Erase(key_at(i));
  for (uint32_t i = 0; i < 3000; ++i) checked.ExpectSame(key_at(i));
  for (uint32_t i = 0; i < 3000; i += 4) checked.Insert(key_at(i));
  for (uint32_t i = 0; i < 3000; ++i) checked.ExpectSame(key_at(i));
  for (uint32_t i = 0; i < 3000; ++i) {
    if (checked.Has(key_at(i))) checked.Erase(key_at(i));
  }
  EXPECT_EQ(checked.index().size(), 0);
  for (uint32_t i = 0; i < 3000; ++i) checked.ExpectSame(key_at(i));  // absent, though the counts stay saturated
  for (uint32_t i = 0; i < 500; ++i) checked.Insert(key_at(i));
  checked.ExpectSameForAll();
}

TEST(KeyIndex, KeysOfOneChunkWithDifferentStepsPartAfterIt) {
  Checked checked;
  std::vector<int64_t> keys;
  for (uint32_t i = 0; i < 1500; ++i) keys.push_back(KeyWithHash(MakeHash(42, static_cast<uint8_t>(i), i)));
  for (const int64_t key : keys) checked.Insert(key);
  checked.ExpectSameForAll();
  std::mt19937_64 random(4);
  for (int step = 0; step < 30000; ++step) {
    const int64_t key = keys[random() % keys.size()];
    if (checked.Has(key)) {
      checked.Erase(key);
    } else {
      checked.Insert(key);
    }
    checked.ExpectSame(key);
    checked.ExpectSame(keys[random() % keys.size()]);
  }
  checked.ExpectSameForAll();
}

TEST(KeyIndex, CollidingAndOrdinaryKeysLiveTogether) {
  Checked checked;
  std::mt19937_64 random(5);
  auto draw = [&]() -> int64_t {
    const uint32_t i = static_cast<uint32_t>(random() % 1200);
    switch (random() % 3) {
      case 0:
        return KeyWithHash(MakeHash(7, 200, i));
      case 1:
        return KeyWithHash(MakeHash(8, 200, i));  // the next chunk, the same step
      default:
        return i;
    }
  };
  for (int step = 0; step < 100000; ++step) {
    const int64_t key = draw();
    checked.ExpectSame(key);
    if (!checked.Has(key)) {
      checked.Insert(key);
    } else if (random() % 2 == 0) {
      checked.Erase(key);
    }
  }
  checked.ExpectSameForAll();
}

TEST(KeyIndex, SearchesStayShortAfterManyErasesAndInserts) {
  // Keys come and go at a constant size, so that no growth ever cleans up. If overflow counts leaked, a search for an
  // absent key would walk on and on.
  Checked checked;
  constexpr int64_t kLive = 7600;
  for (int64_t i = 0; i < kLive; ++i) checked.Insert(i);
  const int64_t bytes = checked.index().bytes();
  for (int64_t i = kLive; i < 300000; ++i) {
    checked.Erase(i - kLive);
    checked.Insert(i);
  }
  EXPECT_EQ(checked.index().bytes(), bytes);
  checked.ExpectSameForAll();
  int64_t chunks = 0;
  for (int64_t i = 1; i <= 10000; ++i) chunks += checked.ProbeLength(-i);
  EXPECT_LE(chunks, 35000);
}

TEST(KeyIndex, MostSearchesReadOneChunk) {
  Checked checked;
  std::mt19937_64 random(6);
  int64_t worst = 0;
  for (int i = 1; i <= 100000; ++i) {
    checked.Insert(static_cast<int64_t>(random()));
    if (i % 5000 != 0) continue;
    int64_t chunks = 0;
    for (const auto& [key, row] : checked.model()) chunks += checked.ProbeLength(key);
    worst = std::max(worst, chunks * 1000 / i);
  }
  EXPECT_LE(worst, 1150) << "chunks per thousand searches";
}

TEST(KeyIndex, ReserveLetsThatManyInsertsPassWithoutGrowing) {
  for (const int64_t n : {1, 10, 11, 12, 13, 1000, 54321}) {
    KeyIndex index;
    ASSERT_TRUE(index.Reserve(n).ok());
    const int64_t bytes = index.bytes();
    ASSERT_GT(bytes, 0);
    for (int64_t key = 0; key < n; ++key) {
      index.Insert(HashKey(key), key, static_cast<uint32_t>(key));
    }
    EXPECT_EQ(index.size(), n);
    ASSERT_TRUE(index.Reserve(0).ok());
    EXPECT_EQ(index.bytes(), bytes) << n;
    for (int64_t key = 0; key < n; ++key) ASSERT_EQ(index.Find(HashKey(key), key), key);
  }
}

TEST(KeyIndex, KeepsFillWithinBounds) {
  for (const double stagger : {0.0, 0.3, 0.9}) {
    Checked checked(stagger);
    for (int64_t i = 0; i < 100000; ++i) {
      checked.Insert(i);
      const double places = static_cast<double>(checked.index().bytes()) / 64 * 5;
      ASSERT_LE(checked.index().size(), 0.76 * places);
      if (i < 2000) continue;  // small indexes have room left in their first pages
      // A shard doubles at a fill of 43 % or more and is left half as full.
      ASSERT_GE(checked.index().size(), 0.18 * places) << i << " keys";
    }
  }
}

TEST(KeyIndex, ShardsDoubleAtDifferentSizes) {
  std::set<int64_t> sizes;
  for (int shard = 0; shard < 8; ++shard) {
    Checked checked(shard / 8.0);
    int64_t last = 0;
    for (int64_t i = 0; i < 30000; ++i) {
      const int64_t bytes = checked.index().bytes();
      checked.Insert(i);
      if (checked.index().bytes() != bytes) last = i;
    }
    sizes.insert(last);
  }
  EXPECT_EQ(sizes.size(), 8u);
}

TEST(KeyIndex, ClearGivesTheMemoryBackAndStartsAnew) {
  Checked checked(0.5);
  for (int64_t i = 0; i < 5000; ++i) checked.Insert(i);
  checked.Clear();
  EXPECT_EQ(checked.index().size(), 0);
  EXPECT_EQ(checked.index().bytes(), 0);
  for (int64_t i = 0; i < 5000; ++i) ASSERT_EQ(checked.Find(i), KeyIndex::kNone);
  for (int64_t i = 2500; i < 7500; ++i) checked.Insert(i);
  checked.ExpectSameForAll();
  checked.ExpectSame(0);
}

TEST(KeyIndex, ErasesByAWalkAsOneByOne) {
  std::mt19937_64 random(11);
  Checked walked, single;
  walked.EraseRows({0});  // empty
  std::vector<int64_t> keys;
  for (int round = 0; round < 20; ++round) {
    // Half of the keys crowd: their probe paths are long and cross each other.
    for (int i = 0; i < 300; ++i) {
      const int64_t key = random() % 2 == 0 ? static_cast<int64_t>(random())
                                            : KeyWithHash(MakeHash(random() % 4, static_cast<uint8_t>(random() % 3),
                                                                   static_cast<uint32_t>(random())));
      if (walked.Has(key)) continue;
      walked.Insert(key);
      single.Insert(key);
      keys.push_back(key);
    }
    std::set<uint32_t> gone;
    for (const auto& [key, row] : walked.model()) {
      if (random() % 10 < static_cast<uint64_t>(round % 11)) gone.insert(row);
    }
    const auto before = walked.model();
    walked.EraseRows(gone);
    for (const auto& [key, row] : before) {
      if (gone.count(row) != 0) single.Erase(key);
    }
    walked.ExpectSameForAll();
    for (const int64_t key : keys) {
      walked.ExpectSame(key);
      ASSERT_EQ(walked.ProbeLength(key), single.ProbeLength(key));  // erased keys leave nothing in the way
    }
    if (HasFatalFailure()) return;
  }
}

}  // namespace
}  // namespace mxrec
