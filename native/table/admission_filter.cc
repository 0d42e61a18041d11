#include "table/admission_filter.h"

#include <algorithm>
#include <cstring>

namespace mxrec {
namespace {

constexpr size_t kLineBytes = 64;

// A filter of this size or more fills huge pages, which suit its random accesses.
constexpr size_t kHugePage = size_t{2} << 20;

// Mappings hold what they say, where heap blocks may be rounded up to a power of two (base/arena.h).
Pages::Kind KindFor(uint64_t lines) { return lines * kLineBytes < kHugePage ? Pages::Kind::kLazy : Pages::Kind::kHuge; }

// A bit for each of the key's 4 cells: every set of 4 out of the line's 32 cells is as likely (Floyd's sampling). The
// top bits of the hash chose the line, so this takes its low 32, whose upper bits weigh most.
inline uint32_t CellsOf(uint64_t hash) {
  uint32_t bits = 0;
  uint64_t rest = hash & 0xffffffff;
  for (uint32_t last = 28; last < 32; ++last) {
    rest *= last + 1;
    const uint32_t drawn = 1u << (rest >> 32);  // one of the cells 0 to `last`
    rest &= 0xffffffff;
    bits |= (bits & drawn) == 0 ? drawn : 1u << last;
  }
  return bits;
}

}  // namespace

AdmissionFilter::AdmissionFilter(int64_t bytes, int shard_bits)
    : shard_bits_(shard_bits),
      lines_(bytes <= 0 ? 1 : (static_cast<uint64_t>(bytes) + kLineBytes - 1) / kLineBytes),
      pages_(lines_ * kLineBytes, KindFor(lines_)) {}

uint32_t AdmissionFilter::Count(uint64_t hash) const {
  const uint16_t* line = Line(hash);
  uint32_t count = kMaxCount;
  for (uint32_t bits = CellsOf(hash); bits != 0; bits &= bits - 1) {
    count = std::min<uint32_t>(count, line[__builtin_ctz(bits)]);
  }
  return count;
}

void AdmissionFilter::Add(uint64_t hash, uint32_t weight) {
  uint16_t* line = Line(hash);
  for (uint32_t bits = CellsOf(hash); bits != 0; bits &= bits - 1) {
    uint16_t& cell = line[__builtin_ctz(bits)];
    cell = static_cast<uint16_t>(cell + std::min<uint32_t>(weight, kMaxCount - cell));
  }
}

void AdmissionFilter::Subtract(uint64_t hash, uint32_t amount) {
  uint16_t* line = Line(hash);
  for (uint32_t bits = CellsOf(hash); bits != 0; bits &= bits - 1) {
    uint16_t& cell = line[__builtin_ctz(bits)];
    cell = static_cast<uint16_t>(cell - std::min<uint32_t>(amount, cell));
  }
}

void AdmissionFilter::Halve() {
  uint16_t* cell = cells();
  for (int64_t i = 0; i < size(); ++i) cell[i] = static_cast<uint16_t>(cell[i] >> 1);
}

void AdmissionFilter::Clear() { std::memset(cells(), 0, lines_ * kLineBytes); }

}  // namespace mxrec
