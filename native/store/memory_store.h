// MemoryStore: the rows of one table in RAM.
//
//   slab 0                slab 1
//   ┌──────────────────┐  ┌──────────────────┐      65,536 rows each, mapped when first needed
//   │ row 0            │  │ row 65536        │
//   │ row 1            │  │ ...              │      row = [embedding | slots], see row_layout.h
//   │ ...              │  │                  │
//   └──────────────────┘  └──────────────────┘
//
// A row is a 32-bit number; its address never changes while it lives. Only the key index knows whose row it is. Shards
// take rows in runs of kRun, so a shard allocates without talking to the others and small tables stay small. Freed rows
// are reused by the shard that owned them. Rows that a shard takes fresh have ascending numbers.
//
// Thread rule: Allocate and Free of one shard need that shard's lock (table.h). row() may be called from anywhere on
// any row the store Contains(); reading a row while it is updated is the caller's business, as with a TensorFlow
// variable.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <vector>

#include "base/pages.h"
#include "base/status.h"
#include "store/row_column.h"
#include "store/row_layout.h"

namespace mxrec {

class MemoryStore {
 public:
  static constexpr int kSlabBits = 16;
  static constexpr uint32_t kSlabRows = 1u << kSlabBits;
  // Rows a shard takes at a time. Smaller: the shared counter is hit more often; larger: more idle rows in small
  // tables (shards × kRun / 2 on average).
  static constexpr uint32_t kRun = 32;

  MemoryStore(RowLayout layout, int shards);

  // False if the system refused the memory of the directory; then nothing else may be called.
  bool usable() const { return rows_ != nullptr && owners_.usable(); }

  const RowLayout& layout() const { return layout_; }

  // A row for `shard`, its content unspecified.
  Status Allocate(int shard, uint32_t* row);
  // Makes the next `n` calls of Allocate for `shard` succeed.
  Status Reserve(int shard, int64_t n);
  // Calls fn(row) for the first row of every run that `shard` can still allocate rows of; ends at the first failure.
  template <typename Fn>
  Status ForEachRun(int shard, Fn fn) const {
    const Shard& s = shards_[shard];
    if (s.used < kRun) MXREC_RETURN_IF_ERROR(fn(s.run));
    for (size_t i = s.next; i < s.ahead.size(); ++i) MXREC_RETURN_IF_ERROR(fn(s.ahead[i]));
    return Status();
  }
  void Free(int shard, uint32_t row);

  float* row(uint32_t row) const {
    return rows_[row >> kSlabBits].load(std::memory_order_acquire) + (row & (kSlabRows - 1)) * stride_;
  }

  // The shard that allocated the row.
  int OwnerOf(uint32_t row) const { return owners_.at(row / kRun); }

  // Whether row() may be called: true for every row ever handed out, and for some that were not.
  bool Contains(uint32_t row) const { return rows_[row >> kSlabBits].load(std::memory_order_acquire) != nullptr; }

  // Gives every row room for other slots, keeping the embeddings and the row numbers; slots whose names both layouts
  // share keep their values, new ones get their initial value. On failure nothing has changed.
  // REQUIRES: no other call is running.
  Status Relayout(RowLayout layout);
  // The same for one row, wherever it is.
  static void ConvertRow(const RowLayout& old, const float* from, const RowLayout& layout, float* to);

  // Frees all rows. REQUIRES, as for the next: no other call is running.
  void Clear() {
    Reset();
    Trim();
  }
  // The same, but keeps the memory for the rows that will follow, until Trim gives back what is left of it: a page that
  // is mapped anew costs more than the row that is written to it.
  void Reset();
  void Trim();

  // Rows handed out in runs so far.
  uint32_t end() const { return next_.load(std::memory_order_acquire); }

  // Resident bytes of the rows, up to page rounding.
  int64_t bytes() const;

 private:
  struct Shard {
    uint32_t run = 0;            // first row of the last run
    uint32_t used = kRun;        // rows handed out of it
    std::vector<uint32_t> free;  // a stack
    // Runs that Reserve took ahead, in the order in which they will be used, and the next of them.
    std::vector<uint32_t> ahead;
    size_t next = 0;
  };

  Status TakeRun(int shard, uint32_t* run);

  Status MapSlab(uint32_t slab);

  static constexpr uint32_t kSlabs = 1u << (32 - kSlabBits);

  RowLayout layout_;
  int64_t stride_;
  std::vector<Shard> shards_;
  std::atomic<uint32_t> next_{0};
  RowColumn<uint8_t> owners_;  // by run
  // Slab number -> its memory. Zero pages until used: a directory for 2^32 rows costs a small table nothing.
  Pages directory_;
  std::atomic<float*>* rows_;
  mutable std::mutex slabs_mutex_;  // guards pages_
  std::vector<Pages> pages_;
};

}  // namespace mxrec
