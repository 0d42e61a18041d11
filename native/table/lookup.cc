#include "table/lookup.h"

#include <algorithm>

#include "batch/plan_check.h"
#include "table/commit.h"
#include "table/embed.h"

namespace mxrec {

Status CheckLookup(const LookupTable& lookup, const TablePlan& part, bool grouped) {
  const std::string who = "table '" + lookup.table->config().name + "': ";
  if (part.is_grouped() != grouped) {
    return Status::InvalidArgument(who + "the batch was prepared for " + (grouped ? "evaluation" : "training") +
                                   ", the lookup is for " + (grouped ? "training" : "evaluation") +
                                   "; pass the batch that the lookup was built with");
  }
  if (lookup.capacity > 0 && part.keys_size > lookup.capacity) {
    return Status::InvalidArgument(who + "with static shape the different ids of a batch must not exceed " +
                                   std::to_string(lookup.capacity) + ", the sum of its lookups' send_count, got " +
                                   std::to_string(part.keys_size) + "; raise send_count (in sum) to " +
                                   std::to_string(part.keys_size) + ", or use init(use_dynamic=True)");
  }
  return Status();
}

Status Lookup(const Plan& plan, bool grouped, const std::vector<LookupTable>& tables,
              const std::vector<LookupFeature>& features, const ParallelFor& parallel) {
  std::vector<CommitItem> commits;
  std::vector<PlanRead> reads;
  for (const LookupTable& lookup : tables) {
    if (lookup.table == nullptr) continue;
    const TablePlan& part = plan.tables()[lookup.in_plan];
    MXREC_RETURN_IF_ERROR(CheckLookup(lookup, part, grouped));
    CommitItem commit{lookup.table, part, lookup.handles, lookup.insert, {}, lookup.use};
    const TableConfig& config = lookup.table->config();
    commit.skips_padding = lookup.insert && !lookup.pads && !config.padding_keys.empty();
    const History* history = lookup.table->history();
    const bool is_counted = lookup.insert && history != nullptr;
    if (is_counted) {
      const bool needs_time = history->eviction_threshold() != Tracking::kOff;
      MXREC_RETURN_IF_ERROR(
          Tally::Make(plan, lookup.in_plan, config.name, history->coefficient(), needs_time, &commit.tally));
    }
    reads.push_back({&part, is_counted});
    commits.push_back(std::move(commit));
  }
  MXREC_RETURN_IF_ERROR(CheckContents(reads, parallel));

  std::vector<EmbedItem> embeds;
  for (const LookupFeature& f : features) {
    const LookupTable& lookup = tables[f.table];
    embeds.push_back(
        {lookup.table, plan.tables()[lookup.in_plan], f.feature, lookup.handles, f.bags.size, f.out, f.stride});
  }
  MXREC_RETURN_IF_ERROR(Commit(commits, parallel));

  Embed(embeds, parallel);
  for (const LookupFeature& f : features) {
    for (int64_t b = 0; f.feature->size == 0 && b < f.bags.count; ++b) {  // empty bags
      std::fill_n(f.out + b * f.stride, tables[f.table].table->config().dim, 0.0f);
    }
  }
  for (const LookupTable& lookup : tables) {
    if (lookup.table == nullptr || lookup.rows == nullptr) continue;
    const int64_t dim = lookup.table->config().dim;
    parallel.Run(plan.tables()[lookup.in_plan].keys_size, 40, [&](int64_t begin, int64_t end) {
      lookup.table->Gather(lookup.handles + begin, end - begin, lookup.rows + begin * dim);
    });
  }
  return Status();
}

}  // namespace mxrec
