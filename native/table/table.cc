#include "table/table.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <numeric>
#include <random>

#include "base/hash.h"

namespace mxrec {
namespace {

// How far ahead of its use a row, key or chunk is requested from memory. 16 covers a DRAM access (~90 ns) at the ~6 ns
// each item takes once its data is in the cache.
constexpr int64_t kAhead = 16;
static_assert(kNoRow == KeyIndex::kNone, "what is not found has no row");

// Between Screen and Record, the handle of a key that shall get a row.
constexpr int64_t kAdmitted = -2;

// Shards: enough that a rehash stays short (64Ki keys each when a limit is known) and threads find work, few enough
// that a batch of a few thousand ids still brings each shard a run of them.
int ChooseShardBits(int64_t max_rows) {
  if (max_rows == 0) return 6;
  int bits = 3;
  while (bits < 8 && (max_rows >> bits) > 65536) ++bits;
  return bits;
}

// A number that no other table of this or any other process starts from: a cached dataset may bring the plans of a
// process that is long gone.
uint64_t FirstEpoch() {
  std::random_device random;
  const auto now = std::chrono::system_clock::now().time_since_epoch().count();
  return Mix64((static_cast<uint64_t>(random()) << 32 | random()) ^ static_cast<uint64_t>(now));
}

}  // namespace

bool operator==(const TableConfig& a, const TableConfig& b) {
  return a.name == b.name && a.dim == b.dim && a.max_rows == b.max_rows && a.initializer == b.initializer &&
         a.padding_keys == b.padding_keys;
}

Status Table::Create(const TableConfig& config, std::shared_ptr<Table>* table) {
  if (config.name.empty()) return Status::InvalidArgument("a table needs a name");
  const std::string who = "table '" + config.name + "': ";
  if (config.dim < 1 || config.dim > 8192) {
    return Status::InvalidArgument(who + "dim must be in [1, 8192], got " + std::to_string(config.dim));
  }
  if (config.max_rows < 0) {
    return Status::InvalidArgument(who + "the row limit must not be negative, got " + std::to_string(config.max_rows));
  }
  const Status checked = Initializer::Check(config.initializer, config.dim);
  if (!checked.ok()) return Status::InvalidArgument(who + checked.message());
  std::shared_ptr<Table> made(new Table(config, ChooseShardBits(config.max_rows)));
  if (!made->store_.usable()) return Status::ResourceExhausted(who + "no address space left for its rows");
  *table = std::move(made);
  return Status();
}

Table::Table(const TableConfig& config, int shard_bits)
    : config_(config),
      shard_bits_(shard_bits),
      initializer_(config.initializer, config.name, config.dim),
      store_(RowLayout(config.dim, {}), 1 << shard_bits),
      shards_(new Shard[size_t{1} << shard_bits]) {
  std::sort(config_.padding_keys.begin(), config_.padding_keys.end());
  const uint64_t epoch = FirstEpoch();
  for (int s = 0; s < shards(); ++s) {
    shards_[s].index = KeyIndex(static_cast<double>(s) / shards());
    shards_[s].epoch = static_cast<int64_t>(Mix64(epoch + s));
  }
}

bool Table::IsPadding(int64_t key) const {
  return !config_.padding_keys.empty() &&
         std::binary_search(config_.padding_keys.begin(), config_.padding_keys.end(), key);
}

int64_t Table::Handle(int64_t key, int64_t row) const { return IsPadding(key) ? row | kFrozen : row; }

// Shares the locks of the shards of some keys until it dies. It takes them in ascending order: readers that wait for
// each other's locks in any order can be stuck for good once writers wait for them, too.
class Table::SharedLocks {
 public:
  SharedLocks(const Table& table, const int64_t* keys, int64_t n) : table_(table) {
    for (int64_t i = 0; i < n; ++i) held_[table.ShardOf(HashKey(keys[i]))] = true;
    for (int s = 0; s < table.shards(); ++s) {
      if (!held_[s]) continue;
      table.shards_[s].mutex.lock_shared();
      epoch_ += static_cast<uint64_t>(table.shards_[s].epoch);
    }
  }
  SharedLocks(const SharedLocks&) = delete;
  SharedLocks& operator=(const SharedLocks&) = delete;
  ~SharedLocks() {
    for (int s = 0; s < table_.shards(); ++s) {
      if (held_[s]) table_.shards_[s].mutex.unlock_shared();
    }
  }
  const KeyIndex& index_of(uint64_t hash) const { return table_.shards_[table_.ShardOf(hash)].index; }
  // The sum of the shards' epochs; each of them only grows.
  int64_t epoch() const { return static_cast<int64_t>(epoch_); }

