// Snapshot: a table as it is at one instant, to be written while the table goes on.
//
// Taking it costs next to nothing; what is about to change afterwards is copied first, row by row (changes.h). Where
// the table does not follow its changes, the snapshot is the table itself: then no step may run while it lives, and
// writing it fails if a key has come or gone all the same.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/parallel.h"
#include "base/status.h"
#include "store/row_facts.h"
#include "table/candidates.h"
#include "table/changes.h"
#include "table/history.h"
#include "table/table.h"

namespace mxrec {

class Snapshot {
 public:
  // Takes all rows and refused keys, or those that changed after the moment `base`, with the keys that lost their rows,
  // or were forgotten, since. The table then forgets which keys changed up to `base`: no later snapshot can ask for it.
  // FailedPrecondition if another snapshot of the table is under way, or if the changes since `base` are asked for and
  // not known.
  // REQUIRES: no step is running; afterwards any may.
  static Status Take(std::shared_ptr<Table> table, int64_t base, bool all, std::unique_ptr<Snapshot>* snapshot);
  ~Snapshot();

  const Table& table() const { return *table_; }
  bool all() const { return all_; }
  // When it was taken; kNoMoment if the table does not follow its changes.
  int64_t moment() const { return moment_; }
  // Of the whole table, also if only some rows are taken.
  int64_t table_rows() const { return table_rows_; }
  int64_t now() const { return now_; }
  const Tracking& tracking() const { return tracking_; }

  // Finds out the numbers below. Repeating it changes nothing.
  void Prepare(const ParallelFor& parallel);
  int64_t rows(int shard) const { return rows_[shard]; }
  int64_t refused(int shard) const { return refused_[shard]; }
  int64_t filter_cells(int shard) const { return cells_[shard]; }
  // The keys that lost their rows, or were forgotten, since `base`; some of them may have rows again.
  const std::vector<int64_t>& erased() const { return erased_; }

  // Calls Status row(key, facts, values) for the rows of a shard in ascending order of row numbers, those on disk last;
  // then Status refused(candidate) for its refused keys, and Status filter(cells, n), if there is one. Ends at the
  // first failure, of these or of the disk. Once for each shard, by any thread. REQUIRES: Prepare.
  template <typename Row, typename Refused, typename Filter>
  Status Walk(int shard, Row row, Refused refused, Filter filter) {
    Changes::Part own;
    Changes::Part& part = is_guarded() ? table_->changes_->part(shard) : own;
    // Without a guard nothing may move: evaluation brings rows to memory and others to disk.
    const Table::ReadLock lock = is_guarded() ? Table::ReadLock() : table_->LockToRead(shard);
    MXREC_RETURN_IF_ERROR(Open(shard, &part));
    Buffer buffer;
    for (size_t i = 0; i < part.order.size();) {
      MXREC_RETURN_IF_ERROR(Copy(i, &part, &buffer));
      for (const Item& item : buffer.items) MXREC_RETURN_IF_ERROR(row(item.key, item.facts, item.row));
      i += buffer.items.size();
    }
    for (const Candidate& candidate : part.refused) MXREC_RETURN_IF_ERROR(refused(candidate));
    if (!part.filter.empty()) {
      MXREC_RETURN_IF_ERROR(filter(part.filter.data(), static_cast<int64_t>(part.filter.size())));
    }
    return Finish(&part);
  }

 private:
  struct Item {
    int64_t key;
    RowFacts facts;
    const float* row;
  };
  struct Buffer {
    std::vector<Item> items;
    std::vector<float> rows;
    std::vector<char> records;
    uint32_t first = 0, end = 0;  // places whose records were read
  };

  Snapshot(std::shared_ptr<Table> table, bool all) : table_(std::move(table)), all_(all) {}
  bool is_guarded() const { return moment_ != Changes::kNoMoment; }
  // Lists what the shard has to write, if that has not happened yet, in order.
  Status Open(int shard, Changes::Part* part);
  // The next rows from number `i` on.
  Status Copy(size_t i, Changes::Part* part, Buffer* buffer);
  Status Finish(Changes::Part* part);

  std::shared_ptr<Table> table_;
  bool all_;
  bool is_prepared_ = false;
  int64_t moment_ = Changes::kNoMoment;
  int64_t table_rows_ = 0;
  int64_t now_ = 0;
  Tracking tracking_;
  std::vector<int64_t> rows_, refused_, cells_;
  std::vector<int64_t> erased_;
};

}  // namespace mxrec
