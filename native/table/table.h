// Table: the rows of one sparse feature space, found by 64-bit key. The facade over key index, row store and
// initializer; everything a step does to rows goes through here.
//
// Keys are split by hash into shards, a power of two fixed at creation. A shard's index and its share of the row store
// are guarded by the shard's reader-writer lock; there is no lock over the whole table, and none is held while rows
// are read or written. So preparation (which only looks) runs beside a step (which inserts), and eviction of one shard
// beside the reading of another.
//
// Handles: what Resolve and Insert give for a key, and what Gather and Update take: a row number, or kNoRow.
// The bit kFrozen marks rows that are read but never updated (padding keys). The bits above it are a tag, by which
// CheckHandles tells the handles of today from those of rows that have gone since, and from made-up numbers. A handle
// stays good while its row lives; in a table with rows on disk, until the use that it was given in ends.
//
// Rows on disk (tier.h): Resolve marks their keys, and Fetch brings the rows back to memory, where others make room.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <string>
#include <vector>

#include "base/hash.h"
#include "base/parallel.h"
#include "base/status.h"
#include "batch/tally.h"
#include "store/memory_store.h"
#include "table/changes.h"
#include "table/history.h"
#include "table/initializer.h"
#include "table/key_index.h"
#include "table/tier.h"
#include "update/rule.h"

namespace mxrec {

constexpr int64_t kNoRow = -1;
constexpr int64_t kFrozen = int64_t{1} << 40;
// The part of a handle that tells rows from each other, tables without padding keys and tags aside.
constexpr int64_t kRowBits = UINT32_MAX;

struct TableConfig {
  std::string name;
  int dim = 0;
  int64_t max_rows = 0;       // 0: no limit
  int64_t expected_rows = 0;  // without a limit: about how many there will be, if that is known
  InitializerSpec initializer;
  std::vector<int64_t> padding_keys;  // their rows are read, never updated
  TierConfig tier;
};

bool operator==(const TableConfig& a, const TableConfig& b);

class Table {
  // To read a shard's index and history.
  struct ReadLock {
    std::shared_lock<std::shared_mutex> index;
    std::unique_lock<std::mutex> history;
  };
  // What a walk over rows needs, for one after another.
  struct Walk {
    std::vector<int64_t> keys;
    std::vector<uint64_t> order;
    std::vector<float> row;
    std::vector<char> records;
  };

 public:
  static Status Create(const TableConfig& config, std::shared_ptr<Table>* table);

  const TableConfig& config() const { return config_; }
  const RowLayout& layout() const { return store_.layout(); }
  int shards() const { return 1 << shard_bits_; }
  int shard_bits() const { return shard_bits_; }

  // ---- The path of a batch. All keys passed for `shard` must belong to it (see batch/grouping.h). ----

  // What a step does to rows on disk it does in a use (store/uses.h). Tables without a disk tier have none: it is 0.
  int64_t BeginUse() { return tier_ == nullptr ? 0 : tier_->uses.Begin(); }
  void EndUse(int64_t use) {
    if (use != 0) tier_->uses.End(use);
  }

  // Where the rows of `keys` are now, -1 where there is none; changes nothing. Returns their seal: a number that
  // Resolve will know these hints by.
  int64_t Hint(int shard, const int64_t* keys, int64_t n, int64_t* hints) const;

  // Handles of the keys that have a row, kNoRow for the others; returns how many have none. Hints that fit their seal
  // are taken at their word, unless a key of the shard has lost its row since. Others may hold anything and are not
  // used. Keys whose rows are on disk get a mark that Fetch understands.
  int64_t Resolve(int shard, const int64_t* keys, const int64_t* hints, int64_t n, int64_t* handles, int64_t seal = 0,
                  int64_t use = 0) const;

  // The same for keys of any shard, in any order and any number of times: for reading.
  int64_t HintAny(const int64_t* keys, int64_t n, int64_t* hints) const;
  void ResolveAny(const int64_t* keys, const int64_t* hints, int64_t n, int64_t* handles, int64_t seal = 0,
                  int64_t use = 0) const;

