#include "base/arena.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <random>
#include <thread>
#include <vector>

namespace mxrec {
namespace {

constexpr size_t kPage = size_t{2} << 20;

TEST(Arena, ServesTheSizesBetweenAHeapBlockAndAHugePage) {
  EXPECT_FALSE(Arena::Serves(Arena::kSmallest - 1));
  EXPECT_TRUE(Arena::Serves(Arena::kSmallest));
  EXPECT_TRUE(Arena::Serves(Arena::kLargest));
  EXPECT_FALSE(Arena::Serves(Arena::kLargest + 1));
}

TEST(Arena, BlocksAreZeroAlignedAndApart) {
  Arena arena;
  std::mt19937_64 random(3);
  struct Block {
    char* data;
    size_t bytes;
    char mark;
  };
  std::vector<Block> blocks;
  for (int i = 0; i < 2000; ++i) {
    if (blocks.size() > 40 || (!blocks.empty() && random() % 3 == 0)) {
      const size_t at = random() % blocks.size();
      const Block block = blocks[at];
      // Nobody else wrote here since it was handed out.
      EXPECT_TRUE(std::all_of(block.data, block.data + block.bytes, [&](char c) { return c == block.mark; }));
      arena.Free(block.data, block.bytes);
      blocks.erase(blocks.begin() + static_cast<int64_t>(at));
    } else {
      const size_t bytes = Arena::kSmallest << random() % 5;
      char* data = static_cast<char*>(arena.Allocate(bytes));
      ASSERT_NE(data, nullptr);
      EXPECT_EQ(reinterpret_cast<uintptr_t>(data) % bytes, 0u);
      ASSERT_TRUE(std::all_of(data, data + bytes, [](char c) { return c == 0; }));
      const char mark = static_cast<char>(1 + i % 100);
      std::memset(data, mark, bytes);
      blocks.push_back({data, bytes, mark});
    }
  }
}

TEST(Arena, HalvesJoinAgain) {
  Arena arena;
  std::vector<void*> small;
  for (size_t i = 0; i < kPage / Arena::kSmallest; ++i) small.push_back(arena.Allocate(Arena::kSmallest));
  EXPECT_EQ(arena.bytes(), kPage);
  for (void* block : small) arena.Free(block, Arena::kSmallest);
  void* a = arena.Allocate(Arena::kLargest);
  void* b = arena.Allocate(Arena::kLargest);
  EXPECT_EQ(arena.bytes(), kPage);  // the page of the small blocks served both
  arena.Free(a, Arena::kLargest);
  arena.Free(b, Arena::kLargest);
}

TEST(Arena, GivesMemoryBackButForAFewPages) {
  Arena arena;
  std::vector<void*> blocks;
  for (int i = 0; i < 200; ++i) blocks.push_back(arena.Allocate(Arena::kLargest));
  EXPECT_EQ(arena.bytes(), 100 * kPage);
  for (void* block : blocks) arena.Free(block, Arena::kLargest);
  EXPECT_LE(arena.bytes(), 16 * kPage);
}

TEST(Arena, ThreadsDoNotShareBlocks) {
  Arena arena;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&arena, t] {
      for (int i = 0; i < 200; ++i) {
        const size_t bytes = Arena::kSmallest << (i + t) % 3;
        char* data = static_cast<char*>(arena.Allocate(bytes));
        ASSERT_EQ(data[bytes - 1], 0);
        std::memset(data, t + 1, bytes);
        ASSERT_EQ(data[0], t + 1);
        arena.Free(data, bytes);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace mxrec
