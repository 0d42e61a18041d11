#include "base/heap.h"

#include <cstdlib>

#if defined(__GLIBC__)
#include <malloc.h>
#endif

namespace mxrec {

void KeepFreedMemory() {
#if defined(__GLIBC__)
  if (std::getenv("MALLOC_TRIM_THRESHOLD_") != nullptr || std::getenv("MALLOC_MMAP_THRESHOLD_") != nullptr) return;
  // Blocks up to 256 MiB come from the heap, whose free end is returned only beyond 128 MiB and grows in steps of
  // 16 MiB. Larger values gained nothing and kept more: every thread has a heap of its own.
  mallopt(M_MMAP_THRESHOLD, 256 << 20);
  mallopt(M_TRIM_THRESHOLD, 128 << 20);
  mallopt(M_TOP_PAD, 16 << 20);
#endif
}

}  // namespace mxrec
