#include "batch/pooling.h"

#include <gtest/gtest.h>

namespace mxrec {
namespace {

FeaturePlan Feature(std::vector<int64_t> shape) {
  FeaturePlan feature;
  feature.size = 1;
  for (const int64_t dim : shape) feature.size *= dim;
  feature.shape = std::move(shape);
  return feature;
}

void ExpectBags(const std::vector<int64_t>& shape, Pooling pooling, int64_t size, int64_t count) {
  Bags bags;
  ASSERT_TRUE(BagsOf(Feature(shape), pooling, &bags).ok());
  EXPECT_EQ(bags.size, size);
  EXPECT_EQ(bags.count, count);
}

TEST(Pooling, SumsAlongTheLastDimension) {
  ExpectBags({4, 5}, Pooling::kSum, 5, 4);
  ExpectBags({2, 3, 7}, Pooling::kSum, 7, 6);
  ExpectBags({9}, Pooling::kSum, 9, 1);
}

TEST(Pooling, WithoutItEveryPositionIsARow) {
  ExpectBags({4, 5}, Pooling::kNone, 1, 20);
  ExpectBags({}, Pooling::kNone, 1, 1);
}

TEST(Pooling, EmptyBagsAreRowsToo) {
  ExpectBags({3, 0}, Pooling::kSum, 1, 3);
  ExpectBags({0, 5}, Pooling::kSum, 1, 0);
  ExpectBags({0, int64_t{1} << 40}, Pooling::kSum, 1, 0);
}

TEST(Pooling, RefusesIdsThatCannotBePooled) {
  Bags bags;
  EXPECT_EQ(BagsOf(Feature({}), Pooling::kSum, &bags).code(), Status::Code::kInvalidArgument);
  FeaturePlan forged = Feature({0});
  forged.shape = {int64_t{1} << 40, int64_t{1} << 40, 0};
  EXPECT_EQ(BagsOf(forged, Pooling::kSum, &bags).code(), Status::Code::kInvalidArgument);
}

}  // namespace
}  // namespace mxrec
