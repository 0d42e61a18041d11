// Owners: how the handle of a row that another rank has says so (base/ownership.h).
#pragma once

#include <cstdint>

#include "base/ownership.h"
#include "table/table.h"

namespace mxrec {

// A rank's number has the eight bits of a handle that lie between the row number and kFrozen.
constexpr int kOwnerShift = 32;
constexpr int kMaxRanks = 256;
constexpr int64_t kOwnerBits = int64_t{kMaxRanks - 1} << kOwnerShift;
static_assert((kOwnerBits & (kRowBits | kFrozen)) == 0 && kOwnerBits < kFrozen, "handles have room for the owner");

// A handle as ranks pass it round, of a handle of its owner; kNoRow stays what it is.
inline int64_t HandleAt(int owner, int64_t handle) {
  return handle == kNoRow ? kNoRow : handle | int64_t{owner} << kOwnerShift;
}
// The owner that such a handle names, and the owner's own handle. REQUIRES: not kNoRow.
inline int OwnerOfHandle(int64_t handle) { return static_cast<int>((handle & kOwnerBits) >> kOwnerShift); }
inline int64_t HandleOfOwner(int64_t handle) { return handle & ~kOwnerBits; }

}  // namespace mxrec
