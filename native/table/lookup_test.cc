#include "table/lookup.h"

#include <gtest/gtest.h>

#include "table/plan_fixture.h"

namespace mxrec {
namespace {

using namespace table_fixture;  // NOLINT(build/namespaces): written for these tests
using plan_fixture::Ids;
using plan_fixture::Prepared;

constexpr int64_t kPadding = 3;

// Two tables, and a batch of a pooled feature and another for the first, side by side in one matrix, and one for the
// second.
class LookupTest : public testing::Test {
 protected:
  void SetUp() override {
    TableConfig item = Config();
    item.name = "item";
    tables_ = {Make(Config(0, {kPadding})), Make(item)};
    batch_ = {{0, {1, 2, 1, 3, 3, 4}, {2, 3}}, {0, {7, 1}, {2}}, {1, {9, 8, 9}, {3}}};
  }

  void Prepare(bool grouped = true) {
    prepared_ = std::make_unique<Prepared>(&preparer_, tables_, batch_, grouped);
    lookups_.assign(2, LookupTable());
    for (int64_t t = 0; t < 2; ++t) {
      const int64_t keys = prepared_->plan.tables()[t].keys_size;
      handles_[t].assign(keys, -99);
      rows_[t].assign(keys * kDim, -99.0f);
      lookups_[t].table = tables_[t].get();
      lookups_[t].in_plan = t;
      lookups_[t].insert = grouped;
      lookups_[t].handles = handles_[t].data();
      lookups_[t].rows = rows_[t].data();
    }
    wide_.assign(4 * kDim, -99.0f);
    narrow_.assign(3 * kDim, -99.0f);
    features_ = {{0, Feature(0), {}, wide_.data(), 2 * kDim},
                 {0, Feature(1), {}, wide_.data() + kDim, 2 * kDim},
                 {1, Feature(2), {}, narrow_.data(), kDim}};
    for (size_t f = 0; f < 3; ++f) {
      const Pooling pooling = f == 0 ? Pooling::kSum : Pooling::kNone;
      ASSERT_TRUE(BagsOf(*Feature(f), pooling, &features_[f].bags).ok());
    }
  }
  const FeaturePlan* Feature(size_t f) const { return &prepared_->plan.features()[f]; }

  Status Run(bool grouped = true) const {
    return Lookup(prepared_->plan, grouped, lookups_, features_, ThreadedFor(2));
  }
  void MustRun(bool grouped = true) const {
    const Status status = Run(grouped);
    ASSERT_TRUE(status.ok()) << status.message();
  }
  static Floats At(const Floats& matrix, int64_t i) { return Floats(&matrix[i * kDim], &matrix[i * kDim] + kDim); }
  static Floats Sum(const std::vector<Floats>& rows) {
    Floats sum = rows[0];
    for (size_t i = 1; i < rows.size(); ++i) {
      for (int j = 0; j < kDim; ++j) sum[j] += rows[i][j];
    }
    return sum;
  }
  void ExpectUntouched() const {
    EXPECT_EQ(tables_[0]->size() + tables_[1]->size(), 0);
    EXPECT_EQ(tables_[0]->mutations() + tables_[1]->mutations(), 0);
  }

