// UpdateRows: applies a rule to the rows at given addresses.
#pragma once

#include <cstdint>
#include <vector>

#include "base/parallel.h"
#include "base/status.h"
#include "table/gradient_span.h"
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

// InvalidArgument as of UpdateRows with kError, without an update.
Status CheckFiniteRows(Table* table, const int64_t* handles, const float* gradient, int64_t n,
                       const ParallelFor& parallel);

// Gradients of rows of a table.
struct RepeatedRows {
  Table* table;
  std::vector<int64_t> handles;
  std::vector<GradientSpan> gradients;  // as many rows of `dim` floats, in the order of the handles
};

// Does what UpdateRepeatedRows does for several tables: none of them is changed if a sum is not finite in any.
Status UpdateAllRepeatedRows(const std::vector<RepeatedRows>& all, const Rule& rule, const float* hyper, Nonfinite mode,
                             const ParallelFor& parallel);

}  // namespace mxrec
