// History: what a table remembers of its keys for feature admission and eviction.
//
//   a key without a row    its count and last time: in Candidates, 16 to 24 bytes; or its count alone, about right, in
//                          an AdmissionFilter of fixed size
//   a key with a row       RowFacts: count, last time, last step
//   the table              the latest time seen (its clock: data time, not that of the machine), training steps so far,
//                          and the thresholds
//
// A key lives from the batch that brings it until it is forgotten: `seen` counts lives. A life gets a row (it is
// admitted) or is refused so far. With an AdmissionFilter, which cannot tell keys from each other, the lives of refused
// keys are estimates.
//
// Thread rule: a shard's part needs the shard's locks (table.h). The clock and the thresholds may be read anywhere.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/status.h"
#include "store/row_facts.h"
#include "table/admission_filter.h"
#include "table/candidates.h"

namespace mxrec {

// What a table shall track, as the script says.
struct Tracking {
  static constexpr int64_t kOff = -1;

  int64_t access_threshold = kOff;    // the count at which a key gets a row; 0: counts are kept, nothing is refused
  int64_t eviction_threshold = kOff;  // the age in data time at which a key is forgotten
  int64_t coefficient = 1;            // what one occurrence counts
  int64_t filter_bytes = 0;           // 0: counts of refused keys are exact; else they share this much memory

  bool is_on() const { return access_threshold != kOff || eviction_threshold != kOff; }
};
bool operator==(const Tracking& a, const Tracking& b);

// InvalidArgument naming the table, the setting and its range.
Status CheckTracking(const Tracking& tracking, const std::string& table);

class History {
 public:
  // `rows`: how many the table may hold; 0: any number.
  History(const Tracking& tracking, int shard_bits, int64_t rows);

  bool usable() const;

  // ---- The table's clock and thresholds.
  int64_t now() const { return now_.load(std::memory_order_relaxed); }
  uint32_t step() const { return step_.load(std::memory_order_relaxed); }
  void SetClock(int64_t now, uint32_t step);
  // Begins a training step whose samples are as late as `time`; returns its number.
  uint32_t Advance(int64_t time);
  Tracking tracking() const;
  void SetThresholds(int64_t access, int64_t eviction, int64_t coefficient);
  int64_t access_threshold() const { return access_threshold_.load(std::memory_order_relaxed); }
  int64_t eviction_threshold() const { return eviction_threshold_.load(std::memory_order_relaxed); }
  int64_t coefficient() const { return coefficient_.load(std::memory_order_relaxed); }

  // ---- Keys without a row.
  [[gnu::always_inline]] void Prefetch(int shard, uint64_t hash) const {  // by force: see Candidates
    if (access_threshold() <= 0) return;
    const Shard& s = shards_[shard];
    if (s.filter != nullptr) {
      s.filter->Prefetch(hash);
    } else {
      s.candidates.Prefetch(hash);
    }
  }
  // Whether a key that occurs with this weight now gets a row.
  bool Admits(int shard, uint64_t hash, uint32_t weight) const;
  // Counts an occurrence that is refused.
  Status Refuse(int shard, uint64_t hash, uint32_t weight, int64_t time);
  // Notes that the key gets a row: removes its count and time from those of refused keys and returns them.
  RowFacts Admit(int shard, uint64_t hash);
  // Count and time; zeros if the key is unknown.
  RowFacts Refused(int shard, uint64_t hash) const;
  // Forgets a key, the keys that were last seen at `time` or before, or all. With a filter, Forget does nothing, and
  // ForgetUntil halves all counts.
  void Forget(int shard, uint64_t hash);
  void ForgetUntil(int shard, int64_t time);
  void ForgetAll(int shard);
  // Replaces what is known of a refused key by what a checkpoint holds. Ignores keys that never occurred, and with a
  // filter, counts of single keys.
  Status Restore(int shard, uint64_t hash, uint32_t count, int64_t time);
  template <typename Fn>
  void ForEachRefused(int shard, Fn fn) const {
    shards_[shard].candidates.ForEach(fn);
  }
  // nullptr if there is none.
  AdmissionFilter* filter(int shard) const { return shards_[shard].filter.get(); }

  // ---- Keys with a row.
  FactsColumn& facts() { return facts_; }
  RowFacts& facts(uint32_t row) const { return facts_.at(row); }

  // ---- Numbers of a shard.
  struct Numbers {
    int64_t candidates;  // keys that wait for a row now
    int64_t refused;     // lives without a row, ended or not
    int64_t begun;       // lives that began without a row
    int64_t promoted;    // of these, those that got one
    int64_t bytes;       // without the facts of rows
  };
  Numbers numbers(int shard) const;

 private:
  struct Shard {
    Candidates candidates;
    std::unique_ptr<AdmissionFilter> filter;
    int64_t begun = 0;
    int64_t promoted = 0;
    int64_t forgotten = 0;
  };

  std::atomic<int64_t> access_threshold_, eviction_threshold_, coefficient_;
  const int64_t filter_bytes_;
  std::atomic<int64_t> now_{0};
  std::atomic<uint32_t> step_{0};
  FactsColumn facts_;
  std::vector<Shard> shards_;
};

// Counts one more occurrence of a key with a row.
inline void Count(RowFacts* facts, uint32_t weight, int64_t time, uint32_t step) {
  const uint32_t count = facts->count + weight;
  facts->count = count < weight ? UINT32_MAX : count;
  facts->time = std::max(facts->time, time);
  facts->step = step;
}

}  // namespace mxrec
