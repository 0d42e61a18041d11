// Tally: how often and when the keys of a training batch occurred. What feature admission counts and eviction dates.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "batch/fold.h"
#include "batch/plan.h"

namespace mxrec {

class Tally {
 public:
  Tally() = default;

  // Makes the tally of table `t` of the plan, which must outlive it; `name` is for messages. `coefficient`: what one
  // occurrence counts. InvalidArgument if a time is not positive, if there is none and `needs_time`, or if there is one
  // for each sample and a feature has another number of samples, or the features do not cover the table's positions one
  // after another. (Not Aborted, as in the original: a monitored session takes that for a lost machine and starts over,
  // for ever.)
  static Status Make(const Plan& plan, int64_t t, const std::string& name, int64_t coefficient, bool needs_time,
                     Tally* tally);

  // Makes the tally of a table whose positions are keys that other tallies have counted: what key `u` adds is the sum
  // of its positions' weights, and its time their latest. All must outlive it.
  static Tally Merged(const TablePlan& plan, const int64_t* weights, const int64_t* times, int64_t latest);

  // What key `u` of the table adds to its count: at least 1, and UINT32_MAX where it would be more.
  uint32_t weight(int64_t u) const {
    if (weights_ != nullptr) return MergedWeight(u);
    const uint64_t occurrences = static_cast<uint64_t>(plan_.offsets[u + 1] - plan_.offsets[u]);
    return static_cast<uint32_t>(std::min<uint64_t>(UINT32_MAX, occurrences * coefficient_));
  }
  // The latest time of the samples that hold key `u`; 0 if times are not known.
  int64_t time(int64_t u) const {
    if (weights_ != nullptr) return MergedTime(u);
    return samples_.empty() ? latest_ : LatestOf(u);
  }
  // The latest time of the batch; 0 if times are not known.
  int64_t latest() const { return latest_; }

 private:
  // A feature's positions, and how many of them belong to a sample.
  struct Samples {
    int64_t end;
    int64_t first;
    Divider positions_each;
  };

  int64_t LatestOf(int64_t u) const;
  uint32_t MergedWeight(int64_t u) const;
  int64_t MergedTime(int64_t u) const;

  TablePlan plan_;
  uint64_t coefficient_ = 1;
  TimeSpan times_;
  int64_t latest_ = 0;
  std::vector<Samples> samples_;      // ascending; only if there is a time for each
  const int64_t* weights_ = nullptr;  // of each position, and their times; only if it is merged
  const int64_t* merged_times_ = nullptr;
};

}  // namespace mxrec
