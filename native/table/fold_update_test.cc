#include "table/fold_update.h"

#include <gtest/gtest.h>

#include <limits>
#include <map>
#include <random>
#include <set>

#include "batch/grouping.h"
#include "table/commit.h"
#include "table/gradient_span.h"
#include "table/update_rows.h"
#include "update/finite.h"

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

  Status TryRun(std::vector<int> features, const ParallelFor& parallel, Nonfinite mode) {
    FoldUpdateItem item{table_.get(), plan_, handles_.data(), {}};
    for (const int f : features) item.gradients.push_back({&features_[f], gradient_[f].data(), kDim});
    return FoldUpdate({item}, *FindRule("momentum"), hyper_, mode, parallel);
  }
  void Run(std::vector<int> features, const ParallelFor& parallel, Nonfinite mode = Nonfinite::kError) {
    const Status status = TryRun(features, parallel, mode);
    EXPECT_TRUE(status.ok()) << status.message();
  }
  // The gradient at a position of both features together.
  float* GradientAt(int position) {
    return position < 300 ? &gradient_[0][position * kDim] : &gradient_[1][(position - 300) * kDim];
  }
  int64_t KeyAt(int position) const { return position < 300 ? first_[position] : second_[position - 300]; }

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

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

TEST_F(FoldUpdateTest, ChangesNothingIfOneValueIsNotFiniteAndNamesItsKey) {
  const auto before = Rows();
  int64_t counted = 0;
  for (const float bad : {kNan, kInf, -kInf}) {
    for (const int position : {0, 7, 299, 300, 499}) {
      if (KeyAt(position) == 3) continue;
      float* value = GradientAt(position) + position % kDim;
      const float good = *value;
      *value = bad;
      for (int threads = 1; threads <= 3; ++threads) {
        const Status status = TryRun({0, 1}, ThreadedFor(threads), Nonfinite::kError);
        EXPECT_EQ(status.code(), Status::Code::kInvalidArgument);
        const std::string want = "table 'table': the gradient of key " + std::to_string(KeyAt(position)) + " is not";
        EXPECT_EQ(status.message().substr(0, want.size()), want);
        EXPECT_NE(status.message().find("in 1 of 5 columns"), std::string::npos) << status.message();
        EXPECT_NE(status.message().find("1 of the " + std::to_string(before.size() - 1) + " rows"), std::string::npos)
            << status.message();
        EXPECT_EQ(table_->nonfinite(), ++counted);
      }
      *value = good;
    }
  }
  EXPECT_EQ(Rows(), before);
}

TEST_F(FoldUpdateTest, NamesTheBadKeyThatComesFirstInTheBatchForAnyNumberOfThreads) {
  std::set<int64_t> bad;
  for (const int position : {490, 120, 31, 310}) {
    GradientAt(position)[0] = kNan;
    bad.insert(KeyAt(position));
  }
  int first = 0;
  while (bad.count(KeyAt(first)) == 0) ++first;
  const std::string serial = TryRun({0, 1}, SerialFor(), Nonfinite::kError).message();
  EXPECT_NE(serial.find("key " + std::to_string(KeyAt(first)) + " "), std::string::npos) << serial;
  for (int threads = 1; threads <= 4; ++threads) {
    EXPECT_EQ(TryRun({0, 1}, ThreadedFor(threads), Nonfinite::kError).message(), serial);
  }
}

TEST_F(FoldUpdateTest, RefusesFiniteValuesWhoseSumOverflows) {
  const auto before = Rows();
  int again = 1;
  while (first_[again] != first_[0]) ++again;
  GradientAt(0)[2] = GradientAt(again)[2] = 3e38f;
  const Status status = TryRun({0, 1}, SerialFor(), Nonfinite::kError);
  EXPECT_NE(status.message().find("(inf in 1 of 5 columns)"), std::string::npos) << status.message();
  EXPECT_EQ(Rows(), before);
  GradientAt(again)[2] = -3e38f;  // and does not
  Run({0, 1}, SerialFor());
}

TEST_F(FoldUpdateTest, SkipLeavesBadRowsAloneAndUpdatesTheOthers) {
  Run({0, 1}, SerialFor());
  const auto before = Rows();
  std::set<int64_t> bad;
  for (const int position : {11, 222, 333}) {
    GradientAt(position)[1] = position == 11 ? kNan : kInf;
    bad.insert(KeyAt(position));
  }
  auto want = Expected({0, 1});
  for (const int64_t key : bad) want[key] = before.at(key);
  Run({0, 1}, ThreadedFor(3), Nonfinite::kSkip);
  ExpectNear(want);
  for (const int64_t key : bad) EXPECT_EQ(Rows().at(key), before.at(key));
  EXPECT_EQ(table_->nonfinite(), static_cast<int64_t>(bad.size()));
}

TEST_F(FoldUpdateTest, AllowAppliesTheRuleToWhateverComes) {
  GradientAt(11)[1] = kNan;
  Run({0, 1}, SerialFor(), Nonfinite::kAllow);
  EXPECT_TRUE(std::isnan(Rows().at(KeyAt(11))[1]));
  EXPECT_EQ(table_->nonfinite(), 0);
}

TEST_F(FoldUpdateTest, GradientsOfPaddingKeysAndOfOtherFeaturesDoNotMatter) {
  int padding = 0;
  while (KeyAt(padding) != 3) ++padding;
  GradientAt(padding)[0] = kNan;
  GradientAt(300)[0] = kNan;
  Run({0}, SerialFor());
  EXPECT_EQ(table_->nonfinite(), 0);
}

