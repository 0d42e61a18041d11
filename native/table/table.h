// Table: the rows of one sparse feature space, found by 64-bit key. Joins key index, row store and initializer;
// everything a step does to rows goes through here. Beside it: bulk_loader.h and assign_embeddings.h set many rows at
// once, snapshot.h saves.
//
// Keys are split by hash into shards, a power of two fixed at creation. A shard's index and its share of the row store
// are guarded by the shard's reader-writer lock; there is no lock over the whole table, and none is held while rows
// are read or written. So preparation (which only looks) runs beside a step (which inserts), and eviction of one shard
// beside the reading of another.
//
// Handles: Resolve and Insert give one for a key, Gather and Update take them. A handle is a row number, or kNoRow.
// The bit kFrozen marks rows that are read but never updated (padding keys). The bits above it are a tag, by which
// CheckHandles tells valid handles from those of rows that have gone since, and from made-up numbers. A handle is valid
// while its row lives; in a table with rows on disk, until the use that it was given in ends.
//
// Rows on disk (tier.h): Resolve marks their keys, and Fetch brings the rows back to memory, where others make room.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <functional>
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
#include "table/row_groups.h"
#include "table/row_keys.h"
#include "table/tier.h"
#include "update/rule.h"

namespace mxrec {

constexpr int64_t kNoRow = -1;
constexpr int64_t kFrozen = int64_t{1} << 40;
// The part of a handle that is the row number.
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
  // Held while a shard's index and history are read.
  struct ReadLock {
    std::shared_lock<std::shared_mutex> index;
    std::unique_lock<std::mutex> history;
  };

 public:
  static Status Create(const TableConfig& config, std::shared_ptr<Table>* table);

  const TableConfig& config() const { return config_; }
  const RowLayout& layout() const { return store_.layout(); }
  int shards() const { return 1 << shard_bits_; }
  int shard_bits() const { return shard_bits_; }

  // ---- The path of a batch. All keys passed for `shard` must belong to it (see batch/grouping.h). ----

  // Begins and ends a use (store/uses.h), during which the rows that a step looks up stay in memory. 0 stands for none:
  // tables without a disk tier need no use.
  int64_t BeginUse() { return tier_ == nullptr ? 0 : tier_->uses.Begin(); }
  void EndUse(int64_t use) {
    if (use != 0) tier_->uses.End(use);
  }

  // Tells where the rows of `keys` are now, -1 where there is none; changes nothing. Returns the hints' seal: a number
  // by which Resolve recognizes them.
  int64_t Hint(int shard, const int64_t* keys, int64_t n, int64_t* hints) const;

  // Gives the handles of the keys that have a row, kNoRow for the others; returns how many have none. Uses hints that
  // fit their seal without searching again, unless a key of the shard has lost its row since. Hints that do not fit may
  // hold anything and are ignored. Keys whose rows are on disk get a mark that Fetch understands.
  int64_t Resolve(int shard, const int64_t* keys, const int64_t* hints, int64_t n, int64_t* handles, int64_t seal = 0,
                  int64_t use = 0) const;

  // Do the same for keys of any shard, in any order and any number of times: for reading.
  int64_t HintAny(const int64_t* keys, int64_t n, int64_t* hints) const;
  void ResolveAny(const int64_t* keys, const int64_t* hints, int64_t n, int64_t* handles, int64_t seal = 0,
                  int64_t use = 0) const;

  // Brings the rows that Resolve found on disk back to memory; with `insert`, also makes room for the rows that Insert
  // or Record will add. After a failure rows may be in other places than before, but none has changed. Does nothing
  // without a disk tier.
  Status Fetch(int shard, const int64_t* keys, int64_t n, int64_t use, bool insert, int64_t* handles);
  Status FetchAny(const int64_t* keys, int64_t n, int64_t use, int64_t* handles);

  // Claims room for `n` new rows within the table's limit, or says that the table is full. Inserts use the claim up;
  // Release gives back what they have not used.
  Status Claim(int64_t n);
  void Release(int64_t n) { size_.fetch_sub(n, std::memory_order_relaxed); }

  // Tells whether all keys whose handles are kNoRow belong to `shard`; those of a forged plan need not.
  bool AreOf(int shard, const int64_t* keys, const int64_t* handles, int64_t n) const;
  // Marks the handles of padding keys that have no row, so that Insert and Record pass over them; returns how many.
  // UnmarkPadding turns the marks back into kNoRow.
  int64_t MarkPadding(const int64_t* keys, int64_t n, int64_t* handles) const;
  static void UnmarkPadding(int64_t* handles, int64_t n) { std::replace(handles, handles + n, kPassedOver, kNoRow); }
  // Allocates the memory for the rows that Insert or Record of these handles will make, so that they do not fail for
  // lack of it after others have inserted. After a failure nothing is reserved. Each Reserve must be followed by the
  // Insert or Record, or by Unreserve. REQUIRES: Fetch and Screen, if they are needed, are done.
  Status Reserve(int shard, const int64_t* handles, int64_t n);
  void Unreserve(int shard, const int64_t* handles, int64_t n);

