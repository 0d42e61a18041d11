// Table's part in taking over rows from elsewhere: a checkpoint, or a script that sets them.
#include <algorithm>
#include <atomic>
#include <cstring>
#include <numeric>

#include "base/deal.h"
#include "base/failure.h"
#include "base/hash.h"
#include "table/disk_writer.h"
#include "table/table.h"

namespace mxrec {

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

Status Table::AssignEmbeddings(const int64_t* keys, int64_t n, const float* embeddings) {
  const int64_t dim = config_.dim;
  std::vector<int64_t> places(n);
  HintAny(keys, n, places.data());
  const int64_t fresh = std::count(places.begin(), places.end(), int64_t{-1});
  MXREC_RETURN_IF_ERROR(Claim(fresh));
  Release(fresh);  // Assign claims its own; nobody else does meanwhile

  std::vector<float> before((n - fresh) * dim), row(layout().stride());
  float* old = before.data();
  for (int64_t i = 0; i < n; ++i) {
    if (places[i] < 0) continue;
    bool is_found;
    MXREC_RETURN_IF_ERROR(Read(keys[i], row.data(), &is_found));
    old = std::copy_n(row.data(), dim, old);
  }

  std::vector<const float*> parts(1 + layout().slots().size(), nullptr);
  for (int64_t i = 0; i < n; ++i) {
    parts[0] = embeddings + i * dim;
    Status status = Assign(keys[i], parts.data());
    if (status.ok() && places[i] < 0 && history_ != nullptr) {
      RowFacts facts = Facts(keys[i]);
      facts.step = history_->step();
      status = SetFacts(keys[i], facts);
    }
    if (status.ok()) continue;
    old = before.data();
    for (int64_t j = 0; j <= i; ++j) {
      if (places[j] < 0) {
        Erase(keys + j, 1);
      } else {
        parts[0] = old;
        Assign(keys[j], parts.data());
        old += dim;
      }
    }
    return status;
  }
  return Status();
}

template <typename Fn>
Status Table::InsertByShard(const int64_t* keys, int64_t n, const ParallelFor& parallel, bool replace, Fn fn) {
  if (n > UINT32_MAX) return Status::ResourceExhausted("a table cannot hold more than 4 billion rows");
  std::vector<uint32_t> order;
  const std::vector<int64_t> starts = Deal(
      n, shards(), parallel, [&](int64_t i) { return int64_t{ShardOf(HashKey(keys[i]))}; },
      [&](int64_t count) { order.resize(count); },
      [&](int64_t i, int64_t place) { order[place] = static_cast<uint32_t>(i); });

  const int64_t cost = 100 * (n / shards() + 1);
  std::atomic<int64_t> missing{n};
  parallel.Run(replace ? shards() : 0, cost, [&](int64_t begin, int64_t end) {
    for (int64_t s = begin; s < end; ++s) {
      std::shared_lock<std::shared_mutex> lock(shards_[s].mutex);
      for (int64_t i = starts[s]; i < starts[s + 1]; ++i) {
        const int64_t key = keys[order[i]];
        if (shards_[s].index.Find(HashKey(key), key) != KeyIndex::kNone) missing.fetch_sub(1);
      }
    }
  });
  const int64_t claimed = missing;
  MXREC_RETURN_IF_ERROR(Claim(claimed));
  std::vector<Status> results(shards());
  std::vector<int64_t> inserted(shards(), 0);
  parallel.Run(shards(), cost, [&](int64_t begin, int64_t end) {
    for (int64_t s = begin; s < end; ++s) {
      std::unique_lock<std::shared_mutex> lock(shards_[s].mutex);
      KeysWillChange(static_cast<int>(s));
      results[s] = shards_[s].index.Reserve(starts[s + 1] - starts[s]);
      if (!results[s].ok()) continue;
      results[s] = fn(static_cast<int>(s), order.data() + starts[s], starts[s + 1] - starts[s], &inserted[s]);
    }
  });
  const int64_t made = std::accumulate(inserted.begin(), inserted.end(), int64_t{0});
  inserted_.fetch_add(made, std::memory_order_relaxed);
  Release(claimed - made);
  for (const Status& result : results) MXREC_RETURN_IF_ERROR(result);
  return Status();
}

Status Table::ReserveRows(const int64_t* keys, int64_t n, const ParallelFor& parallel) {
  const std::vector<int64_t> starts = Deal(
      n, shards(), parallel, [&](int64_t i) { return int64_t{ShardOf(HashKey(keys[i]))}; }, [](int64_t) {},
      [](int64_t, int64_t) {});
  Failure failure;
  parallel.Run(shards(), 10 * (n / shards() + 1), [&](int64_t begin, int64_t end) {
    for (int64_t s = begin; s < end && !failure.failed(); ++s) {
      std::unique_lock<std::shared_mutex> lock(shards_[s].mutex);
      const Status status = shards_[s].index.Reserve(starts[s + 1] - starts[s]);
      if (!status.ok()) failure.Set(status);
    }
  });
  return failure.status();
}

Status Table::InsertRows(const int64_t* keys, const float* const* columns, int64_t n, const ParallelFor& parallel,
                         bool replace) {
  if (tier_ != nullptr) {
    return InsertByShard(keys, n, parallel, replace,
                         [&](int shard, const uint32_t* order, int64_t count, int64_t* inserted) {
                           return InsertToTier(shard, keys, columns, order, count, replace, inserted);
                         });
  }
  std::vector<uint32_t> places(n);
  const Status status = PlaceRows(keys, n, parallel, replace, places.data());
  const int64_t cost = 20 + config_.dim * static_cast<int64_t>(1 + layout().slots().size()) / 4;  // nanoseconds
  parallel.Run(n, cost, [&](int64_t begin, int64_t end) {
    std::vector<const float*> from(columns, columns + 1 + layout().slots().size());
    for (const float*& column : from) column = column == nullptr ? nullptr : column + begin * config_.dim;
    FillRows(keys + begin, places.data() + begin, from.data(), end - begin);
  });
  return status;
}

Status Table::PlaceRows(const int64_t* keys, int64_t n, const ParallelFor& parallel, bool replace, uint32_t* places) {
  std::fill_n(places, n, kNoPlace);
  return InsertByShard(keys, n, parallel, replace,
                       [&](int shard, const uint32_t* order, int64_t count, int64_t* inserted) {
                         return PlaceShard(shard, keys, order, count, replace, places, inserted);
                       });
}

Status Table::PlaceShard(int shard, const int64_t* keys, const uint32_t* order, int64_t n, bool replace,
                         uint32_t* places, int64_t* inserted) {
  const KeyIndex& index = shards_[shard].index;
  for (int64_t i = 0; i < n; ++i) {
    if (i + kAhead < n) index.Prefetch(HashKey(keys[order[i + kAhead]]));
    const int64_t key = keys[order[i]];
    const uint64_t hash = HashKey(key);
    const int64_t found = index.Find(hash, key);
    if (found == KeyIndex::kNone) {
      MXREC_RETURN_IF_ERROR(AddRow(shard, hash, key, &places[order[i]]));
      ++*inserted;
    } else if (replace) {
      WillChange(found);
      places[order[i]] = static_cast<uint32_t>(found);
    } else {
      return HasRow(key);
    }
  }
  return Status();
}

Status Table::HasRow(int64_t key) const {
  return Status::AlreadyExists("table '" + config_.name + "' has a row for key " + std::to_string(key) + " already");
}

void Table::FillRows(const int64_t* keys, const uint32_t* places, const float* const* columns, int64_t n) {
  for (int64_t i = 0; i < n; ++i) {
    if (places[i] != kNoPlace) FillRow(keys, columns, i, store_.row(places[i]));
  }
}

// The i-th of these rows, from columns as InsertRows has them.
void Table::FillRow(const int64_t* keys, const float* const* columns, int64_t i, float* row) const {
  const RowLayout& layout = store_.layout();
  const int64_t dim = config_.dim;
  if (columns[0] != nullptr) {
    std::memcpy(row, columns[0] + i * dim, dim * sizeof(float));
  } else {
    initializer_.Fill(keys[i], row);
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

Status Table::InsertToTier(int shard, const int64_t* keys, const float* const* columns, const uint32_t* order,
                           int64_t n, bool replace, int64_t* inserted) {
  Shard& s = shards_[shard];
  DiskWriter disk(this, shard);
  auto flush = [&] {
    int64_t lost;
    const Status status = disk.Flush(&lost);
    *inserted -= lost;
    return status;
  };
  for (int64_t i = 0; i < n; ++i) {
    if (i + kAhead < n) {
      const int64_t next = order[i + kAhead];
      s.index.Prefetch(HashKey(keys[next]));
      for (size_t p = 0; p <= layout().slots().size(); ++p) {
        if (columns[p] != nullptr) __builtin_prefetch(columns[p] + next * config_.dim);
      }
    }
    const int64_t from = order[i], key = keys[from];
    const uint64_t hash = HashKey(key);
    const int64_t found = s.index.Find(hash, key);
    if (found != KeyIndex::kNone && replace) {
      const uint32_t row = static_cast<uint32_t>(found);
      if (!IsOnDisk(row)) {
        WillChange(row);
        FillRow(keys, columns, from, store_.row(row));
        continue;
      }
      // Records are never changed: it is written anew.
      s.index.Erase(hash, key);
      ++s.epoch;
      FreeRow(shard, row);
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
    const Status added = AddRow(shard, hash, key, &row);
    if (!added.ok()) {
      MXREC_RETURN_IF_ERROR(flush());
      return added;
    }
    ++*inserted;
    FillRow(keys, columns, from, store_.row(row));
  }
  return flush();
}

}  // namespace mxrec
