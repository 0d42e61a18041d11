#include "base/files.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>

namespace mxrec {
namespace {

// The kernel writes at most 2 GiB - 4 KiB in one call; a smaller piece changes nothing.
constexpr size_t kMaxWrite = size_t{1} << 30;

Status Failure(const std::string& what, const std::string& path, int error) {
  return Status::IoError("cannot " + what + " '" + path + "': " + strerror(error));
}

class PosixWritableFile : public WritableFile {
 public:
  PosixWritableFile(std::string path, int fd) : path_(std::move(path)), fd_(fd) {}
  ~PosixWritableFile() override {
    if (fd_ >= 0) close(fd_);
  }

  Status Append(const void* data, size_t n) override {
    const char* p = static_cast<const char*>(data);
    while (n > 0) {
      const ssize_t written = write(fd_, p, std::min(n, kMaxWrite));
      if (written < 0) {
        if (errno == EINTR) continue;
        return Failure("write", path_, errno);
      }
      p += written;
      n -= static_cast<size_t>(written);
    }
    return Status();
  }

  Status Sync() override { return fsync(fd_) == 0 ? Status() : Failure("sync", path_, errno); }

  Status Close() override {
    const int fd = fd_;
    fd_ = -1;
    return close(fd) == 0 ? Status() : Failure("close", path_, errno);
  }

 private:
  std::string path_;
  int fd_;
};

class PosixFileView : public FileView {
 public:
  PosixFileView(void* data, int64_t size)
      : FileView(static_cast<const char*>(data), size), mapped_(data), bytes_(static_cast<size_t>(size)) {}
  ~PosixFileView() override {
    if (mapped_ != nullptr) munmap(mapped_, bytes_);
  }

 private:
  void* mapped_;
  size_t bytes_;
};

class PosixEnv : public Env {
 public:
  Status Create(const std::string& path, std::unique_ptr<WritableFile>* file) override {
    const int fd = open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0640);
    if (fd < 0) return Failure("create", path, errno);
    file->reset(new PosixWritableFile(path, fd));
    return Status();
  }

  Status Map(const std::string& path, std::unique_ptr<FileView>* view) override {
    const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
      const int error = errno;
      const Status failure = Failure("open", path, error);
      return error == ENOENT ? Status::NotFound(failure.message()) : failure;
    }
    Status status;
    struct stat facts;
    if (fstat(fd, &facts) != 0) {
      status = Failure("examine", path, errno);
    } else if (!S_ISREG(facts.st_mode)) {
      status = Status::IoError("cannot read '" + path + "': not a regular file");
    } else if (facts.st_size == 0) {
      view->reset(new PosixFileView(nullptr, 0));  // the kernel maps no empty files
    } else {
      void* data = mmap(nullptr, static_cast<size_t>(facts.st_size), PROT_READ, MAP_SHARED, fd, 0);
      if (data == MAP_FAILED) {
        status = Failure("map", path, errno);
      } else {
        madvise(data, static_cast<size_t>(facts.st_size), MADV_SEQUENTIAL);  // read well ahead
        view->reset(new PosixFileView(data, facts.st_size));
      }
    }
    close(fd);
    return status;
  }

  Status MakeDirectory(const std::string& path) override {
    return mkdir(path.c_str(), 0750) == 0 ? Status() : Failure("make the directory", path, errno);
  }

  Status SyncDirectory(const std::string& path) override {
    const int fd = open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) return Failure("open the directory", path, errno);
    const Status status = fsync(fd) == 0 ? Status() : Failure("sync the directory", path, errno);
    close(fd);
    return status;
  }

  Status Rename(const std::string& from, const std::string& to) override {
    return rename(from.c_str(), to.c_str()) == 0 ? Status() : Failure("rename to '" + to + "' the file", from, errno);
  }

  Status Remove(const std::string& path) override {
    return remove(path.c_str()) == 0 ? Status() : Failure("remove", path, errno);
  }
};

}  // namespace

Env& Env::Posix() {
  static PosixEnv env;
  return env;
}

}  // namespace mxrec
