// RowLayout: where the parts of a row lie. A row is
//
//   [ embedding: dim floats | slot 0: dim floats | slot 1: dim floats | ... | padding ]
//
// so that one address reaches everything an update touches. Rows of up to 64 bytes are padded to a power of two (never
// straddling a cache line), larger ones to a multiple of 32 bytes (at most one vector of waste).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace mxrec {

// One optimizer slot: its checkpoint name ("LazyAdam_momentum") and the value of every float in a new row.
struct SlotSpec {
  std::string name;
  float initial_value = 0.0f;
};

inline bool operator==(const SlotSpec& a, const SlotSpec& b) {
  return a.name == b.name && a.initial_value == b.initial_value;
}

class RowLayout {
 public:
  RowLayout(int dim, std::vector<SlotSpec> slots) : dim_(dim), slots_(std::move(slots)) {
    const int64_t bytes = static_cast<int64_t>(dim_) * (1 + slots_.size()) * sizeof(float);
    int64_t stride = 4;
    if (bytes <= 64) {
      while (stride < bytes) stride *= 2;
    } else {
      stride = (bytes + 31) / 32 * 32;
    }
    stride_ = stride / sizeof(float);
  }

  int dim() const { return dim_; }
  const std::vector<SlotSpec>& slots() const { return slots_; }
  int64_t stride() const { return stride_; }  // floats from one row to the next
  int64_t slot_offset(int slot) const { return static_cast<int64_t>(dim_) * (slot + 1); }

 private:
  int dim_;
  std::vector<SlotSpec> slots_;
  int64_t stride_;
};

}  // namespace mxrec
