// RowFacts: what a table with feature admission or eviction knows of a row beside its values, in an array of its own:
// rows stay whole cache lines, and tables without either pay nothing.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <vector>

#include "base/pages.h"
#include "base/status.h"

namespace mxrec {

struct RowFacts {
  int64_t time = 0;    // the latest data time that its key occurred at; 0: not known
  uint32_t count = 0;  // occurrences, weighted; stays at UINT32_MAX once there
  uint32_t step = 0;   // the table's training step that its key last occurred in
};

// The facts of a store's rows, by row number. Thread rule: as that of the rows themselves.
class FactsColumn {
 public:
  // A slab is one huge page: with small ones, counting the keys of a batch took 1.4 times as long, and with the first
  // slab alone in small ones still 1.2 times (26 tables of a million rows).
  static constexpr int kSlabBits = 17;
  static constexpr uint32_t kSlabRows = 1u << kSlabBits;

  // `expected`: how many rows there will be, if that is known; else 0.
  explicit FactsColumn(int64_t expected = 0);

  bool usable() const { return facts_ != nullptr; }

  // Makes at(row) possible. Facts never written are zeros.
  Status Reserve(uint32_t row);

  // REQUIRES: Reserve succeeded for the row.
  RowFacts& at(uint32_t row) const {
    return facts_[row >> kSlabBits].load(std::memory_order_acquire)[row & (kSlabRows - 1)];
  }

  // Forgets everything. REQUIRES: no other call is running.
  void Clear();

 private:
  bool is_large_;
  Pages directory_;  // as the store's
  std::atomic<RowFacts*>* facts_;
  std::mutex mutex_;  // guards pages_
  std::vector<Pages> pages_;
};

}  // namespace mxrec
