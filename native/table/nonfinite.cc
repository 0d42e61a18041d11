#include "table/nonfinite.h"

#include "update/finite.h"

namespace mxrec {

Status ParseNonfinite(const std::string& name, Nonfinite* mode) {
  for (const auto& [known, value] :
       {std::pair{"error", Nonfinite::kError}, {"skip", Nonfinite::kSkip}, {"allow", Nonfinite::kAllow}}) {
    if (name != known) continue;
    *mode = value;
    return Status();
  }
  return Status::InvalidArgument("nonfinite must be one of error, skip, allow, got '" + name + "'");
}

void NonfiniteRows::Add(const NonfiniteRows& other) {
  rows += other.rows;
  count += other.count;
  if (other.position < position) {
    position = other.position;
    first = other.first;
  }
}

Status NonfiniteError(const Table& table, int64_t key, const float* gradient, const NonfiniteRows& found) {
  return Status::InvalidArgument(
      "table '" + table.config().name + "': the gradient of key " + std::to_string(key) + " is not finite (" +
      DescribeNonfinite(gradient, table.config().dim) + "); so it is with " + std::to_string(found.count) + " of the " +
      std::to_string(found.rows) +
      " rows to update, and none was updated. Look for bad labels or inputs, divisions by 0 and logarithms of 0 in the "
      "loss; init(nonfinite_gradients=\"skip\") leaves such rows as they are and updates the others");
}

}  // namespace mxrec
