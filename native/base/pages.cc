#include "base/pages.h"

#include <sys/mman.h>

#include <cstdlib>
#include <cstring>

#include "base/arena.h"

namespace mxrec {
namespace {
constexpr size_t kHugePage = size_t{2} << 20;
constexpr size_t kSmallPage = 4096;
}  // namespace

Pages::Pages(size_t bytes, Kind kind, size_t small) : kind_(kind) {
  if (bytes == 0) return;
  const size_t size = (bytes + kSmallPage - 1) / kSmallPage * kSmallPage;
  if (kind == Kind::kHeap) {
    if (Arena::Serves(size)) {
      data_ = Arena::Global().Allocate(size);
    } else {
      data_ = std::aligned_alloc(kSmallPage, size);
      if (data_ != nullptr) std::memset(data_, 0, size);
    }
    if (data_ != nullptr) bytes_ = size;
    return;
  }
  // Map one alignment more than needed, then give back what lies outside the aligned part.
  const size_t align = kind == Kind::kHuge ? kHugePage : kSmallPage;
  const size_t slack = align - kSmallPage;
  void* raw = mmap(nullptr, size + slack, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (raw == MAP_FAILED) return;
  const uintptr_t start = reinterpret_cast<uintptr_t>(raw);
  const uintptr_t aligned = (start + align - 1) / align * align;
  if (aligned > start) munmap(raw, aligned - start);
  const size_t tail = start + size + slack - (aligned + size);
  if (tail > 0) munmap(reinterpret_cast<void*>(aligned + size), tail);
  data_ = reinterpret_cast<void*>(aligned);
  bytes_ = size;
  if (kind == Kind::kHuge) {
    const size_t from = (small + kHugePage - 1) / kHugePage * kHugePage, to = size / kHugePage * kHugePage;
    if (from < to) madvise(reinterpret_cast<void*>(aligned + from), to - from, MADV_HUGEPAGE);
  }
}

Pages::~Pages() {
  if (data_ == nullptr) return;
  if (kind_ != Kind::kHeap) {
    munmap(data_, bytes_);
  } else if (Arena::Serves(bytes_)) {
    Arena::Global().Free(data_, bytes_);
  } else {
    std::free(data_);
  }
}

}  // namespace mxrec