  // Gives a fresh, initialised row to every key whose handle is kNoRow; adds the number of rows made to `*inserted`
  // (fewer than expected if another thread was faster). REQUIRES: room was claimed.
  Status Insert(int shard, const int64_t* keys, int64_t n, int64_t* handles, int64_t* inserted, int64_t use = 0);

  // Insert for a table that tracks its keys (history.h), in two parts, for keys [first, first + n) of a batch: Screen
  // marks the keys without a row that the batch admits, for which room must be claimed, and returns how many there are.
  // Record counts all keys at `step`, gives rows to those marked, and leaves the refused ones kNoRow.
  int64_t Screen(int shard, const int64_t* keys, const Tally& tally, int64_t first, int64_t n, int64_t* handles) const;
  Status Record(int shard, const int64_t* keys, const Tally& tally, int64_t first, int64_t n, uint32_t step,
                int64_t* handles, int64_t* inserted, int64_t use = 0);

  // Copies the embedding of each handle to out[n, dim]; zeros for kNoRow.
  void Gather(const int64_t* handles, int64_t n, float* out) const;

  // Applies `rule` with gradient [n, dim] to the rows, slots included. Passes over kNoRow and frozen rows; with
  // `skip_nonfinite`, also over rows whose gradient is not finite, and counts these.
  // REQUIRES: CheckHandles; no row twice; the rule's slots are in the layout.
  void Update(const Rule& rule, const float* hyper, const int64_t* handles, const float* gradient, int64_t n,
              bool skip_nonfinite = false);

  // Applies `rule` to one row whose handle is neither kNoRow nor frozen.
  void UpdateRow(const Rule& rule, const float* hyper, int64_t handle, const float* gradient) {
    WillChange(handle);
    rule.apply(Row(handle), gradient, config_.dim, hyper);
  }
  // Must be called before a row, or what is known of it, changes. REQUIRES: as for UpdateRow.
  [[gnu::always_inline]] void WillChange(int64_t handle) {
    const uint32_t row = static_cast<uint32_t>(handle);
    if (changes_ != nullptr && changes_->mark(row) != changes_->now()) FirstChange(row);
  }
  // Returns the row itself. REQUIRES: the handle is not kNoRow, nor a place on disk.
  float* Row(int64_t handle) const { return store_.row(static_cast<uint32_t>(handle)); }
  // Request from memory what will be read of n rows, or what UpdateRow will touch of them. Request many rows at once
  // and work on them after the next ones are requested: a request that misses the TLB holds up the instructions behind
  // it, so only requests that stand close together are under way at the same time.
  void PrefetchEmbeddings(const int64_t* handles, int64_t n) const { Prefetch<0>(handles, n, config_.dim); }
  void PrefetchForUpdate(const int64_t* handles, int64_t n, const Rule& rule) const {
    Prefetch<1>(handles, n, config_.dim * (1 + rule.slots));
  }

  // Returns InvalidArgument naming the first handle that is not valid.
  Status CheckHandles(const int64_t* handles, int64_t n) const;

  // ---- Outside the step. ----

  // Makes the rows hold exactly these slots. Rows keep their embeddings; a table holding slots of another optimizer is
  // an error. REQUIRES: no step is running.
  Status SetSlots(const std::vector<SlotSpec>& slots);

  // Makes the table track its keys: counts, times, admission, eviction. Settings that equal those of the last call
  // change nothing, so that rebuilding a graph does not undo what was set or restored since; a filter cannot be added,
  // removed or resized. REQUIRES: no step is running.
  Status Track(const Tracking& tracking);
  // Returns nullptr if the table does not track its keys.
  History* history() const { return history_.get(); }
  // Returns what the table knows of a key, with a row or without; zeros if it knows nothing.
  RowFacts Facts(int64_t key) const;
  // Replaces the facts of a key with a row, or count and time of a refused key, by those of a checkpoint. REQUIRES: the
  // table tracks its keys; no step is running.
  Status SetFacts(int64_t key, const RowFacts& facts);

  // Adds or replaces one row: parts[0] is its embedding, parts[1 + s] its slot s, [dim] floats each. A null part stays
  // as it is; in a new row it has its initial value.
  Status Assign(int64_t key, const float* const* parts);

  // Copies `key`'s embedding and slots to out[dim * (1 + slots)]; zeros and *found = false if it has no row.
  Status Read(int64_t key, float* out, bool* found) const;
  // Gives the row of a handle that ForEachIn or EraseIf passed: the row itself, or if that is on disk, its content in
  // `buffer`, which the call makes large enough. REQUIRES: called from there, while the shard is locked.
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

