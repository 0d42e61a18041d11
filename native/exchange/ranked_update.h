// RankedUpdate: an update where each row lives on the rank that owns it. Every rank sums the gradients of its own
// batch, key by key, and sends the sums with the rows' handles (owners.h) to the owners, which add them up in the order
// of the ranks and update each row once; for all tables of a step with one exchange. Sums of a replicated table
// (table.h) go to all ranks, with keys instead of handles, and all make the same updates.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "base/parallel.h"
#include "base/status.h"
#include "exchange/message.h"
#include "table/fold_update.h"
#include "table/nonfinite.h"
#include "table/table.h"
#include "update/rule.h"

namespace mxrec {

// Gradients of rows: of one lookup (plan and features), or given row by row.
struct RankedGradients {
  Table* table;
  float scale = 1;                   // the sums of a key's gradients over this rank's batch are multiplied by it
  FoldUpdateItem item{};             // handles are those of a RankedLookup; not used if `rows` is set
  const float* rows = nullptr;       // [count, dim], with
  const int64_t* handles = nullptr;  // [count]; the same row may come several times
  int64_t count = 0;
};

// Gives the messages of rank `rank` to the owners. InvalidArgument if `mode` is kError and a sum is not finite. Handles
// of rows that are missing or frozen are passed over.
Status SendGradients(const std::vector<RankedGradients>& gradients, int rank, int ranks, Nonfinite mode,
                     const ParallelFor& parallel, std::vector<Message>* messages);

// Updates this rank's rows with what all ranks sent. InvalidArgument, and nothing is changed in any of the tables, if a
// handle is not valid (any more), or `mode` is kError and a sum over the ranks is not finite.
Status ApplyGradients(const std::vector<Table*>& tables, const std::vector<Message>& messages, const Rule& rule,
                      const float* hyper, Nonfinite mode, const ParallelFor& parallel);

}  // namespace mxrec