  // Brings the rows that Resolve found on disk back, and makes room for those that `insert` says will be inserted.
  // After a failure rows may be in other places than before, but none has changed. Does nothing without a disk tier.
  Status Fetch(int shard, const int64_t* keys, int64_t n, int64_t use, bool insert, int64_t* handles);
  Status FetchAny(const int64_t* keys, int64_t n, int64_t use, int64_t* handles);

  // Sets apart room for `n` new rows, or says that the table is full. Each Claim must be followed by Inserts that use
  // it up or by Release.
  Status Claim(int64_t n);
  void Release(int64_t n) { size_.fetch_sub(n, std::memory_order_relaxed); }

  // Whether the keys whose handles are kNoRow belong to `shard`; those of a forged plan need not.
  bool AreOf(int shard, const int64_t* keys, const int64_t* handles, int64_t n) const;
  // Marks the handles of padding keys that have no row, so that Insert and Record pass over them; returns how many.
  // Handles that are marked are below 0 and not kNoRow: Unmark makes them that.
  int64_t MarkPadding(const int64_t* keys, int64_t n, int64_t* handles) const;
  static void UnmarkPadding(int64_t* handles, int64_t n) { std::replace(handles, handles + n, kPassedOver, kNoRow); }
  // Makes room in memory for the rows that Insert or Record of these handles will make, so that it does not fail for
  // the lack of it after others have inserted. After a failure nothing is reserved. Each Reserve must be followed by
  // the Insert or Record, or by Unreserve. REQUIRES: Fetch and Screen, if they are needed, are done.
  Status Reserve(int shard, const int64_t* handles, int64_t n);
  void Unreserve(int shard, const int64_t* handles, int64_t n);

  // Gives a fresh, initialised row to every key whose handle is kNoRow; adds the number of rows made to `*inserted`
  // (fewer than expected if another thread was faster). REQUIRES: room was claimed.
  Status Insert(int shard, const int64_t* keys, int64_t n, int64_t* handles, int64_t* inserted, int64_t use = 0);

  // The same for a table that tracks its keys (history.h), in two parts, for keys [first, first + n) of a batch:
  // Screen marks the keys without a row that the batch admits, for which room must be claimed, and returns how many
  // there are. Record counts all keys at `step`, gives rows to those marked, and leaves the refused ones kNoRow.
  int64_t Screen(int shard, const int64_t* keys, const Tally& tally, int64_t first, int64_t n, int64_t* handles) const;
  Status Record(int shard, const int64_t* keys, const Tally& tally, int64_t first, int64_t n, uint32_t step,
                int64_t* handles, int64_t* inserted, int64_t use = 0);

  // Copies the embedding of each handle to out[n, dim]; zeros for kNoRow.
  void Gather(const int64_t* handles, int64_t n, float* out) const;

  // Applies `rule` with gradient [n, dim] to the rows, slots included. kNoRow and frozen rows are passed over; with
  // `skip_nonfinite`, also those whose gradient is not finite, which are counted.
  // REQUIRES: CheckHandles; no row twice; the rule's slots are in the layout.
  void Update(const Rule& rule, const float* hyper, const int64_t* handles, const float* gradient, int64_t n,
              bool skip_nonfinite = false);

  // The same for one row whose handle is neither kNoRow nor frozen.
  void UpdateRow(const Rule& rule, const float* hyper, int64_t handle, const float* gradient) {
    WillChange(handle);
    rule.apply(Row(handle), gradient, config_.dim, hyper);
  }
  // To be called before a row, or what is known of it, changes. REQUIRES: as for UpdateRow.
  [[gnu::always_inline]] void WillChange(int64_t handle) {
    const uint32_t row = static_cast<uint32_t>(handle);
    if (changes_ != nullptr && changes_->mark(row) != changes_->now()) FirstChange(row);
  }
  // The row itself. REQUIRES: the handle is not kNoRow, nor a place on disk.
  float* Row(int64_t handle) const { return store_.row(static_cast<uint32_t>(handle)); }
  // Request from memory what will be read of n rows, and what UpdateRow will touch of them. Request many rows at once
  // and work on them after the next ones are requested: a request that misses the TLB holds up the instructions behind
  // it, so only requests that stand close together are under way at the same time.
  void PrefetchEmbeddings(const int64_t* handles, int64_t n) const { Prefetch<0>(handles, n, config_.dim); }
  void PrefetchForUpdate(const int64_t* handles, int64_t n, const Rule& rule) const {
    Prefetch<1>(handles, n, config_.dim * (1 + rule.slots));
  }

