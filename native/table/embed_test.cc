#include "table/embed.h"

#include <gtest/gtest.h>

#include <cstring>
#include <random>

#include "table/bulk_loader.h"
#include "table/commit.h"

namespace mxrec {
namespace {

using Floats = std::vector<float>;
using Ids = std::vector<int64_t>;

// Ids below this have rows.
constexpr int64_t kKnown = 300;

// A table with rows for some ids, and a batch of features that read it.
class Lookup {
 public:
  Lookup(int dim, std::vector<Ids> ids, bool grouped = true) : ids_(std::move(ids)) {
    TableConfig config;
    config.name = "table";
    config.dim = dim;
    config.initializer.kind = InitializerSpec::Kind::kNormal;
    config.initializer.b = 1.0f;
    EXPECT_TRUE(Table::Create(config, &table_).ok());
    EXPECT_TRUE(table_->SetSlots({{"momentum", 7.0f}}).ok());
    const float* columns[] = {nullptr, nullptr};
    Ids known;
    for (int64_t id = 0; id < kKnown; ++id) known.push_back(id);
    EXPECT_TRUE(BulkLoader(table_.get(), SerialFor()).Insert(known.data(), columns, kKnown).ok());

    std::vector<IdSpan> spans;
    std::vector<FeaturePlan> features;
    for (const Ids& f : ids_) {
      spans.push_back({f.data(), static_cast<int64_t>(f.size())});
      features.push_back({0, 0, static_cast<int64_t>(f.size()), {static_cast<int64_t>(f.size())}});
    }
    Grouping grouping;
    grouping.Build(spans, table_->shard_bits());
    const PlanWriter writer({{"table", grouped ? &grouping : nullptr, spans}}, features);
    words_.assign(writer.words(), -1);
    writer.Write(words_.data());
    EXPECT_TRUE(Plan::Parse(words_.data(), writer.words(), &plan_).ok());
    handles_.resize(plan_.tables()[0].keys_size);
    EXPECT_TRUE(Commit({{table_.get(), plan_.tables()[0], handles_.data(), false}}, SerialFor()).ok());
  }

  Floats Run(size_t f, int64_t bag, const ParallelFor& parallel = SerialFor()) {
    Floats out(ids_[f].size() / bag * table_->config().dim, -99.0f);
    Embed({Item(f, bag, out.data(), table_->config().dim)}, parallel);
    return out;
  }

  EmbedItem Item(size_t f, int64_t bag, float* out, int64_t stride) const {
    return {table_.get(), plan_.tables()[0], &plan_.features()[f], handles_.data(), bag, out, stride};
  }

  // The same, id by id; a bag of 16 and more in four interleaved sums.
  Floats Expected(size_t f, int64_t bag) const {
    const int64_t dim = table_->config().dim;
    Floats out, row(2 * dim);
    for (size_t begin = 0; begin < ids_[f].size(); begin += bag) {
      std::vector<Floats> sums(4, Floats(dim, 0.0f));
      const int64_t whole = bag < 16 ? 0 : bag / 4 * 4;
      for (int64_t i = 0; i < bag; ++i) {
        if (i == whole) {
          for (int k = 1; k < 4; ++k) {
            for (int64_t j = 0; j < dim; ++j) sums[0][j] += sums[k][j];
            std::fill(sums[k].begin(), sums[k].end(), 0.0f);
          }
        }
        bool found;
        EXPECT_TRUE(table_->Read(ids_[f][begin + i], row.data(), &found).ok());  // zeros without a row
        Floats& sum = sums[i < whole ? i % 4 : 0];
        for (int64_t j = 0; j < dim; ++j) sum[j] += row[j];
      }
      for (int k = 1; k < 4; ++k) {
        for (int64_t j = 0; j < dim; ++j) sums[0][j] += sums[k][j];
      }
      out.insert(out.end(), sums[0].begin(), sums[0].end());
    }
    return out;
  }

