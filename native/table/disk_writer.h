// Table::DiskWriter: puts rows of a shard on disk that were never in memory, because a checkpoint has more rows than
// memory may hold. Batches of them, as rows on disk are written in batches.
#pragma once

#include <vector>

#include "table/table.h"

namespace mxrec {

class Table::DiskWriter {
 public:
  // REQUIRES: the shard is locked alone.
  DiskWriter(Table* table, int shard) : table_(table), shard_(shard) {}

  // Whether the next row shall go to disk.
  bool wanted() const;
  // Where the row of `key` shall be filled in: a whole stride of floats. REQUIRES: wanted(); the index has the key, at
  // any row, until Flush.
  float* Next(int64_t key);
  bool is_full() const { return static_cast<int64_t>(keys_.size()) == kBatch; }
  // Writes what was filled in. On failure the index knows these keys no more, and *lost receives how many.
  Status Flush(int64_t* lost);

 private:
  static constexpr int64_t kBatch = 256;

  Table* table_;
  int shard_;
  std::vector<int64_t> keys_;
  std::vector<float> rows_;
  std::vector<char> records_;
};

}  // namespace mxrec
