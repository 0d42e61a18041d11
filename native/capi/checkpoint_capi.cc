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
#include "table/snapshot.h"

using mxrec::CheckpointFile;
using mxrec::Env;
using mxrec::Snapshot;
using mxrec::Status;
using mxrec::Table;
using mxrec::TableReader;

namespace mxrec {
namespace {

// Outside a step TensorFlow's pool is out of reach. Memory bandwidth is used up by a few threads. More of them than
// cores: while some wait for the disk, others make what it shall write, or load what it gave them.
ThreadedFor Threads() {
  return ThreadedFor(static_cast<int>(std::clamp(2 * std::thread::hardware_concurrency(), 4u, 8u)));
}

Status Take(const char* name, int64_t base, bool all, std::unique_ptr<Snapshot>* snapshot) {
  std::shared_ptr<Table> table;
  MXREC_RETURN_IF_ERROR(Registry::Global().Find(name, &table));
  return Snapshot::Take(std::move(table), base, all, snapshot);
}

Status Write(Snapshot* snapshot, const char* directory, int64_t* rows, mxrec_checkpoint_file* files, int32_t capacity,
             int32_t* count) {
  if (static_cast<size_t>(capacity) < 14 + 2 * snapshot->table().layout().slots().size()) {
    return Status::InvalidArgument("room for " + std::to_string(capacity) + " files is too little");
  }
  std::vector<CheckpointFile> written;
  MXREC_RETURN_IF_ERROR(WriteTable(Env::Posix(), snapshot, directory, rows, &written, Threads()));
  for (size_t i = 0; i < written.size(); ++i) {
    std::copy_n(written[i].name.c_str(), written[i].name.size() + 1, files[i].name);
    files[i].bytes = written[i].bytes;
    files[i].crc32c = written[i].crc32c;
  }
  *count = static_cast<int32_t>(written.size());
  return Status();
}

Status Open(const char* name, const char* directory, bool is_delta, std::shared_ptr<Table>* table,
            std::unique_ptr<TableReader>* reader) {
  MXREC_RETURN_IF_ERROR(Registry::Global().Find(name, table));
  return TableReader::Open(Env::Posix(), directory, **table, is_delta, reader);
}

std::vector<CheckpointFile> FilesOf(const mxrec_checkpoint_file* files, int32_t count) {
  std::vector<CheckpointFile> all;
  for (int32_t i = 0; i < count; ++i) all.push_back({files[i].name, files[i].bytes, files[i].crc32c});
  return all;
}

Status Verify(const char* name, const char* directory, bool is_delta, const std::vector<CheckpointFile>& expected,
              bool contents) {
  std::shared_ptr<Table> table;
  std::unique_ptr<TableReader> reader;
  MXREC_RETURN_IF_ERROR(Open(name, directory, is_delta, &table, &reader));
  return reader->Verify(expected, contents, Threads());
}

Status Load(const char* name, const char* directory, bool is_delta, const std::vector<CheckpointFile>& expected,
            int64_t* rows) {
  std::shared_ptr<Table> table;
  std::unique_ptr<TableReader> reader;
  MXREC_RETURN_IF_ERROR(Open(name, directory, is_delta, &table, &reader));
  MXREC_RETURN_IF_ERROR(reader->Load(table.get(), expected, Threads()));
  *rows = reader->rows();
  return Status();
}

}  // namespace
}  // namespace mxrec

extern "C" {

int mxrec_snapshot_take(const char* table, int64_t base, int32_t all, mxrec_snapshot** snapshot, int64_t* facts) {
  std::unique_ptr<Snapshot> taken;
  const Status status = mxrec::Take(table, base, all != 0, &taken);
  if (status.ok()) {
    facts[0] = taken->moment();
    facts[1] = taken->table_rows();
    *snapshot = reinterpret_cast<mxrec_snapshot*>(taken.release());
  }
  return mxrec::Report(status);
}

int mxrec_snapshot_write(mxrec_snapshot* snapshot, const char* directory, int64_t* rows, mxrec_checkpoint_file* files,
                         int32_t capacity, int32_t* count) {
  return mxrec::Report(mxrec::Write(reinterpret_cast<Snapshot*>(snapshot), directory, rows, files, capacity, count));
}

void mxrec_snapshot_end(mxrec_snapshot* snapshot) { delete reinterpret_cast<Snapshot*>(snapshot); }

int mxrec_table_follow_changes(const char* name, int32_t keys) {
  std::shared_ptr<Table> table;
  Status status = mxrec::Registry::Global().Find(name, &table);
  if (status.ok()) status = table->FollowChanges(keys != 0);
  return mxrec::Report(status);
}

int mxrec_table_moment(const char* name, int64_t* moment) {
  std::shared_ptr<Table> table;
  const Status status = mxrec::Registry::Global().Find(name, &table);
  if (status.ok()) *moment = table->Moment();
  return mxrec::Report(status);
}

int mxrec_table_knows_since(const char* name, int64_t moment, int32_t* known) {
  std::shared_ptr<Table> table;
  const Status status = mxrec::Registry::Global().Find(name, &table);
  if (status.ok()) *known = table->KnowsSince(moment) ? 1 : 0;
  return mxrec::Report(status);
}

int mxrec_checkpoint_verify(const char* table, const char* directory, int32_t is_delta,
                            const mxrec_checkpoint_file* expected, int32_t count, int32_t contents) {
  return mxrec::Report(mxrec::Verify(table, directory, is_delta != 0, mxrec::FilesOf(expected, count), contents != 0));
}

int mxrec_checkpoint_load(const char* table, const char* directory, int32_t is_delta,
                          const mxrec_checkpoint_file* expected, int32_t count, int64_t* rows) {
  return mxrec::Report(mxrec::Load(table, directory, is_delta != 0, mxrec::FilesOf(expected, count), rows));
}

uint32_t mxrec_crc32c(uint32_t crc, const void* data, int64_t n) {
  return mxrec::crc32c::Extend(crc, data, static_cast<size_t>(n));
}

}  // extern "C"
