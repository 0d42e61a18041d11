// Table's part in keeping rows on disk (tier.h).
#include <algorithm>
#include <chrono>
#include <cstring>

#include "base/hash.h"
#include "table/table.h"

namespace mxrec {

Status Table::Explained(const Status& status) const {
  const std::string who = "table '" + config_.name + "': ";
  switch (status.code()) {
    case Status::Code::kOk:
      return status;
    case Status::Code::kResourceExhausted:
      return Status::ResourceExhausted(who + "no space for more rows on disk: " + status.message() +
                                       ". Free space there, or add a directory to ssd_data_path. Nothing was lost: "
                                       "training can go on when there is space, and the table can be saved");
    case Status::Code::kDataLoss:
      return Status::DataLoss(who + status.message());
    default:
      return Status::IoError(who + status.message() +
                             ". Nothing was changed: the step can be run again, and the table can be saved if its rows "
                             "can be read");
  }
}

int64_t Table::Settle(const int64_t* keys, int64_t n, int64_t use, int64_t* handles) const {
  const int64_t tag = Tag(use);
  int64_t missing = 0, hits = 0;
  auto request = [&](int64_t begin) {
    for (int64_t i = begin; i < std::min(n, begin + kAhead); ++i) {
      if (handles[i] != kNoRow && (handles[i] & kOnDisk) == 0) {
        tier_->frames.Prefetch(static_cast<uint32_t>(handles[i]));
      }
    }
  };
  request(0);
  for (int64_t i = 0; i < n; ++i) {
    if (i % kAhead == 0) request(i + kAhead);
    if (handles[i] == kNoRow) {
      ++missing;
    } else if ((handles[i] & kOnDisk) != 0) {
      handles[i] = kCold;
    } else {
      tier_->frames.Touch(static_cast<uint32_t>(handles[i]), use);
      handles[i] = Handle(keys[i], handles[i], tag);
      ++hits;
    }
  }
  tier_->hits.fetch_add(hits, std::memory_order_relaxed);
  return missing;
}

DiskStore::ReadAhead Table::ReadAhead(const int64_t* hints, int64_t n) const {
  DiskStore::ReadAhead ahead;
  for (int64_t i = 0; i < n; ++i) {
    if (hints[i] != kNoRow && (hints[i] & kOnDisk) != 0) ahead.Add(*tier_->disk, static_cast<uint32_t>(hints[i]));
  }
  return ahead;
}

Status Table::Fetch(int shard, const int64_t* keys, int64_t n, int64_t use, bool insert, int64_t* handles) {
  if (tier_ == nullptr) return Status();
  const int64_t mark = history_ == nullptr ? kNoRow : kAdmitted;
  const int64_t fresh = insert ? std::count(handles, handles + n, mark) : 0;
  if (fresh == 0 && std::find(handles, handles + n, kCold) == handles + n) return Status();
  std::unique_lock<std::shared_mutex> lock(shards_[shard].mutex);
  return Promote(shard, keys, n, fresh, use, handles);
}

Status Table::FetchAny(const int64_t* keys, int64_t n, int64_t use, int64_t* handles) {
  if (tier_ == nullptr) return Status();
  std::vector<std::vector<int64_t>> cold(shards());  // positions
  for (int64_t i = 0; i < n; ++i) {
    if (handles[i] == kCold) cold[ShardOf(HashKey(keys[i]))].push_back(i);
  }
  for (int s = 0; s < shards(); ++s) {
    const int64_t count = static_cast<int64_t>(cold[s].size());
    if (count == 0) continue;
    std::vector<int64_t> some(count), found(count, kCold);
    for (int64_t i = 0; i < count; ++i) some[i] = keys[cold[s][i]];
    MXREC_RETURN_IF_ERROR(Fetch(s, some.data(), count, use, false, found.data()));
    for (int64_t i = 0; i < count; ++i) handles[cold[s][i]] = found[i];
  }
  return Status();
}

Status Table::Promote(int shard, const int64_t* keys, int64_t n, int64_t fresh, int64_t use, int64_t* handles) {
  KeysWillChange(shard);
  Shard& s = shards_[shard];
  const DiskStore& disk = *tier_->disk;
  const int64_t bytes = disk.record_bytes();
  struct Cold {
    uint32_t place;
    int64_t i;
  };
  // Where the rows are now: they may have come back, or gone, since they were marked.
  std::vector<Cold> cold;
  std::vector<int64_t> marked, found;
  for (int64_t i = 0; i < n; ++i) {
    if (handles[i] != kCold) continue;
    cold.push_back({0, i});
    marked.push_back(keys[i]);
  }
  found.resize(marked.size());
  FindAll(
      marked.data(), static_cast<int64_t>(marked.size()), [&](uint64_t) -> const KeyIndex& { return s.index; },
      found.data());
  for (size_t c = 0; c < cold.size(); ++c) {
    handles[cold[c].i] = found[c];
    Settle(keys + cold[c].i, 1, use, handles + cold[c].i);
    cold[c].place = static_cast<uint32_t>(found[c]);
  }
  cold.erase(std::remove_if(cold.begin(), cold.end(), [&](const Cold& c) { return handles[c.i] != kCold; }),
             cold.end());
  // In the order of the file, and one that is marked several times once: its twins follow it.
  std::sort(cold.begin(), cold.end(),
            [](const Cold& a, const Cold& b) { return a.place != b.place ? a.place < b.place : a.i < b.i; });
  auto is_twin = [&](size_t c) { return c > 0 && cold[c].place == cold[c - 1].place; };
  std::vector<uint32_t> places;
  for (size_t c = 0; c < cold.size(); ++c) {
    if (!is_twin(c)) places.push_back(cold[c].place);
  }
  const int64_t rows = static_cast<int64_t>(places.size());
  std::vector<char> records(rows * bytes);
  if (rows > 0) {
    const auto start = std::chrono::steady_clock::now();
    MXREC_RETURN_IF_ERROR(Explained(disk.ReadEach(places, records.data())));
    tier_->read_time.fetch_add((std::chrono::steady_clock::now() - start).count(), std::memory_order_relaxed);
  }
  MXREC_RETURN_IF_ERROR(MakeRoom(shard, rows + fresh));

  const int64_t tag = Tag(use);
  const char* record = records.data();
  for (size_t c = 0; c < cold.size(); ++c) {
    const int64_t i = cold[c].i, key = keys[i];
    if (is_twin(c)) {
      handles[i] = handles[cold[c - 1].i];
      continue;
    }
    uint32_t row;
    MXREC_RETURN_IF_ERROR(AllocateRow(shard, key, use, &row));
    const Status status = disk.Unpack(record, key, store_.row(row));
    if (!status.ok()) {
      FreeRow(shard, row);
      return Explained(status);
    }
    record += bytes;
    const uint32_t place = s.index.Move(HashKey(key), key, row);  // to make room, it may have been moved
    if (history_ != nullptr) history_->facts(row) = history_->facts(place);
    if (changes_ != nullptr) changes_->SetMark(row, changes_->mark(place));
    FreeRow(shard, place);
    handles[i] = Handle(key, row, tag);
  }
  if (rows > 0) ++s.epoch;
  tier_->promotions.fetch_add(rows, std::memory_order_relaxed);
  return Status();
}

Status Table::Hold(int shard, int64_t key, int64_t row, int64_t use, int64_t* handle) {
  *handle = row;
  Settle(&key, 1, use, handle);
  return Promote(shard, &key, 1, 0, use, handle);
}

Status Table::MakeRoom(int shard, int64_t n) {
  const int64_t excess = tier_->frames.occupied(shard) + n - tier_->quota;
  if (excess <= 0) return Status();
  const bool may_grow = config_.max_rows == 0;
  int64_t wanted = excess;
  if (may_grow) wanted = std::min(wanted, config_.tier.disk_rows - tier_->disk->rows());
  const std::vector<uint32_t> rows = tier_->frames.Victims(shard, tier_->uses.oldest(), wanted);
  Status status;
  if (static_cast<int64_t>(rows.size()) < excess && !may_grow) {
    const int64_t needed = (tier_->frames.occupied(shard) - static_cast<int64_t>(rows.size()) + n) * shards();
    status = Status::ResourceExhausted(
        "table '" + config_.name + "': the rows that steps use at one time need room for about " +
        std::to_string(needed) + " rows in memory, but device_vocabulary_size + host_vocabulary_size is " +
        std::to_string(config_.tier.memory_rows) +
        ". Raise host_vocabulary_size in create_table, or use smaller batches. Nothing was lost");
  } else if (!rows.empty()) {
    status = Demote(shard, rows);
  }
  if (status.ok()) return status;
  for (const uint32_t spared : rows) tier_->frames.Spare(shard, spared);
  // Where memory may grow, a disk that is full is no reason to stop.
  return may_grow && status.code() == Status::Code::kResourceExhausted ? Status() : status;
}

Status Table::Demote(int shard, const std::vector<uint32_t>& rows) {
  const DiskStore& disk = *tier_->disk;
  const int64_t n = static_cast<int64_t>(rows.size());
  std::vector<char> records(n * disk.record_bytes());
  std::vector<int64_t> keys(n);
  for (int64_t i = 0; i < n; ++i) {
    if (i + 4 < n) __builtin_prefetch(store_.row(rows[i + 4]));
    keys[i] = tier_->frames.KeyOf(rows[i]);
    disk.Pack(keys[i], store_.row(rows[i]), records.data() + i * disk.record_bytes());
  }
  Status status = MoveToDisk(shard, keys, rows, records.data());
  // Of a full disk, much may be dead since rows were erased.
  while (status.code() == Status::Code::kResourceExhausted && Clean(shard)) {
    status = MoveToDisk(shard, keys, rows, records.data());
  }
  MXREC_RETURN_IF_ERROR(status);
  tier_->demotions.fetch_add(n, std::memory_order_relaxed);
  // Twice as much is cleaned as is written, if there is that much to clean. Nothing depends on its success now.
  for (int64_t cleaned = 0; cleaned <= 2 * n && Clean(shard); cleaned += disk.segment_rows()) {
  }
  return Status();
}

bool Table::Clean(int shard) {
  const DiskStore& disk = *tier_->disk;
  const KeyIndex& index = shards_[shard].index;
  const int64_t bytes = disk.record_bytes();
  uint32_t first;
  if (!disk.Wasteful(shard, &first)) return false;
  std::vector<char> records(disk.segment_rows() * bytes);
  if (!disk.Read(first, disk.segment_rows(), records.data()).ok()) return false;
  std::vector<int64_t> keys;
  std::vector<uint32_t> places;
  for (uint32_t i = 0; i < disk.segment_rows(); ++i) {
    const char* record = records.data() + i * bytes;
    const int64_t key = DiskStore::KeyOf(record);
    // A damaged one stays where it is: it may be read better the next time.
    if (index.Find(HashKey(key), key) != int64_t{first + i} || !disk.IsWhole(record)) continue;
    std::memmove(records.data() + keys.size() * bytes, record, bytes);
    keys.push_back(key);
    places.push_back(first + i);
  }
  if (keys.empty() || !MoveToDisk(shard, keys, places, records.data(), true).ok()) return false;
  tier_->moved.fetch_add(static_cast<int64_t>(keys.size()), std::memory_order_relaxed);
  return true;
}

Status Table::AppendToDisk(int shard, const char* records, int64_t n, uint32_t* places, bool empty) {
  MXREC_RETURN_IF_ERROR(Explained(tier_->disk->Append(shard, records, n, places, empty)));
  Status status;
  for (int64_t i = 0; history_ != nullptr && status.ok() && i < n; ++i) status = history_->facts().Reserve(places[i]);
  for (int64_t i = 0; changes_ != nullptr && status.ok() && i < n; ++i) status = changes_->Reserve(places[i]);
  for (int64_t i = 0; !status.ok() && i < n; ++i) tier_->disk->Free(shard, places[i]);
  return status;
}

Status Table::MoveToDisk(int shard, const std::vector<int64_t>& keys, const std::vector<uint32_t>& from,
                         const char* records, bool empty) {
  Shard& s = shards_[shard];
  const int64_t n = static_cast<int64_t>(keys.size());
  std::vector<uint32_t> places(n);
  MXREC_RETURN_IF_ERROR(AppendToDisk(shard, records, n, places.data(), empty));
  for (int64_t i = 0; i < n; ++i) {
    for (int64_t j = i; i % kAhead == 0 && j < std::min(n, i + kAhead); ++j) s.index.Prefetch(HashKey(keys[j]));
    if (history_ != nullptr) history_->facts(places[i]) = history_->facts(from[i]);
    if (changes_ != nullptr) changes_->SetMark(places[i], changes_->mark(from[i]));
    s.index.Move(HashKey(keys[i]), keys[i], places[i]);
    FreeRow(shard, from[i]);
  }
  ++s.epoch;
  return Status();
}

Status Table::ReadSegment(uint64_t word, const std::vector<uint64_t>& order, std::vector<char>* records,
                          uint32_t* end) const {
  const DiskStore& disk = *tier_->disk;
  const uint32_t first = static_cast<uint32_t>(word >> 32);
  // In 64 bits: the last segment may end at 2^32.
  const uint64_t after = uint64_t{first} + static_cast<uint64_t>(disk.RestOfSegment(first));
  const auto behind = std::lower_bound(order.begin(), order.end(), after << 32);
  *end = static_cast<uint32_t>(*(behind - 1) >> 32) + 1;
  records->resize((*end - first) * disk.record_bytes());
  return Explained(disk.Read(first, *end - first, records->data()));
}

Status Table::Relayout(const RowLayout& layout) {
  const RowLayout old = this->layout();
  std::unique_ptr<DiskStore> disk = tier_->MakeDisk(layout.stride() * static_cast<int64_t>(sizeof(float)), shards());
  if (!disk->usable()) {
    return Status::ResourceExhausted("table '" + config_.name + "': no address space left for its rows on disk");
  }
  struct Moved {
    int64_t key;
    uint32_t from, to;
  };
  std::vector<std::vector<Moved>> moved(shards());
  std::vector<float> wide(layout.stride());
  std::vector<char> record(disk->record_bytes());
  MXREC_RETURN_IF_ERROR(ForEachRow([&](int64_t key, int64_t handle, const float* row) {
    const uint32_t from = static_cast<uint32_t>(handle);
    if (!IsOnDisk(from)) return Status();
    MemoryStore::ConvertRow(old, row, layout, wide.data());
    disk->Pack(key, wide.data(), record.data());
    const int shard = ShardOf(HashKey(key));
    uint32_t to;
    MXREC_RETURN_IF_ERROR(Explained(disk->Append(shard, record.data(), 1, &to)));
    moved[shard].push_back({key, from, to});
    if (changes_ != nullptr) MXREC_RETURN_IF_ERROR(changes_->Reserve(to));
    return history_ == nullptr ? Status() : history_->facts().Reserve(to);
  }));
  MXREC_RETURN_IF_ERROR(store_.Relayout(layout));
  // Preparation may be looking for hints.
  std::vector<std::unique_lock<std::shared_mutex>> locks;
  for (int s = 0; s < shards(); ++s) locks.emplace_back(shards_[s].mutex);
  // Old and new places overlap, also those of different shards: what is known of all rows is taken before any of it is
  // put down.
  std::vector<RowFacts> facts;
  std::vector<Changes::Mark> marks;
  for (const std::vector<Moved>& rows : moved) {
    for (const Moved& row : rows) {
      if (history_ != nullptr) facts.push_back(history_->facts(row.from));
      if (changes_ != nullptr) marks.push_back(changes_->mark(row.from));
    }
  }
  auto known = facts.begin();
  auto mark = marks.begin();
  for (int s = 0; s < shards(); ++s) {
    ++shards_[s].epoch;
    for (const Moved& row : moved[s]) {
      if (history_ != nullptr) history_->facts(row.to) = *known++;
      if (changes_ != nullptr) changes_->SetMark(row.to, *mark++);
      shards_[s].index.Move(HashKey(row.key), row.key, row.to);
    }
  }
  tier_->disk = std::move(disk);
  return Status();
}

}  // namespace mxrec
