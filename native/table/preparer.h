// Preparer: turns the ids of a batch into its plan, for all tables of one insert function. Reads tables only for hints
// and changes nothing.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "base/parallel.h"
#include "base/status.h"
#include "batch/grouping.h"
#include "batch/plan.h"
#include "table/table.h"

namespace mxrec {

// May prepare several batches at once. Keeps the memory of groupings from batch to batch.
class Preparer {
 public:
  using Tables = std::vector<std::shared_ptr<Table>>;
  using Ids = std::vector<std::vector<IdSpan>>;  // of each table, in the order of its features
  // Returns where the words of the plan go; nullptr if there is no memory for them.
  using Allocate = std::function<int64_t*(int64_t words)>;

  // Without `finds_rows` its plans hold no hints: the search is in vain where other ranks have the rows.
  explicit Preparer(bool finds_rows = true) : finds_rows_(finds_rows) {}

  // `grouped`: the batch may be trained on. InvalidArgument if it holds 2^31 ids of a table or more. REQUIRES: always
  // the same number of tables.
  Status Prepare(const Tables& tables, const Ids& ids, std::vector<FeaturePlan> features, TimeSpan times, bool grouped,
                 const ParallelFor& parallel, const Allocate& allocate);

 private:
  using Groupings = std::vector<Grouping>;
  std::unique_ptr<Groupings> TakeScratch(size_t tables);

  const bool finds_rows_;
  std::mutex mutex_;
  std::vector<std::unique_ptr<Groupings>> scratch_;
};

}  // namespace mxrec
