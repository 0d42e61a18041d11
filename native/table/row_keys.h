// RowKeys: which key the rows of a table have, for tables that every rank holds whole. Rows lie at other addresses on
// every rank, so what the ranks tell each other of rows they say by keys. Safe from any thread.
#pragma once

#include <algorithm>
#include <cstdint>
#include <mutex>
#include <vector>

namespace mxrec {

class RowKeys {
 public:
  // Notes the keys of rows. Handles that are negative stand for no row.
  void Note(const int64_t* keys, const int64_t* handles, int64_t n) {
    std::lock_guard<std::mutex> lock(mutex_);
    for (int64_t i = 0; i < n; ++i) {
      if (handles[i] < 0) continue;
      const size_t row = static_cast<uint32_t>(handles[i]);
      if (row >= keys_.size()) keys_.resize(std::max(row + 1, keys_.size() * 2));
      keys_[row] = keys[i];
    }
  }
  // The key that was last noted of a row. REQUIRES: one was.
  int64_t Of(int64_t handle) const {
    std::lock_guard<std::mutex> lock(mutex_);
    return keys_[static_cast<uint32_t>(handle)];
  }

 private:
  mutable std::mutex mutex_;
  std::vector<int64_t> keys_;  // by number of row
};

}  // namespace mxrec
