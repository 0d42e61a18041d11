// The history of a table on disk (layout.h): counts, times and steps of its keys.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/files.h"
#include "base/parallel.h"
#include "base/status.h"
#include "checkpoint/layout.h"
#include "table/table.h"

namespace mxrec {

// Writes what the table knows of its keys, rows in the order of the key column. Adds the files to `files`. REQUIRES:
// the table tracks its keys.
Status WriteHistory(Env& env, const std::string& directory, const Table& table, const Table::Still& still,
                    std::vector<CheckpointFile>* files);

// What a directory knows of a table's keys; files that are absent are what the table then does not know.
class HistoryReader {
 public:
  // Maps the files that `table` has a use for: none if it does not track its keys.
  static Status Open(Env& env, const std::string& directory, const Table& table, HistoryReader* reader);

  // The file of that name; null if it does not exist. `wanted` tells whether Load reads it.
  const FileView* Find(const std::string& file, bool* wanted) const;

  // DataLoss if a file's size or a number in it cannot be right for `rows` rows.
  Status Check(int64_t rows) const;

  // Sets what the table knows of its rows, whose keys are `keys` in the order of the files, and of refused keys.
  // REQUIRES: Check; the table holds just these rows.
  Status Load(Table* table, const int64_t* keys, int64_t rows, const ParallelFor& parallel) const;

 private:
  std::string directory_;
  bool is_wanted_ = false;
  std::unique_ptr<FileView> history_, steps_, filter_;
};

}  // namespace mxrec
