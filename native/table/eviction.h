// Eviction: taking rows from the keys that are worth least. Every row has a score, and those below a limit go; or the
// lowest go until a number of rows is left, which finds the limit first.
//
// A pass walks the table shard by shard and can be interrupted between shards, so that training stands still for a
// slice of it only: 256 Ki rows took 8 ms, 10 million rows 0.25 s (AMD EPYC VM, one thread). What is evicted does not
// depend on the machine's speed: slices are counted in rows. A key that occurs between two slices is judged by what is
// known then.
//
// An evicted row is free for the next new key of its shard, which starts from initial values, slots included.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "base/status.h"
#include "table/table.h"

namespace mxrec {

struct EvictionPolicy {
  // Values cross the C interface: never renumber.
  enum class Score {
    kTime = 0,   // the data time of the last occurrence; refused keys are judged, too
    kStep = 1,   // the training step of the last occurrence
    kCount = 2,  // occurrences, weighted
    kNorm = 3,   // the L2 norm of the embedding
  };
  Score score = Score::kTime;
  // kTime, kStep: rows go that are this old or older. kCount, kNorm: rows go that have less.
  double threshold = 0;
  // Not negative: instead, the rows of the lowest score go until at most this many are left.
  int64_t keep = -1;
};

class Eviction {
 public:
  // FailedPrecondition if the table does not track what the score needs, or has no timestamps to go by.
  static Status Begin(std::shared_ptr<Table> table, const EvictionPolicy& policy, std::unique_ptr<Eviction>* eviction);

  // Walks on over shards of `rows` rows or a little more; returns whether the pass is complete. REQUIRES: no step of
  // the table is running.
  bool Run(int64_t rows);

  int64_t evicted() const { return evicted_; }

 private:
  Eviction(std::shared_ptr<Table> table, const EvictionPolicy& policy);
  // Requests from memory what DateAndScore reads.
  [[gnu::always_inline]] void Request(int64_t handle) const {
    if (policy_.score == EvictionPolicy::Score::kNorm) {
      if (table_->tier() == nullptr) __builtin_prefetch(table_->Row(handle));
    } else {
      __builtin_prefetch(&table_->history()->facts(static_cast<uint32_t>(handle)));
    }
  }
  // Returns the score of a row. By time, first dates a row that came without a time: it begins to age now.
  int64_t DateAndScore(int64_t key, int64_t handle);
  void FindLimit();
  int64_t EvictFrom(int shard);

  const std::shared_ptr<Table> table_;
  const EvictionPolicy policy_;
  const int64_t now_;
  int64_t limit_ = INT64_MIN;                 // scores of victims are less than this,
  int64_t ties_ = INT64_MAX;                  // or equal to it, for this many rows
  std::vector<std::vector<int64_t>> scores_;  // of each shard, sorted; only until the limit is found
  int scored_ = 0;                            // shards
  int walked_ = 0;
  int64_t evicted_ = 0;
};

}  // namespace mxrec
