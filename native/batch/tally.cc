#include "batch/tally.h"

#include <algorithm>

namespace mxrec {

Status Tally::Make(const Plan& plan, int64_t t, const std::string& name, int64_t coefficient, bool needs_time,
                   Tally* tally) {
  tally->plan_ = plan.tables()[t];
  tally->coefficient_ = static_cast<uint64_t>(coefficient);
  tally->times_ = plan.times();
  tally->latest_ = 0;
  tally->samples_.clear();
  tally->weights_ = tally->merged_times_ = nullptr;
  const TimeSpan& times = tally->times_;
  if (times.size == 0) {
    if (!needs_time || tally->plan_.keys_size == 0) return Status();
    return Status::InvalidArgument(
        "table '" + name +
        "' evicts by time, but the batch has no timestamp: add FeatureSpec(\"timestamp\", "
        "is_timestamp=True) to the specs of get_asc_insert_func, or put the timestamp into the "
        "collection ASCEND_TIMESTAMP before graph modification");
  }
  for (int64_t i = 0; i < times.size; ++i) {
    if (times.data[i] <= 0) {
      return Status::InvalidArgument("table '" + name + "': a timestamp must be positive, got " +
                                     std::to_string(times.data[i]));
    }
    tally->latest_ = std::max(tally->latest_, times.data[i]);
  }
  if (times.size == 1) return Status();
  const Status damaged = Status::InvalidArgument(
      "table '" + name +
      "': the prepared batch is damaged (features): pass the tensor that the insert function added, unchanged");
  int64_t covered = 0;
  for (const FeaturePlan& feature : plan.features()) {
    if (feature.table != t || feature.size == 0) continue;
    if (feature.first != covered) return damaged;
    covered += feature.size;
    if (feature.size % times.size != 0) {
      return Status::InvalidArgument("table '" + name + "': there are " + std::to_string(times.size) +
                                     " timestamps, but a feature has " + std::to_string(feature.size) +
                                     " ids, which is no multiple; give one timestamp for the batch or one per sample");
    }
    tally->samples_.push_back(
        {feature.first + feature.size, feature.first, Divider(static_cast<uint32_t>(feature.size / times.size))});
  }
  return covered == tally->plan_.positions_size ? Status() : damaged;
}

Tally Tally::Merged(const TablePlan& plan, const int64_t* weights, const int64_t* times, int64_t latest) {
  Tally tally;
  tally.plan_ = plan;
  tally.weights_ = weights;
  tally.merged_times_ = times;
  tally.latest_ = latest;
  return tally;
}

uint32_t Tally::MergedWeight(int64_t u) const {
  uint64_t sum = 0;
  for (int32_t i = plan_.offsets[u]; i < plan_.offsets[u + 1]; ++i) {
    sum += static_cast<uint64_t>(weights_[plan_.positions[i]]) & UINT32_MAX;
  }
  return static_cast<uint32_t>(std::min<uint64_t>(UINT32_MAX, std::max<uint64_t>(1, sum)));
}

int64_t Tally::MergedTime(int64_t u) const {
  int64_t time = 0;
  for (int32_t i = plan_.offsets[u]; i < plan_.offsets[u + 1]; ++i) {
    time = std::max(time, merged_times_[plan_.positions[i]]);
  }
  return time;
}

int64_t Tally::LatestOf(int64_t u) const {
  int64_t time = 0;
  size_t feature = 0;
  for (int32_t i = plan_.offsets[u]; i < plan_.offsets[u + 1]; ++i) {  // positions of a key ascend
    const int32_t position = plan_.positions[i];
    while (position >= samples_[feature].end) ++feature;
    const Samples& samples = samples_[feature];
    time = std::max(time, times_.data[samples.positions_each(static_cast<uint32_t>(position - samples.first))]);
  }
  return time;
}

}  // namespace mxrec
