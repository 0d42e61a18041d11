#include "table/candidates.h"

#include <algorithm>
#include <cassert>
#include <cstring>
#include <limits>
#include <string>
#include <utility>

namespace mxrec {
namespace {

// Memory comes in whole pages, so home places and kTail together always fill some.
constexpr uint64_t kPagePlaces = 4096 / 16;

// At a fill of 90 %, the entries pushed past the last home place are 4 on average and more than this once in a million
// arrays, if keys are hashed at random.
constexpr uint64_t kTail = 64;

constexpr int64_t kHalf = int64_t{1} << 31;  // of the times that fit an entry

// The home places of the smallest array with at least `home` of them.
uint64_t WholePages(uint64_t home) { return (home + kTail + kPagePlaces - 1) / kPagePlaces * kPagePlaces - kTail; }

// The home places after a growth: a quarter more, rounded down so that small arrays keep to their bytes a key.
uint64_t Grown(uint64_t home) {
  const uint64_t pages = (home + kTail) / kPagePlaces;
  return std::max(pages + 1, pages + pages / 4) * kPagePlaces - kTail;
}

}  // namespace

inline uint64_t Candidates::Search(uint64_t hash) const {
  const Entry* entry = entries() + Home(hash);
  while (entry->count != 0 && entry->hash < hash) ++entry;
  return static_cast<uint64_t>(entry - entries());
}

uint32_t Candidates::Count(uint64_t hash) const {
  if (size_ == 0) return 0;
  const uint64_t at = Search(hash);
  return Holds(at, hash) ? entries()[at].count : 0;
}

bool Candidates::Find(uint64_t hash, Candidate* found) const {
  if (size_ == 0) return false;
  const uint64_t at = Search(hash);
  if (!Holds(at, hash)) return false;
  *found = Reveal(entries()[at]);
  return true;
}

Status Candidates::Add(uint64_t hash, uint32_t weight, int64_t time, bool* is_new) {
  assert(weight >= 1 && time >= 0);
  uint64_t at = 0;
  if (size_ > 0) {
    at = Search(hash);
    if (Holds(at, hash)) {
      const uint32_t stamp = Stamp(time);
      Entry& entry = entries()[at];
      entry.count += std::min(weight, std::numeric_limits<uint32_t>::max() - entry.count);
      entry.time = std::max(entry.time, stamp);
      *is_new = false;
      return Status();
    }
  }
  if ((size_ + 1) * 10 > home_ * 9) {
    MXREC_RETURN_IF_ERROR(Rebuild(size_ == 0 ? WholePages(1) : Grown(home_), kTail));
    at = Search(hash);
  }
  uint64_t gap = at;
  while (entries()[gap].count != 0) ++gap;
  // Only a longer tail helps, as keys that crowd at the end of a shard would crowd at the end of any array. The places
  // stay the same.
  if (gap + 1 == places()) MXREC_RETURN_IF_ERROR(Rebuild(home_, 2 * (places() - home_)));
  const uint32_t stamp = Stamp(time);
  std::memmove(entries() + at + 1, entries() + at, (gap - at) * sizeof(Entry));
  entries()[at] = {hash, weight, stamp};
  ++size_;
  *is_new = true;
  return Status();
}

bool Candidates::Remove(uint64_t hash, Candidate* found) {
  if (size_ == 0) return false;
  const uint64_t at = Search(hash);
  if (!Holds(at, hash)) return false;
  if (found != nullptr) *found = Reveal(entries()[at]);
  // Every entry behind it that is not at home moves one place towards it.
  uint64_t end = at + 1;
  while (entries()[end].count != 0 && Home(entries()[end].hash) != end) ++end;
  std::memmove(entries() + at, entries() + at + 1, (end - at - 1) * sizeof(Entry));
  entries()[end - 1] = Entry{};
  --size_;
  Shrink();
  return true;
}

int64_t Candidates::RemoveUntil(int64_t time) {
  if (size_ == 0 || time < base_) return 0;
  // The difference may exceed an int64, but no uint64.
  const uint64_t until = static_cast<uint64_t>(time) - static_cast<uint64_t>(base_);
  const uint64_t before = size_;
  uint64_t next = 0;  // the first place that is not final yet
  for (uint64_t at = 0, left = before; left > 0; ++at) {
    const Entry entry = entries()[at];
    if (entry.count == 0) continue;
    --left;
    entries()[at].count = 0;
    if (entry.time <= until) {
      --size_;
      continue;
    }
    const uint64_t to = std::max(next, Home(entry.hash));  // never behind `at`: there are fewer entries before it
    entries()[to] = entry;
    next = to + 1;
  }
  Shrink();
  return static_cast<int64_t>(before - size_);
}

void Candidates::Clear() {
  pages_ = Pages();
  home_ = 0;
  size_ = 0;
}

uint32_t Candidates::Stamp(int64_t time) {
  if (size_ == 0) base_ = time - kHalf;
  if (time <= base_) return 0;
  const uint64_t since = static_cast<uint64_t>(time) - static_cast<uint64_t>(base_);
  if (since <= std::numeric_limits<uint32_t>::max()) return static_cast<uint32_t>(since);

  const uint64_t shift = since - kHalf;
  for (uint64_t at = 0; at < places(); ++at) {
    uint32_t& stored = entries()[at].time;
    stored = stored > shift ? static_cast<uint32_t>(stored - shift) : 0;
  }
  base_ = time - kHalf;
  return static_cast<uint32_t>(kHalf);
}

Status Candidates::Rebuild(uint64_t home, uint64_t tail) {
  for (;; tail *= 2) {
    const size_t bytes = (home + tail) * sizeof(Entry);
    // Mappings hold what they say. A heap block of 64 KiB to 1 MiB would be a power of two (base/arena.h) and a smaller
    // one, being aligned, leave a gap: 27 to 42 resident bytes a key instead of 21, with 1,000 to 9,000 keys a shard.
    Pages pages(bytes, Pages::Kind::kLazy);
    if (pages.data() == nullptr) {
      return Status::ResourceExhausted("out of memory: cannot make room for " + std::to_string(home + tail) +
                                       " candidates for admission");
    }
    Entry* to = static_cast<Entry*>(pages.data());
    const uint64_t last = pages.bytes() / sizeof(Entry) - 1;
    uint64_t next = 0, left = size_;
    for (uint64_t at = 0; left > 0; ++at) {
      if (entries()[at].count == 0) continue;
      next = std::max(next, PlaceInShard(entries()[at].hash, shard_bits_, home));
      if (next == last) break;
      to[next++] = entries()[at];
      --left;
    }
    if (left > 0) continue;  // the tail was too short
    pages_ = std::move(pages);
    home_ = home;
    return Status();
  }
}

void Candidates::Shrink() {
  if (size_ == 0) return Clear();
  if (size_ * 10 >= home_ * 4) return;
  const uint64_t home = WholePages(size_ * 4 / 3);
  if (home >= home_) return;
  // Without memory for the copy, the sparse array does as well.
  const Status status = Rebuild(home, kTail);
  static_cast<void>(status);
}

}  // namespace mxrec
