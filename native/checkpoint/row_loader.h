// LoadRows: brings rows from files to a table. Reads every byte of their values once, and holds few of them at a time.
#pragma once

#include <cstdint>
#include <vector>

#include "base/files.h"
#include "base/ownership.h"
#include "base/parallel.h"
#include "base/status.h"
#include "table/table.h"

namespace mxrec {

// Rows as a checkpoint has them (layout.h). REQUIRES: files of the right size.
struct RowSource {
  const int64_t* keys;
  int64_t rows;
  std::vector<const FileView*> columns;  // the embedding, then each slot of the table; null: there is none in the files
  Ownership owned = Ownership();         // rows of other keys are read and summed up, but not inserted
};

// How much is read at once.
struct LoadSizes {
  // So many rows in memory get their places at a time, which takes 8 bytes a row: the disk seldom waits for that.
  int64_t part_rows = 4 << 20;
  // Then each thread fills in so many bytes, of all columns, at a time; with fewer the disk waits.
  int64_t block_bytes = 4 << 20;
  // For a table with a disk tier, which takes its rows from all over what was read, so many bytes are read at a time.
  int64_t tier_bytes = 32 << 20;
};

// Inserts rows (bulk_loader.h). `sums`, unless null, receives the CRC32C of each column, 0 where there is none.
// Takes up to 64 MiB of memory, or a row for each thread. IoError if a file cannot be read. After a failure some of the
// rows are there, with any values. REQUIRES: no step is running.
Status LoadRows(Table* table, const RowSource& source, bool replace, const ParallelFor& parallel,
                std::vector<uint32_t>* sums, const LoadSizes& sizes = LoadSizes());

}  // namespace mxrec
