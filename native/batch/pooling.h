// Pooling: how the rows of a feature's positions become the rows of a lookup's output.
#pragma once

#include <cstdint>

#include "base/status.h"
#include "batch/plan.h"

namespace mxrec {

enum class Pooling {
  kNone,  // one row for each position
  kSum,   // the sum of the rows of each bag: the positions along the last dimension of the ids
};

struct Bags {
  int64_t size;   // positions of a bag, in [1, 2^31), also where the bags are empty
  int64_t count;  // rows of the output; without pooling, where bags hold one position, one for each
};

// InvalidArgument if pooled ids have no dimension to pool, or are so many that they cannot be counted. (Ids that hold
// nothing may have dimensions like [0, 2^40].)
Status BagsOf(const FeaturePlan& feature, Pooling pooling, Bags* bags);

}  // namespace mxrec
