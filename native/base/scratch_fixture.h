// Scratch space for tests: a directory that goes when the test does, and files in it that fail, tear, fill up and
// dawdle on request.
#pragma once

#include <gtest/gtest.h>
#include <stdlib.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <utility>

#include "base/files.h"

namespace mxrec {
namespace scratch_fixture {

class TemporaryDirectory {
 public:
  TemporaryDirectory() {
    char pattern[] = "/tmp/mxrec_test_XXXXXX";
    path_ = mkdtemp(pattern);
  }
  ~TemporaryDirectory() { std::filesystem::remove_all(path_); }
  TemporaryDirectory(const TemporaryDirectory&) = delete;
  TemporaryDirectory& operator=(const TemporaryDirectory&) = delete;

  const std::string& path() const { return path_; }
  int64_t names() const {
    return std::distance(std::filesystem::directory_iterator(path_), std::filesystem::directory_iterator());
  }

 private:
  std::string path_;
};

enum class Operation { kScratch, kReserve, kRead, kWrite };

struct Fault {
  Operation operation;
  Status::Code code = Status::Code::kIoError;
  bool is_torn = false;  // a write that fails has written half of its bytes; a read succeeds, with a bit flipped
  const char* name = "";
};

// Passes scratch space on to the real files, except where it shall fail. May be used from many threads, but be told to
// fail by one alone, while no other is here.
class ScratchEnv : public Env {
 public:
  // The operations of this kind number [first, first + count), counted from now, fail.
  void Fail(const Fault& fault, int64_t first = 0, int64_t count = INT64_MAX / 2) {
    fault_ = fault;
    first_ = operations(fault.operation) + first;
    count_ = count;
    failures_ = 0;
  }
  void Lift() { count_ = 0; }
  int64_t failures() const { return failures_; }  // since Fail
  int64_t operations(Operation operation) const { return operations_[static_cast<int>(operation)]; }

  // A file in this directory cannot be longer.
  void SetSpace(const std::string& directory, int64_t bytes) { space_[directory] = bytes; }
  void SetReadTime(std::chrono::microseconds time) { read_time_ = time.count(); }

  Status Scratch(const std::string& directory, std::unique_ptr<ScratchFile>* file) override {
    MXREC_RETURN_IF_ERROR(Next(Operation::kScratch, directory));
    std::unique_ptr<ScratchFile> real;
    MXREC_RETURN_IF_ERROR(Env::Posix().Scratch(directory, &real));
    file->reset(new File(this, directory, std::move(real)));
    return Status();
  }

  // Other files need not outlive the test: nobody waits for the disk.
  Status Create(const std::string& path, std::unique_ptr<WritableFile>* file) override {
    std::unique_ptr<WritableFile> real;
    MXREC_RETURN_IF_ERROR(Env::Posix().Create(path, &real));
    file->reset(new Unsynced(std::move(real)));
    return Status();
  }
  Status Join(const std::string& path, std::unique_ptr<WritableFile>* file) override {
    return Env::Posix().Join(path, file);
  }
  Status Map(const std::string& path, std::unique_ptr<FileView>* view) override { return Env::Posix().Map(path, view); }
  Status MakeDirectory(const std::string& path) override { return Env::Posix().MakeDirectory(path); }
  Status JoinDirectory(const std::string& path) override { return Env::Posix().JoinDirectory(path); }
  Status SyncDirectory(const std::string&) override { return Status(); }
  Status Rename(const std::string& from, const std::string& to) override { return Env::Posix().Rename(from, to); }
  Status Remove(const std::string& path) override { return Env::Posix().Remove(path); }

 private:
  class Unsynced : public WritableFile {
   public:
    explicit Unsynced(std::unique_ptr<WritableFile> real) : real_(std::move(real)) {}
    Status Append(const void* data, size_t n) override { return real_->Append(data, n); }
    Status WriteAt(int64_t offset, const void* data, size_t n) override { return real_->WriteAt(offset, data, n); }
    Status Sync() override { return Status(); }
    Status Close() override { return real_->Close(); }

   private:
    std::unique_ptr<WritableFile> real_;
  };

  class File : public ScratchFile {
   public:
    File(ScratchEnv* env, std::string directory, std::unique_ptr<ScratchFile> real)
        : env_(env), directory_(std::move(directory)), real_(std::move(real)) {}

    Status Reserve(int64_t offset, int64_t n) override {
      MXREC_RETURN_IF_ERROR(env_->Next(Operation::kReserve, directory_));
      const auto space = env_->space_.find(directory_);
      if (space != env_->space_.end() && offset + n > space->second) {
        return Status::ResourceExhausted("no space in '" + directory_ + "'");
      }
      return real_->Reserve(offset, n);
    }
    Status Read(int64_t offset, void* data, size_t n) const override {
      if (env_->read_time_ > 0) std::this_thread::sleep_for(std::chrono::microseconds(env_->read_time_));
      const Status status = env_->Next(Operation::kRead, directory_);
      if (!status.ok() && !env_->fault_.is_torn) return status;
      MXREC_RETURN_IF_ERROR(real_->Read(offset, data, n));
      if (!status.ok()) static_cast<char*>(data)[n / 2] ^= 4;
      return Status();
    }
    bool ReadNow(int64_t, void*, size_t) const override { return false; }  // all reads can fail
    void WillNeed(int64_t offset, size_t n) const override { real_->WillNeed(offset, n); }
    Status Write(int64_t offset, const void* data, size_t n) override {
      const Status status = env_->Next(Operation::kWrite, directory_);
      if (status.ok()) return real_->Write(offset, data, n);
      if (env_->fault_.is_torn) MXREC_RETURN_IF_ERROR(real_->Write(offset, data, n / 2));
      return status;
    }

   private:
    ScratchEnv* env_;
    const std::string directory_;
    std::unique_ptr<ScratchFile> real_;
  };

  Status Next(Operation operation, const std::string& directory) {
    const int64_t number = operations_[static_cast<int>(operation)]++;
    if (operation != fault_.operation || number < first_ || number >= first_ + count_) return Status();
    ++failures_;
    const std::string message = "the test lets scratch space in '" + directory + "' fail";
    return fault_.code == Status::Code::kResourceExhausted ? Status::ResourceExhausted(message)
                                                           : Status::IoError(message);
  }

  std::atomic<int64_t> operations_[4] = {};
  std::atomic<int64_t> failures_{0};
  std::atomic<int64_t> read_time_{0};
  Fault fault_{Operation::kScratch};
  int64_t first_ = 0;
  int64_t count_ = 0;
  std::map<std::string, int64_t> space_;
};

// Every way in which scratch space fails.
inline const Fault kFaults[] = {
    {Operation::kScratch, Status::Code::kIoError, false, "no scratch file"},
    {Operation::kReserve, Status::Code::kResourceExhausted, false, "no space to reserve"},
    {Operation::kReserve, Status::Code::kIoError, false, "reserving fails"},
    {Operation::kRead, Status::Code::kIoError, false, "reading fails"},
    {Operation::kWrite, Status::Code::kResourceExhausted, false, "no space to write"},
    {Operation::kWrite, Status::Code::kIoError, false, "writing fails"},
    {Operation::kWrite, Status::Code::kResourceExhausted, true, "no space for all of a write"},
    {Operation::kWrite, Status::Code::kIoError, true, "a write is torn"},
};

}  // namespace scratch_fixture
}  // namespace mxrec
