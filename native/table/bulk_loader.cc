#include "table/bulk_loader.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <numeric>
#include <vector>

#include "base/deal.h"
#include "base/failure.h"
#include "base/hash.h"

namespace mxrec {

// Puts rows of a shard on disk that were never in memory, because a checkpoint has more rows than memory may hold.
// Collects them, as rows on disk are written in batches.
class BulkLoader::DiskWriter {
 public:
  // REQUIRES: the shard is locked alone.
  DiskWriter(Table* table, int shard) : table_(table), shard_(shard) {}

  // Whether the next row shall go to disk.
  bool wanted() const {
    const Tier* tier = table_->tier();
    if (tier == nullptr || tier->frames.occupied(shard_) < tier->quota) return false;
    return table_->config().max_rows > 0 || tier->disk->rows() < tier->config.disk_rows;
  }

  // Where the row of `key` shall be filled in: a whole stride of floats. REQUIRES: wanted(); the index has the key, at
  // any row, until Flush.
  float* Next(int64_t key) {
    keys_.push_back(key);
    const int64_t stride = table_->layout().stride();
    rows_.resize(keys_.size() * stride);
    return rows_.data() + (keys_.size() - 1) * stride;
  }

  bool is_full() const { return static_cast<int64_t>(keys_.size()) == kBatch; }

  // Writes what was filled in. On failure the index knows these keys no more, and *lost receives how many.
  Status Flush(int64_t* lost) {
    *lost = 0;
    const int64_t n = static_cast<int64_t>(keys_.size());
    if (n == 0) return Status();
    const DiskStore& disk = *table_->tier()->disk;
    KeyIndex& index = table_->shards_[shard_].index;
    History* history = table_->history();
    Changes* changes = table_->changes_.get();
    const int64_t stride = table_->layout().stride();
    records_.resize(n * disk.record_bytes());
    for (int64_t i = 0; i < n; ++i) {
      disk.Pack(keys_[i], rows_.data() + i * stride, records_.data() + i * disk.record_bytes());
    }
    std::vector<uint32_t> places(n);
    const Status status = table_->AppendToDisk(shard_, records_.data(), n, places.data());
    for (int64_t i = 0; i < n; ++i) {
      const uint64_t hash = HashKey(keys_[i]);
      if (!status.ok()) {
        index.Erase(hash, keys_[i]);
        continue;
      }
      if (history != nullptr) history->facts(places[i]) = history->Admit(shard_, hash);
      if (changes != nullptr) changes->SetMark(places[i], changes->now());
      index.Move(hash, keys_[i], places[i]);
    }
    *lost = status.ok() ? 0 : n;
    keys_.clear();
    rows_.clear();
    return status;
  }

 private:
  static constexpr int64_t kBatch = 256;

