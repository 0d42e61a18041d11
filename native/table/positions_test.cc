#include "table/positions.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "table/plan_fixture.h"

namespace mxrec {
namespace {

using namespace table_fixture;  // NOLINT(build/namespaces): written for these tests
using plan_fixture::Prepared;

class PositionsTest : public testing::Test {
 protected:
  PositionsTest() : prepared_(&preparer_, {Make(Config())}, {{0, {5, 6, 5, 7}, {2, 2}}, {0, {8, 6}, {2}}}) {
    for (int64_t u = 0; u < table().keys_size; ++u) handles_.push_back(100 + table().keys[u]);
  }
  const TablePlan& table() const { return prepared_.plan.tables()[0]; }
  const FeaturePlan& feature(size_t f) const { return prepared_.plan.features()[f]; }
  int64_t& HandleOf(int64_t key) {
    return handles_[std::find(table().keys, table().keys + table().keys_size, key) - table().keys];
  }
  Status TryTouched(int64_t t, const Keys& features, const Keys& handles, Keys* out) const {
    out->assign(handles.size(), -99);
    return Touched(prepared_.plan, t, features, handles.data(), static_cast<int64_t>(handles.size()), SerialFor(),
                   out->data());
  }

  Preparer preparer_;
  Prepared prepared_;
  Keys handles_;
};

TEST_F(PositionsTest, TellsWhichFoundARow) {
  HandleOf(5) = HandleOf(8) = kNoRow;
  bool out[4];
  ASSERT_TRUE(HasRow(table(), feature(0), handles_.data(), 4, out).ok());
  EXPECT_EQ(std::vector<bool>(out, out + 4), std::vector<bool>({false, true, false, true}));
  ASSERT_TRUE(HasRow(table(), feature(1), handles_.data(), 4, out).ok());
  EXPECT_EQ(std::vector<bool>(out, out + 2), std::vector<bool>({false, true}));
  EXPECT_EQ(HasRow(table(), feature(0), handles_.data(), 3, out).code(), Status::Code::kInvalidArgument);
}

TEST_F(PositionsTest, TellsWhichHoldPadding) {
  bool out[4];
  IsPadding(table(), feature(0), {-1, 5, 8}, out);
  EXPECT_EQ(std::vector<bool>(out, out + 4), std::vector<bool>({true, false, true, false}));
  IsPadding(table(), feature(1), {-1, 5, 8}, out);
  EXPECT_EQ(std::vector<bool>(out, out + 2), std::vector<bool>({true, false}));
}

TEST_F(PositionsTest, KeepsTheHandlesOfKeysThatOccurInSomeFeatures) {
  Keys out;
  ASSERT_TRUE(TryTouched(0, {0, 1}, handles_, &out).ok());
  EXPECT_EQ(out, handles_);
  ASSERT_TRUE(TryTouched(0, {0}, handles_, &out).ok());
  Keys without_8 = handles_;
  for (int64_t& handle : without_8) handle = handle == 108 ? kNoRow : handle;
  EXPECT_EQ(out, without_8);
}

TEST_F(PositionsTest, RefusesWhatDoesNotBelongToThePlan) {
  Keys out;
  EXPECT_FALSE(TryTouched(1, {0}, handles_, &out).ok());
  EXPECT_FALSE(TryTouched(-1, {0}, handles_, &out).ok());
  EXPECT_FALSE(TryTouched(0, {2}, handles_, &out).ok());
  EXPECT_FALSE(TryTouched(0, {0}, {1, 2, 3}, &out).ok());
}

}  // namespace
}  // namespace mxrec