 private:
  const Table& table_;
  std::array<bool, 256> held_{};
  uint64_t epoch_ = 0;
};

int64_t Table::Seal(int64_t epoch, const int64_t* keys, const int64_t* hints, int64_t n) {
  uint64_t sum = static_cast<uint64_t>(epoch);
  for (int64_t i = 0; i < n; ++i) {
    sum += Mix64(static_cast<uint64_t>(hints[i]) ^ static_cast<uint64_t>(keys[i]) * 0x9e3779b97f4a7c15ULL);
  }
  return static_cast<int64_t>(sum);
}

int64_t Table::Hint(int shard, const int64_t* keys, int64_t n, int64_t* hints) const {
  const Shard& s = shards_[shard];
  std::shared_lock<std::shared_mutex> lock(s.mutex);
  FindAll(keys, n, [&](uint64_t) -> const KeyIndex& { return s.index; }, hints);
  return Seal(s.epoch, keys, hints, n);
}

int64_t Table::Resolve(int shard, const int64_t* keys, const int64_t* hints, int64_t n, int64_t* handles,
                       int64_t seal) const {
  const Shard& s = shards_[shard];
  std::shared_lock<std::shared_mutex> lock(s.mutex);
  const bool is_current = seal == Seal(s.epoch, keys, hints, n);
  return Complete(keys, is_current ? hints : nullptr, n, handles, [&](uint64_t) -> const KeyIndex& { return s.index; });
}

// Resolve, with hints that are good or none at all.
template <typename IndexOf>
int64_t Table::Complete(const int64_t* keys, const int64_t* hints, int64_t n, int64_t* handles,
                        IndexOf index_of) const {
  if (hints == nullptr) {
    FindAll(keys, n, index_of, handles);
  } else {
    std::copy_n(hints, n, handles);
  }
  const bool is_padded = !config_.padding_keys.empty();
  int64_t missing = 0;
  for (int64_t i = 0; i < n; ++i) {
    if (handles[i] == KeyIndex::kNone && hints != nullptr) {  // there was no row, but there may be one now
      const uint64_t hash = HashKey(keys[i]);
      handles[i] = index_of(hash).Find(hash, keys[i]);
    }
    missing += handles[i] == kNoRow;
    if (is_padded && handles[i] != kNoRow) handles[i] = Handle(keys[i], handles[i]);
  }
  return missing;
}

int64_t Table::HintAny(const int64_t* keys, int64_t n, int64_t* hints) const {
  const SharedLocks lock(*this, keys, n);
  FindAll(keys, n, [&](uint64_t hash) -> const KeyIndex& { return lock.index_of(hash); }, hints);
  return Seal(lock.epoch(), keys, hints, n);
}

void Table::ResolveAny(const int64_t* keys, const int64_t* hints, int64_t n, int64_t* handles, int64_t seal) const {
  const SharedLocks lock(*this, keys, n);
  const bool is_current = seal == Seal(lock.epoch(), keys, hints, n);
  Complete(keys, is_current ? hints : nullptr, n, handles,
           [&](uint64_t hash) -> const KeyIndex& { return lock.index_of(hash); });
}

Status Table::Claim(int64_t n) {
  int64_t before = size_.load(std::memory_order_relaxed);
  do {  // not add and take back: a claim that fails must not make another one fail meanwhile
    if (config_.max_rows > 0 && n > config_.max_rows - before) {
      return Status::ResourceExhausted(
          "table '" + config_.name + "' is full: it holds " + std::to_string(before) + " rows, this batch brings " +
          std::to_string(n) + " new keys, and its limit (device_vocabulary_size + host_vocabulary_size) is " +
          std::to_string(config_.max_rows) +
          " rows. Raise device_vocabulary_size in create_table, or call init(use_dynamic_expansion=True) to let tables "
          "grow. Nothing was lost: the table can still be saved");
    }
  } while (!size_.compare_exchange_weak(before, before + n, std::memory_order_relaxed));
  return Status();
}

Status Table::AddRow(int shard, uint64_t hash, int64_t key, uint32_t* row) {
  MXREC_RETURN_IF_ERROR(store_.Allocate(shard, row));
  if (history_ != nullptr) {
    const Status reserved = history_->facts().Reserve(*row);
    if (!reserved.ok()) {
      store_.Free(shard, *row);
      return reserved;
    }
    history_->facts(*row) = history_->Admit(shard, hash);
  }
  shards_[shard].index.Insert(hash, key, *row);
  return Status();
}

Status Table::NewRow(int shard, uint64_t hash, int64_t key, uint32_t* row) {
  MXREC_RETURN_IF_ERROR(AddRow(shard, hash, key, row));
  float* at = store_.row(*row);
  initializer_.Fill(key, at);
  const RowLayout& layout = store_.layout();
  for (size_t i = 0; i < layout.slots().size(); ++i) {
    std::fill_n(at + layout.slot_offset(static_cast<int>(i)), layout.dim(), layout.slots()[i].initial_value);
  }
  return Status();
}

Status Table::Insert(int shard, const int64_t* keys, int64_t n, int64_t* handles, int64_t* inserted) {
  Shard& s = shards_[shard];
  const int64_t wanted = std::count(handles, handles + n, kNoRow);
  std::unique_lock<std::shared_mutex> lock(s.mutex);
  MXREC_RETURN_IF_ERROR(s.index.Reserve(wanted));
  int64_t made = 0;
  Status status;
  for (int64_t i = 0; i < n; ++i) {
    if (i + kAhead < n) s.index.Prefetch(HashKey(keys[i + kAhead]));
    if (handles[i] != kNoRow) continue;
    const uint64_t hash = HashKey(keys[i]);
    int64_t row = s.index.Find(hash, keys[i]);  // another thread may have inserted it since Resolve
    if (row == KeyIndex::kNone) {
      uint32_t fresh;
      status = NewRow(shard, hash, keys[i], &fresh);
      if (!status.ok()) break;
      row = fresh;
      ++made;
    }
    handles[i] = Handle(keys[i], row);
  }
  inserted_.fetch_add(made, std::memory_order_relaxed);
  *inserted += made;
  return status;
}

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
                     int64_t* handles, int64_t* inserted) {
  Shard& s = shards_[shard];
  const int64_t wanted = std::count(handles, handles + n, kAdmitted);
  std::shared_lock<std::shared_mutex> reading(s.mutex, std::defer_lock);
  std::unique_lock<std::shared_mutex> inserting(s.mutex, std::defer_lock);
  if (wanted > 0) {
    inserting.lock();
    MXREC_RETURN_IF_ERROR(s.index.Reserve(wanted));
  } else {
    reading.lock();
  }
  std::lock_guard<std::mutex> counting(s.history_mutex);
  int64_t made = 0;
  Status status;
  // In blocks: requests that miss the TLB overlap only if they stand close together (key_index.h: FindAll).
  auto request = [&](int64_t begin) {
    for (int64_t i = begin; i < std::min(n, begin + kAhead); ++i) {
      if (handles[i] >= 0) {
        __builtin_prefetch(&history_->facts(static_cast<uint32_t>(handles[i])), 1);
      } else {
        history_->Prefetch(shard, HashKey(keys[i]));
        s.index.Prefetch(HashKey(keys[i]));
      }
    }
  };
  request(0);
  for (int64_t i = 0; i < n; ++i) {
    if (i % kAhead == 0) request(i + kAhead);
    const uint32_t weight = tally.weight(first + i);
    const int64_t time = tally.time(first + i);
    if (handles[i] < 0) {
      const uint64_t hash = HashKey(keys[i]);
      const int64_t row = s.index.Find(hash, keys[i]);  // another thread may have inserted it since Resolve
      if (row != KeyIndex::kNone) {
        handles[i] = Handle(keys[i], row);
      } else if (handles[i] == kNoRow) {
        status = history_->Refuse(shard, hash, weight, time);
        if (!status.ok()) break;
        continue;
      } else {
        uint32_t fresh;
        status = NewRow(shard, hash, keys[i], &fresh);
        if (!status.ok()) break;
        handles[i] = Handle(keys[i], fresh);
        ++made;
      }
    }
    Count(&history_->facts(static_cast<uint32_t>(handles[i])), weight, time, step);
  }
  inserted_.fetch_add(made, std::memory_order_relaxed);
  *inserted += made;
  return status;
}

