// Output: one file of a checkpoint while it is written, buffered, with its checksum.
#pragma once

#include <cstdint>
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

// Finishes a column: its data, its attribute and their directory. Adds both files to `files`.
Status FinishColumn(Env& env, const std::string& directory, const std::string& column,
                    const std::vector<int64_t>& attribute, Output* data, std::vector<CheckpointFile>* files);

}  // namespace mxrec
