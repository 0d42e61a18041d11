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
  Batch(std::vector<Ids> features, int shard_bits) : ids_(std::move(features)) {
    std::vector<IdSpan> spans;
    std::vector<FeaturePlan> plans;
    for (const Ids& f : ids_) {
      spans.push_back({f.data(), static_cast<int64_t>(f.size())});
      plans.push_back({0, 0, static_cast<int64_t>(f.size()), {static_cast<int64_t>(f.size())}});
    }
    Grouping grouping;
    grouping.Build(spans, shard_bits);
    const PlanWriter writer({{"table", &grouping}}, plans);
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

Floats RunExpand(const Batch& batch, size_t f, const Floats& rows, int64_t dim, const ParallelFor& parallel) {
  Floats out(batch.ids()[f].size() * dim, -99.0f);
  Expand(batch.table(), batch.feature(f), rows.data(), dim, out.data(), parallel);
  return out;
}

Floats RunFold(const Batch& batch, size_t f, const Floats& gradient, int64_t dim, const ParallelFor& parallel) {
  Floats out(batch.table().keys_size * dim, -99.0f);
  Fold(batch.table(), batch.feature(f), gradient.data(), dim, out.data(), parallel);
  return out;
}

// Floats of a key's row that can be told from every other key's.
float RowValue(int64_t key, int64_t j) { return static_cast<float>(key) + 0.0625f * j; }

TEST(Expand, GivesEveryPositionTheRowOfItsKey) {
  for (const int64_t dim : {1, 3, 16}) {
    const Batch batch = RandomBatch(1, 3);
    Floats rows;
    for (int64_t u = 0; u < batch.table().keys_size; ++u) {
      for (int64_t j = 0; j < dim; ++j) rows.push_back(RowValue(batch.table().keys[u], j));
    }
    for (size_t f = 0; f < batch.ids().size(); ++f) {
      Floats expected;
      for (const int64_t id : batch.ids()[f]) {
        for (int64_t j = 0; j < dim; ++j) expected.push_back(RowValue(id, j));
      }
      EXPECT_EQ(RunExpand(batch, f, rows, dim, SerialFor()), expected) << "feature " << f << ", dim " << dim;
    }
  }
}

TEST(Expand, IsTheSameForAnyNumberOfThreads) {
  const Batch batch = RandomBatch(2, 6);
  const Floats rows = RandomFloats(batch.table().keys_size * 5, 3);
  for (size_t f = 0; f < batch.ids().size(); ++f) {
    const Floats serial = RunExpand(batch, f, rows, 5, SerialFor());
    for (int threads = 1; threads <= 5; ++threads) {
      EXPECT_TRUE(SameBits(RunExpand(batch, f, rows, 5, ThreadedFor(threads)), serial));
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

TEST(Fold, IsTheTransposeOfExpand) {
  // <expand(rows), g> = <rows, fold(g)>, exactly so in small integers.
  const Batch batch = RandomBatch(10, 4);
  const int64_t dim = 2;
  std::mt19937_64 random(11);
  Floats rows(batch.table().keys_size * dim);
  for (float& x : rows) x = static_cast<float>(random() % 8);
  for (size_t f = 0; f < batch.ids().size(); ++f) {
    Floats gradient(batch.ids()[f].size() * dim);
    for (float& x : gradient) x = static_cast<float>(random() % 8);
    const Floats expanded = RunExpand(batch, f, rows, dim, SerialFor());
    const Floats folded = RunFold(batch, f, gradient, dim, SerialFor());
    double left = 0, right = 0;
    for (size_t i = 0; i < gradient.size(); ++i) left += expanded[i] * gradient[i];
    for (size_t i = 0; i < rows.size(); ++i) right += rows[i] * folded[i];
    EXPECT_EQ(left, right);
  }
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
  EXPECT_TRUE(RunExpand(batch, 0, {}, 3, ThreadedFor(2)).empty());
}

}  // namespace
}  // namespace mxrec