void Table::Gather(const int64_t* handles, int64_t n, float* out) const {
  const int64_t dim = config_.dim;
  const size_t bytes = dim * sizeof(float);
  PrefetchEmbeddings(handles, std::min<int64_t>(n, kAhead));
  for (int64_t i = 0; i < n; ++i) {
    if (i % kAhead == 0 && i + kAhead < n) {
      PrefetchEmbeddings(handles + i + kAhead, std::min<int64_t>(n - i - kAhead, kAhead));
    }
    if (handles[i] == kNoRow) {
      std::memset(out + i * dim, 0, bytes);
    } else {
      std::memcpy(out + i * dim, store_.row(static_cast<uint32_t>(handles[i])), bytes);
    }
  }
}

void Table::Update(const Rule& rule, const float* hyper, const int64_t* handles, const float* gradient, int64_t n) {
  constexpr int64_t kBlock = 8;
  const int64_t dim = config_.dim;
  for (int64_t i = 0; i < n; ++i) {
    if (i % kBlock == 0 && i + kBlock < n) {
      PrefetchForUpdate(handles + i + kBlock, std::min<int64_t>(n - i - kBlock, kBlock), rule);
    }
    if (handles[i] == kNoRow || (handles[i] & kFrozen) != 0) continue;
    UpdateRow(rule, hyper, handles[i], gradient + i * dim);
  }
}

