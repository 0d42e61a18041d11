// Env: the files of the machine, as far as the core touches them. Tests put their own in place to fail at a chosen
// operation.
//
// Errors are IoError and name the path and what the operating system said. Thread rule: an Env may be shared; a file
// belongs to one thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "base/status.h"

namespace mxrec {

// Reads and writes that bypass the page cache begin and end at multiples of this, in the file and in memory.
constexpr int64_t kFileBlock = 4096;

class WritableFile {
 public:
  virtual ~WritableFile() = default;  // closes without reporting errors; call Close to learn of them
  virtual Status Append(const void* data, size_t n) = 0;
  // Writes bytes anywhere in the file. Different bytes may be written by several threads at once; Append must not be
  // used in the same file. The whole blocks of a long write bypass the page cache where the file system can do that
  // and `data` lies as far behind a multiple of kFileBlock as `offset`.
  virtual Status WriteAt(int64_t offset, const void* data, size_t n) = 0;
  // Returns when the content has reached the disk.
  virtual Status Sync() = 0;
  virtual Status Close() = 0;
};

// A whole file, read-only, until destroyed. REQUIRES: nobody shortens the file meanwhile.
class FileView {
 public:
  virtual ~FileView() = default;
  // The file in memory. What is touched is read from the disk then; if it cannot be read, the process dies.
  const char* data() const { return data_; }
  int64_t size() const { return size_; }

  enum class Use {
    kAgain,  // the bytes stay in the page cache
    kOnce,   // those that are not there already are read past it where the file system can do that
  };
  // Reads bytes [offset, offset + n), which are in the file, to somewhere in `buffer`, and sets *at to where they are.
  // Several threads may do so at once. REQUIRES: the buffer begins at a multiple of kFileBlock and is n + 2 *
  // kFileBlock long.
  virtual Status Read(int64_t offset, int64_t n, Use use, char* buffer, const char** at) const = 0;

 protected:
  FileView(const char* data, int64_t size) : data_(data), size_(size) {}

 private:
  const char* data_;
  int64_t size_;
};

// Scratch space: a file without a name, which is gone when it is closed or the process ends, however it ends. Thread
// rule: Read and Write of different bytes may run together.
class ScratchFile {
 public:
  virtual ~ScratchFile() = default;
  // Reserves space, so that writing these bytes cannot fail for lack of it where the file system can do that.
  // ResourceExhausted if there is no space.
  virtual Status Reserve(int64_t offset, int64_t n) = 0;
  // Reads all `n` bytes; a file that ends before them is an error.
  virtual Status Read(int64_t offset, void* data, size_t n) const = 0;
  // Reads them if that need not wait for the disk; else, or if that cannot be told, returns false and leaves anything
  // in `data`.
  virtual bool ReadNow(int64_t offset, void* data, size_t n) const = 0;
  // Starts to read them, so that Read need not wait.
  virtual void WillNeed(int64_t offset, size_t n) const = 0;
  // ResourceExhausted if there is no space.
  virtual Status Write(int64_t offset, const void* data, size_t n) = 0;
};

class Env {
 public:
  virtual ~Env() = default;

  static Env& Posix();

  // A new file, mode 0640; one that exists is emptied.
  virtual Status Create(const std::string& path, std::unique_ptr<WritableFile>* file) = 0;
  // A file that other processes write at the same time: a new one, mode 0640, or the one that exists, as it is.
  virtual Status Join(const std::string& path, std::unique_ptr<WritableFile>* file) = 0;
  // NotFound if there is no such file.
  virtual Status Map(const std::string& path, std::unique_ptr<FileView>* view) = 0;
  // Mode 0750. One that exists is an error.
  virtual Status MakeDirectory(const std::string& path) = 0;
  // The same, but one that exists is as good: another process may have made it.
  virtual Status JoinDirectory(const std::string& path) = 0;
  // Returns when the names in the directory have reached the disk: a new file is lasting only after this.
  virtual Status SyncDirectory(const std::string& path) = 0;
  virtual Status Rename(const std::string& from, const std::string& to) = 0;
  // Scratch space in a directory that exists.
  virtual Status Scratch(const std::string& directory, std::unique_ptr<ScratchFile>* file) = 0;
  // A file or an empty directory.
  virtual Status Remove(const std::string& path) = 0;
};

}  // namespace mxrec
