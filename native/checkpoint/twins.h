// Twins: a key that comes twice where each must come once.
#pragma once

#include <cstdint>

#include "base/parallel.h"

namespace mxrec {

// Whether a key occurs twice among the `n`; if so, the places of one such key's first two occurrences, the same
// whatever the threads. Takes kTwinMemory of memory, or a byte a key if that is more; the keys are then walked several
// times, eight at the most.
constexpr int64_t kTwinMemory = 32 << 20;
bool FindTwins(const int64_t* keys, int64_t n, const ParallelFor& parallel, int64_t* first, int64_t* second,
               int64_t memory = kTwinMemory);

}  // namespace mxrec
