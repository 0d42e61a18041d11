#include "store/frames.h"

namespace mxrec {

Status Frames::Occupy(int shard, uint32_t row, int64_t key, int64_t use) {
  MXREC_RETURN_IF_ERROR(column_.Reserve(row));
  Shard& s = shards_[shard];
  Frame& frame = column_.at(row);
  // A row that was vacated may still stand in a queue, and keeps its place.
  if ((frame.word.load(std::memory_order_relaxed) & kQueued) == 0) s.small.push_back(row);
  frame.key = key;
  frame.word.store(Word(use, 0), std::memory_order_relaxed);
  ++s.occupied;
  return Status();
}

void Frames::Vacate(int shard, uint32_t row) {
  word(row).store(word(row).load(std::memory_order_relaxed) & kQueued, std::memory_order_relaxed);
  --shards_[shard].occupied;
}

void Frames::Spare(int shard, uint32_t row) {
  PutInMain(&shards_[shard], row);
  word(row).store(Word(0, 0), std::memory_order_relaxed);
}

// Behind the hand, which comes there last.
void Frames::PutInMain(Shard* shard, uint32_t row) {
  if (shard->holes.empty()) {
    shard->main.push_back(row);
    return;
  }
  shard->main[shard->holes.back()] = row;
  shard->holes.pop_back();
}

std::vector<uint32_t> Frames::Victims(int shard, int64_t oldest, int64_t n) {
  Shard& s = shards_[shard];
  std::vector<uint32_t> rows;
  FromSmall(&s, small_, oldest, n, &rows);
  FromMain(&s, oldest, n, &rows);
  // Where all of the main queue is in use, the small one is not spared either.
  FromSmall(&s, 0, oldest, n, &rows);
  FromMain(&s, oldest, n, &rows);
  return rows;
}

// Goes through the queue once, as long as it has more than `keep` rows.
void Frames::FromSmall(Shard* shard, int64_t keep, int64_t oldest, int64_t n, std::vector<uint32_t>* rows) {
  std::deque<uint32_t>& small = shard->small;
  for (size_t left = small.size(); left > 0 && static_cast<int64_t>(small.size()) > keep; --left) {
    if (static_cast<int64_t>(rows->size()) >= n) return;
    if (small.size() > 8) Prefetch(small[8]);
    const uint32_t at = small.front();
    small.pop_front();
    const uint64_t now = word(at).load(std::memory_order_relaxed);
    if ((now & kOccupied) == 0) {
      word(at).store(0, std::memory_order_relaxed);
    } else if (Stamp(now) >= oldest) {
      small.push_back(at);
    } else if (Count(now) > 0) {
      PutInMain(shard, at);
    } else {
      word(at).store(now & ~kQueued, std::memory_order_relaxed);
      rows->push_back(at);
    }
  }
}

void Frames::FromMain(Shard* shard, int64_t oldest, int64_t n, std::vector<uint32_t>* rows) {
  std::vector<uint32_t>& main = shard->main;
  // After so many rounds every counter is 0, and what is left is in use.
  for (size_t left = (kMaxCount + 1) * main.size(); left > 0; --left) {
    if (static_cast<int64_t>(rows->size()) >= n) return;
    if (shard->hand >= main.size()) shard->hand = 0;
    const size_t place = shard->hand++;
    if (shard->hand + 8 < main.size() && main[shard->hand + 8] != kHole) Prefetch(main[shard->hand + 8]);
    const uint32_t at = main[place];
    if (at == kHole) continue;
    const uint64_t now = word(at).load(std::memory_order_relaxed);
    const bool is_vacant = (now & kOccupied) == 0;
    if (!is_vacant && Stamp(now) >= oldest) continue;
    if (!is_vacant && Count(now) > 0) {
      word(at).store(Word(Stamp(now), Count(now) - 1), std::memory_order_relaxed);
      continue;
    }
    main[place] = kHole;
    shard->holes.push_back(static_cast<uint32_t>(place));
    word(at).store(now & ~kQueued, std::memory_order_relaxed);
    if (!is_vacant) rows->push_back(at);
  }
}

int64_t Frames::bytes(int shard) const {
  const Shard& s = shards_[shard];
  return static_cast<int64_t>((s.small.size() + s.main.size()) * (sizeof(Frame) + sizeof(uint32_t)));
}

void Frames::Clear() {
  column_.Clear();
  for (Shard& s : shards_) s = Shard();
}

}  // namespace mxrec