  Preparer preparer_;
  Preparer::Tables tables_;
  std::vector<Ids> batch_;
  std::unique_ptr<Prepared> prepared_;
  std::vector<LookupTable> lookups_;
  std::vector<LookupFeature> features_;
  Keys handles_[2];
  Floats rows_[2], wide_, narrow_;
};

TEST_F(LookupTest, InsertsKeysAndGivesEmbeddingsHandlesAndRows) {
  Prepare();
  MustRun();
  EXPECT_EQ(tables_[0]->size(), 5);
  EXPECT_EQ(tables_[1]->size(), 2);
  EXPECT_EQ(At(wide_, 0), Sum({InitialRow(1), InitialRow(2), InitialRow(1)}));
  EXPECT_EQ(At(wide_, 1), InitialRow(7));
  EXPECT_EQ(At(wide_, 2), InitialRow(4));  // padding counts for nothing in a bag
  EXPECT_EQ(At(wide_, 3), InitialRow(1));
  EXPECT_EQ(At(narrow_, 0), At(narrow_, 2));
  for (int64_t t = 0; t < 2; ++t) {
    const TablePlan& part = prepared_->plan.tables()[t];
    EXPECT_TRUE(tables_[t]->CheckHandles(handles_[t].data(), part.keys_size).ok());
    for (int64_t u = 0; u < part.keys_size; ++u) EXPECT_EQ(At(rows_[t], u), ReadRow(*tables_[t], part.keys[u]));
  }
}

TEST_F(LookupTest, EvaluationReadsAndChangesNothing) {
  MustInsert(tables_[1].get(), {9});
  const int64_t mutations = tables_[1]->mutations();
  Prepare(false);
  MustRun(false);
  EXPECT_EQ(tables_[0]->size(), 0);
  EXPECT_EQ(tables_[1]->size(), 1);
  EXPECT_EQ(tables_[1]->mutations(), mutations);
  EXPECT_EQ(wide_, Floats(4 * kDim, 0.0f));
  EXPECT_EQ(At(narrow_, 0), ReadRow(*tables_[1], 9));
  EXPECT_EQ(At(narrow_, 1), Floats(kDim, 0.0f));
}

TEST_F(LookupTest, PassesOverTablesThatAreNotLookedUp) {
  Prepare();
  lookups_[1] = LookupTable();
  features_.pop_back();
  lookups_[0].rows = nullptr;
  MustRun();
  EXPECT_EQ(tables_[1]->size(), 0);
  EXPECT_EQ(rows_[0], Floats(rows_[0].size(), -99.0f));
}

TEST_F(LookupTest, PaddingThatNobodySeesGetsNoRow) {
  Prepare();
  lookups_[0].pads = false;
  MustRun();
  EXPECT_EQ(tables_[0]->size(), 4);
  EXPECT_EQ(At(wide_, 2), InitialRow(4));
}

TEST_F(LookupTest, EmptyBagsAreZeros) {
  batch_[0] = {0, {}, {2, 0}};
  Prepare();
  MustRun();
  for (const int64_t i : {0, 2}) EXPECT_EQ(At(wide_, i), Floats(kDim, 0.0f));
  EXPECT_EQ(At(wide_, 1), InitialRow(7));
}

TEST_F(LookupTest, CountsTheKeysOfATableThatTracksThem) {
  Tracking tracking;
  tracking.access_threshold = 2;
  ASSERT_TRUE(tables_[1]->Track(tracking).ok());
  Prepare();
  MustRun();
  EXPECT_EQ(tables_[1]->size(), 1);
  EXPECT_EQ(tables_[1]->Facts(9).count, 2u);
  EXPECT_EQ(tables_[1]->Facts(8).count, 1u);
  EXPECT_EQ(At(narrow_, 1), Floats(kDim, 0.0f));
}

TEST_F(LookupTest, RefusesABatchThatWasPreparedForSomethingElse) {
  Prepare();
  Status status = Run(false);
  EXPECT_EQ(status.code(), Status::Code::kInvalidArgument);
  EXPECT_NE(status.message().find("prepared for training, the lookup is for evaluation"), std::string::npos);
  ExpectUntouched();
  Prepare(false);
  status = Run(true);
  EXPECT_NE(status.message().find("prepared for evaluation, the lookup is for training"), std::string::npos);
  ExpectUntouched();
}

TEST_F(LookupTest, RefusesMoreKeysThanTheCapacity) {
  Prepare();
  lookups_[0].capacity = 4;
  lookups_[1].capacity = 2;
  const Status status = Run();
  EXPECT_EQ(status.code(), Status::Code::kInvalidArgument);
  for (const char* part : {"'user'", "must not exceed 4", "got 5"}) {
    EXPECT_NE(status.message().find(part), std::string::npos) << status.message();
  }
  ExpectUntouched();
  lookups_[0].capacity = 5;
  MustRun();
}

TEST_F(LookupTest, RefusesADamagedPlan) {
  Prepare();
  const int32_t* index = prepared_->plan.tables()[0].index;
  const_cast<int32_t*>(index)[1] = 1 << 30;
  EXPECT_EQ(Run().code(), Status::Code::kInvalidArgument);
  ExpectUntouched();
}

}  // namespace
}  // namespace mxrec