  // InvalidArgument naming the first handle that is not good.
  Status CheckHandles(const int64_t* handles, int64_t n) const;

  // ---- Outside the step. ----

  // Makes the rows hold exactly these slots. Rows keep their embeddings; a table holding slots of another optimizer is
  // an error. REQUIRES: no step is running.
  Status SetSlots(const std::vector<SlotSpec>& slots);

  // Makes the table track its keys: counts, times, admission, eviction. Settings that equal those of the last call
  // change nothing, so that rebuilding a graph does not undo what was set or restored since; a filter cannot be added,
  // removed or resized. REQUIRES: no step is running.
  Status Track(const Tracking& tracking);
  // nullptr if the table does not track its keys.
  History* history() const { return history_.get(); }
  // What the table knows of a key, with a row or without; zeros if it knows nothing.
  RowFacts Facts(int64_t key) const;
  // As a checkpoint holds it: the facts of a key with a row, or a refused key. REQUIRES: the table tracks its keys; no
  // step is running.
  Status SetFacts(int64_t key, const RowFacts& facts);

  // Adds or replaces one row: parts[0] is its embedding, parts[1 + s] its slot s, [dim] floats each. A null part stays
  // as it is; in a new row it has its initial value.
  Status Assign(int64_t key, const float* const* parts);

  // Gives `n` keys, none of them twice, the embeddings [n, dim]. Rows that are there keep their slots and what is known
  // of them; new ones have initial slots, and count as used in the table's present step. A table that is full, memory
  // or a disk that gives out is an error that leaves every key as it was, as far as that disk lets it.
  // REQUIRES: no step is running.
  Status AssignEmbeddings(const int64_t* keys, int64_t n, const float* embeddings);

  // Adds `n` rows at once, many times faster than Assign: key i gets floats [i * dim, (i + 1) * dim) of columns[0] as
  // its embedding and of columns[1 + s] as its slot s; a null column stands for the initial value. Rows of a shard come
  // in the order of `keys`, whatever the threads. A key that has a row already, or comes twice, is AlreadyExists, or
  // with `replace`, where it must not come twice, loses what it had; after a failure some of the rows are there.
  // REQUIRES: no step is running.
  Status InsertRows(const int64_t* keys, const float* const* columns, int64_t n, const ParallelFor& parallel,
                    bool replace = false);

  // Makes room in the index for these keys, none of which has a row: they can then be inserted part by part without its
  // growing from part to part. REQUIRES: as for InsertRows.
  Status ReserveRows(const int64_t* keys, int64_t n, const ParallelFor& parallel);

  // InsertRows in two halves, so that the columns need not be there all at once: rows that are all in memory get their
  // places, and each of them its content; until then that is unspecified. After a failure, rows without a place have
  // kNoPlace, which FillRows passes over. FillRows may run in several threads, for different rows.
  // REQUIRES: no step is running; the table has no disk tier.
  static constexpr uint32_t kNoPlace = UINT32_MAX;
  Status PlaceRows(const int64_t* keys, int64_t n, const ParallelFor& parallel, bool replace, uint32_t* places);
  void FillRows(const int64_t* keys, const uint32_t* places, const float* const* columns, int64_t n);

  // Copies `key`'s embedding and slots to out[dim * (1 + slots)]; zeros and *found = false if it has no row.
  Status Read(int64_t key, float* out, bool* found) const;
  // The row of a handle that a walk gave, if need be read from disk to `buffer`, which the call makes large enough.
  // REQUIRES: the shard is locked by the walk.
  Status ReadRow(int64_t key, int64_t handle, std::vector<float>* buffer, const float** row) const;

