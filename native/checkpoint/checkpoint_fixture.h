// What the tests of checkpoints share: files that are read and damaged by hand, files that fail, and a directory.
#pragma once

#include <gtest/gtest.h>
#include <stdlib.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "base/files.h"
#include "checkpoint/reader.h"
#include "checkpoint/writer.h"

namespace mxrec {
namespace checkpoint_fixture {

// Passes everything on to the real files, except operation number `fail_at`.
class FailingEnv : public Env {
 public:
  explicit FailingEnv(int fail_at) : fail_at_(fail_at) {}
  int operations() const { return operations_; }

  Status Create(const std::string& path, std::unique_ptr<WritableFile>* file) override {
    MXREC_RETURN_IF_ERROR(Next());
    std::unique_ptr<WritableFile> real;
    MXREC_RETURN_IF_ERROR(Env::Posix().Create(path, &real));
    file->reset(new File(this, std::move(real)));
    return Status();
  }
  Status Join(const std::string& path, std::unique_ptr<WritableFile>* file) override {
    MXREC_RETURN_IF_ERROR(Next());
    std::unique_ptr<WritableFile> real;
    MXREC_RETURN_IF_ERROR(Env::Posix().Join(path, &real));
    file->reset(new File(this, std::move(real)));
    return Status();
  }
  Status Map(const std::string& path, std::unique_ptr<FileView>* view) override {
    MXREC_RETURN_IF_ERROR(Next());
    std::unique_ptr<FileView> real;
    MXREC_RETURN_IF_ERROR(Env::Posix().Map(path, &real));
    view->reset(new View(this, std::move(real)));
    return Status();
  }
  Status MakeDirectory(const std::string& path) override {
    MXREC_RETURN_IF_ERROR(Next());
    return Env::Posix().MakeDirectory(path);
  }
  Status JoinDirectory(const std::string& path) override {
    MXREC_RETURN_IF_ERROR(Next());
    return Env::Posix().JoinDirectory(path);
  }
  Status SyncDirectory(const std::string& path) override {
    MXREC_RETURN_IF_ERROR(Next());
    return Env::Posix().SyncDirectory(path);
  }
  Status Rename(const std::string& from, const std::string& to) override { return Env::Posix().Rename(from, to); }
  Status Scratch(const std::string& directory, std::unique_ptr<ScratchFile>* file) override {
    return Env::Posix().Scratch(directory, file);
  }
  Status Remove(const std::string& path) override { return Env::Posix().Remove(path); }

 private:
  class File : public WritableFile {
   public:
    File(FailingEnv* env, std::unique_ptr<WritableFile> real) : env_(env), real_(std::move(real)) {}
    Status Append(const void* data, size_t n) override {
      MXREC_RETURN_IF_ERROR(env_->Next());
      return real_->Append(data, n);
    }
    Status WriteAt(int64_t offset, const void* data, size_t n) override {
      MXREC_RETURN_IF_ERROR(env_->Next());
      return real_->WriteAt(offset, data, n);
    }
    Status Sync() override {
      MXREC_RETURN_IF_ERROR(env_->Next());
      return real_->Sync();
    }
    Status Close() override {
      MXREC_RETURN_IF_ERROR(env_->Next());
      return real_->Close();
    }

   private:
    FailingEnv* env_;
    std::unique_ptr<WritableFile> real_;
  };

  class View : public FileView {
   public:
    View(FailingEnv* env, std::unique_ptr<FileView> real)
        : FileView(real->data(), real->size()), env_(env), real_(std::move(real)) {}
    Status Read(int64_t offset, int64_t n, Use use, char* buffer, const char** at) const override {
      MXREC_RETURN_IF_ERROR(env_->Next());
      return real_->Read(offset, n, use, buffer, at);
    }

   private:
    FailingEnv* env_;
    std::unique_ptr<FileView> real_;
  };

  Status Next() { return operations_++ == fail_at_ ? Status::IoError("the test said so") : Status(); }

  int fail_at_;
  int operations_ = 0;
};

inline std::string ReadFile(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  std::stringstream content;
  content << in.rdbuf();
  return content.str();
}

inline void WriteFile(const std::string& path, const std::string& content) {
  std::ofstream(path, std::ios::binary | std::ios::trunc) << content;
}

inline std::vector<int64_t> Numbers(const std::string& bytes) {
  std::vector<int64_t> numbers(bytes.size() / sizeof(int64_t));
  if (!bytes.empty()) std::memcpy(numbers.data(), bytes.data(), bytes.size());
  return numbers;
}

template <typename T>
std::string Bytes(const std::vector<T>& values) {
  return std::string(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T));
}

// WriteTable for all of a table, which must outlive the call.
inline Status WriteAll(Env& env, const Table& table, const std::string& directory, int64_t* rows,
                       std::vector<CheckpointFile>* files, const ParallelFor& parallel = SerialFor()) {
  std::unique_ptr<Snapshot> snapshot;
  std::shared_ptr<Table> borrowed(std::shared_ptr<Table>(), const_cast<Table*>(&table));
  MXREC_RETURN_IF_ERROR(Snapshot::Take(borrowed, Changes::kNoMoment, true, &snapshot));
  return WriteTable(env, snapshot.get(), directory, rows, files, parallel);
}

class CheckpointTest : public ::testing::Test {
 protected:
  void SetUp() override {
    char pattern[] = "/tmp/mxrec_checkpoint_XXXXXX";
    root_ = mkdtemp(pattern);
    directory_ = root_ + "/item";
  }
  void TearDown() override { std::filesystem::remove_all(root_); }

  void Save(const Table& table) {
    std::filesystem::remove_all(directory_);
    const Status status = WriteAll(Env::Posix(), table, directory_, &rows_, &files_);
    ASSERT_TRUE(status.ok()) << status.message();
  }

  Status Verify(const Table& table, bool with_checksums = true) {
    std::unique_ptr<TableReader> reader;
    MXREC_RETURN_IF_ERROR(TableReader::Open(Env::Posix(), directory_, table, false, &reader));
    return reader->Verify(with_checksums ? files_ : std::vector<CheckpointFile>(), true, ThreadedFor(2));
  }

  // With `expected`, it checks what it loads.
  Status Load(Table* table, int threads = 2, const std::vector<CheckpointFile>& expected = {}) {
    std::unique_ptr<TableReader> reader;
    MXREC_RETURN_IF_ERROR(TableReader::Open(Env::Posix(), directory_, *table, false, &reader));
    return reader->Load(table, expected, ThreadedFor(threads));
  }

  void ExpectDataLoss(const Status& status, const std::string& file) {
    EXPECT_EQ(status.code(), Status::Code::kDataLoss) << status.message();
    EXPECT_NE(status.message().find(directory_ + "/" + file + "'"), std::string::npos) << status.message();
  }

  std::string root_, directory_;
  int64_t rows_ = -1;
  std::vector<CheckpointFile> files_;
};

}  // namespace checkpoint_fixture
}  // namespace mxrec
