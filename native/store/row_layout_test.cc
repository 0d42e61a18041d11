#include "store/row_layout.h"

#include <gtest/gtest.h>

namespace mxrec {
namespace {

std::vector<SlotSpec> Slots(int count) {
  std::vector<SlotSpec> slots;
  for (int i = 0; i < count; ++i) slots.push_back({"slot" + std::to_string(i), 0.5f * i});
  return slots;
}

bool IsPowerOfTwo(int64_t x) { return x > 0 && (x & (x - 1)) == 0; }

TEST(RowLayout, PutsTheSlotsRightBehindTheEmbedding) {
  const RowLayout layout(6, Slots(3));
  EXPECT_EQ(layout.dim(), 6);
  EXPECT_EQ(layout.slot_offset(0), 6);
  EXPECT_EQ(layout.slot_offset(1), 12);
  EXPECT_EQ(layout.slot_offset(2), 18);
  EXPECT_EQ(layout.slots(), Slots(3));
}

TEST(RowLayout, HasRoomForEveryPartAndWastesLittle) {
  for (int slots = 0; slots <= 3; ++slots) {
    for (int dim = 1; dim <= 300; ++dim) {
      const RowLayout layout(dim, Slots(slots));
      const int64_t floats = dim * (1 + slots);
      ASSERT_GE(layout.stride(), floats);
      ASSERT_LT(layout.stride(), floats <= 16 ? 2 * floats : floats + 8) << "dim " << dim << ", slots " << slots;
    }
  }
}

TEST(RowLayout, SmallRowsNeverStraddleACacheLine) {
  for (int slots = 0; slots <= 3; ++slots) {
    for (int dim = 1; dim * (1 + slots) <= 16; ++dim) {
      const RowLayout layout(dim, Slots(slots));
      EXPECT_TRUE(IsPowerOfTwo(layout.stride()));
      EXPECT_LE(layout.stride(), 16);
    }
  }
}

TEST(RowLayout, LargeRowsStartAtAWholeVector) {
  for (const int dim : {17, 20, 24, 31, 32, 33, 100, 8192}) EXPECT_EQ(RowLayout(dim, {}).stride() % 8, 0) << dim;
}

TEST(RowLayout, DoesNotOverflowAtTheLargestDim) {
  EXPECT_EQ(RowLayout(8192, Slots(3)).stride(), 4 * 8192);
  EXPECT_EQ(RowLayout(8192, Slots(3)).slot_offset(2), 3 * 8192);
}

TEST(SlotSpec, IsEqualIfNameAndInitialValueAre) {
  const SlotSpec a{"accumulator", 0.1f};
  EXPECT_TRUE((a == SlotSpec{"accumulator", 0.1f}));
  EXPECT_FALSE((a == SlotSpec{"accumulator", 0.2f}));
  EXPECT_FALSE((a == SlotSpec{"momentum", 0.1f}));
}

}  // namespace
}  // namespace mxrec
