// Table's part outside the step: reads, sets and removes rows by their keys, and counts them.
#include <algorithm>
#include <cstring>

#include "base/hash.h"
#include "table/table.h"

namespace mxrec {

Status Table::SetSlots(const std::vector<SlotSpec>& slots) {
  if (store_.layout().slots() == slots) return Status();
  if (!store_.layout().slots().empty()) {
    std::string have, want;
    for (const SlotSpec& s : store_.layout().slots()) have += (have.empty() ? "" : ", ") + s.name;
    for (const SlotSpec& s : slots) want += (want.empty() ? "" : ", ") + s.name;
    return Status::FailedPrecondition("table '" + config_.name + "' already keeps the optimizer slots [" + have +
                                      "] and cannot switch to [" + want +
                                      "]: one table is trained by one optimizer; call terminate_config_initializer() "
                                      "before building a graph with another one");
  }
  MXREC_RETURN_IF_ERROR(CheckNotBeingSaved("get other optimizer slots"));
  const RowLayout layout(config_.dim, slots);
  return tier_ == nullptr ? store_.Relayout(layout) : Relayout(layout);
}

Status Table::Assign(int64_t key, const float* const* parts) {
  const uint64_t hash = HashKey(key);
  const int shard = ShardOf(hash);
  Shard& s = shards_[shard];
  std::unique_lock<std::shared_mutex> lock(s.mutex);
  KeysWillChange(shard);
  int64_t row = s.index.Find(hash, key);
  if (row == KeyIndex::kNone) {
    MXREC_RETURN_IF_ERROR(Claim(1));
    uint32_t fresh = 0;
    Status status = s.index.Reserve(1);
    if (status.ok() && tier_ != nullptr) status = MakeRoom(shard, 1);
    if (status.ok()) status = NewRow(shard, hash, key, &fresh, 0);
    if (!status.ok()) {
      Release(1);
      return status;
    }
    inserted_.fetch_add(1, std::memory_order_relaxed);
    row = fresh;
  } else if (IsOnDisk(static_cast<uint32_t>(row))) {
    int64_t handle = kCold;
    MXREC_RETURN_IF_ERROR(Promote(shard, &key, 1, 0, 0, &handle));
    row = handle & kRowBits;
  }
  WillChange(row);
  float* at = store_.row(static_cast<uint32_t>(row));
  const size_t count = 1 + store_.layout().slots().size();
  for (size_t i = 0; i < count; ++i) {
    if (parts[i] != nullptr) std::memcpy(at + i * config_.dim, parts[i], config_.dim * sizeof(float));
  }
  return Status();
}

Status Table::Read(int64_t key, float* out, bool* found) const {
  const uint64_t hash = HashKey(key);
  const Shard& s = shards_[ShardOf(hash)];
  const size_t bytes = config_.dim * (1 + store_.layout().slots().size()) * sizeof(float);
  std::shared_lock<std::shared_mutex> lock(s.mutex);
  const int64_t row = s.index.Find(hash, key);
  *found = row != KeyIndex::kNone;
  std::memset(out, 0, bytes);
  if (!*found) return Status();
  std::vector<float> buffer;
  const float* at;
  MXREC_RETURN_IF_ERROR(ReadRow(key, row, &buffer, &at));
  std::memcpy(out, at, bytes);
  return Status();
}

Status Table::ReadRow(int64_t key, int64_t handle, std::vector<float>* buffer, const float** row) const {
  const uint32_t place = static_cast<uint32_t>(handle);
  if (!IsOnDisk(place)) {
    *row = store_.row(place);
    return Status();
  }
  std::vector<char> record(tier_->disk->record_bytes());
  MXREC_RETURN_IF_ERROR(Explained(tier_->disk->Read(place, 1, record.data())));
  buffer->resize(layout().stride());
  *row = buffer->data();
  return Explained(tier_->disk->Unpack(record.data(), key, buffer->data()));
}

int64_t Table::Erase(const int64_t* keys, int64_t n) {
  int64_t erased = 0;
  for (int64_t i = 0; i < n; ++i) {
    const uint64_t hash = HashKey(keys[i]);
    const int shard = ShardOf(hash);
    Shard& s = shards_[shard];
    std::unique_lock<std::shared_mutex> lock(s.mutex);
    KeysWillChange(shard);
    const int64_t row = s.index.Find(hash, keys[i]);
    if (row != KeyIndex::kNone) {
      s.index.Erase(hash, keys[i]);
      ++s.epoch;
      FreeRow(shard, static_cast<uint32_t>(row));
      if (changes_ != nullptr) changes_->LogErasure(shard, keys[i]);
      ++erased;
    } else if (history_ != nullptr) {
      if (changes_ != nullptr) changes_->LogRefused(shard, keys[i]);
      history_->Forget(shard, hash);
    }
  }
  Erased(erased);
  return erased;
}

void Table::Clear(bool keep_memory) {
  ForgetChanges();
  for (int s = 0; s < shards(); ++s) {
    std::unique_lock<std::shared_mutex> lock(shards_[s].mutex);  // preparation may be looking for hints
    shards_[s].index.Clear();
    ++shards_[s].epoch;
    if (history_ != nullptr) history_->ForgetAll(s);
  }
  store_.Reset();
  if (!keep_memory) store_.Trim();
  if (history_ != nullptr) history_->facts().Clear();
  if (tier_ != nullptr) {
    tier_->frames.Clear();
    tier_->disk->Clear();
  }
  Erased(size());
}

std::vector<int64_t> Table::SomeKeys(int64_t count) const {
  std::vector<int64_t> keys;
  for (int s = 0; s < shards() && static_cast<int64_t>(keys.size()) < count; ++s) {
    std::shared_lock<std::shared_mutex> lock(shards_[s].mutex);
    shards_[s].index.AppendSome(count - static_cast<int64_t>(keys.size()), &keys);
  }
  return keys;
}

void Table::Order(int shard, std::vector<int64_t>* keys, std::vector<uint64_t>* order) const {
  keys->clear();
  order->clear();
  shards_[shard].index.ForEach([&](int64_t key, uint32_t row) {
    order->push_back(uint64_t{row} << 32 | keys->size());
    keys->push_back(key);
  });
  std::sort(order->begin(), order->end());
}

void Table::ForEach(const std::function<void(int64_t, int64_t)>& fn,
                    const std::function<void(const Candidate&)>& refused) const {
  std::vector<int64_t> keys;
  std::vector<uint64_t> order;
  for (int s = 0; s < shards(); ++s) {
    const ReadLock lock = LockToRead(s);
    Order(s, &keys, &order);
    for (const uint64_t word : order) fn(keys[static_cast<uint32_t>(word)], static_cast<int64_t>(word >> 32));
    if (history_ != nullptr && refused) history_->ForEachRefused(s, refused);
  }
}

Status Table::ForEachRow(const std::function<Status(int64_t, int64_t, const float*)>& fn) const {
  std::vector<int64_t> keys;
  std::vector<uint64_t> order;
  std::vector<char> records;
  std::vector<float> values(layout().stride());
  for (int s = 0; s < shards(); ++s) {
    const ReadLock lock = LockToRead(s);
    Order(s, &keys, &order);
    uint32_t first = 0, end = 0;  // places whose records were read
    for (const uint64_t word : order) {
      const int64_t key = keys[static_cast<uint32_t>(word)];
      const uint32_t row = static_cast<uint32_t>(word >> 32);
      const float* at = IsOnDisk(row) ? values.data() : store_.row(row);
      if (IsOnDisk(row)) {
        const DiskStore& disk = *tier_->disk;
        if (row >= end) {  // what is left of the segment, at once
          first = row;
          MXREC_RETURN_IF_ERROR(ReadSegment(word, order, &records, &end));
        }
        const char* record = records.data() + (row - first) * disk.record_bytes();
        MXREC_RETURN_IF_ERROR(Explained(disk.Unpack(record, key, values.data())));
      }
      MXREC_RETURN_IF_ERROR(fn(key, int64_t{row}, at));
    }
  }
  return Status();
}

int64_t Table::capacity() const {
  if (config_.max_rows > 0) return config_.max_rows;
  return store_.end() + (tier_ == nullptr ? 0 : tier_->disk->rows());
}

int64_t Table::bytes() const {
  int64_t bytes = store_.bytes(), rows = store_.end();
  if (tier_ != nullptr) rows += tier_->disk->rows();
  if (history_ != nullptr) bytes += rows * static_cast<int64_t>(sizeof(RowFacts));
  if (changes_ != nullptr) bytes += rows * static_cast<int64_t>(sizeof(Changes::Mark));
  for (int s = 0; s < shards(); ++s) {
    const ReadLock lock = LockToRead(s);
    bytes += shards_[s].index.bytes();
    if (tier_ != nullptr) bytes += tier_->frames.bytes(s);
    if (history_ != nullptr) bytes += history_->numbers(s).bytes;
  }
  return bytes;
}

Table::Lives Table::lives() const {
  Lives lives = {inserted(), 0, 0};
  for (int s = 0; s < shards() && history_ != nullptr; ++s) {
    const ReadLock lock = LockToRead(s);
    const History::Numbers numbers = history_->numbers(s);
    lives.seen += numbers.begun - numbers.promoted;
    lives.refused += numbers.refused;
    lives.candidates += numbers.candidates;
  }
  return lives;
}

}  // namespace mxrec
