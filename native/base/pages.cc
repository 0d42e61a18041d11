#include "base/pages.h"

#include <sys/mman.h>

namespace mxrec {
namespace {
constexpr size_t kHugePage = size_t{2} << 20;
constexpr size_t kSmallPage = 4096;
}  // namespace

Pages::Pages(size_t bytes, bool huge) {
  if (bytes == 0) return;
  const size_t align = huge ? kHugePage : kSmallPage;
  const size_t size = (bytes + align - 1) / align * align;
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
  if (data_ != nullptr) munmap(data_, bytes_);
}

}  // namespace mxrec
