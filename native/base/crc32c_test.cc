#include "base/crc32c.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace mxrec {
namespace {

using Function = uint32_t (*)(uint32_t, const void*, size_t);

class Crc32c : public ::testing::TestWithParam<Function> {};

// RFC 3720 section B.4, and the usual check value.
TEST_P(Crc32c, GivesThePublishedValues) {
  const auto of = [](const std::string& s) { return GetParam()(0, s.data(), s.size()); };
  EXPECT_EQ(of(""), 0u);
  EXPECT_EQ(of("123456789"), 0xe3069283u);
  EXPECT_EQ(of(std::string(32, '\0')), 0x8a9136aau);
  EXPECT_EQ(of(std::string(32, '\xff')), 0x62a8ab43u);
  std::string up, down;
  for (int i = 0; i < 32; ++i) {
    up += static_cast<char>(i);
    down += static_cast<char>(31 - i);
  }
  EXPECT_EQ(of(up), 0x46dd794eu);
  EXPECT_EQ(of(down), 0x113fdb5cu);
}

TEST_P(Crc32c, ExtendsOverAnyCut) {
  std::string data;
  for (int i = 0; i < 100; ++i) data += static_cast<char>(i * 37 + 11);
  const uint32_t whole = GetParam()(0, data.data(), data.size());
  for (size_t cut = 0; cut <= data.size(); ++cut) {
    const uint32_t head = GetParam()(0, data.data(), cut);
    EXPECT_EQ(GetParam()(head, data.data() + cut, data.size() - cut), whole) << "cut at " << cut;
  }
}

INSTANTIATE_TEST_SUITE_P(BothWays, Crc32c, ::testing::Values(crc32c::Extend, crc32c::ExtendPortable));

TEST(Crc32c, PartsCombineToTheWhole) {
  std::vector<unsigned char> data(70000);
  for (size_t i = 0; i < data.size(); ++i) data[i] = static_cast<unsigned char>(i * i + (i >> 3));
  const uint32_t whole = crc32c::Extend(0, data.data(), data.size());
  for (const size_t cut : {0, 1, 7, 8, 255, 4096, 35001, 69999, 70000}) {
    const uint32_t head = crc32c::Extend(0, data.data(), cut);
    const uint32_t tail = crc32c::Extend(0, data.data() + cut, data.size() - cut);
    EXPECT_EQ(crc32c::Combine(head, tail, static_cast<int64_t>(data.size() - cut)), whole) << "cut at " << cut;
  }
  // "123456789" has a well-known checksum; nine parts of one byte.
  uint32_t sum = 0;
  for (const char c : std::string("123456789")) sum = crc32c::Combine(sum, crc32c::Extend(0, &c, 1), 1);
  EXPECT_EQ(sum, 0xe3069283u);
}

TEST(Crc32c, IsTheSameBothWays) {
  std::vector<unsigned char> data(4099);
  for (size_t i = 0; i < data.size(); ++i) data[i] = static_cast<unsigned char>(i * i + (i >> 3));
  for (size_t n = 0; n < data.size(); n += 13) {
    EXPECT_EQ(crc32c::Extend(7, data.data() + n % 5, n), crc32c::ExtendPortable(7, data.data() + n % 5, n)) << n;
  }
}

}  // namespace
}  // namespace mxrec
