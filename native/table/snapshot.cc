#include "table/snapshot.h"

#include <algorithm>
#include <cstring>

namespace mxrec {

Status Snapshot::Take(std::shared_ptr<Table> table, int64_t base, bool all, std::unique_ptr<Snapshot>* snapshot) {
  const std::string who = "table '" + table->config().name + "'";
  Changes* changes = table->changes_.get();
  if (changes != nullptr && changes->is_watched()) {
    return Status::FailedPrecondition(who + " is being saved already; wait until that save has ended");
  }
  if (!all && (changes == nullptr || !changes->Knows(base))) {
    return Status::FailedPrecondition(who + " does not know what has changed since that checkpoint; save all of it");
  }
  std::unique_ptr<Snapshot> s(new Snapshot(table, all));
  const History* history = table->history();
  if (history != nullptr) {
    s->now_ = history->now();
    s->tracking_ = history->tracking();
  }
  if (changes != nullptr) {
    changes->ForgetKeys(changes->Knows(base) ? base : Changes::kNoMoment);
    s->moment_ = changes->EndInterval();
  }
  for (int shard = 0; shard < table->shards(); ++shard) {
    const Table::ReadLock lock = table->LockToRead(shard);
    const int64_t rows = table->shards_[shard].index.size();
    s->table_rows_ += rows;
    s->rows_.push_back(rows);
    const bool has_filter = history != nullptr && history->filter(shard) != nullptr;
    // A filter cannot list its keys.
    s->refused_.push_back(history == nullptr || has_filter ? 0 : history->numbers(shard).candidates);
    s->cells_.push_back(has_filter ? history->filter(shard)->size() : 0);
    if (changes == nullptr) continue;
    Changes::Part& part = changes->part(shard);
    std::lock_guard<std::mutex> part_lock(part.mutex);
    if (!all) {
      for (const Changes::Erasure& erasure : part.erased) s->erased_.push_back(erasure.key);
    }
    part.Close();
    part.is_open = true;
    part.since = all ? Changes::Mark{0} : Changes::MarkOf(base);
    part.is_whole = all;
    part.end = table->store_.end();
  }
  if (changes != nullptr) changes->set_watched(true);
  *snapshot = std::move(s);
  return Status();
}

Snapshot::~Snapshot() {
  if (!is_guarded()) return;
  for (int shard = 0; shard < table_->shards(); ++shard) {
    Changes::Part& part = table_->changes_->part(shard);
    std::lock_guard<std::mutex> lock(part.mutex);
    part.Close();
  }
  table_->changes_->set_watched(false);
}

void Snapshot::Prepare(const ParallelFor& parallel) {
  if (all_ || is_prepared_) return;  // of all rows, known since it was taken
  is_prepared_ = true;
  const int64_t cost = 10 * (1 + table_rows_ / table_->shards());
  parallel.Run(table_->shards(), cost, [&](int64_t begin, int64_t end) {
    for (int64_t shard = begin; shard < end; ++shard) {
      Changes::Part& part = table_->changes_->part(static_cast<int>(shard));
      const Table::ReadLock lock = table_->LockToRead(static_cast<int>(shard));
      std::lock_guard<std::mutex> part_lock(part.mutex);
      table_->ListRows(static_cast<int>(shard), &part);
      rows_[shard] = static_cast<int64_t>(part.order.size());
      refused_[shard] = static_cast<int64_t>(part.refused.size());
    }
  });
  for (int shard = 0; shard < table_->shards(); ++shard) {
    Changes::Part& part = table_->changes_->part(shard);
    std::lock_guard<std::mutex> lock(part.mutex);
    erased_.insert(erased_.end(), part.forgotten.begin(), part.forgotten.end());
  }
}

Status Snapshot::Open(int shard, Changes::Part* part) {
  if (is_guarded()) {
    const Table::ReadLock lock = table_->LockToRead(shard);
    std::lock_guard<std::mutex> part_lock(part->mutex);
    MXREC_RETURN_IF_ERROR(part->failure);
    table_->ListRows(shard, part);
  } else {
    part->is_open = true;
    table_->ListRows(shard, part);
  }
  // From here on only this thread uses the lists.
  std::sort(part->order.begin(), part->order.end());
  if (static_cast<int64_t>(part->order.size()) == rows_[shard] &&
      static_cast<int64_t>(part->refused.size()) == refused_[shard]) {
    return Status();
  }
  return Status::FailedPrecondition("table '" + table_->config().name +
                                    "' got or lost rows while it was being saved; save between two steps");
}

Status Snapshot::Copy(size_t i, Changes::Part* part, Buffer* buffer) {
  // So few that a step that waits for the lock does not wait long, so many that the lock costs little.
  constexpr size_t kRows = 64;
  const Table& table = *table_;
  const int64_t stride = table.layout().stride();
  const size_t end = std::min(part->order.size(), i + kRows);
  buffer->items.clear();
  buffer->rows.resize(kRows * stride);
  float* at = buffer->rows.data();
  std::lock_guard<std::mutex> lock(part->mutex);
  MXREC_RETURN_IF_ERROR(part->failure);
  for (; i < end; ++i, at += stride) {
    const uint64_t word = part->order[i];
    const uint32_t row = static_cast<uint32_t>(word >> 32);
    Item item = {part->keys[static_cast<uint32_t>(word)], RowFacts(), at};
    const auto kept = part->kept.empty() ? part->kept.end() : part->kept.find(row);
    if (kept != part->kept.end()) {
      item.facts = kept->second.facts;
      item.row = kept->second.row;  // it stays until the shard's part is closed
      buffer->items.push_back(item);
      continue;
    }
    if (table.history() != nullptr) item.facts = table.history()->facts(row);
    if (table.IsOnDisk(row)) {
      const DiskStore& disk = *table.tier_->disk;
      if (row < buffer->first || row >= buffer->end) {
        buffer->first = row;
        MXREC_RETURN_IF_ERROR(table.ReadSegment(word, part->order, &buffer->records, &buffer->end));
      }
      const char* record = buffer->records.data() + (row - buffer->first) * disk.record_bytes();
      MXREC_RETURN_IF_ERROR(table.Explained(disk.Unpack(record, item.key, at)));
    } else if (is_guarded()) {
      std::memcpy(at, table.store_.row(row), stride * sizeof(float));
    } else {
      item.row = table.store_.row(row);
    }
    buffer->items.push_back(item);
  }
  part->next = i < part->order.size() ? static_cast<uint32_t>(part->order[i] >> 32) : UINT32_MAX;
  return Status();
}

Status Snapshot::Finish(Changes::Part* part) {
  std::lock_guard<std::mutex> lock(part->mutex);
  const Status failure = part->failure;
  part->Close();
  return failure;
}

}  // namespace mxrec
