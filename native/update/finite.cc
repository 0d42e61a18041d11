#include "update/finite.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/vectorize.h"

namespace mxrec {

MXREC_VECTORIZED
int32_t LargestMagnitude(const float* values, int64_t n) {
  int32_t largest = 0;
  for (int64_t i = 0; i < n; ++i) {
    int32_t bits;
    std::memcpy(&bits, values + i, sizeof(bits));
    bits &= 0x7fffffff;
    largest = bits > largest ? bits : largest;
  }
  return largest;
}

int32_t SafeMagnitude(int64_t terms) {
  // Below 2^e, with terms <= 2^b: every sum is below 2^(e + b), rounded or not, since rounding never crosses a power of
  // two. One power is kept in reserve, for sums of sums that were rounded up to it.
  int bits = 0;
  while (bits < 62 && (int64_t{1} << bits) < terms) ++bits;
  const int exponent = 127 - bits - 1;
  return (exponent + 127) << 23;
}

std::string DescribeNonfinite(const float* values, int64_t n) {
  const auto is_bad = [](float x) { return !IsFinite(&x, 1); };
  const float* first = std::find_if(values, values + n, is_bad);
  const int64_t count = std::count_if(first, values + n, is_bad);
  const std::string what = first == values + n ? "nothing" : std::isnan(*first) ? "nan" : *first > 0 ? "inf" : "-inf";
  return what + " in " + std::to_string(count) + " of " + std::to_string(n) + " columns";
}

}  // namespace mxrec
