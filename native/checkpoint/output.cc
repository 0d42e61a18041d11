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

ColumnOutput::ColumnOutput(const std::string& column, int64_t width, const std::vector<int64_t>& starts,
                           Writers writers)
    : column_(column), width_(width), starts_(starts), writers_(writers), parts_(starts.size() - 1) {
  // A huge page: a disk takes 2 MiB from one place faster than from 512. Columns of a few bytes a row fill it too
  // slowly to be worth it. Not more than is needed: there may be many small tables.
  constexpr int64_t kWide = 2 << 20, kNarrow = 256 << 10;
  int64_t largest = 0;
  for (size_t p = 1; p < starts.size(); ++p) largest = std::max(largest, (starts[p] - starts[p - 1]) * width);
  buffer_bytes_ = std::max(std::min(width < 64 ? kNarrow : kWide, largest + kFileBlock), width + kFileBlock);
}

Pages ColumnOutput::TakeBuffer() {
  std::lock_guard<std::mutex> lock(mutex_);
  if (buffers_.empty()) return Pages(static_cast<size_t>(buffer_bytes_), Pages::Kind::kHuge);
  Pages buffer = std::move(buffers_.back());
  buffers_.pop_back();
  return buffer;
}

void ColumnOutput::GiveBack(Pages buffer) {
  if (buffer.data() == nullptr) return;
  std::lock_guard<std::mutex> lock(mutex_);
  buffers_.push_back(std::move(buffer));
}

Status ColumnOutput::Part::MakeRoom() {
  // Bytes are summed up while they are in the processor's cache.
  constexpr int64_t kStretch = 32 << 10;
  if (buffer_.data() == nullptr) {
    buffer_ = column_->TakeBuffer();
    if (buffer_.data() == nullptr) return Status::ResourceExhausted("out of memory: cannot write a checkpoint");
    begin_ = end_ = summed_ = offset_ % kFileBlock;
  }
  Sum();
  if (end_ + column_->width_ > column_->buffer_bytes_) {
    // Whole blocks; the rest waits for what completes it. There is one at least, as the buffer has a block more than an
    // element.
    const int64_t whole = end_ / kFileBlock * kFileBlock, rest = end_ - whole;
    MXREC_RETURN_IF_ERROR(Write(whole));
    std::memmove(at(0), at(whole), static_cast<size_t>(rest));
    begin_ = 0;
    end_ = summed_ = rest;
  }
  limit_ = std::min(column_->buffer_bytes_, end_ + std::max(kStretch, column_->width_));
  return Status();
}

void ColumnOutput::Part::Sum() {
  Total& total = column_->parts_[number_];
  total.crc = crc32c::Extend(total.crc, at(summed_), static_cast<size_t>(end_ - summed_));
  total.bytes += end_ - summed_;
  summed_ = end_;
}

Status ColumnOutput::Part::Write(int64_t end) {
  if (end == begin_) return Status();
  MXREC_RETURN_IF_ERROR(column_->file_->WriteAt(offset_, at(begin_), static_cast<size_t>(end - begin_)));
  offset_ += end - begin_;
  begin_ = end;
  return Status();
}

Status ColumnOutput::Open(Env& env, const std::string& directory, const std::vector<int64_t>& header) {
  const std::string path = directory + "/" + DataFile(column_);
  if (writers_ == Writers::kAlone) {
    MXREC_RETURN_IF_ERROR(env.MakeDirectory(directory + "/" + column_));
    MXREC_RETURN_IF_ERROR(env.Create(path, &file_));
  } else {
    MXREC_RETURN_IF_ERROR(env.JoinDirectory(directory + "/" + column_));
    MXREC_RETURN_IF_ERROR(env.Join(path, &file_));
  }
  header_bytes_ = static_cast<int64_t>(header.size() * sizeof(int64_t));
  if (header.empty() || writers_ == Writers::kOther) return Status();
  header_ = {header_bytes_, crc32c::Extend(0, header.data(), static_cast<size_t>(header_bytes_))};
  return file_->WriteAt(0, header.data(), static_cast<size_t>(header_bytes_));
}

Status ColumnOutput::Finish(Env& env, const std::string& directory, const std::vector<int64_t>& attribute,
                            std::vector<CheckpointFile>* files) {
  MXREC_RETURN_IF_ERROR(file_->Sync());
  MXREC_RETURN_IF_ERROR(file_->Close());
  CheckpointFile data = {DataFile(column_), header_.bytes, header_.crc};
  for (const Total& part : parts_) {
    data.crc32c = crc32c::Combine(data.crc32c, part.crc, part.bytes);
    data.bytes += part.bytes;
  }
  if (writers_ != Writers::kOther) return FinishColumn(env, directory, column_, attribute, std::move(data), files);
  files->push_back(std::move(data));
  return Status();
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
