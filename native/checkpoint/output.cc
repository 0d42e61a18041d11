#include "checkpoint/output.h"

#include <algorithm>
#include <cstring>

#include "base/crc32c.h"

namespace mxrec {

Status Output::Append(const void* data, size_t n) {
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

Status Output::Finish(CheckpointFile* facts) {
  MXREC_RETURN_IF_ERROR(Flush());
  MXREC_RETURN_IF_ERROR(file_->Sync());
  MXREC_RETURN_IF_ERROR(file_->Close());
  *facts = {name_, bytes_, crc_};
  return Status();
}

Status Output::Flush() {
  if (used_ == 0) return Status();
  crc_ = crc32c::Extend(crc_, buffer_.data(), used_);
  bytes_ += static_cast<int64_t>(used_);
  const Status status = file_->Append(buffer_.data(), used_);
  used_ = 0;
  return status;
}

Status ColumnOutput::Part::Flush() {
  if (used_ > 0) {
    Sum& sum = column_->parts_[number_];
    sum.crc = crc32c::Extend(sum.crc, buffer_.data(), static_cast<size_t>(used_));
    sum.bytes += used_;
    MXREC_RETURN_IF_ERROR(column_->file_->WriteAt(offset_, buffer_.data(), static_cast<size_t>(used_)));
    offset_ += used_;
    used_ = 0;
  }
  if (buffer_.empty()) buffer_.resize(static_cast<size_t>(std::max(kBufferBytes, column_->width_)));
  return Status();
}

Status ColumnOutput::Open(Env& env, const std::string& directory, const std::vector<int64_t>& header) {
  MXREC_RETURN_IF_ERROR(env.MakeDirectory(directory + "/" + column_));
  MXREC_RETURN_IF_ERROR(env.Create(directory + "/" + DataFile(column_), &file_));
  if (header.empty()) return Status();
  const size_t bytes = header.size() * sizeof(int64_t);
  header_ = {static_cast<int64_t>(bytes), crc32c::Extend(0, header.data(), bytes)};
  return file_->WriteAt(0, header.data(), bytes);
}

Status ColumnOutput::Finish(Env& env, const std::string& directory, const std::vector<int64_t>& attribute,
                            std::vector<CheckpointFile>* files) {
  MXREC_RETURN_IF_ERROR(file_->Sync());
  MXREC_RETURN_IF_ERROR(file_->Close());
  CheckpointFile data = {DataFile(column_), header_.bytes, header_.crc};
  for (const Sum& part : parts_) {
    data.crc32c = crc32c::Combine(data.crc32c, part.crc, part.bytes);
    data.bytes += part.bytes;
  }
  return FinishColumn(env, directory, column_, attribute, std::move(data), files);
}

Status FinishColumn(Env& env, const std::string& directory, const std::string& column,
                    const std::vector<int64_t>& attribute, CheckpointFile data, std::vector<CheckpointFile>* files) {
  CheckpointFile attribute_facts;
  const size_t bytes = attribute.size() * sizeof(int64_t);
  Output out(AttributeFile(column), bytes);
  MXREC_RETURN_IF_ERROR(out.Open(env, directory));
  MXREC_RETURN_IF_ERROR(out.Append(attribute.data(), bytes));
  MXREC_RETURN_IF_ERROR(out.Finish(&attribute_facts));
  files->push_back(std::move(data));
  files->push_back(std::move(attribute_facts));
  return env.SyncDirectory(directory + "/" + column);
}

}  // namespace mxrec
