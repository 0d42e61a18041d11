#include "table/bulk_loader.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "table/table_fixture.h"

namespace mxrec {
namespace {

using namespace table_fixture;  // NOLINT(build/namespaces): written for these tests

// Columns of a checkpoint: an embedding and a slot for each key, told apart by the key.
struct Columns {
  explicit Columns(const Keys& keys) {
    for (const int64_t key : keys) {
      for (int j = 0; j < kDim; ++j) embedding.push_back(static_cast<float>(key) + 0.25f * j);
      for (int j = 0; j < kDim; ++j) slot.push_back(static_cast<float>(-key) - 0.25f * j);
    }
  }
  Floats embedding, slot;
};

TEST(BulkLoader, EqualsAssignForAnyNumberOfThreads) {
  Keys keys = Range(-2000, 2000);
  std::shuffle(keys.begin(), keys.end(), std::mt19937_64(1));
  const Columns columns(keys);
  const auto assigned = Make(Config(), {{"m", 0.5f}});
  for (size_t i = 0; i < keys.size(); ++i) {
    const float* parts[] = {&columns.embedding[i * kDim], &columns.slot[i * kDim]};
    ASSERT_TRUE(assigned->Assign(keys[i], parts).ok());
  }
  const Content expected = Walk(*assigned);
  for (int threads = 1; threads <= 4; ++threads) {
    const auto table = Make(Config(), {{"m", 0.5f}});
    const float* all[] = {columns.embedding.data(), columns.slot.data()};
    ASSERT_TRUE(BulkLoader(table.get(), ThreadedFor(threads)).Insert(keys.data(), all, 4000).ok());
    EXPECT_TRUE(Walk(*table) == expected) << threads << " threads";
    ExpectNumbersAddUp(*table, 4000);
  }
}

TEST(BulkLoader, FillsMissingColumnsWithInitialValues) {
  const Keys keys = Range(0, 100);
  const Columns columns(keys);
  const auto table = Make(Config(), {{"m", 0.5f}, {"v", 2}});
  Batch batch(*table, Range(0, 200));  // leaves rows whose old content must not shine through
  ASSERT_TRUE(batch.Insert(table.get()).ok());
  UpdateAll(table.get(), batch, "lazy_adam", {0.1f, 0.9f, 0.99f, 1e-8f}, 1.0f);
  const Keys all = Range(0, 200);
  table->Erase(all.data(), 200);

  const float* parts[] = {nullptr, columns.slot.data(), nullptr};
  ASSERT_TRUE(BulkLoader(table.get(), SerialFor()).Insert(keys.data(), parts, 100).ok());
  for (int64_t key = 0; key < 100; ++key) {
    Floats expected = InitialRow(key);
    expected.insert(expected.end(), &columns.slot[key * kDim], &columns.slot[key * kDim] + kDim);
    expected.resize(3 * kDim, 2.0f);
    ASSERT_EQ(ReadRow(*table, key), expected);
  }
}

TEST(BulkLoader, RefusesKeysThatArePresentAndTooManyRows) {
  const float* none[] = {nullptr};
  const auto table = Make(Config(100));
  MustInsert(table.get(), {7});
  const Keys present = {1, 2, 7}, twice = {20, 21, 20}, many = Range(200, 300);
  for (const Keys& keys : {present, twice}) {
    const Status status = BulkLoader(table.get(), SerialFor()).Insert(keys.data(), none, 3);
    EXPECT_EQ(status.code(), Status::Code::kAlreadyExists);
    EXPECT_NE(status.message().find(std::to_string(keys[2])), std::string::npos) << status.message();
    ExpectNumbersAddUp(*table, static_cast<int64_t>(Walk(*table).size()));
  }
  const Content before = Walk(*table);
  EXPECT_EQ(BulkLoader(table.get(), SerialFor()).Insert(many.data(), none, 100).code(),
            Status::Code::kResourceExhausted);
  EXPECT_TRUE(Walk(*table) == before);
  EXPECT_TRUE(BulkLoader(table.get(), SerialFor()).Insert(nullptr, none, 0).ok());
  ExpectNumbersAddUp(*table, static_cast<int64_t>(before.size()));
}

}  // namespace
}  // namespace mxrec
