#include "batch/pooling.h"

#include "base/multiply.h"

namespace mxrec {

Status BagsOf(const FeaturePlan& feature, Pooling pooling, Bags* bags) {
  *bags = {1, feature.size};
  if (pooling == Pooling::kNone) return Status();
  if (feature.shape.empty()) return Status::InvalidArgument("a combiner needs ids of rank 1 or more");
  // Where there are no ids, the last dimension is any number, and no sum is made of it.
  if (feature.size > 0) bags->size = feature.shape.back();
  bags->count = 1;
  for (size_t d = 0; d + 1 < feature.shape.size(); ++d) {
    if (!Multiply(bags->count, feature.shape[d], &bags->count)) {
      return Status::InvalidArgument("ids have too many dimensions to be looked up: they make 2^63 rows or more");
    }
  }
  return Status();
}

}  // namespace mxrec
