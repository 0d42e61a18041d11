// Multiply: the product of two sizes that came from outside, if there is one.
#pragma once

#include <cstdint>

namespace mxrec {

// Sets *product; false if either number is negative or the product needs more than 63 bits. `product` may point at a
// variable that is a factor.
[[nodiscard]] inline bool Multiply(int64_t a, int64_t b, int64_t* product) {
  return a >= 0 && b >= 0 && !__builtin_mul_overflow(a, b, product);
}

}  // namespace mxrec
