#include "checkpoint/history_file.h"

#include <algorithm>
#include <atomic>

#include "base/failure.h"
#include "checkpoint/output.h"

namespace mxrec {
namespace {

constexpr int64_t kTriple = 3;
constexpr int64_t kWord = sizeof(int64_t);

Status Damaged(const std::string& path, const std::string& what) {
  return Status::DataLoss("checkpoint file '" + path + "' is damaged: " + what + "; restore another checkpoint");
}

// `starts`, with `sum` further elements before the first shard, and more(shard) in each.
template <typename More>
std::vector<int64_t> Starts(std::vector<int64_t> starts, int64_t sum, More more) {
  starts[0] += sum;
  for (size_t s = 1; s < starts.size(); ++s) {
    sum += more(static_cast<int>(s - 1));
    starts[s] += sum;
  }
  return starts;
}

const int64_t* Words(const FileView& file) { return reinterpret_cast<const int64_t*>(file.data()); }

}  // namespace

HistoryWriter::HistoryWriter(const Snapshot& snapshot, const std::vector<int64_t>& starts, const WriteShare& share)
    : snapshot_(snapshot),
      share_(share),
      is_wanted_(snapshot.tracking().is_on() || snapshot.table().history() != nullptr),
      records_(Starts(starts, share.before.refused, [&](int shard) { return snapshot.refused(shard); })),
      cells_(Starts(std::vector<int64_t>(starts.size(), 0), share.before.filter_cells,
                    [&](int shard) { return snapshot.filter_cells(shard); })),
      history_(kHistoryColumn, kTriple * kWord, records_, share.writers),
      steps_(kStepColumn, kWord, starts, share.writers),
      filter_(kFilterColumn, sizeof(uint16_t), cells_, share.writers) {}

Status HistoryWriter::Open(Env& env, const std::string& directory) {
  if (!is_wanted_) return Status();
  MXREC_RETURN_IF_ERROR(history_.Open(env, directory, {share_.all.now}));
  MXREC_RETURN_IF_ERROR(steps_.Open(env, directory));
  return share_.all.filter_cells == 0 ? Status() : filter_.Open(env, directory);
}

HistoryWriter::Part::Part(HistoryWriter* writer, int shard)
    : is_wanted_(writer->is_wanted_),
      history_(&writer->history_, shard),
      steps_(&writer->steps_, shard),
      filter_(&writer->filter_, shard) {}

Status HistoryWriter::Part::Record(int64_t key, const RowFacts& facts) {
  const int64_t step = facts.step;
  MXREC_RETURN_IF_ERROR(steps_.Append(&step));
  return Record(key, facts.count, facts.time);
}

Status HistoryWriter::Part::Refused(const Candidate& candidate) {
  return Record(candidate.key, candidate.count, candidate.time);
}

Status HistoryWriter::Part::Record(int64_t key, int64_t count, int64_t time) {
  const int64_t triple[kTriple] = {key, count, time};
  return history_.Append(triple);
}

Status HistoryWriter::Part::Filter(const uint16_t* cells, int64_t n) {
  for (int64_t i = 0; i < n; ++i) MXREC_RETURN_IF_ERROR(filter_.Append(cells + i));
  return Status();
}

Status HistoryWriter::Part::Flush() {
  if (!is_wanted_) return Status();
  MXREC_RETURN_IF_ERROR(history_.Flush());
  MXREC_RETURN_IF_ERROR(steps_.Flush());
  return filter_.Flush();
}

Status HistoryWriter::Finish(Env& env, const std::string& directory, std::vector<CheckpointFile>* files) {
  if (!is_wanted_) return Status();
  MXREC_RETURN_IF_ERROR(history_.Finish(env, directory, {share_.all.rows + share_.all.refused, kTriple, kWord}, files));
  MXREC_RETURN_IF_ERROR(steps_.Finish(env, directory, {share_.all.rows, kWord}, files));

  if (share_.all.filter_cells > 0) {
    MXREC_RETURN_IF_ERROR(filter_.Finish(env, directory, {share_.all.filter_cells, sizeof(uint16_t)}, files));
  }
  return share_.writers == Writers::kOther ? Status() : WriteThresholds(env, directory, files);
}

Status HistoryWriter::WriteThresholds(Env& env, const std::string& directory,
                                      std::vector<CheckpointFile>* files) const {
  const int32_t thresholds[] = {static_cast<int32_t>(snapshot_.tracking().access_threshold),
                                static_cast<int32_t>(snapshot_.tracking().eviction_threshold), 1};
  ColumnOutput threshold(kThresholdColumn, sizeof(thresholds), {0, 1});
  MXREC_RETURN_IF_ERROR(threshold.Open(env, directory));
  ColumnOutput::Part part(&threshold, 0);
  MXREC_RETURN_IF_ERROR(part.Append(thresholds));
  MXREC_RETURN_IF_ERROR(part.Flush());
  return threshold.Finish(env, directory, {3, sizeof(int32_t)}, files);
}

Status HistoryReader::Open(Env& env, const std::string& directory, const Table& table,
                           const std::function<bool(const std::string&)>& includes, HistoryReader* reader) {
  reader->directory_ = directory;
  if (table.history() == nullptr) return Status();
  const std::pair<const char*, File*> files[] = {
      {kHistoryColumn, &reader->history_}, {kStepColumn, &reader->steps_}, {kFilterColumn, &reader->filter_}};
  for (const auto& [column, file] : files) {
    file->is_wanted = includes(column);
    if (!file->is_wanted) continue;
    const Status status = env.Map(directory + "/" + DataFile(column), &file->view);
    if (!status.ok() && status.code() != Status::Code::kNotFound) return status;
  }
  return Status();
}

const FileView* HistoryReader::Find(const std::string& file, bool* wanted) const {
  const std::pair<const char*, const File*> files[] = {
      {kHistoryColumn, &history_}, {kStepColumn, &steps_}, {kFilterColumn, &filter_}};
  for (const auto& [column, held] : files) {
    if (file != DataFile(column)) continue;
    *wanted = held->is_wanted;
    return held->view.get();
  }
  *wanted = false;
  return nullptr;
}

Status HistoryReader::Check(int64_t rows) const {
  if (history_.view != nullptr) {
    const std::string path = directory_ + "/" + DataFile(kHistoryColumn);
    if (history_.view->size() % kWord != 0 || history_.view->size() / kWord % kTriple != 1) {
      return Damaged(path, "its " + std::to_string(history_.view->size()) + " bytes are no clock and whole records");
    }
    const int64_t* words = Words(*history_.view);
    if (words[0] < 0) return Damaged(path, "its clock stands at " + std::to_string(words[0]));
    for (int64_t i = 1; i < history_.view->size() / kWord; i += kTriple) {
      if (words[i + 1] >= 0 && words[i + 1] <= UINT32_MAX && words[i + 2] >= 0) continue;
      return Damaged(path, "key " + std::to_string(words[i]) + " has count " + std::to_string(words[i + 1]) +
                               " and time " + std::to_string(words[i + 2]));
    }
  }
  if (steps_.view != nullptr && steps_.view->size() != rows * kWord) {
    return Damaged(directory_ + "/" + DataFile(kStepColumn), "it has " + std::to_string(steps_.view->size()) +
                                                                 " bytes, expected " + std::to_string(rows * kWord));
  }
  for (int64_t i = 0; steps_.view != nullptr && i < rows; ++i) {
    const int64_t step = Words(*steps_.view)[i];
    if (step >= 0 && step <= UINT32_MAX) continue;
    return Damaged(directory_ + "/" + DataFile(kStepColumn),
                   "row " + std::to_string(i) + " has step " + std::to_string(step));
  }
  return Status();
}

Status HistoryReader::Load(Table* table, const int64_t* keys, int64_t rows, const ParallelFor& parallel,
                           Ownership owned) const {
  History* history = table->history();
  if (history == nullptr) return Status();
  constexpr int64_t kCost = 150;  // nanoseconds: two cache misses and a lock
  if (history_.view != nullptr) {
    const int64_t* words = Words(*history_.view);
    history->SetClock(words[0], history->step());
    Failure failure;
    parallel.Run(history_.view->size() / kWord / kTriple, kCost, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end && !failure.failed(); ++i) {
        const int64_t* triple = words + 1 + i * kTriple;
        if (!owned.Has(triple[0])) continue;
        RowFacts facts;
        facts.count = static_cast<uint32_t>(triple[1]);
        facts.time = triple[2];
        const Status status = table->SetFacts(triple[0], facts);
        if (!status.ok()) failure.Set(status);
      }
    });
    MXREC_RETURN_IF_ERROR(failure.status());
  }
  if (steps_.view != nullptr) {
    parallel.Run(rows, kCost, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        if (!owned.Has(keys[i])) continue;
        RowFacts facts = table->Facts(keys[i]);
        facts.step = static_cast<uint32_t>(Words(*steps_.view)[i]);
        (void)table->SetFacts(keys[i], facts);  // the key has a row, so no memory is needed
      }
    });
  }
  int64_t cells = 0;
  for (int shard = 0; shard < table->shards() && history->filter(0) != nullptr; ++shard) {
    cells += history->filter(shard)->size();
  }
  // Of as many ranks as there are now, each has its own filter in the file, in their order. A filter of another size
  // cannot be taken over; its counts begin anew.
  if (filter_.view == nullptr || cells == 0 ||
      filter_.view->size() != owned.ranks * cells * static_cast<int64_t>(sizeof(uint16_t))) {
    return Status();
  }
  const uint16_t* from = reinterpret_cast<const uint16_t*>(filter_.view->data()) + owned.rank * cells;
  for (int shard = 0; shard < table->shards(); ++shard) {
    AdmissionFilter* filter = history->filter(shard);
    std::copy_n(from, filter->size(), filter->cells());
    from += filter->size();
  }
  return Status();
}

}  // namespace mxrec
