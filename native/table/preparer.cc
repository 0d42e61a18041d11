#include "table/preparer.h"

#include <algorithm>

namespace mxrec {
namespace {

void Group(const Preparer::Tables& tables, const Preparer::Ids& ids, const std::vector<int64_t>& sizes, int64_t total,
           const ParallelFor& parallel, std::vector<Grouping>* groupings) {
  // A small table is the work of one thread; a large one is shared out among all of them. Never one inside the other: a
  // pool's threads must not wait for the pool.
  constexpr int64_t kLarge = 16384;
  const int64_t count = static_cast<int64_t>(tables.size());
  const int64_t cost = 1 + total * 20 / count;  // nanoseconds per table
  parallel.Run(count, cost, [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) {
      if (sizes[t] <= kLarge) (*groupings)[t].Build(ids[t], tables[t]->shard_bits());
    }
  });
  for (int64_t t = 0; t < count; ++t) {
    if (sizes[t] > kLarge) (*groupings)[t].Build(ids[t], tables[t]->shard_bits(), parallel);
  }
}

}  // namespace

Status Preparer::Prepare(const Tables& tables, const Ids& ids, std::vector<FeaturePlan> features, TimeSpan times,
                         bool grouped, const ParallelFor& parallel, const Allocate& allocate) {
  std::vector<int64_t> sizes(tables.size(), 0);
  int64_t total = 0;
  for (size_t t = 0; t < tables.size(); ++t) {
    for (const IdSpan& span : ids[t]) sizes[t] += span.size;
    if (sizes[t] >= INT32_MAX) {
      return Status::InvalidArgument("table '" + tables[t]->config().name +
                                     "': a batch may hold fewer than 2^31 ids, got " + std::to_string(sizes[t]));
    }
    total += sizes[t];
  }

  std::unique_ptr<Groupings> groupings = TakeScratch(tables.size());
  if (grouped) Group(tables, ids, sizes, total, parallel, groupings.get());
  std::vector<PlanWriter::Table> parts;
  for (size_t t = 0; t < tables.size(); ++t) {
    const std::string& name = tables[t]->config().name;
    parts.push_back(grouped ? PlanWriter::Table{name, &(*groupings)[t], {}} : PlanWriter::Table{name, nullptr, ids[t]});
  }
  const PlanWriter writer(std::move(parts), std::move(features), times);
  int64_t* words = allocate(writer.words());
  if (words == nullptr) return Status::ResourceExhausted("out of memory: cannot prepare a batch");
  writer.Write(words);
  Plan plan;
  MXREC_RETURN_IF_ERROR(Plan::Parse(words, writer.words(), &plan));
  std::vector<int64_t> units;
  int64_t all_units = 1;
  for (const TablePlan& part : plan.tables()) {
    units.push_back(part.units());
    all_units += part.units();
  }
  RunLists(parallel, units, 1 + total * 10 / all_units, [&](size_t t, int64_t unit) {
    const TablePlan& part = plan.tables()[t];
    const int64_t from = part.unit_begin(unit), n = part.unit_end(unit) - from;
    int64_t* hints = writer.hints(words, t) + from;
    int64_t* seal = writer.seals(words, t) + unit;
    if (!finds_rows_) {
      std::fill_n(hints, n, -1);
      *seal = 0;
      return;
    }
    *seal = grouped ? tables[t]->Hint(static_cast<int>(unit), part.keys + from, n, hints)
                    : tables[t]->HintAny(part.keys + from, n, hints);
  });
  std::lock_guard<std::mutex> lock(mutex_);
  scratch_.push_back(std::move(groupings));
  return Status();
}

std::unique_ptr<Preparer::Groupings> Preparer::TakeScratch(size_t tables) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (scratch_.empty()) return std::make_unique<Groupings>(tables);
  std::unique_ptr<Groupings> scratch = std::move(scratch_.back());
  scratch_.pop_back();
  return scratch;
}

}  // namespace mxrec
