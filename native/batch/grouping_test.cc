#include "batch/grouping.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <random>

#include "base/hash.h"

namespace mxrec {
namespace {

using Ids = std::vector<int64_t>;

// What Build should find, the slow and obvious way.
struct Expected {
  Ids keys;
  std::vector<int32_t> shard_starts;
  std::vector<int32_t> index;
  std::vector<int32_t> offsets;
  std::vector<int32_t> positions;
};

Expected Naive(const std::vector<Ids>& features, int shard_bits) {
  Ids ids;
  for (const Ids& f : features) ids.insert(ids.end(), f.begin(), f.end());
  std::map<int64_t, std::vector<int32_t>> positions_of;
  for (size_t i = 0; i < ids.size(); ++i) positions_of[ids[i]].push_back(static_cast<int32_t>(i));

  Expected e;
  std::map<int64_t, int32_t> number_of;
  const uint64_t shards = uint64_t{1} << shard_bits;
  e.shard_starts.push_back(0);
  e.offsets.push_back(0);
  for (uint64_t shard = 0; shard < shards; ++shard) {
    for (const int64_t key : ids) {
      // The shard is the hash's leading bits.
      if (shard_bits > 0 && HashKey(key) >> (64 - shard_bits) != shard) continue;
      if (!number_of.emplace(key, static_cast<int32_t>(e.keys.size())).second) continue;
      e.keys.push_back(key);
      for (const int32_t p : positions_of[key]) e.positions.push_back(p);
      e.offsets.push_back(static_cast<int32_t>(e.positions.size()));
    }
    e.shard_starts.push_back(static_cast<int32_t>(e.keys.size()));
  }
  for (const int64_t key : ids) e.index.push_back(number_of[key]);
  return e;
}

void ExpectGroups(Grouping* grouping, const std::vector<Ids>& features, int shard_bits,
                  const ParallelFor& parallel = SerialFor()) {
  std::vector<IdSpan> spans;
  for (const Ids& f : features) spans.push_back({f.data(), static_cast<int64_t>(f.size())});
  grouping->Build(spans, shard_bits, parallel);
  const Expected e = Naive(features, shard_bits);
  EXPECT_EQ(grouping->keys_size(), static_cast<int64_t>(e.keys.size()));
  EXPECT_EQ(grouping->positions_size(), static_cast<int64_t>(e.index.size()));
  EXPECT_EQ(grouping->keys(), e.keys);
  EXPECT_EQ(grouping->shard_starts(), e.shard_starts);
  EXPECT_EQ(grouping->index(), e.index);
  EXPECT_EQ(grouping->offsets(), e.offsets);
  EXPECT_EQ(grouping->positions(), e.positions);
}

Ids Uniform(int64_t n, uint64_t distinct, std::mt19937_64* random) {
  Ids ids(n);
  for (int64_t& id : ids) id = static_cast<int64_t>((*random)() % distinct);
  return ids;
}

// Few keys make up most of the batch, as clicks do.
Ids Zipf(int64_t n, std::mt19937_64* random) {
  std::uniform_real_distribution<double> uniform(0, 1);
  Ids ids(n);
  for (int64_t& id : ids) id = static_cast<int64_t>(std::exp(uniform(*random) * std::log(1e6)));
  return ids;
}

TEST(Grouping, MatchesTheNaiveReferenceForEveryNumberOfShards) {
  std::mt19937_64 random(1);
  Grouping grouping;
  for (int shard_bits = 0; shard_bits <= 8; ++shard_bits) {
    SCOPED_TRACE(shard_bits);
    ExpectGroups(&grouping, {Uniform(700, 300, &random)}, shard_bits);
    ExpectGroups(&grouping, {Uniform(500, 1 << 30, &random)}, shard_bits);
    ExpectGroups(&grouping, {Zipf(1000, &random)}, shard_bits);
    ExpectGroups(&grouping, {Ids(400, -1)}, shard_bits);
    ExpectGroups(&grouping, {Zipf(100, &random), {}, Uniform(300, 100, &random), Ids(50, 7)}, shard_bits);
    ExpectGroups(&grouping, {{INT64_MIN, INT64_MAX, 0, -1, 0, INT64_MIN}}, shard_bits);
  }
}

TEST(Grouping, MatchesTheNaiveReferenceOnALargeBatch) {
  std::mt19937_64 random(2);
  Grouping grouping;
  ExpectGroups(&grouping, {Zipf(30000, &random), Uniform(30000, 40000, &random)}, 3);
  ExpectGroups(&grouping, {Zipf(50000, &random), {}, Uniform(30000, 40000, &random)}, 6, ThreadedFor(3));
  ExpectGroups(&grouping, {Zipf(70000, &random)}, 0, ThreadedFor(4));
  ExpectGroups(&grouping, {Ids(20000, -1), {INT64_MIN, INT64_MAX, 0}}, 8, ThreadedFor(2));
  for (const int64_t n : {16383, 16384, 16385}) ExpectGroups(&grouping, {Uniform(n, 20000, &random)}, 4);
}

TEST(Grouping, OfNothingIsEmpty) {
  for (const int shard_bits : {0, 3, 8}) {
    Grouping grouping;
    ExpectGroups(&grouping, {}, shard_bits);
    ExpectGroups(&grouping, {{}, {}}, shard_bits);
    EXPECT_EQ(grouping.keys_size(), 0);
    EXPECT_EQ(grouping.shard_starts(), std::vector<int32_t>((1 << shard_bits) + 1, 0));
    EXPECT_EQ(grouping.offsets(), std::vector<int32_t>{0});
  }
}

TEST(Grouping, AcceptsEmptySpansWithoutAnAddress) {
  Grouping grouping;
  const Ids ids = {5, 5};
  grouping.Build({{nullptr, 0}, {ids.data(), 2}, {nullptr, 0}}, 2);
  EXPECT_EQ(grouping.keys(), Ids{5});
  EXPECT_EQ(grouping.index(), (std::vector<int32_t>{0, 0}));
}

TEST(Grouping, OneObjectServesBatchesOfAnySizeAndShardCount) {
  std::mt19937_64 random(3);
  Grouping grouping;
  for (const int64_t n : {1000, 0, 1, 5000, 3, 700, 0, 2000}) {
    const int shard_bits = static_cast<int>(random() % 9);
    ExpectGroups(&grouping, {Uniform(n, 1 + n / 2, &random), Zipf(n / 3, &random)}, shard_bits);
  }
}

TEST(Grouping, NumbersKeysByFirstAppearanceAcrossFeatures) {
  Grouping grouping;
  const Ids a = {9, 4, 9}, b = {4, 2, 9};
  grouping.Build({{a.data(), 3}, {b.data(), 3}}, 0);
  EXPECT_EQ(grouping.keys(), (Ids{9, 4, 2}));
  EXPECT_EQ(grouping.index(), (std::vector<int32_t>{0, 1, 0, 1, 2, 0}));
  EXPECT_EQ(grouping.offsets(), (std::vector<int32_t>{0, 3, 5, 6}));
  EXPECT_EQ(grouping.positions(), (std::vector<int32_t>{0, 2, 5, 1, 3, 4}));
}

TEST(Grouping, SpreadsRegularIdsEvenlyOverShards) {
  for (const int64_t stride : {int64_t{1}, int64_t{1} << 20, int64_t{1} << 48}) {
    Ids ids(1 << 15);
    for (size_t i = 0; i < ids.size(); ++i) {
      ids[i] = static_cast<int64_t>(static_cast<uint64_t>(i) * static_cast<uint64_t>(stride));
    }
    Grouping grouping;
    grouping.Build({{ids.data(), static_cast<int64_t>(ids.size())}}, 6);
    for (int shard = 0; shard < 64; ++shard) {
      const int32_t n = grouping.shard_starts()[shard + 1] - grouping.shard_starts()[shard];
      EXPECT_NEAR(n, 512, 120) << "stride " << stride << ", shard " << shard;  // 5 standard deviations
    }
  }
}

}  // namespace
}  // namespace mxrec
