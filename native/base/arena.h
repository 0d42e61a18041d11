// Arena: zeroed blocks of 64 KiB to 1 MiB carved out of 2 MiB pages, for arrays that are touched at random but are too
// small for a huge page each. Sizes are powers of two; a freed block joins its other half again (a buddy allocator), so
// arrays that grow by doubling reuse each other's memory.
//
// Thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <set>

#include "base/pages.h"

namespace mxrec {

class Arena {
 public:
  static constexpr size_t kSmallest = size_t{64} << 10;
  static constexpr size_t kLargest = size_t{1} << 20;

  // The arena of the process.
  static Arena& Global();

  // Whether blocks of `bytes` come from an arena.
  static bool Serves(size_t bytes) { return bytes >= kSmallest && bytes <= kLargest; }

  // nullptr if there is no memory. REQUIRES: Serves(bytes).
  void* Allocate(size_t bytes);
  // REQUIRES: `block` is from Allocate(bytes).
  void Free(void* block, size_t bytes);

  // Bytes held from the system.
  size_t bytes() const;

 private:
  static constexpr int kOrders = 6;  // 64 KiB << order: up to a whole page of 2 MiB
  static int OrderOf(size_t bytes);

  mutable std::mutex mutex_;
  std::set<uintptr_t> free_[kOrders];
  std::map<uintptr_t, Pages> pages_;
};

}  // namespace mxrec
