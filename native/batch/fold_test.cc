#include "batch/fold.h"

#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <random>

namespace mxrec {
namespace {

using Ids = std::vector<int64_t>;
using Floats = std::vector<float>;

// A batch of several features that read one table, with its plan.
class Batch {
 public:
  Batch(std::vector<Ids> features, int shard_bits, bool grouped = true) : ids_(std::move(features)) {
    std::vector<IdSpan> spans;
    std::vector<FeaturePlan> plans;
    for (const Ids& f : ids_) {
      spans.push_back({f.data(), static_cast<int64_t>(f.size())});
      plans.push_back({0, 0, static_cast<int64_t>(f.size()), {static_cast<int64_t>(f.size())}});
    }
    Grouping grouping;
    grouping.Build(spans, shard_bits);
    const PlanWriter writer({{"table", grouped ? &grouping : nullptr, spans}}, plans);
    words_.resize(writer.words());
    writer.Write(words_.data());
    EXPECT_TRUE(Plan::Parse(words_.data(), words_.size(), &plan_).ok());
  }

  const TablePlan& table() const { return plan_.tables()[0]; }
  const FeaturePlan& feature(size_t f) const { return plan_.features()[f]; }
  const std::vector<Ids>& ids() const { return ids_; }

 private:
  std::vector<Ids> ids_;
  std::vector<int64_t> words_;
  Plan plan_;
};

Batch RandomBatch(uint64_t seed, int shard_bits) {
  std::mt19937_64 random(seed);
  std::vector<Ids> features(4);
  const int64_t sizes[] = {300, 0, 77, 1};
  for (int f = 0; f < 4; ++f) {
    for (int64_t i = 0; i < sizes[f]; ++i) features[f].push_back(static_cast<int64_t>(random() % 90) * 1000 - 9);
  }
  return Batch(std::move(features), shard_bits);
}

Floats RandomFloats(int64_t n, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::normal_distribution<float> normal;
  Floats floats(n);
  for (float& x : floats) x = normal(random);
  return floats;
}

bool SameBits(const Floats& a, const Floats& b) {
  return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0);
}

Floats RunFold(const Batch& batch, size_t f, const Floats& gradient, int64_t dim, const ParallelFor& parallel) {
  Floats out(batch.table().keys_size * dim, -99.0f);
  Fold(batch.table(), {&batch.feature(f), gradient.data(), dim}, dim, out.data(), parallel);
  return out;
}

TEST(Fold, GivesEveryPositionItsGradientWhereNothingIsGrouped) {
  const Batch batch({{5, 6, 5, 9}, {6, 6}}, 3, false);
  const Floats gradient = {1, 2, 3, 4};  // of the second feature: bags of one, two columns
  EXPECT_EQ(RunFold(batch, 1, gradient, 2, ThreadedFor(2)), (Floats{0, 0, 0, 0, 0, 0, 0, 0, 1, 2, 3, 4}));
  Floats out(6, -99.0f);
  Fold(batch.table(), {&batch.feature(0), gradient.data(), 1, Divider(2)}, 1, out.data(), SerialFor());
  EXPECT_EQ(out, (Floats{1, 1, 2, 2, 0, 0}));
}

TEST(Divider, DividesExactly) {
  std::mt19937_64 random(12);
  std::vector<uint32_t> numbers = {0, 1, 2, 3, 19, 20, 21, UINT32_MAX - 1, UINT32_MAX, 1u << 31};
  for (int i = 0; i < 3000; ++i) numbers.push_back(static_cast<uint32_t>(random() >> random() % 64));
  for (const uint32_t divisor : numbers) {
    if (divisor == 0) continue;
    const Divider divide(divisor);
    for (size_t i = 0; i < 200; ++i) {
      const uint32_t x = numbers[random() % numbers.size()];
      ASSERT_EQ(divide(x), x / divisor) << x << " / " << divisor;
    }
  }
}

TEST(SumRows, AddsInTheOrderGiven) {
  for (const int64_t dim : {1, 5, 16, 67}) {
    for (int64_t n = 1; n <= 9; ++n) {
      const Floats values = RandomFloats(n * dim, n);
      std::vector<const float*> rows;
      Floats expected(values.begin(), values.begin() + dim);
      for (int64_t i = 0; i < n; ++i) {
        rows.push_back(values.data() + i * dim);
        for (int64_t j = 0; i > 0 && j < dim; ++j) expected[j] += rows[i][j];
      }
      Floats sum(dim, -99.0f);
      SumRows(rows.data(), n, dim, sum.data());
      EXPECT_TRUE(SameBits(sum, expected)) << n << " rows of " << dim;
    }
  }
}

TEST(Fold, SumsTheGradientsOfEachKeyWithinTheFeature) {
  for (const int64_t dim : {1, 3, 16}) {
    const Batch batch = RandomBatch(4, 3);
    for (size_t f = 0; f < batch.ids().size(); ++f) {
      const Ids& ids = batch.ids()[f];
      const Floats gradient = RandomFloats(ids.size() * dim, 5 + f);
      const Floats sums = RunFold(batch, f, gradient, dim, SerialFor());
      for (int64_t u = 0; u < batch.table().keys_size; ++u) {
        for (int64_t j = 0; j < dim; ++j) {
          float sum = 0;  // in order of position: the same bits, not only nearly the same
          for (size_t i = 0; i < ids.size(); ++i) {
            if (ids[i] == batch.table().keys[u]) sum += gradient[i * dim + j];
          }
          ASSERT_EQ(sums[u * dim + j], sum) << "feature " << f << ", key " << batch.table().keys[u];
        }
      }
    }
  }
}

TEST(Fold, IsTheSameForAnyNumberOfThreads) {
  const Batch batch = RandomBatch(6, 6);
  for (size_t f = 0; f < batch.ids().size(); ++f) {
    const Floats gradient = RandomFloats(batch.ids()[f].size() * 7, 8);
    const Floats serial = RunFold(batch, f, gradient, 7, SerialFor());
    for (int threads = 1; threads <= 5; ++threads) {
      EXPECT_TRUE(SameBits(RunFold(batch, f, gradient, 7, ThreadedFor(threads)), serial));
    }
  }
}

TEST(Fold, GivesTheSameBitsForAnyNumberOfShards) {
  // More shards reorder the keys, never the additions within one.
  const Batch one = RandomBatch(7, 0), many = RandomBatch(7, 8);
  const Floats gradient = RandomFloats(300 * 2, 9);
  const Floats a = RunFold(one, 0, gradient, 2, SerialFor()), b = RunFold(many, 0, gradient, 2, SerialFor());
  for (size_t i = 0; i < one.ids()[0].size(); ++i) {
    for (int j = 0; j < 2; ++j) ASSERT_EQ(a[one.table().index[i] * 2 + j], b[many.table().index[i] * 2 + j]);
  }
}

TEST(Fold, OfBagsGivesEveryPositionTheGradientOfItsBag) {
  for (const int64_t bag : {2, 3, 7}) {
    const Batch batch = RandomBatch(13, 3);
    const int64_t dim = 5, size = 77 / bag * bag;
    std::vector<Ids> ids = {{1, 2, 1}, Ids(batch.ids()[0].begin(), batch.ids()[0].begin() + size)};
    const Batch bags(ids, 2);
    const Floats gradient = RandomFloats(size / bag * dim, 14);
    Floats spread;
    for (int64_t i = 0; i < size; ++i) {
      spread.insert(spread.end(), gradient.begin() + i / bag * dim, gradient.begin() + (i / bag + 1) * dim);
    }
    Floats out(bags.table().keys_size * dim, -99.0f);
    Fold(bags.table(), {&bags.feature(1), gradient.data(), dim, Divider(static_cast<uint32_t>(bag))}, dim, out.data(),
         SerialFor());
    EXPECT_TRUE(SameBits(out, RunFold(bags, 1, spread, dim, SerialFor()))) << "bags of " << bag;
  }
}

TEST(Fold, ReadsColumnsOfAWiderGradient) {
  const Batch batch = RandomBatch(15, 3);
  const int64_t dim = 3, width = 10, column = 4, n = static_cast<int64_t>(batch.ids()[0].size());
  const Floats wide = RandomFloats(n * width, 16);
  Floats narrow;
  for (int64_t i = 0; i < n; ++i) {
    narrow.insert(narrow.end(), wide.begin() + i * width + column, wide.begin() + i * width + column + dim);
  }
  Floats out(batch.table().keys_size * dim, -99.0f);
  Fold(batch.table(), {&batch.feature(0), wide.data() + column, width}, dim, out.data(), SerialFor());
  EXPECT_TRUE(SameBits(out, RunFold(batch, 0, narrow, dim, SerialFor())));
}

TEST(Fold, OfOneFeatureThatIsTheWholeBatch) {
  const Batch batch({{5, 6, 5, 5}}, 0);
  EXPECT_EQ(RunFold(batch, 0, {1, 2, 4, 8}, 1, SerialFor()), (Floats{13, 2}));
}

TEST(Fold, OfAnEmptyFeatureIsZeros) {
  const Batch batch({{5, 6}, {}}, 2);
  EXPECT_EQ(RunFold(batch, 1, {}, 3, SerialFor()), Floats(6, 0.0f));
}

TEST(Fold, OfAnEmptyBatchIsNothing) {
  const Batch batch({{}}, 2);
  EXPECT_TRUE(RunFold(batch, 0, {}, 3, ThreadedFor(2)).empty());
}

}  // namespace
}  // namespace mxrec
