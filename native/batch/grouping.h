// Grouping: which keys a batch holds for one table, and where.
//
// The positions of a batch are the ids of all features that read the table, one feature after another. Grouping them
// finds the distinct keys, ordered by shard (so that threads own shards without locks) and, within a shard, by first
// appearance; and for each distinct key the list of its positions in ascending order (so that sums over positions add
// in one fixed order, without atomics).
//
// It depends on the ids and the number of shards only: it reads no table and changes nothing.
#pragma once

#include <cstdint>
#include <vector>

#include "base/parallel.h"

namespace mxrec {

struct IdSpan {
  const int64_t* data;
  int64_t size;
};

class Grouping {
 public:
  // Replaces the content. Memory is kept from call to call, so reuse one object per thread.
  // REQUIRES: fewer than 2^31 ids; shard_bits in [0, 8].
  void Build(const std::vector<IdSpan>& features, int shard_bits, const ParallelFor& parallel = SerialFor());

  int64_t positions_size() const { return static_cast<int64_t>(index_.size()); }
  int64_t keys_size() const { return static_cast<int64_t>(keys_.size()); }

  const std::vector<int64_t>& keys() const { return keys_; }                  // [U]
  const std::vector<int32_t>& shard_starts() const { return shard_starts_; }  // [shards + 1], into keys
  const std::vector<int32_t>& index() const { return index_; }                // [N]: position -> key
  const std::vector<int32_t>& offsets() const { return offsets_; }            // [U + 1], into positions
  const std::vector<int32_t>& positions() const { return positions_; }        // [N]: grouped by key, ascending

 private:
  struct Dealt {
    int64_t id;
    int32_t position;
  };
  struct Group {
    int64_t key;
    int64_t count;  // of its positions; then where the next of them goes
  };

  void Deal(const std::vector<IdSpan>& features, int shard_bits, int64_t n, const ParallelFor& parallel);
  int32_t NumberKeys(int64_t shard, std::vector<int32_t>* places);
  void WriteGroups(int64_t shard);

  std::vector<int64_t> keys_;
  std::vector<int32_t> shard_starts_;
  std::vector<int32_t> index_;
  std::vector<int32_t> offsets_;
  std::vector<int32_t> positions_;
  // Scratch.
  std::vector<int32_t> bucket_starts_;  // [shards + 1], into dealt_
  std::vector<Dealt> dealt_;            // [N]: shard after shard
  std::vector<int32_t> numbers_;        // [N]: of the key, within its shard; in the order of dealt_
  std::vector<Group> groups_;           // [N]: a shard's keys begin where its ids do in dealt_
};

}  // namespace mxrec
