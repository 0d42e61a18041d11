#include "table/assign_embeddings.h"

#include <gtest/gtest.h>

#include "table/table_fixture.h"

namespace mxrec {
namespace {

using namespace table_fixture;  // NOLINT(build/namespaces): written for these tests

TEST(AssignEmbeddings, KeepsSlotsAndNewRowsHaveInitialOnes) {
  const auto table = Make(Config(), {{"m", 0.5f}});
  ASSERT_TRUE(AssignRow(table.get(), 1, Floats(2 * kDim, 7.0f)).ok());
  const Keys keys = {1, 2};
  const Floats embeddings(2 * kDim, 3.0f);
  ASSERT_TRUE(AssignEmbeddings(table.get(), keys.data(), 2, embeddings.data()).ok());
  Floats kept(kDim, 3.0f), fresh(kDim, 3.0f);
  kept.resize(2 * kDim, 7.0f);
  fresh.resize(2 * kDim, 0.5f);
  EXPECT_EQ(ReadRow(*table, 1), kept);
  EXPECT_EQ(ReadRow(*table, 2), fresh);
  ExpectNumbersAddUp(*table, 2);
}

TEST(AssignEmbeddings, ThatDoNotFitChangeNothing) {
  const auto table = Make(Config(3));
  MustInsert(table.get(), {1, 2});
  const Content before = Walk(*table);
  const Keys keys = {1, 2, 3, 4};
  const Floats embeddings(4 * kDim, 3.0f);
  EXPECT_EQ(AssignEmbeddings(table.get(), keys.data(), 4, embeddings.data()).code(), Status::Code::kResourceExhausted);
  EXPECT_EQ(Walk(*table), before);
  ExpectNumbersAddUp(*table, 2);
  EXPECT_TRUE(AssignEmbeddings(table.get(), keys.data(), 3, embeddings.data()).ok());
}

}  // namespace
}  // namespace mxrec
