#include "store/memory_store.h"

#include <algorithm>
#include <cstring>
#include <string>

namespace mxrec {
namespace {

// Rows are touched at random, and a 2 MiB page needs one entry of the TLB where small ones need 512: on tables
// of 1 to 8 GB a training step's lookups took 0.6 and its updates 0.7 of the time they took with 4 KiB pages (AMD EPYC
// VM), and the first touch of memory 0.2 to 0.8. The start of a table stays in small pages, so that a small table does
// not take 2 MiB for a few rows.
constexpr size_t kSmallStart = size_t{2} << 20;

// In 64 bits: rounding a row number near 2^32 up would wrap.
uint32_t SlabsBelow(uint64_t end) {
  return static_cast<uint32_t>((end + MemoryStore::kSlabRows - 1) >> MemoryStore::kSlabBits);
}

}  // namespace

MemoryStore::MemoryStore(RowLayout layout, int shards)
    : layout_(std::move(layout)),
      stride_(layout_.stride()),
      shards_(shards),
      directory_(kSlabs * sizeof(*rows_), Pages::Kind::kLazy),
      rows_(static_cast<std::atomic<float*>*>(directory_.data())) {}

Status MemoryStore::Allocate(int shard, uint32_t* row) {
  Shard& s = shards_[shard];
  if (!s.free.empty()) {
    *row = s.free.back();
    s.free.pop_back();
    return Status();
  }
  if (s.used == kRun) {
    if (s.next < s.ahead.size()) {
      s.run = s.ahead[s.next++];
    } else {
      MXREC_RETURN_IF_ERROR(TakeRun(shard, &s.run));
    }
    s.used = 0;
  }
  *row = s.run + s.used++;
  return Status();
}

Status MemoryStore::Reserve(int shard, int64_t n) {
  Shard& s = shards_[shard];
  const int64_t runs = static_cast<int64_t>(s.ahead.size() - s.next);
  const int64_t room = static_cast<int64_t>(s.free.size()) + (kRun - s.used) + runs * kRun;
  if (room >= n) return Status();
  s.ahead.erase(s.ahead.begin(), s.ahead.begin() + static_cast<int64_t>(s.next));
  s.next = 0;
  const int64_t more = (n - room + kRun - 1) / kRun;
  s.ahead.reserve(runs + more);
  for (int64_t i = 0; i < more; ++i) {
    uint32_t run;
    MXREC_RETURN_IF_ERROR(TakeRun(shard, &run));
    s.ahead.push_back(run);
  }
  return Status();
}

Status MemoryStore::TakeRun(int shard, uint32_t* run) {
  // Map first, then take: every row below end() has memory, also after a mapping failed.
  uint32_t first = next_.load(std::memory_order_relaxed);
  do {
    if (first > UINT32_MAX - kRun) return Status::ResourceExhausted("a table cannot hold more than 4 billion rows");
    MXREC_RETURN_IF_ERROR(MapSlab(first >> kSlabBits));
    MXREC_RETURN_IF_ERROR(owners_.Reserve(first / kRun));
  } while (!next_.compare_exchange_weak(first, first + kRun, std::memory_order_acq_rel));
  owners_.at(first / kRun) = static_cast<uint8_t>(shard);
  *run = first;
  return Status();
}

void MemoryStore::Free(int shard, uint32_t row) { shards_[shard].free.push_back(row); }

Status MemoryStore::MapSlab(uint32_t slab) {
  if (rows_[slab].load(std::memory_order_acquire) != nullptr) return Status();
  std::lock_guard<std::mutex> lock(slabs_mutex_);
  if (rows_[slab].load(std::memory_order_relaxed) != nullptr) return Status();
  Pages rows(kSlabRows * stride_ * sizeof(float), Pages::Kind::kHuge, slab == 0 ? kSmallStart : 0);
  if (rows.data() == nullptr) {
    return Status::ResourceExhausted("out of memory: cannot map " + std::to_string(kSlabRows) + " rows of " +
                                     std::to_string(stride_ * sizeof(float)) + " bytes");
  }
  rows_[slab].store(static_cast<float*>(rows.data()), std::memory_order_release);
  pages_.push_back(std::move(rows));
  return Status();
}

void MemoryStore::ConvertRow(const RowLayout& old, const float* from, const RowLayout& layout, float* to) {
  const size_t part = layout.dim() * sizeof(float);
  std::memcpy(to, from, part);
  for (size_t i = 0; i < layout.slots().size(); ++i) {
    const SlotSpec& slot = layout.slots()[i];
    float* at = to + layout.slot_offset(static_cast<int>(i));
    const auto it =
        std::find_if(old.slots().begin(), old.slots().end(), [&](const SlotSpec& o) { return o.name == slot.name; });
    if (it == old.slots().end()) {
      std::fill_n(at, layout.dim(), slot.initial_value);
    } else {
      std::memcpy(at, from + old.slot_offset(static_cast<int>(it - old.slots().begin())), part);
    }
  }
}

Status MemoryStore::Relayout(RowLayout layout) {
  std::lock_guard<std::mutex> lock(slabs_mutex_);
  const uint32_t slabs = SlabsBelow(end());
  std::vector<Pages> pages;
  for (uint32_t slab = 0; slab < slabs; ++slab) {
    pages.emplace_back(kSlabRows * layout.stride() * sizeof(float), Pages::Kind::kHuge, slab == 0 ? kSmallStart : 0);
    if (pages.back().data() == nullptr) {
      return Status::ResourceExhausted("out of memory: cannot make room for the optimizer's slots");
    }
  }
  for (uint32_t r = 0; r < end(); ++r) {
    float* to = static_cast<float*>(pages[r >> kSlabBits].data()) + (r & (kSlabRows - 1)) * layout.stride();
    ConvertRow(layout_, row(r), layout, to);
  }
  for (uint32_t slab = 0; slab < slabs; ++slab) {
    rows_[slab].store(static_cast<float*>(pages[slab].data()), std::memory_order_release);
  }
  pages_ = std::move(pages);
  layout_ = std::move(layout);
  stride_ = layout_.stride();
  return Status();
}

void MemoryStore::Reset() {
  next_.store(0, std::memory_order_release);
  for (Shard& s : shards_) s = Shard();
}

void MemoryStore::Trim() {
  std::lock_guard<std::mutex> lock(slabs_mutex_);
  // Slabs are mapped in ascending order, as their rows are taken.
  const uint32_t used = SlabsBelow(end());
  for (size_t slab = used; slab < pages_.size(); ++slab) rows_[slab].store(nullptr, std::memory_order_relaxed);
  if (used < pages_.size()) pages_.erase(pages_.begin() + used, pages_.end());
  if (used == 0) owners_.Clear();
}

int64_t MemoryStore::bytes() const { return end() * static_cast<int64_t>(stride_ * sizeof(float)); }

}  // namespace mxrec
