// LoadServed: brings the tables of an exported model to a process that answers with it.
#pragma once

#include <string>
#include <vector>

#include "base/files.h"
#include "base/parallel.h"
#include "base/status.h"
#include "checkpoint/layout.h"
#include "table/registry.h"
#include "table/table.h"

namespace mxrec {

struct ServedTable {
  TableConfig config;
  std::string directory;              // below that of the export's tables
  std::vector<CheckpointFile> files;  // all that the export wrote
};

// Makes the tables in `registry`, each with the rows of its directory below `root`. A table that has rows was loaded
// before and is left alone: nothing changes it. Any number of threads may call this at once; one of them loads. Fails
// as TableReader::Load does; the tables before the one that failed are loaded then.
Status LoadServed(Env& env, const std::string& root, const std::vector<ServedTable>& tables, Registry* registry,
                  const ParallelFor& parallel);

}  // namespace mxrec
