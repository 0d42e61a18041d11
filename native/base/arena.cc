#include "base/arena.h"

#include <cstring>

namespace mxrec {
namespace {

// Whole pages kept for the next block. Giving memory back interrupts every core, so a little is held on to.
constexpr size_t kSparePages = 16;

}  // namespace

Arena& Arena::Global() {
  static Arena* arena = new Arena;  // never destroyed: tables may outlive static objects
  return *arena;
}

int Arena::OrderOf(size_t bytes) {
  int order = 0;
  while ((kSmallest << order) < bytes) ++order;
  return order;
}

void* Arena::Allocate(size_t bytes) {
  const int wanted = OrderOf(bytes);
  uintptr_t block = 0;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    int order = wanted;
    while (order < kOrders && free_[order].empty()) ++order;
    if (order < kOrders) {
      block = *free_[order].begin();
      free_[order].erase(free_[order].begin());
    } else {
      order = kOrders - 1;
      Pages page(kSmallest << order, Pages::Kind::kHuge);
      if (page.data() == nullptr) return nullptr;
      block = reinterpret_cast<uintptr_t>(page.data());
      pages_[block] = std::move(page);
    }
    // Give the upper halves back until the block fits.
    while (order > wanted) free_[--order].insert(block + (kSmallest << order));
  }
  void* data = reinterpret_cast<void*>(block);
  std::memset(data, 0, kSmallest << wanted);
  return data;
}

void Arena::Free(void* data, size_t bytes) {
  int order = OrderOf(bytes);
  uintptr_t block = reinterpret_cast<uintptr_t>(data);
  std::lock_guard<std::mutex> lock(mutex_);
  // Pages are aligned to their size, so a block and its other half differ in one bit of the address.
  for (; order < kOrders - 1; ++order) {
    const auto half = free_[order].find(block ^ (kSmallest << order));
    if (half == free_[order].end()) break;
    free_[order].erase(half);
    block &= ~static_cast<uintptr_t>(kSmallest << order);
  }
  if (order == kOrders - 1 && free_[order].size() >= kSparePages) {
    pages_.erase(block);
  } else {
    free_[order].insert(block);
  }
}

size_t Arena::bytes() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return pages_.size() * (kSmallest << (kOrders - 1));
}

}  // namespace mxrec
