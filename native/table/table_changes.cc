// Table's part in following its changes (changes.h).
#include <cstring>
#include <new>

#include "base/hash.h"
#include "table/table.h"

namespace mxrec {

Status Table::FollowChanges(bool keys) {
  if (changes_ == nullptr) {
    std::unique_ptr<Changes> changes(new Changes(shards(), std::max(config_.max_rows, config_.expected_rows)));
    bool enough = changes->usable();
    for (uint64_t row = 0; enough && row < store_.end(); row += RowColumn<Changes::Mark>::kSlabRows) {
      enough = changes->Reserve(static_cast<uint32_t>(row)).ok();
    }
    for (int s = 0; tier_ != nullptr && s < shards(); ++s) {
      const ReadLock lock = LockToRead(s);
      shards_[s].index.ForEach([&](int64_t, uint32_t row) { enough = enough && changes->Reserve(row).ok(); });
    }
    if (!enough) return Status::ResourceExhausted("table '" + config_.name + "': no memory left to follow its changes");
    changes_ = std::move(changes);
  }
  if (keys) changes_->LogKeys();
  return Status();
}

void Table::FirstChange(uint32_t row) {
  if (changes_->is_watched()) Preserve(IsOnDisk(row) ? tier_->disk->OwnerOf(row) : store_.OwnerOf(row), row);
  changes_->SetMark(row, changes_->now());
}

void Table::Preserve(int shard, uint32_t row) {
  if (!changes_->is_watched()) return;
  Changes::Part& part = changes_->part(shard);
  std::lock_guard<std::mutex> lock(part.mutex);
  const Changes::Mark mark = changes_->mark(row);
  const bool is_needed = part.is_open && part.failure.ok() && row >= part.next && (part.is_whole || mark > part.since);
  if (!is_needed || part.kept.count(row) != 0) return;
  if (!IsOnDisk(row) && row >= part.end) return;
  // The snapshot fails, not the step: it has lost nothing yet.
  try {
    float* to = part.Add(layout().stride());
    Changes::Kept kept = {mark, history_ == nullptr ? RowFacts() : history_->facts(row), to};
    const size_t bytes = layout().stride() * sizeof(float);
    if (!IsOnDisk(row)) {
      std::memcpy(to, store_.row(row), bytes);
    } else {
      std::vector<char> record(tier_->disk->record_bytes());
      part.failure = Explained(tier_->disk->Read(row, 1, record.data()));
      if (part.failure.ok())
        part.failure = Explained(tier_->disk->Unpack(record.data(), DiskStore::KeyOf(record.data()), to));
    }
    part.kept.emplace(row, kept);
  } catch (const std::bad_alloc&) {
    part.failure = Status::ResourceExhausted("table '" + config_.name +
                                             "': no memory left to keep rows as they were when its save began");
  }
}

void Table::ListForSnapshot(int shard) {
  Changes::Part& part = changes_->part(shard);
  std::lock_guard<std::mutex> lock(part.mutex);
  ListRows(shard, &part);
}

void Table::LogForgottenUntil(int shard, int64_t until) {
  if (changes_ == nullptr || !changes_->logs_keys()) return;
  history_->ForEachRefused(shard, [&](const Candidate& candidate) {
    if (candidate.time <= until) changes_->LogRefused(shard, candidate.key);
  });
}

void Table::ListRows(int shard, Changes::Part* part) const {
  if (!part->is_open || part->is_listed || !part->failure.ok()) return;
  try {
    part->is_listed = true;
    shards_[shard].index.ForEach([&](int64_t key, uint32_t row) {
      if (!part->is_whole) {
        // A row that has changed since the snapshot was kept if the snapshot needs it.
        const auto kept = part->kept.find(row);
        const Changes::Mark mark = changes_->mark(row);
        if (kept == part->kept.end() && (mark <= part->since || mark == changes_->now())) return;
      }
      part->order.push_back(uint64_t{row} << 32 | part->keys.size());
      part->keys.push_back(key);
    });
    if (history_ == nullptr) return;
    if (part->is_whole) {
      history_->ForEachRefused(shard, [&](const Candidate& candidate) { part->refused.push_back(candidate); });
    }
    for (const auto& [key, mark] : part->met) {
      if (part->is_whole || mark <= part->since) continue;
      const uint64_t hash = HashKey(key);
      const RowFacts facts = history_->Refused(shard, hash);
      if (facts.count > 0 && history_->filter(shard) == nullptr) {
        part->refused.push_back({key, facts.count, facts.time});
      } else if (shards_[shard].index.Find(hash, key) == KeyIndex::kNone) {
        part->forgotten.push_back(key);
      }
    }
    const AdmissionFilter* filter = history_->filter(shard);
    if (filter != nullptr) part->filter.assign(filter->cells(), filter->cells() + filter->size());
  } catch (const std::bad_alloc&) {
    part->failure =
        Status::ResourceExhausted("table '" + config_.name + "': no memory left to list its keys for a save");
  }
}

Status Table::CheckNotBeingSaved(const std::string& what) const {
  if (changes_ == nullptr || !changes_->is_watched()) return Status();
  return Status::FailedPrecondition("table '" + config_.name + "' is being saved and cannot " + what +
                                    " meanwhile; wait until the save has ended");
}

void Table::ForgetChanges() {
  if (changes_ == nullptr) return;
  for (int s = 0; s < shards(); ++s) {
    Changes::Part& part = changes_->part(s);
    std::lock_guard<std::mutex> lock(part.mutex);
    if (!part.is_open) continue;
    part.failure = Status::FailedPrecondition("table '" + config_.name + "' was emptied or restored while being saved");
  }
  changes_->Reset();
}

}  // namespace mxrec
