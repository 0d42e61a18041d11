// RowColumn: a few bytes that a table knows of a row beside its values, by row number, in an array of their own: rows
// stay whole cache lines, and tables that need no such column pay nothing.
#pragma once

#include <atomic>
#include <cstdint>
#include <cstring>
#include <mutex>
#include <string>
#include <vector>

#include "base/pages.h"
#include "base/status.h"

namespace mxrec {

// Thread rule: as that of the rows themselves.
template <typename Entry>
class RowColumn {
 public:
  // A slab is one huge page: with small ones, counting the keys of a batch took 1.4 times as long, and with the first
  // slab alone in small ones still 1.2 times (26 tables of a million rows).
  static constexpr size_t kSlabBytes = size_t{2} << 20;
  static constexpr int kSlabBits = __builtin_ctzll(kSlabBytes / sizeof(Entry));
  static constexpr uint32_t kSlabRows = 1u << kSlabBits;
  static_assert(kSlabRows * sizeof(Entry) == kSlabBytes, "an entry's size is a power of two");

  // `expected`: how many rows there will be, if that is known; else 0.
  explicit RowColumn(int64_t expected = 0)
      : is_large_(expected >= kSlabRows),
        directory_(kSlabs * sizeof(*slabs_), Pages::Kind::kLazy),
        slabs_(static_cast<std::atomic<Entry*>*>(directory_.data())) {}

  bool usable() const { return slabs_ != nullptr; }

  // Makes at(row) possible. Entries never written are zeros.
  Status Reserve(uint32_t row) {
    std::atomic<Entry*>& slab = slabs_[row >> kSlabBits];
    if (slab.load(std::memory_order_acquire) != nullptr) return Status();
    std::lock_guard<std::mutex> lock(mutex_);
    if (slab.load(std::memory_order_relaxed) != nullptr) return Status();
    // A small table does not take a huge page for a few rows.
    Pages pages(kSlabRows * sizeof(Entry), is_large_ || row >= kSlabRows ? Pages::Kind::kHuge : Pages::Kind::kLazy);
    if (pages.data() == nullptr) {
      return Status::ResourceExhausted("out of memory: cannot map what is known of " + std::to_string(kSlabRows) +
                                       " rows");
    }
    slab.store(static_cast<Entry*>(pages.data()), std::memory_order_release);
    pages_.push_back(std::move(pages));
    return Status();
  }

  // REQUIRES: Reserve succeeded for the row.
  Entry& at(uint32_t row) const {
    return slabs_[row >> kSlabBits].load(std::memory_order_acquire)[row & (kSlabRows - 1)];
  }

  // Makes all entries zeros. REQUIRES: no other call is running.
  void Zero() {
    std::lock_guard<std::mutex> lock(mutex_);
    for (const Pages& pages : pages_) std::memset(pages.data(), 0, kSlabBytes);
  }

  // Forgets everything. REQUIRES: no other call is running.
  void Clear() {
    std::lock_guard<std::mutex> lock(mutex_);
    for (size_t slab = 0; slab < kSlabs; ++slab) {
      if (slabs_[slab].load(std::memory_order_relaxed) != nullptr) {
        slabs_[slab].store(nullptr, std::memory_order_relaxed);
      }
    }
    pages_.clear();
  }

 private:
  static constexpr size_t kSlabs = size_t{1} << (32 - kSlabBits);

  bool is_large_;
  Pages directory_;  // as the store's
  std::atomic<Entry*>* slabs_;
  std::mutex mutex_;  // guards pages_
  std::vector<Pages> pages_;
};

}  // namespace mxrec
