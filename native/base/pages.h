// Pages: zeroed, page-aligned memory for arrays that are large, long-lived and touched at random.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

namespace mxrec {

class Pages {
 public:
  enum class Kind {
    kLazy,  // resident where it was written, so a generous reservation costs address space only
    kHuge,  // the same in 2 MiB pages where the system grants them: random access misses the TLB far less often. What
            // lies behind the last whole 2 MiB stays in small pages
    kHeap,  // resident at once, from malloc or an arena. For blocks that come and go: returning a mapping to the
            // kernel, and the first write to a page that was read before, interrupt every other core, which cost a
            // growing key index a seventh of its time
  };

  Pages() = default;
  // data() is nullptr if there is no memory. kHuge leaves the first `small` bytes in small pages.
  Pages(size_t bytes, Kind kind, size_t small = 0);
  ~Pages();
  Pages(Pages&& other) noexcept { *this = std::move(other); }
  Pages& operator=(Pages&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    std::swap(kind_, other.kind_);
    return *this;
  }

  void* data() const { return data_; }
  size_t bytes() const { return bytes_; }

 private:
  void* data_ = nullptr;
  size_t bytes_ = 0;
  Kind kind_ = Kind::kLazy;
};

}  // namespace mxrec
