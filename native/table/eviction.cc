#include "table/eviction.h"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace mxrec {
namespace {

using Score = EvictionPolicy::Score;

// Floats that are not negative have the same order as their bits. An embedding that is not a number is worth nothing.
int64_t OrderOf(float norm) {
  if (!(norm >= 0)) return 0;
  int32_t bits;
  std::memcpy(&bits, &norm, sizeof(bits));
  return bits;
}

// The smallest whole number that is not below `x`, within reason.
int64_t Ceiling(double x) { return static_cast<int64_t>(std::ceil(std::clamp(x, -9e18, 9e18))); }

// The last moment that is `age` or more before `now`, which is not negative.
int64_t Before(int64_t now, double age) {
  int64_t moment;
  return __builtin_sub_overflow(now, Ceiling(age), &moment) ? INT64_MAX : moment;
}

}  // namespace

Status Eviction::Begin(std::shared_ptr<Table> table, const EvictionPolicy& policy,
                       std::unique_ptr<Eviction>* eviction) {
  const std::string who = "table '" + table->config().name + "': ";
  if (policy.score != Score::kNorm && table->history() == nullptr) {
    return Status::FailedPrecondition(who +
                                      "rows can only be evicted by time, step or count if the table tracks them; set "
                                      "access_threshold=0 (count, refuse nothing) or eviction_threshold");
  }
  if (policy.score == Score::kTime && table->history()->now() == 0 && table->size() > 0 &&
      table->history()->eviction_threshold() == Tracking::kOff) {
    return Status::FailedPrecondition(who + "rows cannot be evicted by time, because no batch had a timestamp");
  }
  if (std::isnan(policy.threshold)) return Status::InvalidArgument(who + "the eviction threshold is not a number");
  eviction->reset(new Eviction(std::move(table), policy));
  return Status();
}

Eviction::Eviction(std::shared_ptr<Table> table, const EvictionPolicy& policy)
    : table_(std::move(table)),
      policy_(policy),
      now_(table_->history() == nullptr ? 0 : table_->history()->now()),
      scores_(policy.keep >= 0 ? table_->shards() : 0) {
  if (policy.keep >= 0) return;
  scored_ = table_->shards();
  switch (policy.score) {
    case Score::kTime:
      limit_ = Before(now_, policy.threshold);
      break;
    case Score::kStep:
      limit_ = Before(table_->history()->step(), policy.threshold);
      break;
    case Score::kCount:
      limit_ = Ceiling(policy.threshold) - 1;
      break;
    case Score::kNorm:
      // A threshold too small for a float is still more than zero.
      limit_ = policy.threshold <= 0 ? -1 : std::max<int64_t>(0, OrderOf(static_cast<float>(policy.threshold)) - 1);
      break;
  }
}

int64_t Eviction::DateAndScore(int64_t key, int64_t handle) {
  if (policy_.score == Score::kNorm) {
    std::vector<float> buffer;
    const float* row;
    // What cannot be read cannot be judged, and stays.
    if (!table_->ReadRow(key, handle, &buffer, &row).ok()) return INT64_MAX;
    double sum = 0;
    for (int i = 0; i < table_->config().dim; ++i) sum += double{row[i]} * row[i];
    return OrderOf(static_cast<float>(std::sqrt(sum)));
  }
  RowFacts& facts = table_->history()->facts(static_cast<uint32_t>(handle));
  if (policy_.score == Score::kCount) return facts.count;
  if (policy_.score == Score::kStep) return facts.step;
  // Rows that came without a time, say from a checkpoint that knows none, begin to age now.
  if (facts.time == 0) {
    table_->WillChange(handle);
    facts.time = now_;
  }
  return facts.time;
}

void Eviction::FindLimit() {
  int64_t rows = 0;
  for (const auto& scores : scores_) rows += static_cast<int64_t>(scores.size());
  const int64_t victims = rows - policy_.keep;
  ties_ = 0;
  if (victims > 0) {
    // The lowest limit that as many scores do not exceed, by bisection: all of them need not be sorted at once, which
    // would take 1 s of one step for 10 million rows.
    auto count = [&](int64_t limit) {
      int64_t sum = 0;
      for (const auto& scores : scores_) sum += std::upper_bound(scores.begin(), scores.end(), limit) - scores.begin();
      return sum;
    };
    int64_t low = 0, high = INT64_MAX;  // scores are not negative
    while (low < high) {
      const int64_t middle = low + (high - low) / 2;
      if (count(middle) >= victims) {
        high = middle;
      } else {
        low = middle + 1;
      }
    }
    limit_ = low;
    ties_ = victims - count(low - 1);
  }
  scores_.clear();
  scores_.shrink_to_fit();
}

bool Eviction::Run(int64_t rows) {
  const int shards = table_->shards();
  while (rows > 0 && scored_ < shards) {
    std::vector<int64_t>& scores = scores_[scored_++];
    const int shard = scored_ - 1;
    table_->ForEachIn(shard, [&](int64_t key, int64_t handle) { scores.push_back(DateAndScore(key, handle)); });
    std::sort(scores.begin(), scores.end());
    rows -= static_cast<int64_t>(scores.size()) + 1;
    if (scored_ == shards) FindLimit();
  }
  while (rows > 0 && walked_ < shards) {
    rows -= EvictFrom(walked_++) + 1;
  }
  return walked_ == shards;
}

// Returns how many rows there were.
int64_t Eviction::EvictFrom(int shard) {
  int64_t rows = 0;
  const bool forgets = policy_.score == Score::kTime && policy_.keep < 0;
  evicted_ += table_->EraseIf(
      shard, forgets ? limit_ : 0, [&](int64_t handle) { Request(handle); },
      [&](int64_t key, int64_t handle) {
        ++rows;
        const int64_t score = DateAndScore(key, handle);
        return score < limit_ || (score == limit_ && ties_-- > 0);
      });
  return rows;
}

}  // namespace mxrec
