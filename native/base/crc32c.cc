#include "base/crc32c.h"

#include <array>
#include <cstring>

#if defined(__x86_64__)
#include <nmmintrin.h>
#endif

namespace mxrec {
namespace crc32c {
namespace {

constexpr uint32_t kPolynomial = 0x82f63b78;  // 0x1edc6f41, lowest power first

// tables[k][b]: what byte b contributes when k more bytes follow it in the word.
using Tables = std::array<std::array<uint32_t, 256>, 8>;

constexpr Tables MakeTables() {
  Tables t{};
  for (uint32_t b = 0; b < 256; ++b) {
    uint32_t crc = b;
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) != 0 ? kPolynomial : 0);
    t[0][b] = crc;
  }
  for (uint32_t b = 0; b < 256; ++b) {
    for (size_t k = 1; k < t.size(); ++k) t[k][b] = (t[k - 1][b] >> 8) ^ t[0][t[k - 1][b] & 0xff];
  }
  return t;
}

constexpr Tables kTables = MakeTables();

#if defined(__x86_64__)
// One stream, though the instruction could serve three at once: a checkpoint is bound by memory and disk long before.
__attribute__((target("sse4.2"))) uint32_t ExtendSse42(uint32_t crc, const void* data, size_t n) {
  const unsigned char* p = static_cast<const unsigned char*>(data);
  uint64_t state = ~crc;
  for (; n >= 8; n -= 8, p += 8) {
    uint64_t word;
    std::memcpy(&word, p, sizeof(word));
    state = _mm_crc32_u64(state, word);
  }
  uint32_t tail = static_cast<uint32_t>(state);
  for (; n > 0; --n, ++p) tail = _mm_crc32_u8(tail, *p);
  return ~tail;
}
#endif

// Checksums are polynomials over {0, 1} modulo kPolynomial, the highest bit is the lowest power: a * b.
constexpr uint32_t Multiply(uint32_t a, uint32_t b) {
  uint32_t product = 0;
  for (uint32_t bit = uint32_t{1} << 31; bit != 0; bit >>= 1) {
    if ((a & bit) != 0) product ^= b;
    b = (b >> 1) ^ ((b & 1) != 0 ? kPolynomial : 0);
  }
  return product;
}

}  // namespace

uint32_t Combine(uint32_t a, uint32_t b, int64_t length) {
  // A is followed by `length` bytes: a * x^(8 length), by repeated squaring.
  uint32_t power = uint32_t{1} << 23;  // x^8
  for (uint64_t n = static_cast<uint64_t>(length); n > 0; n >>= 1) {
    if ((n & 1) != 0) a = Multiply(a, power);
    power = Multiply(power, power);
  }
  return a ^ b;
}

uint32_t ExtendPortable(uint32_t crc, const void* data, size_t n) {
  const unsigned char* p = static_cast<const unsigned char*>(data);
  uint32_t state = ~crc;
  for (; n >= 8; n -= 8, p += 8) {
    uint32_t value = 0;
    for (int i = 0; i < 8; ++i) {
      const unsigned char byte = i < 4 ? p[i] ^ static_cast<unsigned char>(state >> (8 * i)) : p[i];
      value ^= kTables[7 - i][byte];
    }
    state = value;
  }
  for (; n > 0; --n, ++p) state = (state >> 8) ^ kTables[0][(state ^ *p) & 0xff];
  return ~state;
}

uint32_t Extend(uint32_t crc, const void* data, size_t n) {
#if defined(__x86_64__)
  static const bool has_instruction = __builtin_cpu_supports("sse4.2");
  if (has_instruction) return ExtendSse42(crc, data, n);
#endif
  return ExtendPortable(crc, data, n);
}

}  // namespace crc32c
}  // namespace mxrec
