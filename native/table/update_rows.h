// UpdateRows: applies a rule to the rows at given addresses.
#pragma once

#include <cstdint>

#include "base/parallel.h"
#include "base/status.h"
#include "table/nonfinite.h"
#include "table/table.h"
#include "update/rule.h"

namespace mxrec {

// Updates `table` with gradient [n, dim], and counts a mutation. kNoRow and frozen rows are passed over.
// InvalidArgument, and nothing is changed, if `mode` is kError and a row's gradient is not finite; the first such row
// is named. REQUIRES: CheckHandles; no row twice; the rule's slots are in the layout.
Status UpdateRows(Table* table, const Rule& rule, const float* hyper, const int64_t* handles, const float* gradient,
                  int64_t n, Nonfinite mode, const ParallelFor& parallel);

// Does the same where rows may come several times: sums the gradients of each first, in their order. InvalidArgument if
// there are 2^31 gradients or more.
Status UpdateRepeatedRows(Table* table, const Rule& rule, const float* hyper, const int64_t* handles,
                          const float* gradient, int64_t n, Nonfinite mode, const ParallelFor& parallel);

}  // namespace mxrec