  // Removes the keys that are present; returns how many. REQUIRES: no running step uses these keys: their rows may be
  // given to other keys at once.
  int64_t Erase(const int64_t* keys, int64_t n);

  // Removes the rows of a shard for which is_victim(key, handle) holds, in an order that the sequence of inserts and
  // erases determines; returns how many. request(handle) is called a little earlier, to request from memory what
  // is_victim reads. Refused keys last seen at `until` or before are forgotten, too. REQUIRES: no step is running.
  template <typename Request, typename IsVictim>
  int64_t EraseIf(int shard, int64_t until, Request request, IsVictim is_victim) {
    Shard& s = shards_[shard];
    std::unique_lock<std::shared_mutex> lock(s.mutex);
    KeysWillChange(shard);
    int64_t erased = 0;
    s.index.EraseIf([&](uint32_t row) { request(int64_t{row}); },
                    [&](int64_t key, uint32_t row) {
                      if (!is_victim(key, int64_t{row})) return false;
                      FreeRow(shard, row);
                      if (changes_ != nullptr) changes_->LogErasure(shard, key);
                      ++erased;
                      return true;
                    });
    s.epoch += erased;
    Erased(erased);
    CountMutation();
    if (history_ != nullptr && until > 0) {
      LogForgottenUntil(shard, until);
      history_->ForgetUntil(shard, until);
    }
    return erased;
  }

  // Calls fn(key, handle) for every row of a shard, in no particular order.
  template <typename Fn>
  void ForEachIn(int shard, Fn fn) const {
    std::shared_lock<std::shared_mutex> lock(shards_[shard].mutex);
    shards_[shard].index.ForEach([&](int64_t key, uint32_t row) { fn(key, int64_t{row}); });
  }

  // Some of the keys that have a row, `count` or all of them: whoever looks at a sample need not walk over the table.
  // Which ones, their hashes decide.
  std::vector<int64_t> SomeKeys(int64_t count) const;

  // From now on the table follows which of its rows change (changes.h), so that it can be saved while it is trained;
  // `keys`: also which keys lose their rows or become known without a row, so that what has changed can be saved
  // alone. REQUIRES: no step is running.
  Status FollowChanges(bool keys);
  // Now, to ask later for what has changed since; kNoMoment if changes are not followed. REQUIRES: no step is running.
  int64_t Moment() { return changes_ == nullptr ? Changes::kNoMoment : changes_->EndInterval(); }
  // Whether a snapshot can hold just what has changed since.
  bool KnowsSince(int64_t moment) const { return changes_ != nullptr && changes_->Knows(moment); }

  // Removes everything, what is known of refused keys too, and gives the memory back; with `keep_memory`, that of the
  // rows in memory stays for those that follow, until Trim. REQUIRES: no step is running.
  void Clear(bool keep_memory = false);
  void Trim() { store_.Trim(); }

  // Calls fn(key, handle) for every row, shard after shard, in ascending order of row numbers, those on disk last: an
  // order that the sequence of inserts and erases determines; after each shard's rows, refused(candidate) for its
  // refused keys. No insert or erase may touch a shard while it is walked: its lock is held.
  template <typename Fn>
  void ForEach(Fn fn) const {
    ForEach(fn, [](const Candidate&) {});
  }
  template <typename Fn, typename Refused>
  void ForEach(Fn fn, Refused refused) const {
    Walk walk;
    for (int s = 0; s < shards(); ++s) {
      const ReadLock lock = LockToRead(s);
      WalkKeys(s, &walk, fn);
      if (history_ != nullptr) history_->ForEachRefused(s, refused);
    }
  }
  // The same with the rows' values, Status fn(key, handle, row); ends at the first failure, of fn or of the disk.
  template <typename Fn>
  Status ForEachRow(Fn fn) const {
    Walk walk;
    for (int s = 0; s < shards(); ++s) {
      const ReadLock lock = LockToRead(s);
      MXREC_RETURN_IF_ERROR(WalkRows(s, &walk, fn));
    }
    return Status();
  }

