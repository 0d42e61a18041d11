// Plan: what the preparation stage found out about a batch, for all tables and features of one insert function, as one
// vector of int64 words. One tensor travels through the input pipeline, however many tables there are, and any dataset
// transformation (prefetch, cache, a service) can carry it.
//
//   words [0, 6)       magic | tables T | features F | words in all | times | first word of the times
//   T × 6 words        name hash | shards | positions N | keys U | first word of its sections | words of its sections
//   F × 5 words        table | first position | positions | rank | first word of its shape
//   shapes             rank words per feature
//   times              when the samples of the batch happened: none, one for all of them, or one each
//   per table          keys [U] | hints [U] | seals [units]
//   if it is grouped   shard_starts [shards + 1] | offsets [U + 1] | index [N] | positions [N], as int32, each of them
//                      padded to whole words
//
// A table is grouped if the batch may train it: its keys are distinct, and the keys of a shard are one unit. Evaluation
// only reads and needs no groups: there the number of shards is 0, the keys are the ids as they came, every kUnit of
// them are a unit, and preparation takes a third of the time.
//
// Parse checks every number that says where something lies, so a plan that belongs to another table or was cut short
// is an error, not a crash. Whoever reads a section checks its contents (plan_check.h).
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "batch/grouping.h"

namespace mxrec {

// One table's part of a plan; the pointers point into the plan's words.
struct TablePlan {
  // Keys of an ungrouped table that are resolved at once.
  static constexpr int64_t kUnit = 4096;

  int64_t shards = 0;          // 0: not grouped
  int64_t positions_size = 0;  // N
  int64_t keys_size = 0;       // U
  const int64_t* keys = nullptr;
  const int64_t* hints = nullptr;  // row numbers or -1; good if they fit the seal of their unit (table/table.h)
  const int64_t* seals = nullptr;  // nullptr: no hint is good
  // Only if grouped:
  const int32_t* shard_starts = nullptr;
  const int32_t* offsets = nullptr;
  const int32_t* index = nullptr;
  const int32_t* positions = nullptr;

  bool is_grouped() const { return shards > 0; }
  // The number of the key at a position.
  int64_t key_at(int64_t position) const { return index == nullptr ? position : index[position]; }

  // The units that keys are resolved in, and the keys of a unit.
  int64_t units() const { return is_grouped() ? shards : (keys_size + kUnit - 1) / kUnit; }
  int64_t unit_begin(int64_t u) const { return is_grouped() ? shard_starts[u] : u * kUnit; }
  int64_t unit_end(int64_t u) const {
    return is_grouped() ? shard_starts[u + 1] : std::min(keys_size, (u + 1) * kUnit);
  }
};

struct FeaturePlan {
  int64_t table = 0;
  int64_t first = 0;  // its first position among the table's
  int64_t size = 0;
  std::vector<int64_t> shape;  // of the ids; the product is `size`
};

// When the samples of a batch happened, in the data's own time.
struct TimeSpan {
  const int64_t* data = nullptr;
  int64_t size = 0;  // 0: not known; 1: all at once; else one for each sample
};

// A view of somebody else's words.
class Plan {
 public:
  static Status Parse(const int64_t* words, int64_t size, Plan* plan);

  const std::vector<TablePlan>& tables() const { return tables_; }
  const std::vector<FeaturePlan>& features() const { return features_; }
  const TimeSpan& times() const { return times_; }

  // Returns InvalidArgument unless table `t` of the plan was prepared for a table of this name and number of shards.
  Status CheckTable(int64_t t, const std::string& name, int64_t shards) const;
  // Finds feature `number`, which must belong to table `t`.
  Status FindFeature(int64_t number, int64_t t, const FeaturePlan** feature) const;

 private:
  std::vector<TablePlan> tables_;
  std::vector<FeaturePlan> features_;
  std::vector<uint64_t> names_;
  TimeSpan times_;
};

// Builds the words of a plan.
class PlanWriter {
 public:
  struct Table {
    std::string name;
    const Grouping* grouping;   // nullptr: not grouped
    std::vector<IdSpan> ids{};  // only if it is not
  };
  // `features[i].first` need not be set: features of one table follow each other in the order given.
  PlanWriter(std::vector<Table> tables, std::vector<FeaturePlan> features, TimeSpan times = {});

  int64_t words() const { return words_; }
  // Writes everything but the hints and seals.
  void Write(int64_t* words) const;
  // Where the hints of table `t` go, [U].
  int64_t* hints(int64_t* words, int64_t t) const { return words + sections_[t] + sizes_[t].keys_size; }
  // Where its seals go, [units].
  int64_t* seals(int64_t* words, int64_t t) const { return hints(words, t) + sizes_[t].keys_size; }

 private:
  std::vector<Table> tables_;
  std::vector<FeaturePlan> features_;
  std::vector<TablePlan> sizes_;   // of each table; without pointers
  std::vector<int64_t> sections_;  // first word of each table's sections
  TimeSpan times_;
  int64_t first_time_ = 0;
  int64_t words_ = 0;
};

}  // namespace mxrec
