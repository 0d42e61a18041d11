#include "table/table.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <random>

#include "base/hash.h"
#include "update/finite.h"

namespace mxrec {
namespace {

static_assert(kNoRow == KeyIndex::kNone, "what is not found has no row");

// The tag takes all bits of a handle between kFrozen and the sign.
constexpr int kTagShift = 41;
constexpr int64_t kTagMask = (int64_t{1} << 22) - 1;
static_assert(kFrozen == int64_t{1} << (kTagShift - 1), "the tag begins behind it");

// Shards: enough that a rehash stays short (64Ki keys each when a limit is known) and threads find work, few enough
// that a batch of a few thousand ids still brings each shard a run of them.
int ChooseShardBits(const TableConfig& config) {
  // Nobody knows how large a table without a limit becomes: not few shards, unless it is expected to be small.
  const bool is_open = config.max_rows == 0 && config.expected_rows < 100'000;
  const int64_t rows = std::max(config.max_rows, config.expected_rows), memory_rows = config.tier.memory_rows;
  int bits = is_open ? 6 : 3;
  while (bits < 8 && (rows >> bits) > 65536) ++bits;
  // Each shard has its part of the rows in memory; enough of them that no batch needs twice as many in one as in
  // another.
  while (memory_rows > 0 && bits > 0 && (memory_rows >> bits) < 4096) --bits;
  return bits;
}

// A number that no other table of this or any other process starts from: a cached dataset may bring the plans of a
// process that is long gone.
uint64_t FirstEpoch() {
  std::random_device random;
  const auto now = std::chrono::system_clock::now().time_since_epoch().count();
  return Mix64((static_cast<uint64_t>(random()) << 32 | random()) ^ static_cast<uint64_t>(now));
}

// The number by which hints are recognized.
int64_t Seal(int64_t epoch, const int64_t* keys, const int64_t* hints, int64_t n) {
  uint64_t sum = static_cast<uint64_t>(epoch);
  for (int64_t i = 0; i < n; ++i) {
    sum += Mix64(static_cast<uint64_t>(hints[i]) ^ static_cast<uint64_t>(keys[i]) * 0x9e3779b97f4a7c15ULL);
  }
  return static_cast<int64_t>(sum);
}

}  // namespace

bool operator==(const TableConfig& a, const TableConfig& b) {
  return a.name == b.name && a.dim == b.dim && a.max_rows == b.max_rows && a.initializer == b.initializer &&
         a.padding_keys == b.padding_keys && a.tier == b.tier;
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
  const TierConfig& tier = config.tier;
  if (tier.memory_rows < 0 || (tier.memory_rows > 0 && (tier.disk_rows < 1 || tier.paths.empty()))) {
    return Status::InvalidArgument(who + "rows on disk need a number of rows in memory and on disk, and a directory");
  }
  const Status checked = Initializer::Check(config.initializer, config.dim);
  if (!checked.ok()) return Status::InvalidArgument(who + checked.message());
  std::shared_ptr<Table> made(new Table(config, ChooseShardBits(config)));
  if (!made->store_.usable() || (made->tier_ != nullptr && !made->tier_->usable()))
    return Status::ResourceExhausted(who + "no address space left for its rows");
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
  generation_ = static_cast<int64_t>(epoch >> 1);
  if (config_.tier.memory_rows > 0) {
    tier_.reset(new Tier(config_.tier, layout().stride() * static_cast<int64_t>(sizeof(float)), shards()));
  }
}

bool Table::IsPadding(int64_t key) const {
  return !config_.padding_keys.empty() &&
         std::binary_search(config_.padding_keys.begin(), config_.padding_keys.end(), key);
}

int64_t Table::Tag(int64_t use) const {
  const int64_t number = tier_ == nullptr ? generation_.load(std::memory_order_relaxed) : use;
  return (number & kTagMask) << kTagShift;
}

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

// Who knows a good seal can make others: such hints must not lead anywhere but to rows.
bool Table::AreRows(const int64_t* hints, int64_t n) const {
  uint64_t largest = 0;
  for (int64_t i = 0; i < n; ++i) largest = std::max(largest, static_cast<uint64_t>(hints[i]) + 1);  // none: 0
  return largest <= store_.end();
}

int64_t Table::Hint(int shard, const int64_t* keys, int64_t n, int64_t* hints) const {
  const Shard& s = shards_[shard];
  std::shared_lock<std::shared_mutex> lock(s.mutex);
  FindAll(keys, n, [&](uint64_t) -> const KeyIndex& { return s.index; }, hints);
  const int64_t seal = Seal(s.epoch, keys, hints, n);
  if (tier_ != nullptr) {
    const DiskStore::ReadAhead ahead = ReadAhead(hints, n);
    lock.unlock();
    ahead.Start();
  }
  return seal;
}

int64_t Table::Resolve(int shard, const int64_t* keys, const int64_t* hints, int64_t n, int64_t* handles, int64_t seal,
                       int64_t use) const {
  const Shard& s = shards_[shard];
  std::shared_lock<std::shared_mutex> lock(s.mutex);
  if (tier_ != nullptr) {  // rows change places all the time
    FindAll(keys, n, [&](uint64_t) -> const KeyIndex& { return s.index; }, handles);
    return Settle(keys, n, use, handles);
  }
  const bool is_current = seal == Seal(s.epoch, keys, hints, n) && AreRows(hints, n);
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
  const int64_t tag = Tag(0);
  int64_t missing = 0;
  for (int64_t i = 0; i < n; ++i) {
    if (handles[i] == KeyIndex::kNone && hints != nullptr) {  // there was no row, but there may be one now
      const uint64_t hash = HashKey(keys[i]);
      handles[i] = index_of(hash).Find(hash, keys[i]);
    }
    missing += handles[i] == kNoRow;
    handles[i] |= tag;  // kNoRow has all bits set
  }
  for (int64_t i = 0; !config_.padding_keys.empty() && i < n; ++i) {
    if (handles[i] != kNoRow) handles[i] = Handle(keys[i], handles[i], tag);
  }
  return missing;
}

int64_t Table::HintAny(const int64_t* keys, int64_t n, int64_t* hints) const {
  DiskStore::ReadAhead ahead;
  int64_t seal;
  {
    const SharedLocks lock(*this, keys, n);
    FindAll(keys, n, [&](uint64_t hash) -> const KeyIndex& { return lock.index_of(hash); }, hints);
    seal = Seal(lock.epoch(), keys, hints, n);
    if (tier_ != nullptr) ahead = ReadAhead(hints, n);
  }
  ahead.Start();
  return seal;
}

void Table::ResolveAny(const int64_t* keys, const int64_t* hints, int64_t n, int64_t* handles, int64_t seal,
                       int64_t use) const {
  const SharedLocks lock(*this, keys, n);
  if (tier_ != nullptr) {
    FindAll(keys, n, [&](uint64_t hash) -> const KeyIndex& { return lock.index_of(hash); }, handles);
    Settle(keys, n, use, handles);
    return;
  }
  const bool is_current = seal == Seal(lock.epoch(), keys, hints, n) && AreRows(hints, n);
  Complete(keys, is_current ? hints : nullptr, n, handles,
           [&](uint64_t hash) -> const KeyIndex& { return lock.index_of(hash); });
}

Status Table::Claim(int64_t n) {
  int64_t before = size_.load(std::memory_order_relaxed);
  const int64_t elsewhere = this->elsewhere();
  do {  // not add and take back: a claim that fails must not make another one fail meanwhile
    if (config_.max_rows > 0 && n > config_.max_rows - elsewhere - before) {
      return Status::ResourceExhausted(
          "table '" + config_.name + "' is full: it holds " + std::to_string(before + elsewhere) + " rows" +
          (elsewhere == 0 ? "" : ", " + std::to_string(elsewhere) + " of them on other ranks") + ", and " +
          std::to_string(n) + " new keys come; its limit (device_vocabulary_size + host_vocabulary_size" +
          (tier_ == nullptr ? "" : " + ssd_vocabulary_size") + ") is " + std::to_string(config_.max_rows) +
          " rows. Raise " + (tier_ == nullptr ? "device_vocabulary_size" : "ssd_vocabulary_size") +
          " in create_table, or call init(use_dynamic_expansion=True) to let tables "
          "grow. Nothing was lost: the table can still be saved" +
          (config_.max_rows > 1 ? ""
                                : ". A limit of 1 is the default of device_vocabulary_size: create_table was most "
                                  "likely called without it"));
    }
  } while (!size_.compare_exchange_weak(before, before + n, std::memory_order_relaxed));
  return Status();
}

bool Table::AreOf(int shard, const int64_t* keys, const int64_t* handles, int64_t n) const {
  for (int64_t i = 0; i < n; ++i) {
    if (handles[i] == kNoRow && ShardOf(HashKey(keys[i])) != shard) return false;
  }
  return true;
}

int64_t Table::MarkPadding(const int64_t* keys, int64_t n, int64_t* handles) const {
  int64_t marked = 0;
  for (int64_t i = 0; i < n; ++i) {
    if (handles[i] != kNoRow || !IsPadding(keys[i])) continue;
    handles[i] = kPassedOver;
    ++marked;
  }
  return marked;
}

Status Table::Reserve(int shard, const int64_t* handles, int64_t n) {
  Shard& s = shards_[shard];
  std::unique_lock<std::shared_mutex> lock(s.mutex);
  const int64_t reserved = s.reserved + Wanted(handles, n);
  MXREC_RETURN_IF_ERROR(s.index.Reserve(reserved));
  MXREC_RETURN_IF_ERROR(store_.Reserve(shard, reserved));
  // A run lies in one slab of every column.
  MXREC_RETURN_IF_ERROR(store_.ForEachRun(shard, [&](uint32_t run) {
    if (history_ != nullptr) MXREC_RETURN_IF_ERROR(history_->facts().Reserve(run));
    return changes_ != nullptr ? changes_->Reserve(run) : Status();
  }));
  s.reserved = reserved;
  return Status();
}

void Table::Unreserve(int shard, const int64_t* handles, int64_t n) {
  std::unique_lock<std::shared_mutex> lock(shards_[shard].mutex);
  shards_[shard].reserved -= Wanted(handles, n);
}

Status Table::AllocateRow(int shard, int64_t key, int64_t use, uint32_t* row) {
  MXREC_RETURN_IF_ERROR(store_.Allocate(shard, row));
  Status status;
  if (history_ != nullptr) status = history_->facts().Reserve(*row);
  if (status.ok() && changes_ != nullptr) status = changes_->Reserve(*row);
  if (status.ok() && tier_ != nullptr) status = tier_->frames.Occupy(shard, *row, key, use);
  if (!status.ok()) store_.Free(shard, *row);
  if (status.ok() && changes_ != nullptr) FirstChange(*row);
  return status;
}

void Table::FreeRow(int shard, uint32_t row) {
  if (IsOnDisk(row)) {
    if (changes_ != nullptr) Preserve(shard, row);
    return tier_->disk->Free(shard, row);
  }
  if (tier_ != nullptr) tier_->frames.Vacate(shard, row);
  store_.Free(shard, row);
}

Status Table::AddRow(int shard, uint64_t hash, int64_t key, uint32_t* row, int64_t use) {
  MXREC_RETURN_IF_ERROR(AllocateRow(shard, key, use, row));
  if (history_ != nullptr) history_->facts(*row) = history_->Admit(shard, hash);
  shards_[shard].index.Insert(hash, key, *row);
  return Status();
}

Status Table::NewRow(int shard, uint64_t hash, int64_t key, uint32_t* row, int64_t use) {
  MXREC_RETURN_IF_ERROR(AddRow(shard, hash, key, row, use));
  float* at = store_.row(*row);
  initializer_.Fill(key, at);
  const RowLayout& layout = store_.layout();
  for (size_t i = 0; i < layout.slots().size(); ++i) {
    std::fill_n(at + layout.slot_offset(static_cast<int>(i)), layout.dim(), layout.slots()[i].initial_value);
  }
  return Status();
}

Status Table::Insert(int shard, const int64_t* keys, int64_t n, int64_t* handles, int64_t* inserted, int64_t use) {
  Shard& s = shards_[shard];
  const int64_t tag = Tag(use);
  const int64_t wanted = std::count(handles, handles + n, kNoRow);
  std::unique_lock<std::shared_mutex> lock(s.mutex);
  s.reserved -= std::min(s.reserved, wanted);
  MXREC_RETURN_IF_ERROR(s.index.Reserve(wanted));
  KeysWillChange(shard);
  int64_t made = 0;
  Status status;
  for (int64_t i = 0; i < n; ++i) {
    if (i + kAhead < n) s.index.Prefetch(HashKey(keys[i + kAhead]));
    if (handles[i] != kNoRow) continue;
    const uint64_t hash = HashKey(keys[i]);
    int64_t row = s.index.Find(hash, keys[i]);  // another thread may have inserted it since Resolve
    if (row == KeyIndex::kNone) {
      uint32_t fresh;
      status = NewRow(shard, hash, keys[i], &fresh, use);
      if (!status.ok()) break;
      row = fresh;
      ++made;
    } else if (tier_ != nullptr) {
      status = Hold(shard, keys[i], row, use, handles + i);
      if (!status.ok()) break;
      continue;
    }
    handles[i] = Handle(keys[i], row, tag);
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

void Table::Update(const Rule& rule, const float* hyper, const int64_t* handles, const float* gradient, int64_t n,
                   bool skip_nonfinite) {
  constexpr int64_t kBlock = 8;
  const int64_t dim = config_.dim;
  int64_t skipped = 0;
  for (int64_t i = 0; i < n; ++i) {
    if (i % kBlock == 0 && i + kBlock < n) {
      PrefetchForUpdate(handles + i + kBlock, std::min<int64_t>(n - i - kBlock, kBlock), rule);
    }
    if (handles[i] == kNoRow || (handles[i] & kFrozen) != 0) continue;
    if (skip_nonfinite && !IsFinite(gradient + i * dim, dim)) {
      ++skipped;
      continue;
    }
    UpdateRow(rule, hyper, handles[i], gradient + i * dim);
  }
  if (skipped > 0) CountNonfinite(skipped);
}

Status Table::CheckHandles(const int64_t* handles, int64_t n) const {
  // What the handles that are good have in common.
  std::vector<int64_t> tags;
  if (tier_ == nullptr) {
    tags.push_back(Tag(0));
  } else {
    for (const int64_t use : tier_->uses.running()) tags.push_back(Tag(use));
  }
  int64_t good = tags.empty() ? -1 : tags.front();
  const uint32_t end = store_.end();  // all below have memory
  for (int64_t i = 0; i < n; ++i) {
    if (handles[i] == kNoRow) continue;
    const int64_t tag = handles[i] & ~(kFrozen | kRowBits);
    if (tag != good) {
      const auto found = std::find(tags.begin(), tags.end(), tag);
      if (found != tags.end()) good = *found;
    }
    if (tag == good && static_cast<uint32_t>(handles[i]) < end) continue;
    return Status::InvalidArgument(
        "table '" + config_.name + "': " + std::to_string(handles[i]) +
        " is not the address of a row now: it was made up, or given out before rows were evicted, restored or moved to "
        "disk; take addresses from the collection ASCEND_SPARSE_LOOKUP_ID_OFFSET in the same step");
  }
  return Status();
}

}  // namespace mxrec
