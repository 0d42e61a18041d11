// Changes: when the rows of a table last changed, and what they were before, for two kinds of checkpoints: those that
// hold what changed since another, and those that are written while training goes on.
//
// Time is counted in intervals, which end where a snapshot of the table is taken (snapshot.h). A row's mark is the
// interval of its last change: one byte per row, read when the row is about to change and written the first time in an
// interval. So the rows that changed since a moment are those with a later mark; and the first change of a row after a
// snapshot is noticed, in time to put its old content aside for whoever writes the snapshot.
//
// A moment names the end of an interval: the number of the interval, and above it how often the numbers have begun
// anew. That happens after 254 snapshots and when the table is emptied: then moments of before are unknown.
//
// Thread rule: a shard's part is guarded by its mutex, which is taken after the locks of the table's shard. Marks of
// rows may be set by whoever may change the rows. The rest needs the table to itself.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "base/status.h"
#include "store/row_column.h"
#include "store/row_facts.h"
#include "table/candidates.h"

namespace mxrec {

class Changes {
 public:
  using Mark = uint8_t;
  static constexpr int64_t kNoMoment = -1;

  // A row as it was when the snapshot was taken.
  struct Kept {
    Mark mark;
    RowFacts facts;
    const float* row;
  };
  struct Erasure {
    int64_t key;
    Mark mark;
  };

  // What concerns one shard.
  struct alignas(64) Part {
    std::mutex mutex;
    std::vector<Erasure> erased;            // keys that lost their rows, ascending by mark
    std::unordered_map<int64_t, Mark> met;  // keys without a row of which something else is known now

    // ---- Of the snapshot under way; nothing is kept for it if it is not open.
    bool is_open = false;
    bool is_whole = true;  // it takes all rows, or those with a mark above `since`
    Mark since = 0;
    uint32_t end = 0;   // rows of memory from here on came later
    uint32_t next = 0;  // rows and places below it are no longer needed
    // What it has to write: taken when the shard's keys are about to change, or when its turn comes.
    bool is_listed = false;
    std::vector<int64_t> keys;
    std::vector<uint64_t> order;  // row << 32 | number of its key
    std::vector<Candidate> refused;
    std::vector<int64_t> forgotten;  // of those met, the keys without a row of which nothing is known any more
    std::vector<uint16_t> filter;
    // Rows that changed since.
    std::unordered_map<uint32_t, Kept> kept;
    std::vector<std::unique_ptr<float[]>> blocks;
    int64_t used = 0;  // rows in the last block
    Status failure;

    // Room for the content of a row of `stride` floats. Throws std::bad_alloc.
    float* Add(int64_t stride);
    // Ends the shard's part in the snapshot.
    void Close();
  };

  // `rows`: about how many the table will have, if that is known; else 0.
  Changes(int shards, int64_t rows) : parts_(new Part[shards]), shards_(shards), marks_(ColumnRows(rows)) {}

  bool usable() const { return marks_.usable(); }

  // Makes the mark of a row possible.
  Status Reserve(uint32_t row) { return marks_.Reserve(row); }
  Mark mark(uint32_t row) const { return marks_.at(row).load(std::memory_order_relaxed); }
  void SetMark(uint32_t row, Mark mark) { marks_.at(row).store(mark, std::memory_order_relaxed); }
  // To read: most marks say already what they shall, and 64 rows share a line, which threads that each want it to write
  // would take from one another. Without it, a training step took 1.3 times as long.
  [[gnu::always_inline]] void Prefetch(uint32_t row) const { __builtin_prefetch(&marks_.at(row)); }
  Mark now() const { return now_.load(std::memory_order_relaxed); }

  // Ends the interval and returns its moment.
  int64_t EndInterval();
  // Whether the rows that have changed since a moment can still be told from the others, also after EndInterval.
  bool Knows(int64_t moment) const;
  // The last interval up to a moment that is known.
  static Mark MarkOf(int64_t moment) { return static_cast<Mark>(moment & kLast); }
  // Marks begin anew: of all rows nothing is known.
  void Reset();

  // Whether a snapshot may be under way: what rows were must be kept.
  bool is_watched() const { return is_watched_.load(std::memory_order_acquire); }
  void set_watched(bool watched) { is_watched_.store(watched, std::memory_order_release); }

  // Whether keys are remembered that lose their rows, and keys without rows of which the table learns, or forgets.
  bool logs_keys() const { return logs_keys_; }
  void LogKeys();
  void LogErasure(int shard, int64_t key);
  void LogRefused(int shard, int64_t key);
  // Forgets what was so remembered up to a moment that is known, or all of it.
  void ForgetKeys(int64_t moment = kNoMoment);

  Part& part(int shard) { return parts_[shard]; }

 private:
  static constexpr int64_t kLast = UINT8_MAX;

  // A column is in a huge page from a whole one on. This one is read at random in every step, and small beside the
  // rows: it is in one from an eighth on. With small pages, steps of 26 tables of a million rows took 2 to 4 % longer.
  static int64_t ColumnRows(int64_t rows) {
    constexpr int64_t kPage = RowColumn<std::atomic<Mark>>::kSlabRows;
    return rows >= kPage / 8 ? std::max(rows, kPage) : rows;
  }

  std::unique_ptr<Part[]> parts_;
  int shards_;
  RowColumn<std::atomic<Mark>> marks_;
  std::atomic<Mark> now_{1};
  int64_t round_ = 0;
  std::atomic<bool> is_watched_{false};
  bool logs_keys_ = false;
  Mark logged_since_ = 0;  // of keys that changed in this interval or before, not all are remembered
};

}  // namespace mxrec
