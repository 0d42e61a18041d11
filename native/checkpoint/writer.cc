#include "checkpoint/writer.h"

#include <deque>

#include "base/failure.h"
#include "checkpoint/history_file.h"
#include "checkpoint/output.h"

namespace mxrec {
namespace {

// Slot names come from the user (ftrl's accum_name) and become directories.
Status CheckSlotName(const std::string& table, const std::string& slot) {
  if (slot.empty() || slot.size() > 255 || slot == "." || slot == ".." || IsReserved(slot) ||
      slot.find('/') != std::string::npos) {
    return Status::InvalidArgument("table '" + table + "': the optimizer slot '" + slot +
                                   "' cannot be saved: its name must serve as a directory beside 'key', "
                                   "'embedding', 'deleted' and those of the history, in at most 255 bytes and without "
                                   "'/'");
  }
  return Status();
}

Status WriteDeleted(Env& env, const std::string& directory, const std::vector<int64_t>& keys, const WriteShare& share,
                    std::vector<CheckpointFile>* files) {
  const int64_t first = share.before.erased;
  ColumnOutput column(kDeletedColumn, sizeof(int64_t), {first, first + static_cast<int64_t>(keys.size())},
                      share.writers);
  MXREC_RETURN_IF_ERROR(column.Open(env, directory));
  ColumnOutput::Part part(&column, 0);
  for (const int64_t key : keys) MXREC_RETURN_IF_ERROR(part.Append(&key));
  MXREC_RETURN_IF_ERROR(part.Flush());
  return column.Finish(env, directory, {share.all.erased, sizeof(int64_t)}, files);
}

}  // namespace

SnapshotNumbers NumbersOf(Snapshot* snapshot, const ParallelFor& parallel) {
  snapshot->Prepare(parallel);
  SnapshotNumbers numbers;
  for (int s = 0; s < snapshot->table().shards(); ++s) {
    numbers.rows += snapshot->rows(s);
    numbers.refused += snapshot->refused(s);
    numbers.filter_cells += snapshot->filter_cells(s);
  }
  numbers.erased = static_cast<int64_t>(snapshot->erased().size());
  numbers.now = snapshot->now();
  return numbers;
}

Status WriteTable(Env& env, Snapshot* snapshot, const std::string& directory, int64_t* rows,
                  std::vector<CheckpointFile>* files, const ParallelFor& parallel, const WriteShare* shared) {
  const Table& table = snapshot->table();
  const int64_t dim = table.config().dim;
  std::vector<std::string> names = {kKeyColumn, kEmbeddingColumn};
  for (const SlotSpec& slot : table.layout().slots()) {
    MXREC_RETURN_IF_ERROR(CheckSlotName(table.config().name, slot.name));
    names.push_back(slot.name);
  }
  const SnapshotNumbers own = NumbersOf(snapshot, parallel);
  const WriteShare share = shared == nullptr ? WriteShare{Writers::kAlone, {}, own} : *shared;
  std::vector<int64_t> starts(1, share.before.rows);
  for (int s = 0; s < table.shards(); ++s) starts.push_back(starts.back() + snapshot->rows(s));
  *rows = own.rows;

  const bool is_alone = share.writers == Writers::kAlone;
  MXREC_RETURN_IF_ERROR(is_alone ? env.MakeDirectory(directory) : env.JoinDirectory(directory));
  std::deque<ColumnOutput> columns;
  for (const std::string& name : names) {
    const int64_t width = columns.empty() ? sizeof(int64_t) : dim * static_cast<int64_t>(sizeof(float));
    columns.emplace_back(name, width, starts, share.writers);
    MXREC_RETURN_IF_ERROR(columns.back().Open(env, directory));
  }
  HistoryWriter history(*snapshot, starts, share);
  MXREC_RETURN_IF_ERROR(history.Open(env, directory));

  // A shard's rows are a part of each column; threads share the shards.
  auto write_shard = [&](int shard) {
    std::vector<ColumnOutput::Part> parts;
    parts.reserve(columns.size());
    for (ColumnOutput& column : columns) parts.emplace_back(&column, shard);
    HistoryWriter::Part known(&history, shard);
    MXREC_RETURN_IF_ERROR(snapshot->Walk(
        shard,
        [&](int64_t key, const RowFacts& facts, const float* row) {
          MXREC_RETURN_IF_ERROR(parts[0].Append(&key));
          for (size_t c = 1; c < parts.size(); ++c) {
            MXREC_RETURN_IF_ERROR(parts[c].Append(row + static_cast<int64_t>(c - 1) * dim));
          }
          return known.Row(key, facts);
        },
        [&](const Candidate& candidate) { return known.Refused(candidate); },
        [&](const uint16_t* cells, int64_t n) { return known.Filter(cells, n); }));
    for (ColumnOutput::Part& part : parts) MXREC_RETURN_IF_ERROR(part.Flush());
    return known.Flush();
  };
  Failure failure;
  const int64_t cost = 1 + *rows / table.shards() * dim * static_cast<int64_t>(names.size());  // nanoseconds
  parallel.Run(table.shards(), cost, [&](int64_t begin, int64_t end) {
    for (int64_t s = begin; s < end && !failure.failed(); ++s) {
      const Status status = write_shard(static_cast<int>(s));
      if (!status.ok()) failure.Set(status);
    }
  });
  MXREC_RETURN_IF_ERROR(failure.status());

  files->clear();
  for (size_t c = 0; c < columns.size(); ++c) {
    std::vector<int64_t> numbers = {share.all.rows, sizeof(int64_t)};
    if (c > 0) numbers = {share.all.rows, dim, sizeof(float)};
    MXREC_RETURN_IF_ERROR(columns[c].Finish(env, directory, numbers, files));
  }
  MXREC_RETURN_IF_ERROR(history.Finish(env, directory, files));
  if (!snapshot->all()) MXREC_RETURN_IF_ERROR(WriteDeleted(env, directory, snapshot->erased(), share, files));
  return env.SyncDirectory(directory);
}

}  // namespace mxrec
