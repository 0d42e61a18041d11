// The history of a table on disk (layout.h): counts, times and steps of its keys.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/files.h"
#include "base/ownership.h"
#include "base/parallel.h"
#include "base/status.h"
#include "checkpoint/layout.h"
#include "checkpoint/output.h"
#include "table/snapshot.h"
#include "table/table.h"

namespace mxrec {

// What a snapshot, or those of several ranks, hold.
struct SnapshotNumbers {
  int64_t rows = 0;
  int64_t refused = 0;
  int64_t filter_cells = 0;
  int64_t erased = 0;
  int64_t now = 0;  // the latest of the tables' clocks
};

// A rank's share of files that several ranks write together, each from its own snapshot: the rows of the first rank
// come first in every file.
struct WriteShare {
  Writers writers = Writers::kAlone;
  SnapshotNumbers before;  // what the ranks before this one hold
  SnapshotNumbers all;
};

// Writes what a snapshot knows of its keys, rows in the order of the key column. One that knows nothing writes nothing.
class HistoryWriter {
 public:
  // `starts`: for each shard, the number of its first row; at the end, where those of the last one end.
  HistoryWriter(const Snapshot& snapshot, const std::vector<int64_t>& starts, const WriteShare& share);

  Status Open(Env& env, const std::string& directory);
  // Adds the files to `files`.
  Status Finish(Env& env, const std::string& directory, std::vector<CheckpointFile>* files);

  // What concerns a shard, by one thread: rows first, then refused keys.
  class Part {
   public:
    Part(HistoryWriter* writer, int shard);
    Status Row(int64_t key, const RowFacts& facts) { return is_wanted_ ? Record(key, facts) : Status(); }
    Status Refused(const Candidate& candidate);
    Status Filter(const uint16_t* cells, int64_t n);
    Status Flush();

   private:
    Status Record(int64_t key, const RowFacts& facts);
    Status Record(int64_t key, int64_t count, int64_t time);

    bool is_wanted_;
    ColumnOutput::Part history_, steps_, filter_;
  };

 private:
  Status WriteThresholds(Env& env, const std::string& directory, std::vector<CheckpointFile>* files) const;

  const Snapshot& snapshot_;
  const WriteShare share_;
  const bool is_wanted_;
  std::vector<int64_t> records_, cells_;  // as starts, of rows and refused keys, and of the filters' cells
  ColumnOutput history_, steps_, filter_;
};

// What a directory knows of a table's keys. Files may be absent: the table then does not know what they would tell.
class HistoryReader {
 public:
  // Maps the files that `table` has a use for: none if it does not track its keys; and only of columns for which
  // `includes` holds.
  static Status Open(Env& env, const std::string& directory, const Table& table,
                     const std::function<bool(const std::string&)>& includes, HistoryReader* reader);

  // The file of that name; null if it does not exist. `wanted` tells whether Load reads it.
  const FileView* Find(const std::string& file, bool* wanted) const;

  // DataLoss if a file's size or a number in it cannot be right for `rows` rows.
  Status Check(int64_t rows) const;

  // Sets what the table knows of its rows, whose keys are `keys` in the order of the files, and of refused keys, as far
  // as they are `owned`. REQUIRES: Check; the table has these rows, and knows of no refused keys but those that shall
  // stay.
  Status Load(Table* table, const int64_t* keys, int64_t rows, const ParallelFor& parallel,
              Ownership owned = Ownership()) const;

 private:
  struct File {
    bool is_wanted = false;
    std::unique_ptr<FileView> view;  // null: there is none
  };

  std::string directory_;
  File history_, steps_, filter_;
};

}  // namespace mxrec
