#include "table/history.h"

namespace mxrec {

bool operator==(const Tracking& a, const Tracking& b) {
  return a.access_threshold == b.access_threshold && a.eviction_threshold == b.eviction_threshold &&
         a.coefficient == b.coefficient && a.filter_bytes == b.filter_bytes;
}

Status CheckTracking(const Tracking& tracking, const std::string& table) {
  auto check = [&](const char* what, int64_t value, int64_t low, int64_t high) {
    if (value >= low && value <= high) return Status();
    return Status::InvalidArgument("table '" + table + "': " + what + " must be in [" + std::to_string(low) + ", " +
                                   std::to_string(high) + "], got " + std::to_string(value));
  };
  const bool has_filter = tracking.filter_bytes > 0;
  MXREC_RETURN_IF_ERROR(check(has_filter ? "access_threshold with admission_filter_bytes" : "access_threshold",
                              tracking.access_threshold, Tracking::kOff,
                              has_filter ? AdmissionFilter::kMaxCount : INT32_MAX));
  MXREC_RETURN_IF_ERROR(check("eviction_threshold", tracking.eviction_threshold, Tracking::kOff, INT32_MAX));
  MXREC_RETURN_IF_ERROR(check("faae_coefficient", tracking.coefficient, 1, INT32_MAX));
  return check("admission_filter_bytes", tracking.filter_bytes, 0, int64_t{1} << 50);
}

History::History(const Tracking& tracking, int shard_bits, int64_t rows)
    : access_threshold_(tracking.access_threshold),
      eviction_threshold_(tracking.eviction_threshold),
      coefficient_(tracking.coefficient),
      filter_bytes_(tracking.filter_bytes),
      facts_(rows),
      shards_(size_t{1} << shard_bits) {
  for (Shard& shard : shards_) {
    shard.candidates = Candidates(shard_bits);
    if (filter_bytes_ > 0) shard.filter.reset(new AdmissionFilter(filter_bytes_ >> shard_bits, shard_bits));
  }
}

bool History::usable() const {
  return facts_.usable() && std::all_of(shards_.begin(), shards_.end(), [](const Shard& shard) {
           return shard.filter == nullptr || shard.filter->usable();
         });
}

void History::SetClock(int64_t now, uint32_t step) {
  now_.store(now, std::memory_order_relaxed);
  step_.store(step, std::memory_order_relaxed);
}

uint32_t History::Advance(int64_t time) {
  int64_t now = this->now();
  while (time > now && !now_.compare_exchange_weak(now, time, std::memory_order_relaxed)) {
  }
  return step_.fetch_add(1, std::memory_order_relaxed) + 1;
}

Tracking History::tracking() const { return {access_threshold(), eviction_threshold(), coefficient(), filter_bytes_}; }

void History::SetThresholds(int64_t access, int64_t eviction, int64_t coefficient) {
  access_threshold_.store(access, std::memory_order_relaxed);
  eviction_threshold_.store(eviction, std::memory_order_relaxed);
  coefficient_.store(coefficient, std::memory_order_relaxed);
}

bool History::Admits(int shard, uint64_t hash, uint32_t weight) const {
  const int64_t threshold = access_threshold();
  if (weight >= threshold) return true;
  const Shard& s = shards_[shard];
  return int64_t{s.filter != nullptr ? s.filter->Count(hash) : s.candidates.Count(hash)} + weight >= threshold;
}

Status History::Refuse(int shard, uint64_t hash, uint32_t weight, int64_t time) {
  Shard& s = shards_[shard];
  bool is_new;
  if (s.filter != nullptr) {
    is_new = s.filter->Count(hash) == 0;
    s.filter->Add(hash, weight);
  } else {
    MXREC_RETURN_IF_ERROR(s.candidates.Add(hash, weight, time, &is_new));
  }
  if (is_new) ++s.begun;
  return Status();
}

RowFacts History::Admit(int shard, uint64_t hash) {
  Shard& s = shards_[shard];
  RowFacts facts;
  if (s.filter != nullptr) {
    facts.count = s.filter->Count(hash);
    if (facts.count == 0) return facts;
    s.filter->Subtract(hash, facts.count);
    // Colliding keys may have hidden that this life began.
    if (s.promoted + s.forgotten < s.begun) ++s.promoted;
    return facts;
  }
  Candidate found;
  if (s.candidates.size() == 0 || !s.candidates.Remove(hash, &found)) return facts;
  ++s.promoted;
  facts.count = found.count;
  facts.time = found.time;
  return facts;
}

RowFacts History::Refused(int shard, uint64_t hash) const {
  const Shard& s = shards_[shard];
  RowFacts facts;
  if (s.filter != nullptr) {
    facts.count = s.filter->Count(hash);
    return facts;
  }
  Candidate found;
  if (s.candidates.Find(hash, &found)) {
    facts.count = found.count;
    facts.time = found.time;
  }
  return facts;
}

void History::Forget(int shard, uint64_t hash) {
  Shard& s = shards_[shard];
  if (s.filter == nullptr && s.candidates.size() > 0 && s.candidates.Remove(hash, nullptr)) ++s.forgotten;
}

void History::ForgetUntil(int shard, int64_t time) {
  Shard& s = shards_[shard];
  if (s.filter != nullptr) return s.filter->Halve();
  s.forgotten += s.candidates.RemoveUntil(time);
}

void History::ForgetAll(int shard) {
  Shard& s = shards_[shard];
  s.forgotten += s.candidates.size();
  s.candidates.Clear();
  if (s.filter != nullptr) {
    s.filter->Clear();
    s.forgotten = s.begun - s.promoted;
  }
}

Status History::Restore(int shard, uint64_t hash, uint32_t count, int64_t time) {
  Shard& s = shards_[shard];
  if (count == 0 || s.filter != nullptr) return Status();
  Forget(shard, hash);
  bool is_new;
  MXREC_RETURN_IF_ERROR(s.candidates.Add(hash, count, time, &is_new));
  if (is_new) ++s.begun;
  return Status();
}

History::Numbers History::numbers(int shard) const {
  const Shard& s = shards_[shard];
  const bool has_filter = s.filter != nullptr;
  const int64_t candidates = has_filter ? s.begun - s.promoted - s.forgotten : s.candidates.size();
  return {candidates, candidates + s.forgotten, s.begun, s.promoted,
          has_filter ? s.filter->bytes() : s.candidates.bytes()};
}

}  // namespace mxrec