  // Returns a sample of the keys that have a row, `count` of them or all, without a walk over the table. Their hashes
  // decide which.
  std::vector<int64_t> SomeKeys(int64_t count) const;

  // Makes the table follow which of its rows change (changes.h), so that it can be saved while it is trained; with
  // `keys`, also which keys lose their rows or become known without a row, so that what has changed can be saved alone.
  // REQUIRES: no step is running.
  Status FollowChanges(bool keys);
  // Ends an interval (changes.h) and returns its moment, by which a snapshot can ask for what has changed since;
  // kNoMoment if changes are not followed. REQUIRES: no step is running.
  int64_t Moment() { return changes_ == nullptr ? Changes::kNoMoment : changes_->EndInterval(); }
  // Tells whether a snapshot can hold just what has changed since.
  bool KnowsSince(int64_t moment) const { return changes_ != nullptr && changes_->Knows(moment); }

  // Removes everything, what is known of refused keys too, and gives the memory back; with `keep_memory`, keeps the
  // memory of rows for those that follow, until Trim. REQUIRES: no step is running.
  void Clear(bool keep_memory = false);
  void Trim() { store_.Trim(); }

  // Calls fn(key, handle) for every row, shard after shard, in ascending order of row numbers, those on disk last: an
  // order that the sequence of inserts and erases determines; after each shard's rows, refused(candidate) for its
  // refused keys. No insert or erase may touch a shard while it is walked: its lock is held.
  void ForEach(const std::function<void(int64_t key, int64_t handle)>& fn,
               const std::function<void(const Candidate&)>& refused = nullptr) const;
  // Does the same with the rows' values; ends at the first failure, of fn or of the disk.
  Status ForEachRow(const std::function<Status(int64_t key, int64_t handle, const float* row)>& fn) const;

  int64_t size() const { return size_.load(std::memory_order_relaxed); }
  int64_t capacity() const;  // rows that fit without a new allocation, or max_rows if there is a limit
  int64_t bytes() const;     // rows, index and history
  // Returns nullptr if all rows are in memory.
  const Tier* tier() const { return tier_.get(); }
  int64_t inserted() const { return inserted_.load(std::memory_order_relaxed); }  // since creation; with erased(),
  int64_t erased() const { return erased_.load(std::memory_order_relaxed); }      // inserted = size + erased
  // How often rows or facts may have changed without a change of the number of rows: training batches, loads, and
  // writes from outside the step. As long as this, inserted() and erased() stay the same, so does the table.
  int64_t mutations() const { return mutations_.load(std::memory_order_relaxed); }
  void CountMutation() { mutations_.fetch_add(1, std::memory_order_relaxed); }
  // Rows that updates have not applied because their gradients were not finite (nonfinite.h), since creation.
  int64_t nonfinite() const { return nonfinite_.load(std::memory_order_relaxed); }
  void CountNonfinite(int64_t n) { nonfinite_.fetch_add(n, std::memory_order_relaxed); }
  // What the summed gradients of one of several ranks are multiplied by before they go to the owners of the rows.
  float gradient_scale() const { return gradient_scale_.load(std::memory_order_relaxed); }
  void SetGradientScale(float scale) { gradient_scale_.store(scale, std::memory_order_relaxed); }
  // Makes it a table that each of several ranks holds whole. REQUIRES: it is empty.
  void Replicate() { row_keys_ = std::make_unique<RowKeys>(); }
  bool is_replicated() const { return row_keys_ != nullptr; }
  // The keys of rows that batches have looked up. REQUIRES: is_replicated().
  RowKeys& row_keys() { return *row_keys_; }