  int64_t size() const { return size_.load(std::memory_order_relaxed); }
  int64_t capacity() const;  // rows that fit without a new allocation, or max_rows if there is a limit
  int64_t bytes() const;     // rows, index and history
  // nullptr if all rows are in memory.
  const Tier* tier() const { return tier_.get(); }
  int64_t inserted() const { return inserted_.load(std::memory_order_relaxed); }  // since creation; with erased(),
  int64_t erased() const { return erased_.load(std::memory_order_relaxed); }      // inserted = size + erased
  // Counts what may have changed a row or a fact without changing the number of rows: training batches, loads, and
  // writes from outside the step. While it, inserted() and erased() stay the same, so does the table.
  int64_t mutations() const { return mutations_.load(std::memory_order_relaxed); }
  void CountMutation() { mutations_.fetch_add(1, std::memory_order_relaxed); }
  // Rows that updates have not applied because their gradients were not finite (nonfinite.h), since creation.
  int64_t nonfinite() const { return nonfinite_.load(std::memory_order_relaxed); }
  void CountNonfinite(int64_t n) { nonfinite_.fetch_add(n, std::memory_order_relaxed); }
  // Lives of keys since creation, and those of them that have got no row (history.h): seen = inserted + refused.
  struct Lives {
    int64_t seen;
    int64_t refused;
    int64_t candidates;  // of the refused, those that wait for a row now
  };
  Lives lives() const;

 private:
  struct alignas(64) Shard {
    mutable std::shared_mutex mutex;
    KeyIndex index;
    // Guards what the history knows of the shard's keys, where `mutex` is only shared. Taken after it. A batch whose
    // keys all have rows is counted under these two, so that preparation, which shares `mutex` too, never waits for it:
    // with `mutex` held alone, steps took 4 % longer.
    mutable std::mutex history_mutex;
    int64_t reserved = 0;  // rows that batches under way may add without asking for memory
    // Another one whenever a key loses its row, and for every shard of every table of every process: seals contain it.
    int64_t epoch = 0;
  };

  // How far ahead of its use a row, key or chunk is requested from memory. 16 covers a DRAM access (~90 ns) at the ~6
  // ns each item takes once its data is in the cache.
  static constexpr int64_t kAhead = 16;
  // Marks among the handles of a batch under way: a key that shall get a row, and a key whose row is on disk.
  static constexpr int64_t kAdmitted = -2;
  // What MarkPadding marks with.
  static constexpr int64_t kPassedOver = -4;
  static constexpr int64_t kCold = -3;

  friend class Snapshot;

