// BulkLoader: adds many rows to a table at once, many times faster than Table::Assign. What restores a checkpoint.
#pragma once

#include <cstdint>

#include "base/ownership.h"
#include "base/parallel.h"
#include "base/status.h"
#include "table/table.h"

namespace mxrec {

// REQUIRES: no step is running while it is used.
class BulkLoader {
 public:
  // A key that has a row already, or comes twice, is AlreadyExists; with `replace` it loses what it had, and must not
  // come twice. Keys that are not `owned` are passed over.
  BulkLoader(Table* table, const ParallelFor& parallel, bool replace = false, Ownership owned = Ownership())
      : table_(table), parallel_(parallel), replace_(replace), owned_(owned) {}

  // Makes room in the index for these keys, none of which has a row: they can then be inserted part by part without its
  // growing from part to part.
  Status Reserve(const int64_t* keys, int64_t n);

  // Adds `n` rows: key i gets floats [i * dim, (i + 1) * dim) of columns[0] as its embedding and of columns[1 + s] as
  // its slot s; a null column stands for the initial value. Rows of a shard come in the order of `keys`, whatever the
  // threads. After a failure some of the rows are there.
  Status Insert(const int64_t* keys, const float* const* columns, int64_t n);

  // Insert in two halves, so that the columns need not be there all at once: Place gives the rows, all in memory, their
  // places, and Fill gives each of them its content; until then that is unspecified. Rows without a place, whose keys
  // are not owned or that a failure kept from it, have kNoPlace, which Fill passes over. Fill may run in several
  // threads, for different rows. REQUIRES: the table has no disk tier.
  static constexpr uint32_t kNoPlace = UINT32_MAX;
  Status Place(const int64_t* keys, int64_t n, uint32_t* places);
  void Fill(const int64_t* keys, const uint32_t* places, const float* const* columns, int64_t n) const;

 private:
  class DiskWriter;

  // Calls fn(shard, order, n, &inserted) for each shard, locked alone and with room for them in its index: it inserts
  // the keys at `order`[0, n) and counts the rows that it makes.
  template <typename Fn>
  Status InsertByShard(const int64_t* keys, int64_t n, Fn fn);
  Status PlaceShard(int shard, const int64_t* keys, const uint32_t* order, int64_t n, uint32_t* places,
                    int64_t* inserted);
  Status InsertToTier(int shard, const int64_t* keys, const float* const* columns, const uint32_t* order, int64_t n,
                      int64_t* inserted);
  // Fills in the i-th of these rows.
  void FillRow(const int64_t* keys, const float* const* columns, int64_t i, float* row) const;
  Status HasRow(int64_t key) const;
  // The shard of a key; kNoBucket if it is not owned.
  int64_t BucketOf(int64_t key) const;

  Table* table_;
  const ParallelFor& parallel_;
  const bool replace_;
  const Ownership owned_;
};

}  // namespace mxrec
