#include "batch/plan_check.h"

#include <gtest/gtest.h>

#include <numeric>

namespace mxrec {
namespace {

// A grouped part of a plan whose sections can be changed.
struct Part {
  explicit Part(int64_t n) {
    std::vector<int64_t> ids(n);
    for (int64_t i = 0; i < n; ++i) ids[i] = i * i % 1009;
    Grouping grouping;
    grouping.Build({{ids.data(), n}}, 3);
    starts = grouping.shard_starts();
    offsets = grouping.offsets();
    index = grouping.index();
    positions = grouping.positions();
    table.shards = 8;
    table.positions_size = n;
    table.keys_size = grouping.keys_size();
    table.shard_starts = starts.data();
    table.offsets = offsets.data();
    table.index = index.data();
    table.positions = positions.data();
  }
  bool IsGood(bool groups = true) const { return CheckContents({{&table, groups}}, ThreadedFor(3)).ok(); }

  TablePlan table;
  std::vector<int32_t> starts, offsets, index, positions;
};

TEST(PlanCheck, AcceptsWhatPreparationMakes) {
  for (const int64_t n : {0, 1, 2, 1000, 16384, 16385, 50000}) EXPECT_TRUE(Part(n).IsGood()) << n;
}

TEST(PlanCheck, RefusesNumbersOutOfRangeAnywhere) {
  for (const int64_t n : {1, 1000, 40000}) {
    for (const int32_t wrong : {-1, INT32_MIN, INT32_MAX}) {
      for (auto section : {&Part::starts, &Part::offsets, &Part::index, &Part::positions}) {
        Part part(n);
        for (const size_t at : {size_t{0}, (part.*section).size() / 2, (part.*section).size() - 1}) {
          const int32_t right = (part.*section)[at];
          (part.*section)[at] = wrong;
          EXPECT_FALSE(part.IsGood()) << n << " " << at << " " << wrong;
          (part.*section)[at] = right;
        }
        EXPECT_TRUE(part.IsGood());
      }
    }
  }
}

TEST(PlanCheck, RefusesPositionsThatDoNotAscendWithinAKey) {
  Part part(40000);
  int64_t u = 0;
  while (part.offsets[u + 1] - part.offsets[u] < 2) ++u;
  std::swap(part.positions[part.offsets[u]], part.positions[part.offsets[u] + 1]);
  EXPECT_FALSE(part.IsGood());
  EXPECT_TRUE(part.IsGood(false)) << "who reads no groups does not mind";
}

TEST(PlanCheck, RefusesAKeyWithoutPositions) {
  Part part(1000);
  part.offsets[5] = part.offsets[4];
  EXPECT_FALSE(part.IsGood());
}

}  // namespace
}  // namespace mxrec