Status Table::CheckHandles(const int64_t* handles, int64_t n) const {
  for (int64_t i = 0; i < n; ++i) {
    const int64_t row = handles[i] & ~kFrozen;
    if (handles[i] == kNoRow || (row >= 0 && row <= UINT32_MAX && store_.Contains(static_cast<uint32_t>(row))))
      continue;
    return Status::InvalidArgument("table '" + config_.name + "': " + std::to_string(handles[i]) +
                                   " is not the address of a row; take addresses from the collection "
                                   "ASCEND_SPARSE_LOOKUP_ID_OFFSET in the same step");
  }
  return Status();
}

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
  return store_.Relayout(RowLayout(config_.dim, slots));
}

Status Table::Track(const Tracking& tracking) {
  MXREC_RETURN_IF_ERROR(CheckTracking(tracking, config_.name));
  if (tracking == declared_ || (history_ == nullptr && !tracking.is_on())) return Status();
  if (history_ == nullptr) {
    std::unique_ptr<History> history(new History(tracking, shard_bits_, config_.max_rows));
    bool enough = history->usable();
    for (uint64_t row = 0; enough && row < store_.end(); row += FactsColumn::kSlabRows) {
      enough = history->facts().Reserve(static_cast<uint32_t>(row)).ok();
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
  const int64_t row = shards_[shard].index.Find(hash, key);
  if (row == KeyIndex::kNone) return history_->Restore(shard, hash, facts.count, facts.time);
  history_->facts(static_cast<uint32_t>(row)) = facts;
  return Status();
}

Status Table::Assign(int64_t key, const float* const* parts) {
  const uint64_t hash = HashKey(key);
  const int shard = ShardOf(hash);
  Shard& s = shards_[shard];
  std::unique_lock<std::shared_mutex> lock(s.mutex);
  int64_t row = s.index.Find(hash, key);
  if (row == KeyIndex::kNone) {
    MXREC_RETURN_IF_ERROR(Claim(1));
    uint32_t fresh = 0;
    Status status = s.index.Reserve(1);
    if (status.ok()) status = AddRow(shard, hash, key, &fresh);
    if (!status.ok()) {
      Release(1);
      return status;
    }
    inserted_.fetch_add(1, std::memory_order_relaxed);
    row = fresh;
  }
  float* at = store_.row(static_cast<uint32_t>(row));
  const size_t count = 1 + store_.layout().slots().size();
  for (size_t i = 0; i < count; ++i) std::memcpy(at + i * config_.dim, parts[i], config_.dim * sizeof(float));
  return Status();
}

Status Table::InsertRows(const int64_t* keys, const float* const* columns, int64_t n, const ParallelFor& parallel) {
  if (n > UINT32_MAX) return Status::ResourceExhausted("a table cannot hold more than 4 billion rows");
  MXREC_RETURN_IF_ERROR(Claim(n));
  std::vector<int64_t> ends(shards() + 1, 0);
  for (int64_t i = 0; i < n; ++i) ++ends[ShardOf(HashKey(keys[i])) + 1];
  for (int s = 1; s <= shards(); ++s) ends[s] += ends[s - 1];
  std::vector<uint32_t> order(n);
  std::vector<int64_t> at(ends.begin(), ends.end() - 1);
  for (int64_t i = 0; i < n; ++i) order[at[ShardOf(HashKey(keys[i]))]++] = static_cast<uint32_t>(i);

  std::vector<Status> results(shards());
  std::vector<int64_t> inserted(shards(), 0);
  const int64_t cost = 100 * (n / shards() + 1);
  parallel.Run(shards(), cost, [&](int64_t begin, int64_t end) {
    for (int64_t s = begin; s < end; ++s) {
      results[s] =
          InsertShard(static_cast<int>(s), keys, columns, order.data() + ends[s], ends[s + 1] - ends[s], &inserted[s]);
    }
  });
  const int64_t made = std::accumulate(inserted.begin(), inserted.end(), int64_t{0});
  inserted_.fetch_add(made, std::memory_order_relaxed);
  Release(n - made);
  for (const Status& result : results) MXREC_RETURN_IF_ERROR(result);
  return Status();
}

Status Table::InsertShard(int shard, const int64_t* keys, const float* const* columns, const uint32_t* order, int64_t n,
                          int64_t* inserted) {
  Shard& s = shards_[shard];
  const RowLayout& layout = store_.layout();
  const int64_t dim = config_.dim;
  std::unique_lock<std::shared_mutex> lock(s.mutex);
  MXREC_RETURN_IF_ERROR(s.index.Reserve(n));
  for (int64_t i = 0; i < n; ++i) {
    if (i + kAhead < n) {
      const int64_t next = order[i + kAhead];
      s.index.Prefetch(HashKey(keys[next]));
      for (size_t p = 0; p <= layout.slots().size(); ++p) {
        if (columns[p] != nullptr) __builtin_prefetch(columns[p] + next * dim);
      }
    }
    const int64_t from = order[i], key = keys[from];
    const uint64_t hash = HashKey(key);
    if (s.index.Find(hash, key) != KeyIndex::kNone) {
      return Status::AlreadyExists("table '" + config_.name + "' has a row for key " + std::to_string(key) +
                                   " already");
    }
    uint32_t row;
    MXREC_RETURN_IF_ERROR(AddRow(shard, hash, key, &row));
    ++*inserted;
    float* at = store_.row(row);
    if (columns[0] != nullptr) {
      std::memcpy(at, columns[0] + from * dim, dim * sizeof(float));
    } else {
      initializer_.Fill(key, at);
    }
    for (size_t p = 0; p < layout.slots().size(); ++p) {
      float* slot = at + layout.slot_offset(static_cast<int>(p));
      if (columns[1 + p] != nullptr) {
        std::memcpy(slot, columns[1 + p] + from * dim, dim * sizeof(float));
      } else {
        std::fill_n(slot, dim, layout.slots()[p].initial_value);
      }
    }
  }
  return Status();
}

bool Table::Read(int64_t key, float* out) const {
  const uint64_t hash = HashKey(key);
  const Shard& s = shards_[ShardOf(hash)];
  const size_t bytes = config_.dim * (1 + store_.layout().slots().size()) * sizeof(float);
  std::shared_lock<std::shared_mutex> lock(s.mutex);
  const int64_t row = s.index.Find(hash, key);
  if (row == KeyIndex::kNone) {
    std::memset(out, 0, bytes);
    return false;
  }
  std::memcpy(out, store_.row(static_cast<uint32_t>(row)), bytes);
  return true;
}

int64_t Table::Erase(const int64_t* keys, int64_t n) {
  int64_t erased = 0;
  for (int64_t i = 0; i < n; ++i) {
    const uint64_t hash = HashKey(keys[i]);
    const int shard = ShardOf(hash);
    Shard& s = shards_[shard];
    std::unique_lock<std::shared_mutex> lock(s.mutex);
    const int64_t row = s.index.Find(hash, keys[i]);
    if (row != KeyIndex::kNone) {
      s.index.Erase(hash, keys[i]);
      ++s.epoch;
      store_.Free(shard, static_cast<uint32_t>(row));
      ++erased;
    } else if (history_ != nullptr) {
      history_->Forget(shard, hash);
    }
  }
  size_.fetch_sub(erased, std::memory_order_relaxed);
  erased_.fetch_add(erased, std::memory_order_relaxed);
  return erased;
}

void Table::Clear() {
  for (int s = 0; s < shards(); ++s) {
    std::unique_lock<std::shared_mutex> lock(shards_[s].mutex);  // preparation may be looking for hints
    shards_[s].index.Clear();
    ++shards_[s].epoch;
    if (history_ != nullptr) history_->ForgetAll(s);
  }
  store_.Clear();
  if (history_ != nullptr) history_->facts().Clear();
  erased_.fetch_add(size_.exchange(0, std::memory_order_relaxed), std::memory_order_relaxed);
}

int64_t Table::capacity() const { return config_.max_rows > 0 ? config_.max_rows : store_.end(); }

int64_t Table::bytes() const {
  int64_t bytes = store_.bytes();
  if (history_ != nullptr) bytes += int64_t{store_.end()} * static_cast<int64_t>(sizeof(RowFacts));
  for (int s = 0; s < shards(); ++s) {
    const ReadLock lock = LockToRead(s);
    bytes += shards_[s].index.bytes();
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
