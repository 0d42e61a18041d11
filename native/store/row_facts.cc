#include "store/row_facts.h"

#include <string>

namespace mxrec {
namespace {

constexpr size_t kSlabs = size_t{1} << (32 - FactsColumn::kSlabBits);
constexpr size_t kSlabBytes = FactsColumn::kSlabRows * sizeof(RowFacts);
static_assert(kSlabBytes == size_t{2} << 20, "a huge page");

}  // namespace

FactsColumn::FactsColumn(int64_t expected)
    : is_large_(expected >= kSlabRows),
      directory_(kSlabs * sizeof(*facts_), Pages::Kind::kLazy),
      facts_(static_cast<std::atomic<RowFacts*>*>(directory_.data())) {}

Status FactsColumn::Reserve(uint32_t row) {
  std::atomic<RowFacts*>& slab = facts_[row >> kSlabBits];
  if (slab.load(std::memory_order_acquire) != nullptr) return Status();
  std::lock_guard<std::mutex> lock(mutex_);
  if (slab.load(std::memory_order_relaxed) != nullptr) return Status();
  // A small table does not take a huge page for a few rows.
  Pages pages(kSlabBytes, is_large_ || row >= kSlabRows ? Pages::Kind::kHuge : Pages::Kind::kLazy);
  if (pages.data() == nullptr) {
    return Status::ResourceExhausted("out of memory: cannot map the counts of " + std::to_string(kSlabRows) + " rows");
  }
  slab.store(static_cast<RowFacts*>(pages.data()), std::memory_order_release);
  pages_.push_back(std::move(pages));
  return Status();
}

void FactsColumn::Clear() {
  std::lock_guard<std::mutex> lock(mutex_);
  for (size_t slab = 0; slab < kSlabs; ++slab) {
    if (facts_[slab].load(std::memory_order_relaxed) != nullptr) facts_[slab].store(nullptr, std::memory_order_relaxed);
  }
  pages_.clear();
}

}  // namespace mxrec
