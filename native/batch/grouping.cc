#include "batch/grouping.h"

#include <algorithm>

#include "base/hash.h"

namespace mxrec {

void Grouping::Build(const std::vector<IdSpan>& features, int shard_bits) {
  int64_t n = 0;
  for (const IdSpan& f : features) n += f.size;
  const int shards = 1 << shard_bits;
  // Shifting by 64 is undefined; by 63 and 1 it is not.
  auto shard_of = [shard_bits](uint64_t hash) { return static_cast<int>(hash >> 1 >> (63 - shard_bits)); };

  ids_.resize(n);
  hashes_.resize(n);
  bucket_.resize(n);
  index_.resize(n);
  positions_.resize(n);
  keys_.clear();
  bucket_starts_.assign(shards + 1, 0);
  shard_starts_.assign(shards + 1, 0);

  int64_t at = 0;
  for (const IdSpan& f : features) {
    std::copy_n(f.data, f.size, ids_.data() + at);
    at += f.size;
  }
  for (int64_t i = 0; i < n; ++i) hashes_[i] = HashKey(ids_[i]);
  for (int64_t i = 0; i < n; ++i) ++bucket_starts_[shard_of(hashes_[i]) + 1];
  for (int s = 0; s < shards; ++s) bucket_starts_[s + 1] += bucket_starts_[s];
  std::vector<int32_t> cursor(bucket_starts_.begin(), bucket_starts_.end() - 1);
  for (int64_t i = 0; i < n; ++i) bucket_[cursor[shard_of(hashes_[i])]++] = static_cast<int32_t>(i);

  offsets_.assign(1, 0);  // offsets_[u + 1] counts first
  for (int s = 0; s < shards; ++s) {
    const int32_t begin = bucket_starts_[s], end = bucket_starts_[s + 1];
    // A small open-addressing set of the shard's keys; it lives in the cache nearest to the core.
    size_t places = 16;
    while (places < 2 * static_cast<size_t>(end - begin)) places *= 2;
    places_.assign(places, -1);
    for (int32_t j = begin; j < end; ++j) {
      const int32_t position = bucket_[j];
      const int64_t key = ids_[position];
      size_t place = hashes_[position] & (places - 1);
      while (places_[place] >= 0 && keys_[places_[place]] != key) place = (place + 1) & (places - 1);
      if (places_[place] < 0) {
        places_[place] = static_cast<int32_t>(keys_.size());
        keys_.push_back(key);
        offsets_.push_back(0);
      }
      const int32_t u = places_[place];
      index_[position] = u;
      ++offsets_[u + 1];
    }
    shard_starts_[s + 1] = static_cast<int32_t>(keys_.size());
  }

  for (size_t u = 0; u + 1 < offsets_.size(); ++u) offsets_[u + 1] += offsets_[u];
  places_.assign(offsets_.begin(), offsets_.end());  // scratch again: where the next position of a key goes
  for (int64_t i = 0; i < n; ++i) positions_[places_[index_[i]]++] = static_cast<int32_t>(i);
}

}  // namespace mxrec
