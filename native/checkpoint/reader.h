// The reading side of layout.h. A damaged checkpoint must leave the model as it was: a restore first verifies every
// table that has rows and only then loads the first of these. Files of a table that is empty are verified while they
// are loaded, in one pass: to undo that is to empty it again.
//
// A reader opens every file once, and keeps it: what was verified is what is loaded, even if another process has given
// the directory's name to another checkpoint meanwhile, or removed it.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/files.h"
#include "base/parallel.h"
#include "base/status.h"
#include "checkpoint/history_file.h"
#include "checkpoint/layout.h"
#include "table/table.h"

namespace mxrec {

// Which of a directory's columns a reader opens, of those that its table has a place for.
struct ReadScope {
  bool rows_only = false;  // keys and embeddings alone: no slots, no history
  // If not empty, those it lists, besides keys and embeddings: a file that a manifest does not know is not this
  // checkpoint's.
  std::vector<CheckpointFile> listed;
  Ownership owned;  // rows, counts and times of other keys are passed over
  // Whether the files hold a part of what is loaded, and another part is in the table already.
  bool joins = false;

  bool Includes(const std::string& column) const;
};

class TableReader {
 public:
  // Maps the columns in `directory` that `table` has a place for; others are left alone, and slots without a column
  // will start from their initial value. DataLoss if keys or embeddings are missing.
  // `is_delta`: the directory holds what has changed since another checkpoint; then the deleted keys must be there,
  // too.
  static Status Open(Env& env, const std::string& directory, const Table& table, bool is_delta,
                     std::unique_ptr<TableReader>* reader, const ReadScope& scope = ReadScope());

  // Whether Load would succeed, memory permitting; without `contents`, as far as sizes tell. `expected` may be empty,
  // or list files with the bytes and checksum they were written with; files that Load does not read are ignored.
  //   DataLoss           a file is cut, changed or missing, files contradict each other, or a key occurs twice
  //   InvalidArgument    rows of another dim than the table's
  //   IoError            a file cannot be read
  //   ResourceExhausted  more rows than the table may hold
  Status Verify(const std::vector<CheckpointFile>& expected, bool contents, const ParallelFor& parallel);

  // Replaces all rows of the table, and what it knows of its keys, by those of the files; those of a delta join the
  // ones that are there. With `expected`, it also verifies, and fails as Verify would; without, it relies on Verify
  // for the contents. If it fails, the table is as it was, or empty. REQUIRES: `table` is the one given to Open; no
  // step is running.
  Status Load(Table* table, const std::vector<CheckpointFile>& expected, const ParallelFor& parallel);

  int64_t rows() const { return rows_; }  // valid after Verify or Load succeeded

 private:
  struct Column {
    std::string name;
    bool is_read = true;
    std::unique_ptr<FileView> data;       // null: no such column
    std::unique_ptr<FileView> attribute;  // null: no such column
  };

  TableReader(std::string directory, const Table& table, bool is_delta, const ReadScope& scope);
  const FileView* Find(const std::string& file, bool* wanted) const;
  bool IsValues(const std::string& file) const;
  std::string Path(const std::string& file) const { return directory_ + "/" + file; }
  Status CheckFiles(const std::vector<CheckpointFile>& expected) const;  // there, and as long as they were
  template <typename IsMeant>
  Status CheckSums(const std::vector<CheckpointFile>& expected, const ParallelFor& parallel, IsMeant is_meant) const;
  Status CheckSizes();  // sets rows_
  Status CheckDeleted() const;
  Status CheckKeysDiffer(const ParallelFor& parallel) const;
  Status LoadValues(Table* table, const std::vector<CheckpointFile>& expected, const ParallelFor& parallel) const;
  const int64_t* keys() const { return reinterpret_cast<const int64_t*>(columns_[0].data->data()); }

  std::string directory_;
  std::string table_;
  bool is_delta_;
  Ownership owned_;
  bool joins_;
  int64_t dim_;
  int64_t max_rows_;
  std::vector<Column> columns_;  // key, embedding, then the table's slots
  Column deleted_;
  HistoryReader history_;
  int64_t rows_ = 0;
};

}  // namespace mxrec
