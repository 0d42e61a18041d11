// RowFacts: what a table with feature admission or eviction knows of a row beside its values.
#pragma once

#include <cstdint>

#include "store/row_column.h"

namespace mxrec {

struct RowFacts {
  int64_t time = 0;    // the latest data time that its key occurred at; 0: not known
  uint32_t count = 0;  // occurrences, weighted; stays at UINT32_MAX once there
  uint32_t step = 0;   // the table's training step that its key last occurred in
};

using FactsColumn = RowColumn<RowFacts>;

}  // namespace mxrec
