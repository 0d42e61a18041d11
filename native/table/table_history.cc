// Table's part in feature admission and eviction: what it remembers of its keys (history.h).
#include <algorithm>

#include "base/hash.h"
#include "table/table.h"

namespace mxrec {

int64_t Table::Screen(int shard, const int64_t* keys, const Tally& tally, int64_t first, int64_t n,
                      int64_t* handles) const {
  const ReadLock lock = LockToRead(shard);
  int64_t admitted = 0;
  for (int64_t i = 0; i < n; ++i) {
    if (i + kAhead < n && handles[i + kAhead] == kNoRow) history_->Prefetch(shard, HashKey(keys[i + kAhead]));
    if (handles[i] != kNoRow || !history_->Admits(shard, HashKey(keys[i]), tally.weight(first + i))) continue;
    handles[i] = kAdmitted;
    ++admitted;
  }
  return admitted;
}

Status Table::Record(int shard, const int64_t* keys, const Tally& tally, int64_t first, int64_t n, uint32_t step,
                     int64_t* handles, int64_t* inserted, int64_t use) {
  Shard& s = shards_[shard];
  const int64_t tag = Tag(use);
  const int64_t wanted = Wanted(handles, n);
  // A key without a row may have got one since, and that may be on disk by now.
  const bool may_move = tier_ != nullptr && std::find(handles, handles + n, kNoRow) != handles + n;
  std::shared_lock<std::shared_mutex> reading(s.mutex, std::defer_lock);
  std::unique_lock<std::shared_mutex> inserting(s.mutex, std::defer_lock);
  if (wanted > 0 || may_move) {
    inserting.lock();
    s.reserved -= std::min(s.reserved, wanted);
    MXREC_RETURN_IF_ERROR(s.index.Reserve(wanted));
  } else {
    reading.lock();
  }
  std::lock_guard<std::mutex> counting(s.history_mutex);
  if (changes_ != nullptr && std::find_if(handles, handles + n, [](int64_t h) { return h < 0; }) != handles + n) {
    KeysWillChange(shard);
  }
  int64_t made = 0;
  Status status;
  // In blocks: requests that miss the TLB overlap only if they stand close together (key_index.h: FindAll).
  auto request = [&](int64_t begin) {
    for (int64_t i = begin; i < std::min(n, begin + kAhead); ++i) {
      if (handles[i] >= 0) {
        __builtin_prefetch(&history_->facts(static_cast<uint32_t>(handles[i])), 1);
        if (changes_ != nullptr) changes_->Prefetch(static_cast<uint32_t>(handles[i]));
      } else {
        history_->Prefetch(shard, HashKey(keys[i]));
        s.index.Prefetch(HashKey(keys[i]));
      }
    }
  };
  request(0);
  for (int64_t i = 0; i < n; ++i) {
    if (i % kAhead == 0) request(i + kAhead);
    if (handles[i] == kPassedOver) continue;
    const uint32_t weight = tally.weight(first + i);
    const int64_t time = tally.time(first + i);
    if (handles[i] < 0) {
      const uint64_t hash = HashKey(keys[i]);
      const int64_t row = s.index.Find(hash, keys[i]);  // another thread may have inserted it since Resolve
      if (row != KeyIndex::kNone && tier_ != nullptr) {
        status = Hold(shard, keys[i], row, use, handles + i);
        if (!status.ok()) break;
      } else if (row != KeyIndex::kNone) {
        handles[i] = Handle(keys[i], row, tag);
      } else if (handles[i] == kNoRow) {
        status = history_->Refuse(shard, hash, weight, time);
        if (!status.ok()) break;
        if (changes_ != nullptr) changes_->LogRefused(shard, keys[i]);
        continue;
      } else {
        uint32_t fresh;
        status = NewRow(shard, hash, keys[i], &fresh, use);
        if (!status.ok()) break;
        handles[i] = Handle(keys[i], fresh, tag);
        ++made;
      }
    }
    WillChange(handles[i]);
    Count(&history_->facts(static_cast<uint32_t>(handles[i])), weight, time, step);
  }
  inserted_.fetch_add(made, std::memory_order_relaxed);
  *inserted += made;
  return status;
}

Status Table::Track(const Tracking& tracking) {
  MXREC_RETURN_IF_ERROR(CheckTracking(tracking, config_.name));
  if (tracking == declared_ || (history_ == nullptr && !tracking.is_on())) return Status();
  if (history_ == nullptr) {
    MXREC_RETURN_IF_ERROR(CheckNotBeingSaved("begin to count its keys"));
    std::unique_ptr<History> history(new History(tracking, shard_bits_, config_.max_rows));
    bool enough = history->usable();
    for (uint64_t row = 0; enough && row < store_.end(); row += FactsColumn::kSlabRows) {
      enough = history->facts().Reserve(static_cast<uint32_t>(row)).ok();
    }
    for (int s = 0; tier_ != nullptr && s < shards(); ++s) {
      shards_[s].index.ForEach([&](int64_t, uint32_t row) { enough = enough && history->facts().Reserve(row).ok(); });
    }
    if (!enough) return Status::ResourceExhausted("table '" + config_.name + "': no memory left to count its keys");
    history_ = std::move(history);
  } else if (tracking.filter_bytes != declared_.filter_bytes) {
    return Status::FailedPrecondition(
        "table '" + config_.name + "' counts its refused keys with admission_filter_bytes=" +
        std::to_string(declared_.filter_bytes) + " already and cannot change to " +
        std::to_string(tracking.filter_bytes) + "; call terminate_config_initializer() before building such a graph");
  } else {
    history_->SetThresholds(tracking.access_threshold, tracking.eviction_threshold, tracking.coefficient);
  }
  declared_ = tracking;
  return Status();
}

RowFacts Table::Facts(int64_t key) const {
  if (history_ == nullptr) return RowFacts();
  const uint64_t hash = HashKey(key);
  const int shard = ShardOf(hash);
  const ReadLock lock = LockToRead(shard);
  const int64_t row = shards_[shard].index.Find(hash, key);
  return row == KeyIndex::kNone ? history_->Refused(shard, hash) : history_->facts(static_cast<uint32_t>(row));
}

Status Table::SetFacts(int64_t key, const RowFacts& facts) {
  const uint64_t hash = HashKey(key);
  const int shard = ShardOf(hash);
  std::unique_lock<std::shared_mutex> lock(shards_[shard].mutex);
  KeysWillChange(shard);
  const int64_t row = shards_[shard].index.Find(hash, key);
  if (row == KeyIndex::kNone) {
    if (changes_ != nullptr) changes_->LogRefused(shard, key);
    return history_->Restore(shard, hash, facts.count, facts.time);
  }
  WillChange(row);
  history_->facts(static_cast<uint32_t>(row)) = facts;
  return Status();
}

}  // namespace mxrec
