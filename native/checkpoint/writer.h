// The writing side of layout.h.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/files.h"
#include "base/status.h"
#include "checkpoint/layout.h"
#include "table/table.h"

namespace mxrec {

// Writes all rows of `table` into the new directory `directory` and returns when they have reached the disk, the name
// of `directory` itself excepted. `rows` and `files` tell what was written. An empty table gives empty data files.
//
// Rows, slots, counts and times belong to one instant: no step may be running meanwhile (Table::Still). After a failure
// the directory holds something incomplete: remove it. The files do not depend on the number of threads.
Status WriteTable(Env& env, const Table& table, const std::string& directory, int64_t* rows,
                  std::vector<CheckpointFile>* files, const ParallelFor& parallel = SerialFor());

}  // namespace mxrec
