#include "checkpoint/served_tables.h"

#include <memory>
#include <mutex>

#include "checkpoint/reader.h"

namespace mxrec {

Status LoadServed(Env& env, const std::string& root, const std::vector<ServedTable>& tables, Registry* registry,
                  const ParallelFor& parallel) {
  static std::mutex loading;
  std::lock_guard<std::mutex> lock(loading);
  for (const ServedTable& served : tables) {
    std::shared_ptr<Table> table;
    MXREC_RETURN_IF_ERROR(registry->FindOrCreate(served.config, &table));
    if (table->inserted() > 0) continue;
    std::unique_ptr<TableReader> reader;
    MXREC_RETURN_IF_ERROR(TableReader::Open(env, root + "/" + served.directory, *table, false, &reader));
    MXREC_RETURN_IF_ERROR(reader->Load(table.get(), served.files, parallel));
  }
  return Status();
}

}  // namespace mxrec
