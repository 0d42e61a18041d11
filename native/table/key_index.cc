#include "table/key_index.h"

#include <cmath>
#include <cstring>

#include "base/hash.h"

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

namespace mxrec {
namespace {

// Above 86 % probe paths lengthen quickly; below half of it memory is wasted on empty places.
constexpr double kMaxFill = 0.86;

// Smaller chunk arrays are still growing fast and come from the heap; larger ones stay for long.
constexpr size_t kFromKernel = size_t{4} << 20;

// While rehashing, the keys of rows this far ahead are already on their way from memory.
constexpr int kAhead = 16;

}  // namespace

KeyIndex::KeyIndex(double stagger) : max_fill_(kMaxFill * std::exp2(-stagger)) {}

// A bit per place whose tag is `tag`.
inline uint32_t KeyIndex::Match(const Chunk& chunk, uint8_t tag) {
#if defined(__SSE2__)
  const __m128i head = _mm_load_si128(reinterpret_cast<const __m128i*>(&chunk));
  const __m128i equal = _mm_cmpeq_epi8(head, _mm_set1_epi8(static_cast<char>(tag)));
  return static_cast<uint32_t>(_mm_movemask_epi8(equal)) & ((1u << kPlaces) - 1);
#else
  uint32_t mask = 0;
  for (int i = 0; i < kPlaces; ++i) mask |= static_cast<uint32_t>(chunk.tags[i] == tag) << i;
  return mask;
#endif
}

int64_t KeyIndex::Find(uint64_t hash, int64_t key, const MemoryStore& store) const {
  if (chunks_ == nullptr) return kNone;
  const uint8_t tag = Tag(hash);
  uint64_t at = hash & mask_;
  // A saturated overflow never ends a search, so the number of chunks does.
  for (uint64_t tries = 0; tries <= mask_; ++tries) {
    const Chunk& chunk = chunks_[at];
    for (uint32_t m = Match(chunk, tag); m != 0; m &= m - 1) {
      const uint32_t row = chunk.rows[__builtin_ctz(m)];
      if (store.key(row) == key) return row;
    }
    if (chunk.overflow == 0) return kNone;
    at = (at + Step(tag)) & mask_;
  }
  return kNone;
}

int64_t KeyIndex::Hint(uint64_t hash) const {
  if (chunks_ == nullptr) return kNone;
  const uint8_t tag = Tag(hash);
  uint64_t at = hash & mask_;
  for (uint64_t tries = 0; tries <= mask_; ++tries) {
    const Chunk& chunk = chunks_[at];
    const uint32_t m = Match(chunk, tag);
    if (m != 0) return chunk.rows[__builtin_ctz(m)];
    if (chunk.overflow == 0) return kNone;
    at = (at + Step(tag)) & mask_;
  }
  return kNone;
}

Status KeyIndex::Reserve(int64_t n, const MemoryStore& store) {
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

  // Rows wait in a short queue between the moment their key is requested from memory and the moment it is needed.
  uint32_t queue[kAhead];
  int64_t head = 0, tail = 0;
  auto move_one = [&] {
    const uint32_t row = queue[tail++ % kAhead];
    Insert(HashKey(store.key(row)), row);
  };
  for (uint64_t c = 0; c < old_chunks; ++c) {
    for (int i = 0; i < kPlaces; ++i) {
      if (old[c].tags[i] == 0) continue;
      if (head - tail == kAhead) move_one();
      store.PrefetchKey(old[c].rows[i]);
      queue[head++ % kAhead] = old[c].rows[i];
    }
  }
  while (tail < head) move_one();
  return Status();
}

void KeyIndex::Insert(uint64_t hash, uint32_t row) {
  const uint8_t tag = Tag(hash);
  uint64_t at = hash & mask_;
  for (;;) {
    Chunk& chunk = chunks_[at];
    const uint32_t empty = Match(chunk, 0);
    if (empty != 0) {
      const int place = __builtin_ctz(empty);
      chunk.tags[place] = tag;
      chunk.rows[place] = row;
      ++size_;
      return;
    }
    if (chunk.overflow != 255) ++chunk.overflow;
    at = (at + Step(tag)) & mask_;
  }
}

void KeyIndex::Erase(uint64_t hash, uint32_t row) {
  const uint8_t tag = Tag(hash);
  uint64_t at = hash & mask_;
  for (;;) {
    Chunk& chunk = chunks_[at];
    for (uint32_t m = Match(chunk, tag); m != 0; m &= m - 1) {
      const int place = __builtin_ctz(m);
      if (chunk.rows[place] == row) {
        chunk.tags[place] = 0;
        --size_;
        return;
      }
    }
    if (chunk.overflow != 255) --chunk.overflow;
    at = (at + Step(tag)) & mask_;
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
