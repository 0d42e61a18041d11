// RankedLookup: a lookup (table/lookup.h) where each key's row lives on the rank that owns it. Keys travel to their
// owners, which commit those of all ranks as one batch, and rows and handles travel back; for all tables of a plan with
// one exchange each way.
//
//   this rank       Ask ──▶ requests ══▶ Answer ──▶ answers ══▶ Finish
//
// A replicated table (table.h) has all its rows on every rank: keys that train travel to all ranks, each of which
// commits those of all, and no rows travel.
//
// Each stage runs once on every rank. What stages give is what the exchange takes: a message for each rank, in their
// order. Handles name their owners (owners.h).
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "base/parallel.h"
#include "base/status.h"
#include "exchange/message.h"
#include "table/lookup.h"
#include "table/preparer.h"

namespace mxrec {

// What stands for the plan of a rank whose data have ended while others still evaluate: it asks for nothing, and
// answers.
constexpr int64_t kEndedPlan = 0x6465646e65;

class RankedLookup {
 public:
  // The plan, grouped, and what `tables` and `features` point to must outlive the lookup.
  RankedLookup(int rank, int ranks, Plan plan, std::vector<std::shared_ptr<Table>> owned,
               std::vector<LookupTable> tables, std::vector<LookupFeature> features);

  // The lookup of a rank whose data have ended.
  RankedLookup(int rank, int ranks, std::vector<std::shared_ptr<Table>> owned, std::vector<LookupTable> tables);

  // Returns the errors of Lookup that the plan alone can cause.
  Status Ask(const ParallelFor& parallel, std::vector<Message>* requests);
  // Commits the keys that all ranks ask for. Returns the errors of Commit; then no key was inserted or counted here.
  // OutOfRange, on every rank, if the data of all ranks have ended.
  Status Answer(std::vector<Message> requests, Preparer* preparer, const ParallelFor& parallel,
                std::vector<Message>* answers);
  // Fills in handles, rows and features.
  Status Finish(std::vector<Message> answers, const ParallelFor& parallel);

 private:
  // One table's part of what is under way.
  struct Part {
    LookupTable lookup;
    std::shared_ptr<Table> table;
    bool is_counted = false;
    std::vector<int32_t> order;      // [U]: the keys' numbers, owner after owner
    std::vector<int64_t> starts;     // [ranks + 1], into `order`
    std::vector<const float*> rows;  // [U]
  };

  void AddParts(std::vector<std::shared_ptr<Table>> owned, const std::vector<LookupTable>& tables);
  struct Range {
    int64_t from, size;
  };
  // Which of the keys, in `order`, a rank is told.
  Range AskedOf(const Part& part, int rank) const;
  // How many of the keys that a rank has told this one it waits for an answer to.
  int64_t AnswersOf(const Part& part, int rank, int64_t asked) const;
  const TablePlan& PlanOf(const Part& part) const { return plan_.tables()[part.lookup.in_plan]; }

  const int rank_;
  const int ranks_;
  const bool has_ended_;
  const Plan plan_;
  std::vector<Part> parts_;
  std::vector<int64_t> part_of_;  // of each table that the lookup was given; -1: it is not looked up
  std::vector<LookupFeature> features_;
};

}  // namespace mxrec
