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

SnapshotNumbers FromC(const int64_t* numbers) { return {numbers[0], numbers[1], numbers[2], numbers[3], numbers[4]}; }

Status Write(Snapshot* snapshot, const char* directory, const WriteShare* share, int64_t* rows,
             mxrec_checkpoint_file* files, int32_t capacity, int32_t* count) {
  if (static_cast<size_t>(capacity) < 14 + 2 * snapshot->table().layout().slots().size()) {
    return Status::InvalidArgument("room for " + std::to_string(capacity) + " files is too little");
  }
  std::vector<CheckpointFile> written;
  MXREC_RETURN_IF_ERROR(WriteTable(Env::Posix(), snapshot, directory, rows, &written, Threads(), share));
  for (size_t i = 0; i < written.size(); ++i) {
    std::copy_n(written[i].name.c_str(), written[i].name.size() + 1, files[i].name);
    files[i].bytes = written[i].bytes;
    files[i].crc32c = written[i].crc32c;
  }
  *count = static_cast<int32_t>(written.size());
  return Status();
}

std::vector<CheckpointFile> FilesOf(const mxrec_checkpoint_file* files, int32_t count) {
  std::vector<CheckpointFile> all;
  for (int32_t i = 0; i < count; ++i) all.push_back({files[i].name, files[i].bytes, files[i].crc32c});
  return all;
}

struct Reading {
  std::shared_ptr<Table> table;
  std::vector<CheckpointFile> expected;
  std::unique_ptr<TableReader> files;
  bool is_verified = false;
};

Status Open(const char* name, const char* directory, bool is_delta, const ReadScope& scope,
            std::unique_ptr<Reading>* reading) {
  auto r = std::make_unique<Reading>();
  MXREC_RETURN_IF_ERROR(Registry::Global().Find(name, &r->table));
  r->expected = scope.listed;
  MXREC_RETURN_IF_ERROR(TableReader::Open(Env::Posix(), directory, *r->table, is_delta, &r->files, scope));
  *reading = std::move(r);
  return Status();
}

Status Verify(Reading* reading, bool contents, int64_t* rows) {
  MXREC_RETURN_IF_ERROR(reading->files->Verify(reading->expected, contents, Threads()));
  reading->is_verified = contents;
  *rows = reading->files->rows();
  return Status();
}

Status Load(Reading* reading, int64_t* rows) {
  const std::vector<CheckpointFile> nothing;
  MXREC_RETURN_IF_ERROR(
      reading->files->Load(reading->table.get(), reading->is_verified ? nothing : reading->expected, Threads()));
  *rows = reading->files->rows();
  return Status();
}

}  // namespace
}  // namespace mxrec

extern "C" {

int mxrec_snapshot_take(const char* table, int64_t base, int32_t all, mxrec_snapshot** snapshot, int64_t* facts) {
  return mxrec::Guarded([&]() -> Status {
    std::unique_ptr<Snapshot> taken;
    MXREC_RETURN_IF_ERROR(mxrec::Take(table, base, all != 0, &taken));
    facts[0] = taken->moment();
    facts[1] = taken->table_rows();
    *snapshot = reinterpret_cast<mxrec_snapshot*>(taken.release());
    return Status();
  });
}

int mxrec_snapshot_count(mxrec_snapshot* snapshot, int64_t* numbers) {
  return mxrec::Guarded([&]() -> Status {
    const mxrec::SnapshotNumbers own = mxrec::NumbersOf(reinterpret_cast<Snapshot*>(snapshot), mxrec::Threads());
    const int64_t values[] = {own.rows, own.refused, own.filter_cells, own.erased, own.now};
    std::copy(std::begin(values), std::end(values), numbers);
    return Status();
  });
}

int mxrec_snapshot_write(mxrec_snapshot* snapshot, const char* directory, const int64_t* before, const int64_t* all,
                         int32_t is_first, int64_t* rows, mxrec_checkpoint_file* files, int32_t capacity,
                         int32_t* count) {
  return mxrec::Guarded([&] {
    mxrec::WriteShare share;
    if (before != nullptr) {
      const auto writers = is_first != 0 ? mxrec::Writers::kFirst : mxrec::Writers::kOther;
      share = {writers, mxrec::FromC(before), mxrec::FromC(all)};
    }
    return mxrec::Write(reinterpret_cast<Snapshot*>(snapshot), directory, before == nullptr ? nullptr : &share, rows,
                        files, capacity, count);
  });
}

void mxrec_snapshot_end(mxrec_snapshot* snapshot) { delete reinterpret_cast<Snapshot*>(snapshot); }

int mxrec_table_follow_changes(const char* name, int32_t keys) {
  return mxrec::Guarded([&]() -> Status {
    std::shared_ptr<Table> table;
    MXREC_RETURN_IF_ERROR(mxrec::Registry::Global().Find(name, &table));
    return table->FollowChanges(keys != 0);
  });
}

int mxrec_table_moment(const char* name, int64_t* moment) {
  return mxrec::Guarded([&]() -> Status {
    std::shared_ptr<Table> table;
    MXREC_RETURN_IF_ERROR(mxrec::Registry::Global().Find(name, &table));
    *moment = table->Moment();
    return Status();
  });
}

int mxrec_table_knows_since(const char* name, int64_t moment, int32_t* known) {
  return mxrec::Guarded([&]() -> Status {
    std::shared_ptr<Table> table;
    MXREC_RETURN_IF_ERROR(mxrec::Registry::Global().Find(name, &table));
    *known = table->KnowsSince(moment) ? 1 : 0;
    return Status();
  });
}

int mxrec_reader_open(const char* table, const char* directory, int32_t is_delta, int32_t rows_only, int32_t rank,
                      int32_t ranks, int32_t joins, const mxrec_checkpoint_file* expected, int32_t count,
                      mxrec_reader** reader) {
  return mxrec::Guarded([&]() -> Status {
    std::unique_ptr<mxrec::Reading> reading;
    const mxrec::ReadScope scope = {rows_only != 0, mxrec::FilesOf(expected, count), {rank, ranks}, joins != 0};
    MXREC_RETURN_IF_ERROR(mxrec::Open(table, directory, is_delta != 0, scope, &reading));
    *reader = reinterpret_cast<mxrec_reader*>(reading.release());
    return Status();
  });
}

int mxrec_reader_verify(mxrec_reader* reader, int32_t contents, int64_t* rows) {
  return mxrec::Guarded([&] { return mxrec::Verify(reinterpret_cast<mxrec::Reading*>(reader), contents != 0, rows); });
}

int mxrec_reader_load(mxrec_reader* reader, int64_t* rows) {
  return mxrec::Guarded([&] { return mxrec::Load(reinterpret_cast<mxrec::Reading*>(reader), rows); });
}

void mxrec_reader_close(mxrec_reader* reader) { delete reinterpret_cast<mxrec::Reading*>(reader); }

uint32_t mxrec_crc32c(uint32_t crc, const void* data, int64_t n) {
  return mxrec::crc32c::Extend(crc, data, static_cast<size_t>(n));
}

uint32_t mxrec_crc32c_combine(uint32_t a, uint32_t b, int64_t length) { return mxrec::crc32c::Combine(a, b, length); }

}  // extern "C"
