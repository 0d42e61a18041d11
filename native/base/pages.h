// Pages: zeroed memory straight from the kernel, for arrays that are large, long-lived and touched at random.
// Nothing is resident until it is written, so a generous reservation costs address space only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

namespace mxrec {

class Pages {
 public:
  Pages() = default;
  // data() is nullptr if the kernel refuses. `huge` asks for 2 MiB pages where the system grants them: random row
  // access then misses the TLB far less often, at the price of rounding residency up to 2 MiB.
  Pages(size_t bytes, bool huge);
  ~Pages();
  Pages(Pages&& other) noexcept { *this = std::move(other); }
  Pages& operator=(Pages&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }

  void* data() const { return data_; }
  size_t bytes() const { return bytes_; }

 private:
  void* data_ = nullptr;
  size_t bytes_ = 0;
};

}  // namespace mxrec