  Table* table_;
  int shard_;
  std::vector<int64_t> keys_;
  std::vector<float> rows_;
  std::vector<char> records_;
};

int64_t BulkLoader::BucketOf(int64_t key) const {
  return owned_.Has(key) ? int64_t{table_->ShardOf(HashKey(key))} : kNoBucket;
}

template <typename Fn>
Status BulkLoader::InsertByShard(const int64_t* keys, int64_t n, Fn fn) {
  if (n > UINT32_MAX) return Status::ResourceExhausted("a table cannot hold more than 4 billion rows");
  const int shards = table_->shards();
  std::vector<uint32_t> order;
  const std::vector<int64_t> starts = Deal(
      n, shards, parallel_, [&](int64_t i) { return BucketOf(keys[i]); }, [&](int64_t count) { order.resize(count); },
      [&](int64_t i, int64_t place) { order[place] = static_cast<uint32_t>(i); });

  const int64_t cost = 100 * (n / shards + 1);
  std::atomic<int64_t> missing{starts[shards]};
  parallel_.Run(replace_ ? shards : 0, cost, [&](int64_t begin, int64_t end) {
    for (int64_t s = begin; s < end; ++s) {
      Table::Shard& shard = table_->shards_[s];
      std::shared_lock<std::shared_mutex> lock(shard.mutex);
      for (int64_t i = starts[s]; i < starts[s + 1]; ++i) {
        const int64_t key = keys[order[i]];
        if (shard.index.Find(HashKey(key), key) != KeyIndex::kNone) missing.fetch_sub(1);
      }
    }
  });
  const int64_t claimed = missing;
  MXREC_RETURN_IF_ERROR(table_->Claim(claimed));
  std::vector<Status> results(shards);
  std::vector<int64_t> inserted(shards, 0);
  parallel_.Run(shards, cost, [&](int64_t begin, int64_t end) {
    for (int64_t s = begin; s < end; ++s) {
      std::unique_lock<std::shared_mutex> lock(table_->shards_[s].mutex);
      table_->KeysWillChange(static_cast<int>(s));
      results[s] = table_->shards_[s].index.Reserve(starts[s + 1] - starts[s]);
      if (!results[s].ok()) continue;
      results[s] = fn(static_cast<int>(s), order.data() + starts[s], starts[s + 1] - starts[s], &inserted[s]);
    }
  });
  const int64_t made = std::accumulate(inserted.begin(), inserted.end(), int64_t{0});
  table_->inserted_.fetch_add(made, std::memory_order_relaxed);
  table_->Release(claimed - made);
  for (const Status& result : results) MXREC_RETURN_IF_ERROR(result);
  return Status();
}

Status BulkLoader::Reserve(const int64_t* keys, int64_t n) {
  const int shards = table_->shards();
  const std::vector<int64_t> starts =
      Deal(n, shards, parallel_, [&](int64_t i) { return BucketOf(keys[i]); }, [](int64_t) {}, [](int64_t, int64_t) {});
  Failure failure;
  parallel_.Run(shards, 10 * (n / shards + 1), [&](int64_t begin, int64_t end) {
    for (int64_t s = begin; s < end && !failure.failed(); ++s) {
      std::unique_lock<std::shared_mutex> lock(table_->shards_[s].mutex);
      const Status status = table_->shards_[s].index.Reserve(starts[s + 1] - starts[s]);
      if (!status.ok()) failure.Set(status);
    }
  });
  return failure.status();
}

Status BulkLoader::Insert(const int64_t* keys, const float* const* columns, int64_t n) {
  if (table_->tier() != nullptr) {
    return InsertByShard(keys, n, [&](int shard, const uint32_t* order, int64_t count, int64_t* inserted) {
      return InsertToTier(shard, keys, columns, order, count, inserted);
    });
  }
  std::vector<uint32_t> places(n);
  const Status status = Place(keys, n, places.data());
  const int64_t dim = table_->config().dim, parts = static_cast<int64_t>(1 + table_->layout().slots().size());
  parallel_.Run(n, 20 + dim * parts / 4, [&](int64_t begin, int64_t end) {  // nanoseconds
    std::vector<const float*> from(columns, columns + parts);
    for (const float*& column : from) column = column == nullptr ? nullptr : column + begin * dim;
    Fill(keys + begin, places.data() + begin, from.data(), end - begin);
  });
  return status;
}

Status BulkLoader::Place(const int64_t* keys, int64_t n, uint32_t* places) {
  std::fill_n(places, n, kNoPlace);
  return InsertByShard(keys, n, [&](int shard, const uint32_t* order, int64_t count, int64_t* inserted) {
    return PlaceShard(shard, keys, order, count, places, inserted);
  });
}

Status BulkLoader::PlaceShard(int shard, const int64_t* keys, const uint32_t* order, int64_t n, uint32_t* places,
                              int64_t* inserted) {
  const KeyIndex& index = table_->shards_[shard].index;
  for (int64_t i = 0; i < n; ++i) {
    if (i + Table::kAhead < n) index.Prefetch(HashKey(keys[order[i + Table::kAhead]]));
    const int64_t key = keys[order[i]];
    const uint64_t hash = HashKey(key);
    const int64_t found = index.Find(hash, key);
    if (found == KeyIndex::kNone) {
      MXREC_RETURN_IF_ERROR(table_->AddRow(shard, hash, key, &places[order[i]]));
      ++*inserted;
    } else if (replace_) {
      table_->WillChange(found);
      places[order[i]] = static_cast<uint32_t>(found);
    } else {
      return HasRow(key);
    }
  }
  return Status();
}

Status BulkLoader::HasRow(int64_t key) const {
  return Status::AlreadyExists("table '" + table_->config().name + "' has a row for key " + std::to_string(key) +
                               " already");
}

void BulkLoader::Fill(const int64_t* keys, const uint32_t* places, const float* const* columns, int64_t n) const {
  for (int64_t i = 0; i < n; ++i) {
    if (places[i] != kNoPlace) FillRow(keys, columns, i, table_->Row(places[i]));
  }
}

void BulkLoader::FillRow(const int64_t* keys, const float* const* columns, int64_t i, float* row) const {
  const RowLayout& layout = table_->layout();
  const int64_t dim = layout.dim();
  if (columns[0] != nullptr) {
    std::memcpy(row, columns[0] + i * dim, dim * sizeof(float));
  } else {
    table_->initializer_.Fill(keys[i], row);
  }
  for (size_t p = 0; p < layout.slots().size(); ++p) {
    float* slot = row + layout.slot_offset(static_cast<int>(p));
    if (columns[1 + p] != nullptr) {
      std::memcpy(slot, columns[1 + p] + i * dim, dim * sizeof(float));
    } else {
      std::fill_n(slot, dim, layout.slots()[p].initial_value);
    }
  }
}

Status BulkLoader::InsertToTier(int shard, const int64_t* keys, const float* const* columns, const uint32_t* order,
                                int64_t n, int64_t* inserted) {
  Table::Shard& s = table_->shards_[shard];
  const RowLayout& layout = table_->layout();
  DiskWriter disk(table_, shard);
  auto flush = [&] {
    int64_t lost;
    const Status status = disk.Flush(&lost);
    *inserted -= lost;
    return status;
  };
  for (int64_t i = 0; i < n; ++i) {
    if (i + Table::kAhead < n) {
      const int64_t next = order[i + Table::kAhead];
      s.index.Prefetch(HashKey(keys[next]));
      for (size_t p = 0; p <= layout.slots().size(); ++p) {
        if (columns[p] != nullptr) __builtin_prefetch(columns[p] + next * layout.dim());
      }
    }
    const int64_t from = order[i], key = keys[from];
    const uint64_t hash = HashKey(key);
    const int64_t found = s.index.Find(hash, key);
    if (found != KeyIndex::kNone && replace_) {
      const uint32_t row = static_cast<uint32_t>(found);
      if (!table_->IsOnDisk(row)) {
        table_->WillChange(row);
        FillRow(keys, columns, from, table_->Row(row));
        continue;
      }
      // Records are never changed: it is written anew.
      s.index.Erase(hash, key);
      ++s.epoch;
      table_->FreeRow(shard, row);
      --*inserted;
    } else if (found != KeyIndex::kNone) {
      MXREC_RETURN_IF_ERROR(flush());
      return HasRow(key);
    }
    if (disk.wanted()) {
      // The index knows the key at once, so that it cannot come twice, and its place when it is written.
      s.index.Insert(hash, key, 0);
      FillRow(keys, columns, from, disk.Next(key));
      ++*inserted;
      if (disk.is_full()) MXREC_RETURN_IF_ERROR(flush());
      continue;
    }
    uint32_t row;
    const Status added = table_->AddRow(shard, hash, key, &row);
    if (!added.ok()) {
      MXREC_RETURN_IF_ERROR(flush());
      return added;
    }
    ++*inserted;
    FillRow(keys, columns, from, table_->Row(row));
  }
  return flush();
}

}  // namespace mxrec