 private:
  std::vector<Ids> ids_;
  std::shared_ptr<Table> table_;
  std::vector<int64_t> words_;
  Plan plan_;
  Ids handles_;
};

std::vector<Ids> RandomIds(uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<Ids> ids(3);
  for (const size_t n : {5040, 0, 840}) {
    Ids& f = ids[n == 5040 ? 0 : n == 0 ? 1 : 2];
    // One id in four is unknown; a long stretch of them makes bags without any row.
    for (size_t i = 0; i < n; ++i) f.push_back(i < 100 ? -1 : static_cast<int64_t>(random() % (kKnown * 4 / 3)));
  }
  return ids;
}

// The widths with a copy of their own, and others.
TEST(Embed, GivesEveryPositionTheRowOfItsId) {
  for (const int dim : {1, 5, 8, 16, 32, 64, 100}) {
    Lookup lookup(dim, RandomIds(dim));
    for (const size_t f : {0, 1, 2}) EXPECT_EQ(lookup.Run(f, 1), lookup.Expected(f, 1)) << "dim " << dim;
  }
}

TEST(Embed, NeedsNoGroups) {
  for (const int dim : {5, 16}) {
    Lookup lookup(dim, RandomIds(dim), false);
    for (const size_t f : {0, 1, 2}) EXPECT_EQ(lookup.Run(f, 1), lookup.Expected(f, 1)) << "dim " << dim;
    EXPECT_EQ(lookup.Run(2, 20), lookup.Expected(2, 20)) << "dim " << dim;
  }
}

TEST(Embed, SumsTheRowsOfABagInTheOrderOfTensorFlow) {
  for (const int dim : {1, 5, 16, 64}) {
    Lookup lookup(dim, RandomIds(dim));
    // The last bag is longer than what a thread takes at a time.
    for (const int64_t bag : {2, 3, 15, 16, 20, 21, 24, 35, 840}) {
      EXPECT_EQ(lookup.Run(0, bag), lookup.Expected(0, bag)) << "dim " << dim << ", bags of " << bag;
    }
    EXPECT_EQ(lookup.Run(0, 5040), lookup.Expected(0, 5040));
  }
}

TEST(Embed, WritesFeaturesSideBySide) {
  constexpr int64_t kDim = 5, kWidth = 2 * kDim + 3, kRows = 840;
  Lookup lookup(kDim, RandomIds(9));
  Floats wide(kRows * kWidth, -99.0f);
  Embed({lookup.Item(0, 6, wide.data() + 1, kWidth), lookup.Item(2, 1, wide.data() + 2 + kDim, kWidth)},
        ThreadedFor(2));
  const Floats bags = lookup.Expected(0, 6), each = lookup.Expected(2, 1);
  for (int64_t i = 0; i < kRows; ++i) {
    Floats row = {-99.0f};
    row.insert(row.end(), bags.begin() + i * kDim, bags.begin() + (i + 1) * kDim);
    row.push_back(-99.0f);
    row.insert(row.end(), each.begin() + i * kDim, each.begin() + (i + 1) * kDim);
    row.push_back(-99.0f);
    ASSERT_EQ(Floats(wide.begin() + i * kWidth, wide.begin() + (i + 1) * kWidth), row) << "row " << i;
  }
}

TEST(Embed, IsTheSameForAnyNumberOfThreads) {
  Lookup lookup(16, RandomIds(3));
  for (const int64_t bag : {1, 7}) {
    const Floats serial = lookup.Run(0, bag);
    for (int threads = 2; threads <= 5; ++threads) {
      const Floats parallel = lookup.Run(0, bag, ThreadedFor(threads));
      EXPECT_EQ(std::memcmp(parallel.data(), serial.data(), serial.size() * sizeof(float)), 0);
    }
  }
}

TEST(Embed, OfNothingIsNothing) { Embed({}, SerialFor()); }

}  // namespace
}  // namespace mxrec
