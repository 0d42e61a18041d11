#include "table/fold_update.h"

#include <gtest/gtest.h>

#include <map>
#include <random>

#include "batch/grouping.h"
#include "table/commit.h"

namespace mxrec {
namespace {

constexpr int kDim = 5;

// A table and a batch of two features that read it.
class FoldUpdateTest : public testing::Test {
 protected:
  void SetUp() override {
    TableConfig config;
    config.name = "table";
    config.dim = kDim;
    config.max_rows = 1000;
    config.initializer.kind = InitializerSpec::Kind::kNormal;
    config.initializer.b = 1.0f;
    config.padding_keys = {3};
    ASSERT_TRUE(Table::Create(config, &table_).ok());
    ASSERT_TRUE(table_->SetSlots({{"momentum", 0.0f}}).ok());
    std::mt19937 random(7);
    for (int i = 0; i < 300; ++i) first_.push_back(static_cast<int64_t>(random() % 40));
    for (int i = 0; i < 200; ++i) second_.push_back(static_cast<int64_t>(random() % 80) - 40);
    grouping_.Build({{first_.data(), 300}, {second_.data(), 200}}, table_->shard_bits());
    plan_.shards = table_->shards();
    plan_.positions_size = grouping_.positions_size();
    plan_.keys_size = grouping_.keys_size();
    plan_.keys = grouping_.keys().data();
    hints_.assign(plan_.keys_size, -1);
    plan_.hints = hints_.data();
    plan_.shard_starts = grouping_.shard_starts().data();
    plan_.offsets = grouping_.offsets().data();
    plan_.index = grouping_.index().data();
    plan_.positions = grouping_.positions().data();
    features_[0] = {0, 0, 300, {300}};
    features_[1] = {0, 300, 200, {200}};
    handles_.resize(plan_.keys_size);
    ASSERT_TRUE(Commit({{table_.get(), plan_, handles_.data(), true}}, SerialFor()).ok());
    std::normal_distribution<float> normal;
    for (std::vector<float>* g : {&gradient_[0], &gradient_[1]}) {
      g->resize((g == &gradient_[0] ? 300 : 200) * kDim);
      for (float& x : *g) x = normal(random);
    }
  }

  std::map<int64_t, std::vector<float>> Rows() const {
    std::map<int64_t, std::vector<float>> rows;
    table_->ForEach([&](int64_t key, int64_t handle) {
      const float* row = table_->Row(handle);
      rows[key].assign(row, row + 2 * kDim);
    });
    return rows;
  }

  void Run(std::vector<int> features, const ParallelFor& parallel) {
    FoldUpdateItem item{table_.get(), plan_, handles_.data(), {}};
    for (const int f : features) item.gradients.push_back({&features_[f], gradient_[f].data(), kDim});
    FoldUpdate({item}, *FindRule("momentum"), hyper_, parallel);
  }

  // The same, key by key and in double precision.
  std::map<int64_t, std::vector<float>> Expected(std::vector<int> features) const {
    std::map<int64_t, std::vector<double>> sums;
    for (const int f : features) {
      const std::vector<int64_t>& ids = f == 0 ? first_ : second_;
      for (size_t i = 0; i < ids.size(); ++i) {
        std::vector<double>& sum = sums[ids[i]];
        sum.resize(kDim);
        for (int j = 0; j < kDim; ++j) sum[j] += gradient_[f][i * kDim + j];
      }
    }
    std::map<int64_t, std::vector<float>> rows = Rows();
    for (const auto& [key, sum] : sums) {
      if (key == 3) continue;  // padding
      std::vector<float>& row = rows[key];
      for (int j = 0; j < kDim; ++j) {
        row[kDim + j] = static_cast<float>(0.5 * row[kDim + j] + sum[j]);
        row[j] -= 0.1f * row[kDim + j];
      }
    }
    return rows;
  }

  void ExpectNear(const std::map<int64_t, std::vector<float>>& want) const {
    const auto have = Rows();
    ASSERT_EQ(have.size(), want.size());
    for (const auto& [key, row] : want) {
      for (int j = 0; j < 2 * kDim; ++j) EXPECT_NEAR(have.at(key)[j], row[j], 1e-4) << "key " << key;
    }
  }

  const float hyper_[3] = {0.1f, 0.5f, 0.0f};
  std::shared_ptr<Table> table_;
  std::vector<int64_t> first_, second_;
  Grouping grouping_;
  TablePlan plan_;
  FeaturePlan features_[2];
  std::vector<int64_t> hints_, handles_;
  std::vector<float> gradient_[2];
};

TEST_F(FoldUpdateTest, SumsAKeysGradientsOverAllFeaturesBeforeTheRule) {
  const auto want = Expected({0, 1});
  Run({0, 1}, SerialFor());
  ExpectNear(want);
}

TEST_F(FoldUpdateTest, LeavesKeysAloneThatTheGradientsDoNotReach) {
  Run({0, 1}, SerialFor());  // fills the momentum, so that an update with zeros would show
  const auto before = Rows();
  const auto want = Expected({0});
  Run({0}, SerialFor());
  ExpectNear(want);
  for (const auto& [key, row] : before) {
    if (key < 0) EXPECT_EQ(Rows().at(key), row) << "key " << key;  // only the second feature has negative keys
  }
}

TEST_F(FoldUpdateTest, NeverTouchesPaddingKeys) {
  const std::vector<float> before = Rows().at(3);
  Run({0, 1}, SerialFor());
  EXPECT_EQ(Rows().at(3), before);
}

TEST_F(FoldUpdateTest, GivesTheSameBitsForAnyNumberOfThreads) {
  const auto start = Rows();
  Run({0, 1}, SerialFor());
  const auto serial = Rows();
  for (int threads = 1; threads <= 4; ++threads) {
    for (const auto& [key, row] : start) {
      const float* const parts[] = {row.data(), row.data() + kDim};
      ASSERT_TRUE(table_->Assign(key, parts).ok());
    }
    Run({0, 1}, ThreadedFor(threads));
    EXPECT_EQ(Rows(), serial) << threads << " threads";
  }
}

}  // namespace
}  // namespace mxrec
