#include "table/key_index.h"

#include <cmath>
#include <utility>

#include "base/hash.h"

namespace mxrec {
namespace {

// Chunks read by a search at this fill: 1.13 for a key that is there, 1.35 for one that is not; 1.5 and 3.2 after much
// erasing. At 85 % it would be 1.25 and 1.8, but 2 and 17 after much erasing.
constexpr double kMaxFill = 0.75;

// Smaller chunk arrays are still growing fast and come from the heap; larger ones stay for long, and fill huge pages.
constexpr size_t kFromKernel = size_t{2} << 20;

}  // namespace

KeyIndex::KeyIndex(double stagger) : max_fill_(kMaxFill * std::exp2(-stagger / 2)) {}

inline uint32_t KeyIndex::Match(const Chunk& chunk, int64_t key) {
  uint32_t mask = 0;
  for (int i = 0; i < kPlaces; ++i) mask |= static_cast<uint32_t>(chunk.keys[i] == key) << i;
  return mask & chunk.used;
}

int64_t KeyIndex::Find(uint64_t hash, int64_t key) const {
  if (chunks_ == nullptr) return kNone;
  uint64_t at = hash & mask_;
  // A saturated overflow never ends a search, so the number of chunks does.
  for (uint64_t tries = 0; tries <= mask_; ++tries) {
    const Chunk& chunk = chunks_[at];
    const uint32_t match = Match(chunk, key);
    if (match != 0) return chunk.rows[__builtin_ctz(match)];
    if (chunk.overflow == 0) return kNone;
    at = (at + Step(hash)) & mask_;
  }
  return kNone;
}

int64_t KeyIndex::ProbeLength(uint64_t hash, int64_t key) const {
  if (chunks_ == nullptr) return 0;
  int64_t length = 1;
  for (uint64_t at = hash & mask_; Match(chunks_[at], key) == 0 && chunks_[at].overflow != 0; ++length) {
    if (length > static_cast<int64_t>(mask_)) break;
    at = (at + Step(hash)) & mask_;
  }
  return length;
}

Status KeyIndex::Reserve(int64_t n) {
  if (size_ + n <= limit_) return Status();
  uint64_t chunks = chunks_ == nullptr ? 1 : 2 * (mask_ + 1);
  while (static_cast<int64_t>(chunks * kPlaces * max_fill_) < size_ + n) chunks *= 2;
  const size_t bytes = chunks * sizeof(Chunk);
  Pages pages(bytes, bytes < kFromKernel ? Pages::Kind::kHeap : Pages::Kind::kHuge);
  if (pages.data() == nullptr) {
    return Status::ResourceExhausted("out of memory: cannot grow a key index to " + std::to_string(chunks * kPlaces) +
                                     " places");
  }
  Pages old_pages = std::move(pages_);
  const Chunk* old = chunks_;
  const uint64_t old_chunks = old == nullptr ? 0 : mask_ + 1;
  pages_ = std::move(pages);
  chunks_ = static_cast<Chunk*>(pages_.data());
  mask_ = chunks - 1;
  limit_ = static_cast<int64_t>(chunks * kPlaces * max_fill_);
  size_ = 0;

  // Chunk c of the old array goes to chunk c or c + old_chunks, so both arrays are walked in sequence.
  for (uint64_t c = 0; c < old_chunks; ++c) {
    for (uint32_t used = old[c].used; used != 0; used &= used - 1) {
      const int i = __builtin_ctz(used);
      Insert(HashKey(old[c].keys[i]), old[c].keys[i], old[c].rows[i]);
    }
  }
  return Status();
}

void KeyIndex::Insert(uint64_t hash, int64_t key, uint32_t row) {
  constexpr uint32_t kFull = (1u << kPlaces) - 1;
  uint64_t at = hash & mask_;
  while (chunks_[at].used == kFull) {
    if (chunks_[at].overflow != 255) ++chunks_[at].overflow;
    at = (at + Step(hash)) & mask_;
  }
  Chunk& chunk = chunks_[at];
  const int place = __builtin_ctz(~chunk.used);
  chunk.keys[place] = key;
  chunk.rows[place] = row;
  chunk.used = static_cast<uint8_t>(chunk.used | 1u << place);
  ++size_;
}

uint32_t KeyIndex::Move(uint64_t hash, int64_t key, uint32_t row) {
  uint64_t at = hash & mask_;
  while (Match(chunks_[at], key) == 0) at = (at + Step(hash)) & mask_;
  return std::exchange(chunks_[at].rows[__builtin_ctz(Match(chunks_[at], key))], row);
}

void KeyIndex::Erase(uint64_t hash, int64_t key) {
  uint64_t at = hash & mask_;
  for (;;) {
    Chunk& chunk = chunks_[at];
    const uint32_t match = Match(chunk, key);
    if (match != 0) {
      chunk.used = static_cast<uint8_t>(chunk.used & ~match);
      --size_;
      return;
    }
    if (chunk.overflow != 255) --chunk.overflow;
    at = (at + Step(hash)) & mask_;
  }
}

void KeyIndex::Clear() {
  pages_ = Pages();
  chunks_ = nullptr;
  mask_ = 0;
  size_ = 0;
  limit_ = 0;
}

}  // namespace mxrec