  explicit Table(const TableConfig& config, int shard_bits);
  class SharedLocks;
  static int64_t Seal(int64_t epoch, const int64_t* keys, const int64_t* hints, int64_t n);
  bool AreRows(const int64_t* hints, int64_t n) const;
  int ShardOf(uint64_t hash) const { return static_cast<int>(mxrec::ShardOf(hash, shard_bits_)); }
  // The tag of the handles that are given now.
  int64_t Tag(int64_t use) const;
  int64_t Handle(int64_t key, int64_t row, int64_t tag) const { return row | tag | (IsPadding(key) ? kFrozen : 0); }
  // Turns the row numbers in `handles`, of a table with a disk tier, into handles, or marks.
  int64_t Settle(const int64_t* keys, int64_t n, int64_t use, int64_t* handles) const;
  template <typename IndexOf>
  int64_t Complete(const int64_t* keys, const int64_t* hints, int64_t n, int64_t* handles, IndexOf index_of) const;
  template <int kWrite>
  void Prefetch(const int64_t* handles, int64_t n, int64_t floats) const {
    // The first line of each row starts the search for its page; the others find it found.
    for (int64_t i = 0; i < n; ++i) {
      if (handles[i] != kNoRow) __builtin_prefetch(Row(handles[i]), kWrite);
    }
    for (int64_t i = 0; kWrite == 1 && changes_ != nullptr && i < n; ++i) {
      if (handles[i] != kNoRow) changes_->Prefetch(static_cast<uint32_t>(handles[i]));
    }
    // The hardware follows a stream by itself; only its start needs help.
    const int64_t end = floats < 256 ? floats : 256;
    if (end <= 16) return;
    for (int64_t i = 0; i < n; ++i) {
      if (handles[i] == kNoRow) continue;
      const float* row = Row(handles[i]);
      for (int64_t j = 16; j < end; j += 16) __builtin_prefetch(row + j, kWrite);
    }
  }
  // How many rows Insert or Record of these handles makes.
  int64_t Wanted(const int64_t* handles, int64_t n) const {
    return std::count(handles, handles + n, history_ == nullptr ? kNoRow : kAdmitted);
  }
  bool IsPadding(int64_t key) const;
  // A row for `key` in a locked shard whose index has room; what is known of a refused key goes with it. NewRow
  // initialises its embedding and slots, too.
  Status AddRow(int shard, uint64_t hash, int64_t key, uint32_t* row, int64_t use = 0);
  Status NewRow(int shard, uint64_t hash, int64_t key, uint32_t* row, int64_t use);
  // A row in memory that belongs to `key`, and one on its way back to the store.
  Status AllocateRow(int shard, int64_t key, int64_t use, uint32_t* row);
  void FreeRow(int shard, uint32_t row);
  void Erased(int64_t n) {
    size_.fetch_sub(n, std::memory_order_relaxed);
    erased_.fetch_add(n, std::memory_order_relaxed);
    if (n > 0) generation_.fetch_add(1, std::memory_order_relaxed);
  }
  bool IsOnDisk(uint32_t row) const { return tier_ != nullptr && (row & kOnDisk) != 0; }
  Status Relayout(const RowLayout& layout);
  // A shard's rows in ascending order: the row number, and in the low half the number of its key, sorted as one word.
  void Order(int shard, Walk* walk) const;
  // ForEach and ForEachRow for a shard that is locked.
  template <typename Fn>
  void WalkKeys(int shard, Walk* walk, Fn fn) const {
    Order(shard, walk);
    for (const uint64_t word : walk->order) {
      fn(walk->keys[static_cast<uint32_t>(word)], static_cast<int64_t>(word >> 32));
    }
  }
  template <typename Fn>
  Status WalkRows(int shard, Walk* walk, Fn fn) const {
    Order(shard, walk);
    uint32_t first = 0, end = 0;  // places whose records were read
    for (const uint64_t word : walk->order) {
      const int64_t key = walk->keys[static_cast<uint32_t>(word)];
      const uint32_t row = static_cast<uint32_t>(word >> 32);
      if (!IsOnDisk(row)) {
        MXREC_RETURN_IF_ERROR(fn(key, int64_t{row}, const_cast<const float*>(store_.row(row))));
        continue;
      }
      const DiskStore& disk = *tier_->disk;
      if (row >= end) {  // what is left of the segment, at once
        first = row;
        MXREC_RETURN_IF_ERROR(ReadSegment(word, walk->order, &walk->records, &end));
      }
      const char* record = walk->records.data() + (row - first) * disk.record_bytes();
      walk->row.resize(layout().stride());
      MXREC_RETURN_IF_ERROR(Explained(disk.Unpack(record, key, walk->row.data())));
      MXREC_RETURN_IF_ERROR(fn(key, int64_t{row}, const_cast<const float*>(walk->row.data())));
    }
    return Status();
  }

  // ---- Of a table that follows its changes.
  // The first change of a row in an interval.
  void FirstChange(uint32_t row);
  // Puts what is at a row or place aside, if the snapshot under way still needs it.
  void Preserve(int shard, uint32_t row);
  // To be called before keys of a locked shard come, go or change their rows, and before its refused keys change.
  void KeysWillChange(int shard) {
    if (changes_ != nullptr && changes_->is_watched()) ListForSnapshot(shard);
  }
  void ListForSnapshot(int shard);
  // The refused keys last seen until then are about to be forgotten.
  void LogForgottenUntil(int shard, int64_t until);
  // FailedPrecondition if it is; `what` the table cannot do meanwhile.
  Status CheckNotBeingSaved(const std::string& what) const;
  // All rows go: a snapshot under way fails.
  void ForgetChanges();
  // Fills in the lists of the part of a shard that is locked, if it is open and has none yet.
  void ListRows(int shard, Changes::Part* part) const;

