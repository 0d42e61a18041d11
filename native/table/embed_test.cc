#include "table/embed.h"

#include <gtest/gtest.h>

#include <cstring>
#include <random>

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
    EXPECT_TRUE(table_->InsertRows(known.data(), columns, kKnown, SerialFor()).ok());

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
    Embed({{table_.get(), plan_.tables()[0], &plan_.features()[f], handles_.data(), bag, out.data()}}, parallel);
    return out;
  }

  // The same, id by id.
  Floats Expected(size_t f, int64_t bag) const {
    const int64_t dim = table_->config().dim;
    Floats out, row(2 * dim);
    for (size_t i = 0; i < ids_[f].size(); ++i) {
      table_->Read(ids_[f][i], row.data());  // zeros without a row
      if (i % bag == 0) out.insert(out.end(), dim, 0.0f);
      for (int64_t j = 0; j < dim; ++j) out[out.size() - dim + j] += row[j];
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

TEST(Embed, SumsTheRowsOfABagInTheOrderOfPositions) {
  for (const int dim : {1, 5, 16, 64}) {
    Lookup lookup(dim, RandomIds(dim));
    // The last bag is longer than what a thread takes at a time.
    for (const int64_t bag : {2, 3, 20, 840}) {
      EXPECT_EQ(lookup.Run(0, bag), lookup.Expected(0, bag)) << "dim " << dim << ", bags of " << bag;
    }
    EXPECT_EQ(lookup.Run(0, 5040), lookup.Expected(0, 5040));
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
