// Positions: what an op tells of the positions of a batch, from the plan and the handles of its keys.
#pragma once

#include <cstdint>
#include <vector>

#include "base/parallel.h"
#include "base/status.h"
#include "batch/plan.h"

namespace mxrec {

// Whether each position of the feature has found a row, out[feature.size]. InvalidArgument unless there is one handle
// for each key. REQUIRES, as IsPadding does: CheckContents.
Status HasRow(const TablePlan& table, const FeaturePlan& feature, const int64_t* handles, int64_t n, bool* out);

// Whether each position of the feature holds one of these keys, which are sorted.
void IsPadding(const TablePlan& table, const FeaturePlan& feature, const std::vector<int64_t>& keys, bool* out);

// The handles of the keys that occur in some of the table's features, kNoRow for the others, out[n]. InvalidArgument if
// the plan has no such table or feature, is damaged, or there is not one handle for each key.
Status Touched(const Plan& plan, int64_t table, const std::vector<int64_t>& features, const int64_t* handles, int64_t n,
               const ParallelFor& parallel, int64_t* out);

}  // namespace mxrec
