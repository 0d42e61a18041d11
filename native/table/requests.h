// Requests: how far ahead of an update what it needs is requested from memory.
#pragma once

#include <algorithm>
#include <cstdint>

#include "table/table.h"
#include "update/rule.h"

namespace mxrec {

// Rows and first gradients are requested a few keys at a time, up to 16 keys and 4 KiB of rows ahead. Fewer at a time:
// their searches for pages wait for each other (one by one: 1.3 to 1.5 times as long); more: they come too early or all
// at once (8: 1.0 to 1.6 times).
constexpr int64_t kRequested = 4;
inline int64_t RequestedAhead(const Table& table, const Rule& rule) {
  const int64_t bytes = table.config().dim * (1 + rule.slots) * static_cast<int64_t>(sizeof(float));
  return std::max<int64_t>(1, std::min<int64_t>(16, 4096 / bytes) / kRequested) * kRequested;
}

}  // namespace mxrec
