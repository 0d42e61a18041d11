#include "checkpoint/writer.h"

#include <mutex>

#include "checkpoint/history_file.h"
#include "checkpoint/output.h"

namespace mxrec {
namespace {

// Slot names come from the user (ftrl's accum_name) and become directories.
Status CheckSlotName(const std::string& table, const std::string& slot) {
  if (slot.empty() || slot.size() > 255 || slot == "." || slot == ".." || slot == kKeyColumn ||
      slot == kEmbeddingColumn || IsHistoryColumn(slot) || slot.find('/') != std::string::npos) {
    return Status::InvalidArgument("table '" + table + "': the optimizer slot '" + slot +
                                   "' cannot be saved: its name must serve as a directory beside 'key', "
                                   "'embedding' and those of the history, in at most 255 bytes and without '/'");
  }
  return Status();
}

}  // namespace

Status WriteTable(Env& env, const Table& table, const std::string& directory, int64_t* rows,
                  std::vector<CheckpointFile>* files, const ParallelFor& parallel) {
  const int64_t dim = table.config().dim;
  std::vector<std::string> names = {kKeyColumn, kEmbeddingColumn};
  for (const SlotSpec& slot : table.layout().slots()) {
    MXREC_RETURN_IF_ERROR(CheckSlotName(table.config().name, slot.name));
    names.push_back(slot.name);
  }
  const Table::Still still(table);
  std::vector<int64_t> starts(1, 0);
  for (int s = 0; s < table.shards(); ++s) starts.push_back(starts.back() + still.rows(s));
  *rows = starts.back();

  MXREC_RETURN_IF_ERROR(env.MakeDirectory(directory));
  std::vector<ColumnOutput> columns;
  columns.reserve(names.size());
  for (const std::string& name : names) {
    MXREC_RETURN_IF_ERROR(env.MakeDirectory(directory + "/" + name));
    const int64_t width = columns.empty() ? sizeof(int64_t) : dim * static_cast<int64_t>(sizeof(float));
    columns.emplace_back(name, width, table.shards());
    MXREC_RETURN_IF_ERROR(columns.back().Open(env, directory));
  }

  // A shard's rows are a part of each column; threads share the shards.
  std::mutex mutex;
  Status failure;
  const int64_t cost = 1 + *rows / table.shards() * dim * static_cast<int64_t>(names.size());  // nanoseconds
  parallel.Run(table.shards(), cost, [&](int64_t begin, int64_t end) {
    for (int64_t s = begin; s < end; ++s) {
      std::vector<ColumnOutput::Part> parts;
      for (ColumnOutput& column : columns) parts.emplace_back(&column, static_cast<int>(s), starts[s]);
      Status status = still.ForEachRow(static_cast<int>(s), [&](int64_t key, int64_t, const float* row) {
        MXREC_RETURN_IF_ERROR(parts[0].Append(&key));
        for (size_t c = 1; c < parts.size(); ++c) {
          MXREC_RETURN_IF_ERROR(parts[c].Append(row + static_cast<int64_t>(c - 1) * dim));
        }
        return Status();
      });
      for (ColumnOutput::Part& part : parts) {
        if (status.ok()) status = part.Flush();
      }
      if (status.ok()) continue;
      std::lock_guard<std::mutex> lock(mutex);
      if (failure.ok()) failure = status;
      return;
    }
  });
  MXREC_RETURN_IF_ERROR(failure);

  files->clear();
  for (size_t c = 0; c < columns.size(); ++c) {
    std::vector<int64_t> numbers = {*rows, sizeof(int64_t)};
    if (c > 0) numbers = {*rows, dim, sizeof(float)};
    CheckpointFile data;
    MXREC_RETURN_IF_ERROR(columns[c].Finish(&data));
    MXREC_RETURN_IF_ERROR(FinishColumn(env, directory, names[c], numbers, std::move(data), files));
  }
  if (table.history() != nullptr) MXREC_RETURN_IF_ERROR(WriteHistory(env, directory, table, still, files));
  return env.SyncDirectory(directory);
}

}  // namespace mxrec
