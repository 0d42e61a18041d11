// Steps of a model on several ranks, against a map of rows that all ranks' batches are applied to by hand.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <mutex>
#include <random>

#include "exchange/ranks_fixture.h"

namespace mxrec {
namespace {

using namespace ranks_fixture;  // NOLINT(build/namespaces): written for these tests
using table_fixture::Config;
using table_fixture::InitialRow;
using table_fixture::Keys;
using table_fixture::Make;

constexpr float kRate = 0.5f;

Floats At(const Floats& matrix, size_t i) { return Floats(&matrix[i * kDim], &matrix[i * kDim] + kDim); }

// The rows of one table, trained by gradient descent.
struct Model {
  std::map<int64_t, Floats> rows;
  Floats& operator[](int64_t key) { return rows.try_emplace(key, InitialRow(key)).first->second; }
};

class RankedStepTest : public testing::TestWithParam<int> {};

TEST_P(RankedStepTest, ManyRanksTrainWhatOneMapTrains) {
  Ranks ranks(GetParam(), [] { return Preparer::Tables{Make(Config())}; });
  Model model;
  std::mt19937 random(1);
  for (int step = 0; step < 20; ++step) {
    std::vector<std::vector<Ids>> batches;
    std::vector<std::vector<Floats>> gradients;
    for (int r = 0; r < ranks.size(); ++r) {
      Keys first, second;
      for (int i = 0; i < 30; ++i) first.push_back(static_cast<int64_t>(random() % 50) - 10);
      for (int i = 0; i < 8; ++i) second.push_back(static_cast<int64_t>(random() % 500) << 40);
      if (step == 3 && r == 0) first.clear();
      batches.push_back({{0, first, {static_cast<int64_t>(first.size())}}, {0, second, {4, 2}}});
      gradients.emplace_back();
      for (const Ids& ids : batches.back()) {
        Floats gradient(ids.ids.size() * kDim);
        for (float& g : gradient) g = static_cast<float>(random() % 1000) / 1000 - 0.5f;
        gradients.back().push_back(gradient);
      }
    }
    ranks.Run([&](int r, Rank& rank) {
      Rank::Looked looked;
      const Status status = rank.LookUp(batches[r], true, &looked);
      ASSERT_TRUE(status.ok()) << status.message();
      for (size_t f = 0; f < batches[r].size(); ++f) {
        for (size_t i = 0; i < batches[r][f].ids.size(); ++i) {
          const auto known = model.rows.find(batches[r][f].ids[i]);
          const Floats expected = known == model.rows.end() ? InitialRow(batches[r][f].ids[i]) : known->second;
          const Floats got = At(looked.embeddings[f], i);
          for (int j = 0; j < kDim; ++j) EXPECT_NEAR(got[j], expected[j], 1e-5);
        }
      }
      const Status updated = rank.Update(looked, gradients[r], "gradient_descent", {kRate, 0});
      EXPECT_TRUE(updated.ok()) << updated.message();
    });
    for (int r = 0; r < ranks.size(); ++r) {
      for (size_t f = 0; f < batches[r].size(); ++f) {
        for (size_t i = 0; i < batches[r][f].ids.size(); ++i) {
          Floats& row = model[batches[r][f].ids[i]];
          for (int j = 0; j < kDim; ++j) row[j] -= kRate * gradients[r][f][i * kDim + j];
        }
      }
    }
  }
  int64_t rows = 0;
  for (int r = 0; r < ranks.size(); ++r) rows += ranks[r].tables[0]->size();
  EXPECT_EQ(rows, static_cast<int64_t>(model.rows.size()));
  for (const auto& [key, expected] : model.rows) {
    Floats row;
    ASSERT_TRUE(ranks.Find(0, key, &row)) << key;
    for (int j = 0; j < kDim; ++j) EXPECT_NEAR(row[j], expected[j], 1e-5) << key;
  }
}

// So many keys that an owner groups them part by part; every rank has a gradient of its own for each of its keys. The
// owner of the padding key gets fewer gradients than it gave rows, and groups them anew; the others need not.
TEST_P(RankedStepTest, ManyKeysOfOneTableAreSummedRowByRow) {
  constexpr int64_t kEach = 12000;
  Ranks ranks(GetParam(), [] { return Preparer::Tables{Make(Config(0, {0}))}; });
  Model model;
  ranks.Run([&](int r, Rank& rank) {
    Keys keys;
    for (int64_t i = 0; i < kEach; ++i) keys.push_back(i * 5 + r * 10000);  // those of neighbours overlap
    Rank::Looked looked;
    ASSERT_TRUE(rank.LookUp({{0, keys, {kEach}}}, true, &looked).ok());
    Floats gradient;
    for (int64_t i = 0; i < kEach * kDim; ++i) gradient.push_back(static_cast<float>(keys[i / kDim] % 7 + r));
    EXPECT_TRUE(rank.Update(looked, {gradient}, "gradient_descent", {kRate, 0}).ok());
  });
  for (int r = 0; r < ranks.size(); ++r) {
    for (int64_t i = 0; i < kEach; ++i) {
      const int64_t key = i * 5 + r * 10000;
      for (int j = 0; j < kDim && key != 0; ++j) model[key][j] -= kRate * static_cast<float>(key % 7 + r);
    }
  }
  for (const auto& [key, expected] : model.rows) {
    Floats row;
    ASSERT_TRUE(ranks.Find(0, key, &row)) << key;
    for (int j = 0; j < kDim; ++j) ASSERT_NEAR(row[j], expected[j], 1e-5) << key;
  }
}

TEST_P(RankedStepTest, BagsAndPaddingAreAsOnOneRank) {
  Ranks ranks(GetParam(), [] { return Preparer::Tables{Make(Config(0, {3}))}; });
  const std::vector<Ids> batch = {{0, {1, 2, 3, 3, 3, 5}, {3, 2}}};
  ranks.Run([&](int, Rank& rank) {
    Rank::Looked looked;
    ASSERT_TRUE(rank.LookUp(batch, true, &looked, true).ok());
    for (int j = 0; j < kDim; ++j) {
      EXPECT_FLOAT_EQ(looked.embeddings[0][j], InitialRow(1)[j] + InitialRow(2)[j]);
      EXPECT_EQ(looked.embeddings[0][kDim + j], 0.0f);
      EXPECT_FLOAT_EQ(looked.embeddings[0][2 * kDim + j], InitialRow(5)[j]);
    }
    EXPECT_TRUE(rank.Update(looked, {Floats(3 * kDim, 1.0f)}, "gradient_descent", {kRate, 0}).ok());
  });
  Floats row;
  ASSERT_TRUE(ranks.Find(0, 2, &row));
  EXPECT_NEAR(row[0], InitialRow(2)[0] - kRate * static_cast<float>(ranks.size()), 1e-5);
  ASSERT_TRUE(ranks.Find(0, 3, &row));
  EXPECT_EQ(row, InitialRow(3));  // padding is never updated
}

TEST_P(RankedStepTest, ReadingChangesNothingAndGivesZerosForWhatIsNotThere) {
  Ranks ranks(GetParam(), [] { return Preparer::Tables{Make(Config())}; });
  ranks.Run([&](int, Rank& rank) {
    Rank::Looked looked;
    ASSERT_TRUE(rank.LookUp({{0, {1, 2}, {2}}}, true, &looked).ok());
    ASSERT_TRUE(rank.LookUp({{0, {2, 9}, {2}}}, false, &looked).ok());
    EXPECT_EQ(At(looked.embeddings[0], 0), InitialRow(2));
    EXPECT_EQ(At(looked.embeddings[0], 1), Floats(kDim, 0.0f));
  });
  Floats row;
  EXPECT_FALSE(ranks.Find(0, 9, &row));
}

// A key is admitted by how often all ranks have seen it together.
TEST_P(RankedStepTest, AdmissionCountsOverAllRanks) {
  const uint32_t threshold = static_cast<uint32_t>(2 * GetParam());
  Ranks ranks(GetParam(), [&] {
    auto table = Make(Config());
    Tracking tracking;
    tracking.access_threshold = threshold;
    EXPECT_TRUE(table->Track(tracking).ok());
    return Preparer::Tables{table};
  });
  Floats row;
  ranks.Run([&](int, Rank& rank) {
    Rank::Looked looked;
    ASSERT_TRUE(rank.LookUp({{0, {7}, {1}}}, true, &looked).ok());
  });
  EXPECT_FALSE(ranks.Find(0, 7, &row));
  ranks.Run([&](int, Rank& rank) {
    Rank::Looked looked;
    ASSERT_TRUE(rank.LookUp({{0, {7}, {1}}}, true, &looked).ok());
  });
  EXPECT_TRUE(ranks.Find(0, 7, &row));
  int64_t count = 0;
  for (int r = 0; r < ranks.size(); ++r) count += ranks[r].tables[0]->Facts(7).count;
  EXPECT_EQ(count, threshold);
}

TEST_P(RankedStepTest, AGradientThatIsNotFiniteOnOneRankChangesNoRowOnAny) {
  Ranks ranks(GetParam(), [] { return Preparer::Tables{Make(Config())}; });
  ranks.Run([&](int r, Rank& rank) {
    Rank::Looked looked;
    ASSERT_TRUE(rank.LookUp({{0, {1, 2, 3, 4}, {4}}}, true, &looked).ok());
    Floats gradient(4 * kDim, 1.0f);
    if (r == 0) gradient[7] = std::numeric_limits<float>::quiet_NaN();
    const Status status = rank.Update(looked, {gradient}, "gradient_descent", {kRate, 0});
    EXPECT_EQ(status.code(), Status::Code::kInvalidArgument);
    EXPECT_NE(status.message().find("'user'"), std::string::npos) << status.message();
  });
  for (const int64_t key : {1, 2, 3, 4}) {
    Floats row;
    ASSERT_TRUE(ranks.Find(0, key, &row));
    EXPECT_EQ(row, InitialRow(key));
  }
}

TEST_P(RankedStepTest, AFullTableIsTheSameErrorOnEveryRank) {
  Ranks ranks(GetParam(), [] { return Preparer::Tables{Make(Config(2))}; });
  std::mutex mutex;
  int full = 0;
  ranks.Run([&](int, Rank& rank) {
    Rank::Looked looked;
    Keys keys;
    for (int64_t k = 0; k < 200; ++k) keys.push_back(k);
    const Status status = rank.LookUp({{0, keys, {200}}}, true, &looked);
    EXPECT_EQ(status.code(), Status::Code::kResourceExhausted) << status.message();
    std::lock_guard<std::mutex> lock(mutex);
    full += status.message().find("full") != std::string::npos;
  });
  EXPECT_EQ(full, ranks.size());
}

// Ownership is never even: what counts is how many rows the ranks have together.
TEST_P(RankedStepTest, ATableIsFullWhenAllRanksTogetherHoldItsLimit) {
  Ranks ranks(GetParam(), [] { return Preparer::Tables{Make(Config(10))}; });
  ranks.Run([&](int, Rank& rank) {
    Rank::Looked looked;
    const Status fits = rank.LookUp({{0, {0, 1, 2, 3, 4, 5, 6, 7, 8, 9}, {10}}}, true, &looked);
    EXPECT_TRUE(fits.ok()) << fits.message();
    EXPECT_TRUE(rank.LookUp({{0, {3, 9}, {2}}}, true, &looked).ok());
    const Status status = rank.LookUp({{0, {3, 10}, {2}}}, true, &looked);
    EXPECT_EQ(status.code(), Status::Code::kResourceExhausted);
    EXPECT_NE(status.message().find("it holds 10 rows"), std::string::npos) << status.message();
    EXPECT_EQ(rank.tables[0]->size() + rank.tables[0]->elsewhere(), 10);
  });
}

// Every rank has all rows, with the same bits, trained by the gradients of all.
TEST_P(RankedStepTest, AReplicatedTableIsTheSameOnEveryRank) {
  const bool is_counted = GetParam() % 2 == 0;
  Ranks ranks(GetParam(), [&] {
    auto table = Make(Config(1000, {5}));
    table->Replicate();
    Tracking tracking;
    tracking.access_threshold = 2;
    if (is_counted) EXPECT_TRUE(table->Track(tracking).ok());
    return Preparer::Tables{table, Make(Config())};
  });
  Model model;
  std::map<int64_t, int> seen;
  std::mt19937 random(5);
  for (int step = 0; step < 12; ++step) {
    std::vector<Keys> keys(ranks.size());
    for (Keys& mine : keys) {
      for (int i = 0; i < 6 + step % 3; ++i) mine.push_back(static_cast<int64_t>(random() % 40));
      for (const int64_t key : mine) ++seen[key];
    }
    auto gradient = [](int64_t key, int r) { return static_cast<float>(key % 7) - 2.5f * static_cast<float>(r); };
    ranks.Run([&](int r, Rank& rank) {
      const int64_t n = static_cast<int64_t>(keys[r].size());
      Rank::Looked looked;
      const Status status = rank.LookUp({{0, keys[r], {n}}, {1, keys[r], {n}}}, true, &looked);
      ASSERT_TRUE(status.ok()) << status.message();
      Floats gradients;
      for (const int64_t key : keys[r]) gradients.insert(gradients.end(), kDim, gradient(key, r));
      const Status updated = rank.Update(looked, {gradients, gradients}, "gradient_descent", {kRate, 0});
      ASSERT_TRUE(updated.ok()) << updated.message();
      ASSERT_TRUE(rank.LookUp({{0, {1, 99}, {2}}, {1, {1, 99}, {2}}}, false, &looked).ok());
    });
    for (int r = 0; r < ranks.size(); ++r) {
      for (const int64_t key : keys[r]) {
        if (is_counted && seen[key] < 2) continue;
        Floats& row = model[key];
        for (int j = 0; key != 5 && j < kDim; ++j) row[j] -= kRate * gradient(key, r);
      }
    }
  }
  for (int r = 0; r < ranks.size(); ++r) {
    const Table& table = *ranks[r].tables[0];
    EXPECT_EQ(table.size(), static_cast<int64_t>(model.rows.size()));
    EXPECT_EQ(table.elsewhere(), 0);
    for (const auto& [key, expected] : model.rows) {
      Floats row(kDim), first(kDim);
      ASSERT_TRUE(table_fixture::ReadInto(table, key, row.data())) << key;
      ASSERT_TRUE(table_fixture::ReadInto(*ranks[0].tables[0], key, first.data()));
      EXPECT_EQ(row, first);
      for (int j = 0; j < kDim; ++j) EXPECT_NEAR(row[j], expected[j], 1e-4) << key;
    }
    for (const auto& [key, count] : seen) EXPECT_EQ(table.Facts(key).count, is_counted ? count : 0) << key;
  }
}

TEST_P(RankedStepTest, RunsOfTheSameRanksGiveTheSameBits) {
  std::vector<std::map<int64_t, Floats>> results;
  for (int run = 0; run < 2; ++run) {
    Ranks ranks(GetParam(), [] { return Preparer::Tables{Make(Config())}; });
    ranks.Run([&](int r, Rank& rank) {
      std::mt19937 random(r);
      for (int step = 0; step < 10; ++step) {
        Keys keys;
        for (int i = 0; i < 40; ++i) keys.push_back(random() % 30);
        Floats gradient(keys.size() * kDim);
        for (float& g : gradient) g = static_cast<float>(random()) / 1e9f;
        Rank::Looked looked;
        ASSERT_TRUE(rank.LookUp({{0, keys, {40}}}, true, &looked).ok());
        ASSERT_TRUE(rank.Update(looked, {gradient}, "gradient_descent", {kRate, 0}).ok());
      }
    });
    results.emplace_back();
    for (int64_t key = 0; key < 30; ++key) ranks.Find(0, key, &results.back()[key]);
  }
  EXPECT_EQ(results[0], results[1]);
}

TEST(RankedStep, TablesThatDifferAreAnErrorThatSaysSo) {
  int made = 0;
  Ranks ranks(2, [&] {
    TableConfig config = Config();
    config.name = made++ == 0 ? "user" : "item";
    return Preparer::Tables{Make(config)};
  });
  ranks.Run([&](int, Rank& rank) {
    Rank::Looked looked;
    const Status status = rank.LookUp({{0, {1}, {1}}}, true, &looked);
    EXPECT_EQ(status.code(), Status::Code::kFailedPrecondition);
    EXPECT_NE(status.message().find("same graph"), std::string::npos) << status.message();
  });
}

TEST(Owners, AreSpreadEvenlyWhateverTheKeys) {
  for (const int64_t step : {int64_t{1}, int64_t{1} << 32, int64_t{3}}) {
    std::vector<int> counts(4);
    for (int64_t k = 0; k < 40000; ++k) ++counts[OwnerOf(k * step, 4)];
    for (const int count : counts) EXPECT_NEAR(count, 10000, 400);
  }
}

INSTANTIATE_TEST_SUITE_P(Sizes, RankedStepTest, testing::Values(1, 2, 3, 4));

}  // namespace
}  // namespace mxrec
