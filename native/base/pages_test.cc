#include "base/pages.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

namespace mxrec {
namespace {

constexpr size_t kKiB = 1024;
constexpr size_t kMiB = 1024 * kKiB;

uintptr_t Address(const Pages& pages) { return reinterpret_cast<uintptr_t>(pages.data()); }

bool IsMapped(void* page) {
  unsigned char resident;
  return mincore(page, 1, &resident) == 0 || errno != ENOMEM;
}

TEST(Pages, AreZeroedAndWritableToTheLastByte) {
  for (const Pages::Kind kind : {Pages::Kind::kLazy, Pages::Kind::kHuge, Pages::Kind::kHeap}) {
    for (const size_t bytes : {size_t{1}, 4 * kKiB, 5 * kKiB, 3 * kMiB}) {
      const Pages pages(bytes, kind);
      ASSERT_NE(pages.data(), nullptr);
      ASSERT_GE(pages.bytes(), bytes);
      auto* data = static_cast<unsigned char*>(pages.data());
      EXPECT_TRUE(std::all_of(data, data + pages.bytes(), [](unsigned char c) { return c == 0; }));
      std::memset(data, 0xab, pages.bytes());
      EXPECT_EQ(data[0], 0xab);
      EXPECT_EQ(data[pages.bytes() - 1], 0xab);
    }
  }
}

TEST(Pages, StartAtAPageAndHugeOnesAtTwoMegabytes) {
  // Several at once, so that luck with one address proves nothing.
  const Pages small[] = {{1, Pages::Kind::kLazy}, {9 * kKiB, Pages::Kind::kHeap}, {1, Pages::Kind::kHeap}};
  for (const Pages& p : small) EXPECT_EQ(Address(p) % (4 * kKiB), 0u);
  const Pages huge[] = {{1, Pages::Kind::kHuge}, {3 * kMiB, Pages::Kind::kHuge}, {2 * kMiB, Pages::Kind::kHuge}};
  for (const Pages& p : huge) {
    EXPECT_EQ(Address(p) % (2 * kMiB), 0u);
    EXPECT_EQ(p.bytes() % (4 * kKiB), 0u);
  }
}

TEST(Pages, OfNothingAreNothing) {
  const Pages none;
  const Pages zero(0, Pages::Kind::kHuge);
  EXPECT_EQ(none.data(), nullptr);
  EXPECT_EQ(none.bytes(), 0u);
  EXPECT_EQ(zero.data(), nullptr);
  EXPECT_EQ(zero.bytes(), 0u);
}

TEST(Pages, ThatTheKernelRefusesAreNull) {
  for (const Pages::Kind kind : {Pages::Kind::kLazy, Pages::Kind::kHuge}) {
    const Pages refused(size_t{1} << 62, kind);
    EXPECT_EQ(refused.data(), nullptr);
    EXPECT_EQ(refused.bytes(), 0u);
  }
}

TEST(Pages, ReserveFarMoreThanTheyHold) {
  const Pages reserved(size_t{1} << 36, Pages::Kind::kLazy);  // 64 GiB of address space
  ASSERT_NE(reserved.data(), nullptr);
  static_cast<char*>(reserved.data())[size_t{1} << 35] = 1;
}

TEST(Pages, MoveWithTheirContentAndUnmapOnce) {
  void* first;
  void* second;
  {
    Pages a(4 * kKiB, Pages::Kind::kLazy);
    first = a.data();
    static_cast<char*>(a.data())[7] = 42;
    Pages b(std::move(a));
    EXPECT_EQ(b.data(), first);
    EXPECT_EQ(static_cast<char*>(b.data())[7], 42);

    Pages c(4 * kKiB, Pages::Kind::kLazy);
    second = c.data();
    c = std::move(b);
    EXPECT_EQ(c.data(), first);
    EXPECT_EQ(static_cast<char*>(c.data())[7], 42);
    EXPECT_TRUE(IsMapped(first));
  }
  EXPECT_FALSE(IsMapped(first));
  EXPECT_FALSE(IsMapped(second));
}

TEST(Pages, AreGivenBackWhenReplacedByNothing) {
  Pages pages(2 * kMiB, Pages::Kind::kHuge);
  void* data = pages.data();
  ASSERT_TRUE(IsMapped(data));
  pages = Pages();
  EXPECT_EQ(pages.data(), nullptr);
  EXPECT_FALSE(IsMapped(data));
}

}  // namespace
}  // namespace mxrec
