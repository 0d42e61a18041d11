#include "table/changes.h"

#include <algorithm>

namespace mxrec {

float* Changes::Part::Add(int64_t stride) {
  constexpr int64_t kBlockRows = 256;
  if (blocks.empty() || used == kBlockRows) {
    blocks.emplace_back(new float[kBlockRows * stride]);
    used = 0;
  }
  return blocks.back().get() + used++ * stride;
}

void Changes::Part::Close() {
  is_open = is_listed = false;
  is_whole = true;
  since = 0;
  next = end = 0;
  used = 0;
  failure = Status();
  // Swapped, not cleared: the memory shall go.
  std::vector<int64_t>().swap(keys);
  std::vector<uint64_t>().swap(order);
  std::vector<Candidate>().swap(refused);
  std::vector<int64_t>().swap(forgotten);
  std::vector<uint16_t>().swap(filter);
  std::unordered_map<uint32_t, Kept>().swap(kept);
  std::vector<std::unique_ptr<float[]>>().swap(blocks);
}

int64_t Changes::EndInterval() {
  if (now() == kLast) Reset();
  const int64_t moment = round_ * (kLast + 1) + now();
  now_.store(static_cast<Mark>(now() + 1), std::memory_order_relaxed);
  return moment;
}

bool Changes::Knows(int64_t moment) const {
  return moment != kNoMoment && moment / (kLast + 1) == round_ && now() != kLast && logs_keys_;
}

void Changes::Reset() {
  marks_.Zero();
  for (int s = 0; s < shards_; ++s) {
    std::lock_guard<std::mutex> lock(parts_[s].mutex);
    parts_[s].erased.clear();
    parts_[s].met.clear();
  }
  now_.store(1, std::memory_order_relaxed);
  ++round_;
}

void Changes::LogErasure(int shard, int64_t key) {
  if (!logs_keys_) return;
  std::lock_guard<std::mutex> lock(parts_[shard].mutex);
  parts_[shard].erased.push_back({key, now()});
}

void Changes::LogRefused(int shard, int64_t key) {
  if (!logs_keys_) return;
  std::lock_guard<std::mutex> lock(parts_[shard].mutex);
  parts_[shard].met[key] = now();
}

void Changes::ForgetKeys(int64_t moment) {
  const Mark last = moment == kNoMoment ? static_cast<Mark>(kLast) : MarkOf(moment);
  for (int s = 0; s < shards_; ++s) {
    std::lock_guard<std::mutex> lock(parts_[s].mutex);
    std::vector<Erasure>& erased = parts_[s].erased;
    const auto later = std::find_if(erased.begin(), erased.end(), [&](const Erasure& e) { return e.mark > last; });
    std::vector<Erasure>(later, erased.end()).swap(erased);
    std::unordered_map<int64_t, Mark> met;  // another one: the memory of the old shall go
    for (const auto& [key, mark] : parts_[s].met) {
      if (mark > last) met.emplace(key, mark);
    }
    met.swap(parts_[s].met);
  }
}

}  // namespace mxrec
