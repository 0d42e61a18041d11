// PlanCheck: whether the contents of a plan's sections can be followed. Plan::Parse checks where the sections lie;
// positions, offsets and numbers of keys inside them are checked here, by every op for what it reads. A plan is a
// tensor: a graph from elsewhere may pass any.
//
// Checked, not signed: a checksum finds accidents, but whoever forges a plan can forge that, too.
#pragma once

#include <vector>

#include "base/parallel.h"
#include "base/status.h"
#include "batch/plan.h"

namespace mxrec {

// A table's part of a plan that will be read: the keys of positions, and with `groups` the positions of keys, too.
struct PlanRead {
  const TablePlan* table;
  bool groups;
};

// InvalidArgument unless every number in the parts is within its range, the shards follow each other, and each key has
// positions, in ascending order. Parts that are not grouped hold nothing to check. Whether the keys are distinct, and
// whether the sections agree with each other, is not checked: that decides about values, not about memory.
Status CheckContents(const std::vector<PlanRead>& reads, const ParallelFor& parallel);

}  // namespace mxrec
