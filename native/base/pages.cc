#include "base/pages.h"

#include <sys/mman.h>

#include <cstdlib>
#include <cstring>

namespace mxrec {
namespace {
constexpr size_t kHugePage = size_t{2} << 20;
constexpr size_t kSmallPage = 4096;
}  // namespace

Pages::Pages(size_t bytes, Kind kind) : kind_(kind) {
  if (bytes == 0) return;
  const bool huge = kind == Kind::kHuge;
  const size_t align = huge ? kHugePage : kSmallPage;
  const size_t size = (bytes + align - 1) / align * align;
  if (kind == Kind::kHeap) {
    data_ = std::aligned_alloc(align, size);
    if (data_ == nullptr) return;
    std::memset(data_, 0, size);
    bytes_ = size;
    return;
  }
  // Map one alignment more than needed, then give back what lies outside the aligned part.
  const size_t slack = huge ? kHugePage : 0;
  void* raw = mmap(nullptr, size + slack, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (raw == MAP_FAILED) return;
  const uintptr_t start = reinterpret_cast<uintptr_t>(raw);
  const uintptr_t aligned = (start + align - 1) / align * align;
  if (aligned > start) munmap(raw, aligned - start);
  const size_t tail = start + size + slack - (aligned + size);
  if (tail > 0) munmap(reinterpret_cast<void*>(aligned + size), tail);
  data_ = reinterpret_cast<void*>(aligned);
  bytes_ = size;
  if (huge) madvise(data_, bytes_, MADV_HUGEPAGE);
}

Pages::~Pages() {
  if (data_ == nullptr) return;
  if (kind_ == Kind::kHeap) {
    std::free(data_);
  } else {
    munmap(data_, bytes_);
  }
}

}  // namespace mxrec
