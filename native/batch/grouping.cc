#include "batch/grouping.h"

#include <algorithm>

#include "base/hash.h"

namespace mxrec {
namespace {

// Positions that one thread counts and deals out to the shards at a time.
constexpr int64_t kPiece = 16384;
// Rough nanoseconds per id of dealing out and of grouping.
constexpr int64_t kDealCost = 4;
constexpr int64_t kGroupCost = 12;

}  // namespace

void Grouping::Build(const std::vector<IdSpan>& features, int shard_bits, const ParallelFor& parallel) {
  int64_t n = 0;
  for (const IdSpan& f : features) n += f.size;
  const int64_t shards = int64_t{1} << shard_bits;
  // Shifting by 64 is undefined; by 63 and 1 it is not.
  auto shard_of = [shard_bits](int64_t id) { return HashKey(id) >> 1 >> (63 - shard_bits); };

  index_.resize(n);
  positions_.resize(n);
  dealt_.resize(n);
  numbers_.resize(n);
  groups_.resize(n);
  Deal(features, shards, shard_of, n, parallel);

  // Each shard numbers its keys by itself; what the shards before it hold is added after.
  shard_starts_.assign(shards + 1, 0);
  const int64_t cost = 1 + n * kGroupCost / shards;
  parallel.Run(shards, cost, [&](int64_t begin, int64_t end) {
    std::vector<int32_t> places;
    for (int64_t s = begin; s < end; ++s) shard_starts_[s + 1] = NumberKeys(s, &places);
  });
  for (int64_t s = 0; s < shards; ++s) shard_starts_[s + 1] += shard_starts_[s];
  keys_.resize(shard_starts_[shards]);
  offsets_.resize(shard_starts_[shards] + 1);
  offsets_.back() = static_cast<int32_t>(n);
  parallel.Run(shards, cost, [&](int64_t begin, int64_t end) {
    for (int64_t s = begin; s < end; ++s) WriteGroups(s);
  });
}

// Copies ids and positions to where their shard's are, in ascending order of positions. Every later access to them is
// sequential.
template <typename ShardOf>
void Grouping::Deal(const std::vector<IdSpan>& features, int64_t shards, ShardOf shard_of, int64_t n,
                    const ParallelFor& parallel) {
  struct Piece {
    const int64_t* ids;
    int64_t size;
    int64_t position;
  };
  std::vector<Piece> pieces;
  int64_t position = 0;
  for (const IdSpan& f : features) {
    for (int64_t from = 0; from < f.size; from += kPiece) {
      const int64_t size = std::min(kPiece, f.size - from);
      pieces.push_back({f.data + from, size, position});
      position += size;
    }
  }
  const int64_t count = static_cast<int64_t>(pieces.size());
  const int64_t cost = count == 0 ? 1 : 1 + n * kDealCost / count;
  // cursors[piece][shard]: first how many ids, then where the next one goes.
  std::vector<int32_t> cursors(count * shards, 0);
  parallel.Run(count, cost, [&](int64_t begin, int64_t end) {
    for (int64_t p = begin; p < end; ++p) {
      int32_t* cursor = cursors.data() + p * shards;
      for (int64_t i = 0; i < pieces[p].size; ++i) ++cursor[shard_of(pieces[p].ids[i])];
    }
  });
  bucket_starts_.resize(shards + 1);
  int32_t next = 0;
  for (int64_t s = 0; s < shards; ++s) {
    bucket_starts_[s] = next;
    for (int64_t p = 0; p < count; ++p) {
      const int32_t size = cursors[p * shards + s];
      cursors[p * shards + s] = next;
      next += size;
    }
  }
  bucket_starts_[shards] = next;
  parallel.Run(count, cost, [&](int64_t begin, int64_t end) {
    for (int64_t p = begin; p < end; ++p) {
      int32_t* cursor = cursors.data() + p * shards;
      for (int64_t i = 0; i < pieces[p].size; ++i) {
        const int64_t id = pieces[p].ids[i];
        dealt_[cursor[shard_of(id)]++] = {id, static_cast<int32_t>(pieces[p].position + i)};
      }
    }
  });
}

// Numbers the distinct keys of a shard in order of first appearance and counts their positions. Returns their number.
//
// Whether an id is new is a coin toss on real data, so nothing but the search itself branches on it: 1.5 times as fast.
int32_t Grouping::NumberKeys(int64_t shard, std::vector<int32_t>* places) {
  const int32_t begin = bucket_starts_[shard], end = bucket_starts_[shard + 1];
  // A small open-addressing set of key numbers; it lives in the cache nearest to the core.
  size_t size = 16;
  while (size < 2 * static_cast<size_t>(end - begin)) size *= 2;
  places->assign(size, -1);
  int32_t* set = places->data();
  const Dealt* dealt = dealt_.data();
  Group* groups = groups_.data() + begin;
  int32_t* numbers = numbers_.data();
  int32_t keys = 0;
  for (int32_t j = begin; j < end; ++j) {
    const int64_t key = dealt[j].id;
    size_t place = HashKey(key) & (size - 1);
    while (set[place] >= 0 && groups[set[place]].key != key) place = (place + 1) & (size - 1);
    groups[keys] = {key, 0};  // overwritten by the next new key unless it is one itself
    const bool is_new = set[place] < 0;
    const int32_t number = is_new ? keys : set[place];
    set[place] = number;
    numbers[j] = number;
    ++groups[number].count;
    keys += is_new;
  }
  return keys;
}

void Grouping::WriteGroups(int64_t shard) {
  const int32_t begin = bucket_starts_[shard], end = bucket_starts_[shard + 1];
  const int32_t first = shard_starts_[shard], keys = shard_starts_[shard + 1] - first;
  // next: where the next position of a key goes. It takes the place of the count.
  Group* groups = groups_.data() + begin;
  int32_t offset = begin;
  for (int32_t u = 0; u < keys; ++u) {
    keys_[first + u] = groups[u].key;
    offsets_[first + u] = offset;
    const int64_t count = groups[u].count;
    groups[u].count = offset;
    offset += static_cast<int32_t>(count);
  }
  for (int32_t j = begin; j < end; ++j) {
    const int32_t position = dealt_[j].position, number = numbers_[j];
    index_[position] = first + number;
    positions_[groups[number].count++] = position;
  }
}

}  // namespace mxrec
