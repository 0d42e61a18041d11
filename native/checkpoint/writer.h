// The writing side of layout.h.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/files.h"
#include "base/status.h"
#include "checkpoint/history_file.h"
#include "checkpoint/layout.h"
#include "table/snapshot.h"

namespace mxrec {

// Counts what a snapshot holds.
SnapshotNumbers NumbersOf(Snapshot* snapshot, const ParallelFor& parallel);

// Writes a snapshot into the new directory `directory` and returns when it has reached the disk, the name of
// `directory` itself excepted. `rows` and `files` tell what was written. An empty table gives empty data files.
//
// With several writers, `files` tells of each file what this rank has written of it, and `rows` how many of them are
// this rank's; the directory may be there already.
//
// After a failure the directory holds something incomplete: remove it. A snapshot can be written once. The files do not
// depend on the number of threads.
Status WriteTable(Env& env, Snapshot* snapshot, const std::string& directory, int64_t* rows,
                  std::vector<CheckpointFile>* files, const ParallelFor& parallel = SerialFor(),
                  const WriteShare* share = nullptr);

}  // namespace mxrec
