#include "checkpoint/writer.h"

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
                  std::vector<CheckpointFile>* files) {
  const int64_t dim = table.config().dim;
  std::vector<std::string> columns = {kKeyColumn, kEmbeddingColumn};
  for (const SlotSpec& slot : table.layout().slots()) {
    MXREC_RETURN_IF_ERROR(CheckSlotName(table.config().name, slot.name));
    columns.push_back(slot.name);
  }

  MXREC_RETURN_IF_ERROR(env.MakeDirectory(directory));
  std::vector<Output> outputs;
  outputs.reserve(columns.size());
  for (const std::string& column : columns) {
    MXREC_RETURN_IF_ERROR(env.MakeDirectory(directory + "/" + column));
    outputs.emplace_back(DataFile(column));
    MXREC_RETURN_IF_ERROR(outputs.back().Open(env, directory));
  }

  std::unique_ptr<HistoryWriter> history;
  if (table.history() != nullptr) MXREC_RETURN_IF_ERROR(HistoryWriter::Open(env, directory, table, &history));

  int64_t n = 0;
  Status status;
  const Status read = table.ForEachRow(
      [&](int64_t key, int64_t handle, const float* row) {
        if (!status.ok()) return;  // a walk cannot be left early; it can be idle
        status = outputs[0].Append(&key, sizeof(key));
        for (size_t c = 1; status.ok() && c < outputs.size(); ++c) {
          status = outputs[c].Append(row + static_cast<int64_t>(c - 1) * dim, dim * sizeof(float));
        }
        if (status.ok() && history != nullptr) status = history->AddRow(key, handle);
        ++n;
      },
      [&](const Candidate& candidate) {
        if (status.ok()) status = history->AddRefused(candidate);
      });
  MXREC_RETURN_IF_ERROR(read);
  MXREC_RETURN_IF_ERROR(status);

  files->clear();
  for (size_t c = 0; c < columns.size(); ++c) {
    const std::vector<int64_t> numbers =
        c == 0 ? std::vector<int64_t>{n, sizeof(int64_t)} : std::vector<int64_t>{n, dim, sizeof(float)};
    MXREC_RETURN_IF_ERROR(FinishColumn(env, directory, columns[c], numbers, &outputs[c], files));
  }
  if (history != nullptr) MXREC_RETURN_IF_ERROR(history->Finish(files));
  *rows = n;
  return env.SyncDirectory(directory);
}

}  // namespace mxrec
