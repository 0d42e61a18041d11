// Output: one file of a checkpoint while it is written, buffered, with its checksum.
#pragma once

#include <cstdint>
#include <cstring>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/files.h"
#include "base/pages.h"
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

// Who writes the files of a directory.
enum class Writers {
  kAlone,
  // This process and others, each its parts. The first also writes what the files begin with, and the attributes.
  kFirst,
  kOther,
};

// A column's data file, whose parts are written by several threads: one part for each shard, in their order.
class ColumnOutput {
 public:
  // `width`: bytes of an element. `starts`: for each part, the number of its first element; at the end, where the last
  // one ends. They begin above 0 where other processes' parts come before.
  ColumnOutput(const std::string& column, int64_t width, const std::vector<int64_t>& starts,
               Writers writers = Writers::kAlone);

  // Makes the column's directory and its file; `header` comes before the elements.
  Status Open(Env& env, const std::string& directory, const std::vector<int64_t>& header = {});
  // Returns when the column, with its attribute, has reached the disk, and adds to `files` what of both this process
  // has written. REQUIRES: all parts are flushed.
  Status Finish(Env& env, const std::string& directory, const std::vector<int64_t>& attribute,
                std::vector<CheckpointFile>* files);

  // A part while it is written, by one thread. REQUIRES: the column is open, or nothing is appended.
  class Part {
   public:
    Part(ColumnOutput* column, int number)
        : column_(column), number_(number), offset_(column->header_bytes_ + column->starts_[number] * column->width_) {}
    ~Part() { column_->GiveBack(std::move(buffer_)); }
    Part(Part&&) = default;

    Status Append(const void* element) {
      if (end_ + column_->width_ > limit_) MXREC_RETURN_IF_ERROR(MakeRoom());
      std::memcpy(at(end_), element, static_cast<size_t>(column_->width_));
      end_ += column_->width_;
      return Status();
    }
    // Writes what was appended.
    Status Flush() {
      Sum();
      return Write(end_);
    }

   private:
    char* at(int64_t place) { return static_cast<char*>(buffer_.data()) + place; }
    Status MakeRoom();
    void Sum();
    Status Write(int64_t end);

    ColumnOutput* column_;
    int number_;
    int64_t offset_;  // in the file, of what is at `begin_`
    // What was appended and not written is in [begin_, end_) of the buffer. It lies as far behind a multiple of
    // kFileBlock there as in the file, so that it can bypass the page cache.
    int64_t begin_ = 0, end_ = 0;
    int64_t summed_ = 0;  // up to where the checksum reaches
    int64_t limit_ = 0;   // where appending must stop for something
    Pages buffer_;
  };

 private:
  struct Total {
    int64_t bytes = 0;
    uint32_t crc = 0;
  };

  // Buffers go from part to part: there are as many as parts are written at the same time.
  Pages TakeBuffer();
  void GiveBack(Pages buffer);

  std::string column_;
  int64_t width_;
  std::vector<int64_t> starts_;
  Writers writers_;
  int64_t buffer_bytes_;
  int64_t header_bytes_ = 0;
  Total header_;  // as far as this process has written it
  std::vector<Total> parts_;
  std::unique_ptr<WritableFile> file_;
  std::mutex mutex_;
  std::vector<Pages> buffers_;  // guarded by mutex_
};

// Finishes a column whose data is written: its attribute and their directory. Adds both files to `files`.
Status FinishColumn(Env& env, const std::string& directory, const std::string& column,
                    const std::vector<int64_t>& attribute, CheckpointFile data, std::vector<CheckpointFile>* files);

}  // namespace mxrec
