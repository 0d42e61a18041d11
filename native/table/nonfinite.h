// Nonfinite: what an update does with a row whose summed gradient holds NaN or infinity, and how it says so. One such
// gradient spoils a row and its slots for good, so the default is to fail before anything is written.
#pragma once

#include <cstdint>
#include <limits>
#include <string>

#include "base/status.h"
#include "table/table.h"

namespace mxrec {

enum class Nonfinite {
  kError,  // no row of any table of the update is changed
  kSkip,   // the row is left as it is and counted; the others are updated
  kAllow,  // the rule is applied all the same
};

// "error", "skip" or "allow".
Status ParseNonfinite(const std::string& name, Nonfinite* mode);

// What a search among the rows of a table has found. It ignores rows that the update would not change.
struct NonfiniteRows {
  int64_t rows = 0;   // that the update would change
  int64_t count = 0;  // of them, those whose gradient is not finite
  // The one of these that comes first in the batch: its position there, and its number among the keys or addresses.
  int64_t position = std::numeric_limits<int64_t>::max();
  int64_t first = -1;

  void Add(const NonfiniteRows& other);
};

// The error of an update that found such rows and changed nothing. `gradient`: of the first of them.
Status NonfiniteError(const Table& table, int64_t key, const float* gradient, const NonfiniteRows& found);

}  // namespace mxrec
