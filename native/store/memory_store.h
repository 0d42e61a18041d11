// MemoryStore: the rows of one table in RAM.
//
//   slab 0                slab 1
//   ┌──────────────────┐  ┌──────────────────┐      65,536 rows each, mapped when first needed
//   │ row 0            │  │ row 65536        │
//   │ row 1            │  │ ...              │      row = [embedding | slots], see row_layout.h
//   │ ...              │  │                  │
//   └──────────────────┘  └──────────────────┘
//   keys: one int64 per row, whose row it is; in slabs of their own, 2 MiB each
//
// A row is a 32-bit number; its address never changes while it lives. Shards take rows in runs of kRun, so a shard
// allocates without talking to the others and small tables stay small. Freed rows are reused by the shard that owned
// them.
//
// Thread rule: Allocate, Free and ForEach of one shard need that shard's lock (table.h). row() and key() may be called
// from anywhere on any row the store Contains(); reading a row while it is updated is the caller's business, as with a
// TensorFlow variable.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <vector>

#include "base/pages.h"
#include "base/status.h"
#include "store/row_layout.h"

namespace mxrec {

class MemoryStore {
 public:
  // The key of a row that nobody owns. It is also a legal key, so key(row) alone does not tell whether a row is vacant;
  // ForEach knows.
  static constexpr int64_t kVacant = 0x5bd1e995a4093822LL;

  static constexpr int kSlabBits = 16;
  static constexpr uint32_t kSlabRows = 1u << kSlabBits;
  static constexpr int kKeySlabBits = 18;
  static constexpr uint32_t kKeySlabRows = 1u << kKeySlabBits;
  // Rows a shard takes at a time. Smaller: the shared counter is hit more often; larger: more idle rows in small
  // tables (shards × kRun / 2 on average).
  static constexpr uint32_t kRun = 32;

  MemoryStore(RowLayout layout, int shards);

  // False if the system refused the memory of the directories; then nothing else may be called.
  bool usable() const { return rows_ != nullptr && keys_ != nullptr; }

  const RowLayout& layout() const { return layout_; }

  // A row for `shard`, its content unspecified, its key set to `key`.
  Status Allocate(int shard, int64_t key, uint32_t* row);
  void Free(int shard, uint32_t row);

  // Calls fn(row) for every live row of `shard`, in a fixed order that depends only on the sequence of Allocate and
  // Free calls of that shard.
  template <typename Fn>
  void ForEach(int shard, Fn fn) const {
    const Shard& s = shards_[shard];
    for (size_t r = 0; r < s.runs.size(); ++r) {
      const uint32_t used = r + 1 == s.runs.size() ? s.used : kRun;
      for (uint32_t i = 0; i < used; ++i) {
        const uint32_t row = s.runs[r] + i;
        if (key(row) != kVacant || static_cast<int64_t>(row) == s.row_of_vacant_key) fn(row);
      }
    }
  }

  float* row(uint32_t row) const {
    return rows_[row >> kSlabBits].load(std::memory_order_acquire) + (row & (kSlabRows - 1)) * stride_;
  }
  int64_t key(uint32_t row) const { return KeyCell(row).load(std::memory_order_relaxed) ^ kVacant; }

  // Whether row() and key() may be called: true for every row ever handed out, and for some that were not (their key
  // is kVacant).
  bool Contains(uint32_t row) const { return rows_[row >> kSlabBits].load(std::memory_order_acquire) != nullptr; }

  // Gives every row room for other slots, keeping the embeddings and the row numbers; slots whose names both layouts
  // share keep their values, new ones get their initial value. On failure nothing has changed.
  // REQUIRES: no other call is running.
  Status Relayout(RowLayout layout);

  // Frees everything. REQUIRES: no other call is running.
  void Clear();

  // Rows handed out in runs so far.
  uint32_t end() const { return next_.load(std::memory_order_acquire); }

  // Resident bytes of rows and keys, up to page rounding.
  int64_t bytes() const;

 private:
  struct Shard {
    std::vector<uint32_t> runs;      // first row of each run, in order of acquisition
    uint32_t used = kRun;            // rows handed out of the last run
    std::vector<uint32_t> free;      // a stack
    int64_t row_of_vacant_key = -1;  // the live row whose true key is kVacant, if there is one
  };

  // Cells hold key ^ kVacant, so that a fresh zero page reads as vacant without being written.
  std::atomic<int64_t>& KeyCell(uint32_t row) const {
    return keys_[row >> kKeySlabBits].load(std::memory_order_acquire)[row & (kKeySlabRows - 1)];
  }
  Status MapSlab(uint32_t slab);

  static constexpr uint32_t kSlabs = 1u << (32 - kSlabBits);
  static constexpr uint32_t kKeySlabs = 1u << (32 - kKeySlabBits);

  RowLayout layout_;
  int64_t stride_;
  std::vector<Shard> shards_;
  std::atomic<uint32_t> next_{0};
  // Slab number -> its memory. Zero pages until used: a directory for 2^32 rows costs a small table nothing.
  Pages rows_directory_;
  Pages keys_directory_;
  std::atomic<float*>* rows_;
  std::atomic<std::atomic<int64_t>*>* keys_;
  mutable std::mutex slabs_mutex_;  // guards the two vectors below
  std::vector<Pages> row_pages_;
  std::vector<Pages> key_pages_;
};

}  // namespace mxrec