TEST_F(FoldUpdateTest, UpdatesByAddressTreatBadRowsTheSame) {
  const Rule& rule = *FindRule("momentum");
  const int64_t n = plan_.keys_size;
  std::vector<float> gradient(n * kDim, 0.5f);
  const auto before = Rows();
  gradient[5 * kDim + 1] = gradient[9 * kDim] = kNan;
  std::vector<int64_t> backwards(handles_.rbegin(), handles_.rend());
  std::vector<float> gradient_backwards;
  for (int64_t i = n - 1; i >= 0; --i) {
    gradient_backwards.insert(gradient_backwards.end(), &gradient[i * kDim], &gradient[i * kDim] + kDim);
  }
  for (const bool is_backwards : {false, true}) {
    const Status status = is_backwards
                              ? UpdateRepeatedRows(table_.get(), rule, hyper_, backwards.data(),
                                                   gradient_backwards.data(), n, Nonfinite::kError, ThreadedFor(2))
                              : UpdateRows(table_.get(), rule, hyper_, handles_.data(), gradient.data(), n,
                                           Nonfinite::kError, ThreadedFor(2));
    const int64_t key = plan_.keys[is_backwards ? 9 : 5];
    EXPECT_NE(status.message().find("key " + std::to_string(key) + " "), std::string::npos) << status.message();
    EXPECT_EQ(Rows(), before);
  }
  EXPECT_EQ(table_->nonfinite(), 4);
  const Status status =
      UpdateRows(table_.get(), rule, hyper_, handles_.data(), gradient.data(), n, Nonfinite::kSkip, ThreadedFor(2));
  EXPECT_TRUE(status.ok());
  for (int64_t i = 0; i < n; ++i) {
    const int64_t key = plan_.keys[i];
    EXPECT_EQ(Rows().at(key) == before.at(key), i == 5 || i == 9 || key == 3) << key;
  }
  EXPECT_EQ(table_->nonfinite(), 6);
}

TEST_F(FoldUpdateTest, RepeatedRowsAreUpdatedOnceWithTheSumOfTheirGradients) {
  const Rule& rule = *FindRule("momentum");
  const int64_t n = plan_.keys_size;
  // Each row twice, and a row of no key; 0.25 and 0.5 have an exact sum.
  std::vector<int64_t> twice(handles_.begin(), handles_.end());
  twice.push_back(kNoRow);
  twice.insert(twice.end(), handles_.begin(), handles_.end());
  std::vector<float> gradient((n + 1) * kDim, 0.25f);
  gradient.resize((2 * n + 1) * kDim, 0.5f);
  const auto before = Rows();
  ASSERT_TRUE(UpdateRepeatedRows(table_.get(), rule, hyper_, twice.data(), gradient.data(), 2 * n + 1,
                                 Nonfinite::kError, ThreadedFor(3))
                  .ok());
  const auto repeated = Rows();
  for (const auto& [key, row] : before) {
    const float* parts[] = {row.data(), row.data() + kDim};
    ASSERT_TRUE(table_->Assign(key, parts).ok());
  }
  gradient.assign(n * kDim, 0.75f);
  ASSERT_TRUE(
      UpdateRows(table_.get(), rule, hyper_, handles_.data(), gradient.data(), n, Nonfinite::kError, ThreadedFor(2))
          .ok());
  EXPECT_EQ(Rows(), repeated);
  EXPECT_NE(repeated, before);
}

TEST(GradientSpanTest, HoldsEachValueOnceAndMissesNone) {
  constexpr int64_t kRows = 7, kColumns = 40;
  std::vector<float> wide(kRows * kColumns, 0.0f), narrow(kRows * 4, 0.0f);
  FeaturePlan feature{0, 0, kRows, {kRows}};
  const auto column = [&](int64_t c) { return FeatureGradient{&feature, wide.data() + c, kColumns}; };
  // Columns 0 to 12 but for 4 and 5, 12 again, 36 to 40; a tensor of its own, twice.
  const std::vector<FeatureGradient> gradients = {column(8),
                                                  column(0),
                                                  column(6),
                                                  {&feature, narrow.data(), 4},
                                                  column(8),
                                                  column(36),
                                                  {&feature, narrow.data(), 4}};
  const std::vector<int64_t> dims = {4, 4, 2, 4, 4, 4, 4};
  const std::vector<GradientSpan> spans = SpansOf(gradients, dims);
  std::map<const float*, int> times;
  for (const GradientSpan& span : spans) {
    for (int64_t r = 0; r < span.rows; ++r) {
      for (int64_t j = 0; j < span.width; ++j) ++times[span.values + r * span.stride + j];
    }
  }
  for (const auto& [value, n] : times) EXPECT_EQ(n, 1);
  EXPECT_EQ(times.size(), static_cast<size_t>(kRows * (12 + 4 + 4)));
  for (size_t i = 0; i < gradients.size(); ++i) {
    for (int64_t r = 0; r < kRows; ++r) {
      for (int64_t j = 0; j < dims[i]; ++j) {
        float* value = const_cast<float*>(gradients[i].row(static_cast<int32_t>(r))) + j;
        *value = kNan;
        EXPECT_GE(LargestMagnitude(spans, ThreadedFor(3)), kInfiniteMagnitude);
        *value = 0.0f;
        EXPECT_EQ(LargestMagnitude(spans, SerialFor()), 0);
      }
    }
  }
}

}  // namespace
}  // namespace mxrec
