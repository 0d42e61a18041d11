#include "capi/checkpoint_capi.h"

#include <algorithm>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/crc32c.h"
#include "base/files.h"
#include "base/parallel.h"
#include "capi/error.h"
#include "checkpoint/reader.h"
#include "checkpoint/writer.h"
#include "table/registry.h"

using mxrec::CheckpointFile;
using mxrec::Env;
using mxrec::Status;
using mxrec::Table;
using mxrec::TableReader;

namespace mxrec {
namespace {

// Outside a step TensorFlow's pool is out of reach. Memory bandwidth is used up by a few threads.
ThreadedFor Threads() { return ThreadedFor(static_cast<int>(std::clamp(std::thread::hardware_concurrency(), 1u, 8u))); }

Status Save(const char* name, const char* directory, int64_t* rows, mxrec_checkpoint_file* files, int32_t capacity,
            int32_t* count) {
  std::shared_ptr<Table> table;
  MXREC_RETURN_IF_ERROR(Registry::Global().Find(name, &table));
  if (static_cast<size_t>(capacity) < 12 + 2 * table->layout().slots().size()) {
    return Status::InvalidArgument("room for " + std::to_string(capacity) + " files is too little");
  }
  std::vector<CheckpointFile> written;
  MXREC_RETURN_IF_ERROR(WriteTable(Env::Posix(), *table, directory, rows, &written, Threads()));
  for (size_t i = 0; i < written.size(); ++i) {
    std::copy_n(written[i].name.c_str(), written[i].name.size() + 1, files[i].name);
    files[i].bytes = written[i].bytes;
    files[i].crc32c = written[i].crc32c;
  }
  *count = static_cast<int32_t>(written.size());
  return Status();
}

Status Open(const char* name, const char* directory, std::shared_ptr<Table>* table,
            std::unique_ptr<TableReader>* reader) {
  MXREC_RETURN_IF_ERROR(Registry::Global().Find(name, table));
  return TableReader::Open(Env::Posix(), directory, **table, reader);
}

Status Verify(const char* name, const char* directory, const std::vector<CheckpointFile>& expected) {
  std::shared_ptr<Table> table;
  std::unique_ptr<TableReader> reader;
  MXREC_RETURN_IF_ERROR(Open(name, directory, &table, &reader));
  return reader->Verify(expected, Threads());
}

Status Load(const char* name, const char* directory, int64_t* rows) {
  std::shared_ptr<Table> table;
  std::unique_ptr<TableReader> reader;
  MXREC_RETURN_IF_ERROR(Open(name, directory, &table, &reader));
  MXREC_RETURN_IF_ERROR(reader->Load(table.get(), Threads()));
  *rows = reader->rows();
  return Status();
}

}  // namespace
}  // namespace mxrec

extern "C" {

int mxrec_checkpoint_save(const char* table, const char* directory, int64_t* rows, mxrec_checkpoint_file* files,
                          int32_t capacity, int32_t* count) {
  return mxrec::Report(mxrec::Save(table, directory, rows, files, capacity, count));
}

int mxrec_checkpoint_verify(const char* table, const char* directory, const mxrec_checkpoint_file* expected,
                            int32_t count) {
  std::vector<CheckpointFile> files;
  for (int32_t i = 0; i < count; ++i) files.push_back({expected[i].name, expected[i].bytes, expected[i].crc32c});
  return mxrec::Report(mxrec::Verify(table, directory, files));
}

int mxrec_checkpoint_load(const char* table, const char* directory, int64_t* rows) {
  return mxrec::Report(mxrec::Load(table, directory, rows));
}

uint32_t mxrec_crc32c(uint32_t crc, const void* data, int64_t n) {
  return mxrec::crc32c::Extend(crc, data, static_cast<size_t>(n));
}

}  // extern "C"
