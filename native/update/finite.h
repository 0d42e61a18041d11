// Finds the values of a gradient that are not finite: NaN, infinity. Magnitudes are compared as the bits of a float
// without its sign, which are in the order of the absolute values, with infinity above all finite ones and every NaN
// above that.
#pragma once

#include <cstdint>
#include <string>

namespace mxrec {

// Magnitudes from here on are not finite.
constexpr int32_t kInfiniteMagnitude = 0x7f800000;

// The largest magnitude among `n` values; 0 without any. A maximum of whole numbers is the same in any order, so this
// reduction, unlike sums, may be vectorised without a risk to equal bits on all machines.
int32_t LargestMagnitude(const float* values, int64_t n);

inline bool IsFinite(const float* values, int64_t n) { return LargestMagnitude(values, n) < kInfiniteMagnitude; }

// Sums of up to `terms` values below this magnitude are finite, in whatever order they are added and rounded.
int32_t SafeMagnitude(int64_t terms);

// In words: the first value that is not finite, and how many are: "nan in 2 of 8 columns".
std::string DescribeNonfinite(const float* values, int64_t n);

}  // namespace mxrec