  // Keeps what is known of handles that were given out until they come back with gradients; the latest alone.
  void KeepGroups(std::shared_ptr<const RowGroups> groups) { std::atomic_store(&groups_, std::move(groups)); }
  std::shared_ptr<const RowGroups> TakeGroups() { return std::atomic_exchange(&groups_, {}); }
  // Of one of several ranks that share the table: the rows that the others have, as of the latest lookup. They count
  // towards its limit.
  int64_t elsewhere() const { return elsewhere_.load(std::memory_order_relaxed); }
  void SetElsewhere(int64_t rows) { elsewhere_.store(rows, std::memory_order_relaxed); }
  // Lives of keys since creation, and how many of them have got no row (history.h): seen = inserted + refused.
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
    // Seals contain it. It changes whenever a key loses its row, and differs between all shards of all tables of all
    // processes.
    int64_t epoch = 0;
  };

  // How far ahead of its use a row, key or chunk is requested from memory. 16 covers a DRAM access (~90 ns) at the ~6
  // ns each item takes once its data is in the cache.
  static constexpr int64_t kAhead = 16;
  // Marks among the handles of a batch under way.
  static constexpr int64_t kAdmitted = -2;    // the key shall get a row
  static constexpr int64_t kCold = -3;        // its row is on disk
  static constexpr int64_t kPassedOver = -4;  // a padding key that shall get none

  friend class BulkLoader;
  friend class Snapshot;

  explicit Table(const TableConfig& config, int shard_bits);
  class SharedLocks;
  bool AreRows(const int64_t* hints, int64_t n) const;
  int ShardOf(uint64_t hash) const { return static_cast<int>(mxrec::ShardOf(hash, shard_bits_)); }
  // Returns the tag of the handles that are given now.
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
  // Counts the rows that Insert or Record of these handles will make.
  int64_t Wanted(const int64_t* handles, int64_t n) const {
    return std::count(handles, handles + n, history_ == nullptr ? kNoRow : kAdmitted);
  }
  bool IsPadding(int64_t key) const;
  // Adds a row for `key` to a locked shard whose index has room, with what is known of the key if it was refused
  // before. NewRow initialises embedding and slots, too.
  Status AddRow(int shard, uint64_t hash, int64_t key, uint32_t* row, int64_t use = 0);
  Status NewRow(int shard, uint64_t hash, int64_t key, uint32_t* row, int64_t use);
  // Takes a row in memory from the store for `key`; FreeRow gives a row, in memory or on disk, back.
  Status AllocateRow(int shard, int64_t key, int64_t use, uint32_t* row);
  void FreeRow(int shard, uint32_t row);
  void Erased(int64_t n) {
    size_.fetch_sub(n, std::memory_order_relaxed);
    erased_.fetch_add(n, std::memory_order_relaxed);
    if (n > 0) generation_.fetch_add(1, std::memory_order_relaxed);
  }
  bool IsOnDisk(uint32_t row) const { return tier_ != nullptr && (row & kOnDisk) != 0; }
  Status Relayout(const RowLayout& layout);
  // Lists a locked shard's keys, and its rows in ascending order: row << 32 | number of the row's key, as one word.
  void Order(int shard, std::vector<int64_t>* keys, std::vector<uint64_t>* order) const;

  // ---- Of a table that follows its changes.
  // Notes the first change of a row in an interval.
  void FirstChange(uint32_t row);
  // Puts what is at a row or place aside, if the snapshot under way still needs it.
  void Preserve(int shard, uint32_t row);
  // Must be called before keys of a locked shard come, go or change their rows, and before its refused keys change.
  void KeysWillChange(int shard) {
    if (changes_ != nullptr && changes_->is_watched()) ListForSnapshot(shard);
  }
  void ListForSnapshot(int shard);
  // Notes that the refused keys last seen at `until` or before are about to be forgotten.
  void LogForgottenUntil(int shard, int64_t until);
  // Returns FailedPrecondition if the table is being saved, saying that it cannot do `what` meanwhile.
  Status CheckNotBeingSaved(const std::string& what) const;
  // Begins anew when all rows go: a snapshot under way fails.
  void ForgetChanges();
  // Fills in the lists of the part of a shard that is locked, if it is open and has none yet.
  void ListRows(int shard, Changes::Part* part) const;

  // ---- Of a table with a disk tier; the shard is locked alone.
  // Collects what must be read of the rows at `hints`. Here the shards may be shared.
  DiskStore::ReadAhead ReadAhead(const int64_t* hints, int64_t n) const;
  // Brings back the rows of the keys whose handles are kCold, and makes room for `fresh` rows more.
  Status Promote(int shard, const int64_t* keys, int64_t n, int64_t fresh, int64_t use, int64_t* handles);
  // Gives the handle of a key that was found at `row`, brought back from disk if need be.
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
  // Reads the records from that of `word` on to the last in `order` that lies in the same segment.
  Status ReadSegment(uint64_t word, const std::vector<uint64_t>& order, std::vector<char>* records,
                     uint32_t* end) const;
  // Adds to an error of the disk tier whose it is and what can be done.
  Status Explained(const Status& status) const;
  ReadLock LockToRead(int shard) const {
    return {std::shared_lock<std::shared_mutex>(shards_[shard].mutex),
            std::unique_lock<std::mutex>(shards_[shard].history_mutex)};
  }

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
  std::atomic<float> gradient_scale_{1};
  std::atomic<int64_t> elsewhere_{0};
  std::unique_ptr<RowKeys> row_keys_;
  std::shared_ptr<const RowGroups> groups_;
  // The tag of handles without a disk tier; changes whenever a key loses its row.
  std::atomic<int64_t> generation_{0};
};

}  // namespace mxrec
