// Output: one file of a checkpoint while it is written, buffered, with its checksum.
#pragma once

#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "base/files.h"
#include "base/status.h"
#include "checkpoint/layout.h"

namespace mxrec {

class Output {
 public:
  // Per column. Smaller: more system calls; larger: the bytes leave the cache between copy, checksum and write.
  static constexpr size_t kBufferBytes = size_t{1} << 20;

  explicit Output(std::string name, size_t buffer = kBufferBytes) : name_(std::move(name)), buffer_(buffer) {}

  Status Open(Env& env, const std::string& directory) { return env.Create(directory + "/" + name_, &file_); }
  Status Append(const void* data, size_t n);
  // Returns when the file has reached the disk.
  Status Finish(CheckpointFile* facts);

 private:
  Status Flush();

  std::string name_;
  std::unique_ptr<WritableFile> file_;
  std::vector<char> buffer_;
  size_t used_ = 0;
  int64_t bytes_ = 0;
  uint32_t crc_ = 0;
};

// A column's data file, whose parts are written by several threads: one part for each shard, in their order.
class ColumnOutput {
 public:
  // `width`: bytes of an element.
  ColumnOutput(const std::string& column, int64_t width, int parts)
      : column_(column), width_(width), parts_(static_cast<size_t>(parts)) {}

  // Makes the column's directory and its file; `header` comes before the elements.
  Status Open(Env& env, const std::string& directory, const std::vector<int64_t>& header = {});
  // Returns when the column, with its attribute, has reached the disk, and adds both files to `files`. REQUIRES: all
  // parts are flushed.
  Status Finish(Env& env, const std::string& directory, const std::vector<int64_t>& attribute,
                std::vector<CheckpointFile>* files);

  // A part while it is written, by one thread.
  class Part {
   public:
    // `first`: the number of its first element in the file.
    Part(ColumnOutput* column, int number, int64_t first)
        : column_(column), number_(number), offset_(column->header_.bytes + first * column->width_) {}
    Status Append(const void* element) {
      if (used_ + column_->width_ > static_cast<int64_t>(buffer_.size())) MXREC_RETURN_IF_ERROR(Flush());
      std::memcpy(buffer_.data() + used_, element, static_cast<size_t>(column_->width_));
      used_ += column_->width_;
      return Status();
    }
    // Writes what was appended.
    Status Flush();

   private:
    // Smaller: more system calls; larger: the bytes leave the cache between copy, checksum and write.
    static constexpr int64_t kBufferBytes = 256 << 10;

    ColumnOutput* column_;
    int number_;
    int64_t offset_;
    int64_t used_ = 0;
    std::vector<char> buffer_;
  };

 private:
  struct Sum {
    int64_t bytes = 0;
    uint32_t crc = 0;
  };

  std::string column_;
  int64_t width_;
  Sum header_;
  std::vector<Sum> parts_;
  std::unique_ptr<WritableFile> file_;
};

// Finishes a column whose data is written: its attribute and their directory. Adds both files to `files`.
Status FinishColumn(Env& env, const std::string& directory, const std::string& column,
                    const std::vector<int64_t>& attribute, CheckpointFile data, std::vector<CheckpointFile>* files);

}  // namespace mxrec
