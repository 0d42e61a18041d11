#include "checkpoint/history_file.h"

#include <algorithm>
#include <atomic>
#include <mutex>

#include "checkpoint/output.h"

namespace mxrec {
namespace {

constexpr int64_t kTriple = 3;
constexpr int64_t kWord = sizeof(int64_t);

Status Damaged(const std::string& path, const std::string& what) {
  return Status::DataLoss("checkpoint file '" + path + "' is damaged: " + what + "; restore another checkpoint");
}

const int64_t* Words(const FileView& file) { return reinterpret_cast<const int64_t*>(file.data()); }

}  // namespace

Status WriteHistory(Env& env, const std::string& directory, const Table& table, const Table::Still& still,
                    std::vector<CheckpointFile>* files) {
  const History& known = *table.history();
  auto open = [&](Output* out, const char* column) {
    MXREC_RETURN_IF_ERROR(env.MakeDirectory(directory + "/" + column));
    return out->Open(env, directory);
  };
  auto finish = [&](Output* out, const char* column, const std::vector<int64_t>& attribute) {
    CheckpointFile data;
    MXREC_RETURN_IF_ERROR(out->Finish(&data));
    return FinishColumn(env, directory, column, attribute, std::move(data), files);
  };
  Output history(DataFile(kHistoryColumn)), steps(DataFile(kStepColumn));
  MXREC_RETURN_IF_ERROR(open(&history, kHistoryColumn));
  MXREC_RETURN_IF_ERROR(open(&steps, kStepColumn));
  const int64_t now = known.now();
  MXREC_RETURN_IF_ERROR(history.Append(&now, sizeof(now)));
  int64_t triples = 0, rows = 0;
  Status status;
  auto add = [&](int64_t key, int64_t count, int64_t time) {
    const int64_t triple[kTriple] = {key, count, time};
    ++triples;
    if (status.ok()) status = history.Append(triple, sizeof(triple));
  };
  for (int s = 0; s < table.shards(); ++s) {
    MXREC_RETURN_IF_ERROR(still.ForEach(
        s,
        [&](int64_t key, int64_t handle) {
          const RowFacts& facts = known.facts(static_cast<uint32_t>(handle));
          const int64_t step = facts.step;
          ++rows;
          if (status.ok()) status = steps.Append(&step, sizeof(step));
          add(key, facts.count, facts.time);
        },
        [&](const Candidate& candidate) { add(candidate.key, candidate.count, candidate.time); }));
    MXREC_RETURN_IF_ERROR(status);
  }
  MXREC_RETURN_IF_ERROR(finish(&history, kHistoryColumn, {triples, kTriple, kWord}));
  MXREC_RETURN_IF_ERROR(finish(&steps, kStepColumn, {rows, kWord}));

  const Tracking tracking = known.tracking();
  const int32_t thresholds[] = {static_cast<int32_t>(tracking.access_threshold),
                                static_cast<int32_t>(tracking.eviction_threshold), 1};
  Output out(DataFile(kThresholdColumn));
  MXREC_RETURN_IF_ERROR(open(&out, kThresholdColumn));
  MXREC_RETURN_IF_ERROR(out.Append(thresholds, sizeof(thresholds)));
  MXREC_RETURN_IF_ERROR(finish(&out, kThresholdColumn, {3, sizeof(int32_t)}));
  if (tracking.filter_bytes == 0) return Status();

  Output filter(DataFile(kFilterColumn));
  MXREC_RETURN_IF_ERROR(open(&filter, kFilterColumn));
  int64_t cells = 0;
  for (int shard = 0; shard < table.shards(); ++shard) {
    const AdmissionFilter& part = *known.filter(shard);
    MXREC_RETURN_IF_ERROR(filter.Append(part.cells(), part.size() * sizeof(uint16_t)));
    cells += part.size();
  }
  return finish(&filter, kFilterColumn, {cells, sizeof(uint16_t)});
}

Status HistoryReader::Open(Env& env, const std::string& directory, const Table& table, HistoryReader* reader) {
  reader->directory_ = directory;
  reader->is_wanted_ = table.history() != nullptr;
  if (!reader->is_wanted_) return Status();
  const std::pair<const char*, std::unique_ptr<FileView>*> files[] = {
      {kHistoryColumn, &reader->history_}, {kStepColumn, &reader->steps_}, {kFilterColumn, &reader->filter_}};
  for (const auto& [column, view] : files) {
    const Status status = env.Map(directory + "/" + DataFile(column), view);
    if (!status.ok() && status.code() != Status::Code::kNotFound) return status;
  }
  return Status();
}

const FileView* HistoryReader::Find(const std::string& file, bool* wanted) const {
  *wanted = is_wanted_;
  if (file == DataFile(kHistoryColumn)) return history_.get();
  if (file == DataFile(kStepColumn)) return steps_.get();
  if (file == DataFile(kFilterColumn)) return filter_.get();
  *wanted = false;
  return nullptr;
}

Status HistoryReader::Check(int64_t rows) const {
  if (history_ != nullptr) {
    const std::string path = directory_ + "/" + DataFile(kHistoryColumn);
    if (history_->size() % kWord != 0 || history_->size() / kWord % kTriple != 1) {
      return Damaged(path, "its " + std::to_string(history_->size()) + " bytes are no clock and whole records");
    }
    const int64_t* words = Words(*history_);
    if (words[0] < 0) return Damaged(path, "its clock stands at " + std::to_string(words[0]));
    for (int64_t i = 1; i < history_->size() / kWord; i += kTriple) {
      if (words[i + 1] >= 0 && words[i + 1] <= UINT32_MAX && words[i + 2] >= 0) continue;
      return Damaged(path, "key " + std::to_string(words[i]) + " has count " + std::to_string(words[i + 1]) +
                               " and time " + std::to_string(words[i + 2]));
    }
  }
  if (steps_ != nullptr && steps_->size() != rows * kWord) {
    return Damaged(directory_ + "/" + DataFile(kStepColumn),
                   "it has " + std::to_string(steps_->size()) + " bytes, expected " + std::to_string(rows * kWord));
  }
  for (int64_t i = 0; steps_ != nullptr && i < rows; ++i) {
    const int64_t step = Words(*steps_)[i];
    if (step >= 0 && step <= UINT32_MAX) continue;
    return Damaged(directory_ + "/" + DataFile(kStepColumn),
                   "row " + std::to_string(i) + " has step " + std::to_string(step));
  }
  return Status();
}

Status HistoryReader::Load(Table* table, const int64_t* keys, int64_t rows, const ParallelFor& parallel) const {
  History* history = table->history();
  if (history == nullptr) return Status();
  constexpr int64_t kCost = 150;  // nanoseconds: two cache misses and a lock
  if (history_ != nullptr) {
    const int64_t* words = Words(*history_);
    history->SetClock(words[0], history->step());
    std::mutex mutex;
    Status failure;
    parallel.Run(history_->size() / kWord / kTriple, kCost, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const int64_t* triple = words + 1 + i * kTriple;
        RowFacts facts;
        facts.count = static_cast<uint32_t>(triple[1]);
        facts.time = triple[2];
        const Status status = table->SetFacts(triple[0], facts);
        if (status.ok()) continue;
        std::lock_guard<std::mutex> lock(mutex);
        failure = status;
        return;
      }
    });
    MXREC_RETURN_IF_ERROR(failure);
  }
  if (steps_ != nullptr) {
    parallel.Run(rows, kCost, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        RowFacts facts = table->Facts(keys[i]);
        facts.step = static_cast<uint32_t>(Words(*steps_)[i]);
        (void)table->SetFacts(keys[i], facts);  // the key has a row, so no memory is needed
      }
    });
  }
  int64_t cells = 0;
  for (int shard = 0; shard < table->shards() && history->filter(0) != nullptr; ++shard) {
    cells += history->filter(shard)->size();
  }
  // A filter of another size cannot be taken over; its counts begin anew.
  if (filter_ == nullptr || cells == 0 || filter_->size() != cells * static_cast<int64_t>(sizeof(uint16_t))) {
    return Status();
  }
  const uint16_t* from = reinterpret_cast<const uint16_t*>(filter_->data());
  for (int shard = 0; shard < table->shards(); ++shard) {
    AdmissionFilter* filter = history->filter(shard);
    std::copy_n(from, filter->size(), filter->cells());
    from += filter->size();
  }
  return Status();
}

}  // namespace mxrec