  // ---- Of a table with a disk tier; the shard is locked alone.
  // What is to be read of rows found at `hints`; for this the shards may be shared.
  DiskStore::ReadAhead ReadAhead(const int64_t* hints, int64_t n) const;
  // Brings rows back for the handles that say so.
  // Makes room for `fresh` rows more.
  Status Promote(int shard, const int64_t* keys, int64_t n, int64_t fresh, int64_t use, int64_t* handles);
  // The handle of a key that was found at `row`, in memory or on disk.
  Status Hold(int shard, int64_t key, int64_t row, int64_t use, int64_t* handle);
  // Lets `n` more rows be added in memory, by moving others to disk.
  Status MakeRoom(int shard, int64_t n);
  // Moves rows in memory to disk.
  Status Demote(int shard, const std::vector<uint32_t>& rows);
  // Empties a wasteful segment; false if there is none, or it cannot be done now.
  bool Clean(int shard);
  // Writes records, with room for what is known of their rows; after a failure none of them is there.
  Status AppendToDisk(int shard, const char* records, int64_t n, uint32_t* places, bool empty = false);
  // Writes the records of keys whose rows are elsewhere, and frees their rows there. `empty` as for DiskStore::Append.
  Status MoveToDisk(int shard, const std::vector<int64_t>& keys, const std::vector<uint32_t>& from, const char* records,
                    bool empty = false);
  // Writes the rows that a checkpoint has more of than memory may hold.
  class DiskWriter;
  // Reads the records from that of `word` on to the last in `order` that lies in the same segment.
  Status ReadSegment(uint64_t word, const std::vector<uint64_t>& order, std::vector<char>* records,
                     uint32_t* end) const;
  // An error of the disk tier, saying whose it is and what can be done.
  Status Explained(const Status& status) const;
  ReadLock LockToRead(int shard) const {
    return {std::shared_lock<std::shared_mutex>(shards_[shard].mutex),
            std::unique_lock<std::mutex>(shards_[shard].history_mutex)};
  }
  // Calls fn(shard, order, n, &inserted) for each shard, locked alone and with room for them in its index: it inserts
  // the keys at `order`[0, n) and counts the rows that it makes.
  template <typename Fn>
  Status InsertByShard(const int64_t* keys, int64_t n, const ParallelFor& parallel, bool replace, Fn fn);
  Status PlaceShard(int shard, const int64_t* keys, const uint32_t* order, int64_t n, bool replace, uint32_t* places,
                    int64_t* inserted);
  Status InsertToTier(int shard, const int64_t* keys, const float* const* columns, const uint32_t* order, int64_t n,
                      bool replace, int64_t* inserted);
  void FillRow(const int64_t* keys, const float* const* columns, int64_t i, float* row) const;
  Status HasRow(int64_t key) const;

  TableConfig config_;  // padding_keys sorted
  int shard_bits_;
  Initializer initializer_;
  MemoryStore store_;
  std::unique_ptr<Shard[]> shards_;
  std::unique_ptr<Tier> tier_;
  std::unique_ptr<History> history_;
  std::unique_ptr<Changes> changes_;
  Tracking declared_;             // what Track was last called with
  std::atomic<int64_t> size_{0};  // rows, plus rows claimed and not yet inserted
  std::atomic<int64_t> inserted_{0};
  std::atomic<int64_t> erased_{0};
  std::atomic<int64_t> mutations_{0};
  std::atomic<int64_t> nonfinite_{0};
  // Another one whenever a key loses its row: the tag of handles without a disk tier.
  std::atomic<int64_t> generation_{0};
};

}  // namespace mxrec
