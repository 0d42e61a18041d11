#include "checkpoint/writer.h"

#include <algorithm>
#include <cstring>
#include <memory>

#include "base/crc32c.h"

namespace mxrec {
namespace {

// Per column. Smaller: more system calls; larger: the bytes leave the cache between copy, checksum and write.
constexpr size_t kBufferBytes = size_t{1} << 20;

// One file, buffered, with its checksum.
class Output {
 public:
  Output(std::string name, size_t buffer) : name_(std::move(name)), buffer_(buffer) {}

  Status Open(Env& env, const std::string& directory) { return env.Create(directory + "/" + name_, &file_); }

  Status Append(const void* data, size_t n) {
    const char* p = static_cast<const char*>(data);
    while (n > 0) {
      const size_t piece = std::min(n, buffer_.size() - used_);
      std::memcpy(buffer_.data() + used_, p, piece);
      used_ += piece;
      p += piece;
      n -= piece;
      if (used_ == buffer_.size()) MXREC_RETURN_IF_ERROR(Flush());
    }
    return Status();
  }

  Status Finish(CheckpointFile* facts) {
    MXREC_RETURN_IF_ERROR(Flush());
    MXREC_RETURN_IF_ERROR(file_->Sync());
    MXREC_RETURN_IF_ERROR(file_->Close());
    *facts = {name_, bytes_, crc_};
    return Status();
  }

 private:
  Status Flush() {
    if (used_ == 0) return Status();
    crc_ = crc32c::Extend(crc_, buffer_.data(), used_);
    bytes_ += static_cast<int64_t>(used_);
    const Status status = file_->Append(buffer_.data(), used_);
    used_ = 0;
    return status;
  }

  std::string name_;
  std::unique_ptr<WritableFile> file_;
  std::vector<char> buffer_;
  size_t used_ = 0;
  int64_t bytes_ = 0;
  uint32_t crc_ = 0;
};

Status WriteAttribute(Env& env, const std::string& directory, const std::string& column,
                      const std::vector<int64_t>& numbers, CheckpointFile* facts) {
  const size_t bytes = numbers.size() * sizeof(int64_t);
  Output out(AttributeFile(column), bytes);
  MXREC_RETURN_IF_ERROR(out.Open(env, directory));
  MXREC_RETURN_IF_ERROR(out.Append(numbers.data(), bytes));
  return out.Finish(facts);
}

// Slot names come from the user (ftrl's accum_name) and become directories.
Status CheckSlotName(const std::string& table, const std::string& slot) {
  if (slot.empty() || slot.size() > 255 || slot == "." || slot == ".." || slot == kKeyColumn ||
      slot == kEmbeddingColumn || slot.find('/') != std::string::npos) {
    return Status::InvalidArgument("table '" + table + "': the optimizer slot '" + slot +
                                   "' cannot be saved: its name must serve as a directory beside 'key' and "
                                   "'embedding', in at most 255 bytes and without '/'");
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
    outputs.emplace_back(DataFile(column), kBufferBytes);
    MXREC_RETURN_IF_ERROR(outputs.back().Open(env, directory));
  }

  int64_t n = 0;
  Status status;
  table.ForEach([&](int64_t key, const float* row) {
    if (!status.ok()) return;  // a walk cannot be left early; it can be idle
    status = outputs[0].Append(&key, sizeof(key));
    for (size_t c = 1; status.ok() && c < outputs.size(); ++c) {
      status = outputs[c].Append(row + static_cast<int64_t>(c - 1) * dim, dim * sizeof(float));
    }
    ++n;
  });
  MXREC_RETURN_IF_ERROR(status);

  files->clear();
  for (size_t c = 0; c < columns.size(); ++c) {
    CheckpointFile data, attribute;
    MXREC_RETURN_IF_ERROR(outputs[c].Finish(&data));
    const std::vector<int64_t> numbers =
        c == 0 ? std::vector<int64_t>{n, sizeof(int64_t)} : std::vector<int64_t>{n, dim, sizeof(float)};
    MXREC_RETURN_IF_ERROR(WriteAttribute(env, directory, columns[c], numbers, &attribute));
    MXREC_RETURN_IF_ERROR(env.SyncDirectory(directory + "/" + columns[c]));
    files->push_back(std::move(data));
    files->push_back(std::move(attribute));
  }
  *rows = n;
  return env.SyncDirectory(directory);
}

}  // namespace mxrec
