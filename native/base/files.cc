#include "base/files.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>

namespace mxrec {
namespace {

// The kernel writes at most 2 GiB - 4 KiB in one call; a smaller piece changes nothing.
constexpr size_t kMaxWrite = size_t{1} << 30;

Status Failure(const std::string& what, const std::string& path, int error) {
  return Status::IoError("cannot " + what + " '" + path + "': " + strerror(error));
}

// 0, or what the system said.
int WriteAll(int fd, int64_t offset, const void* data, size_t n) {
  const char* p = static_cast<const char*>(data);
  while (n > 0) {
    const ssize_t written = pwrite(fd, p, std::min(n, kMaxWrite), offset);
    if (written < 0) {
      if (errno == EINTR) continue;
      return errno;
    }
    p += written;
    offset += written;
    n -= static_cast<size_t>(written);
  }
  return 0;
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

  Status WriteAt(int64_t offset, const void* data, size_t n) override {
    const int error = WriteAll(fd_, offset, data, n);
    if (error != 0) return Failure("write", path_, error);
    // The disk can begin at once: all that is written is synced in the end.
    sync_file_range(fd_, offset, static_cast<off64_t>(n), SYNC_FILE_RANGE_WRITE);
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

class PosixScratchFile : public ScratchFile {
 public:
  PosixScratchFile(const std::string& directory, int fd) : what_("scratch space in '" + directory + "'"), fd_(fd) {}
  ~PosixScratchFile() override { close(fd_); }

  Status Reserve(int64_t offset, int64_t n) override {
    int error;
    do {
      error = fallocate(fd_, 0, offset, n) == 0 ? 0 : errno;
    } while (error == EINTR);
    return error == 0 || error == EOPNOTSUPP ? Status() : Refused("reserve ", error);
  }

  Status Read(int64_t offset, void* data, size_t n) const override {
    char* p = static_cast<char*>(data);
    while (n > 0) {
      const ssize_t got = pread(fd_, p, std::min(n, kMaxWrite), offset);
      if (got == 0) return Status::IoError("cannot read " + what_ + ": it ends at byte " + std::to_string(offset));
      if (got < 0) {
        if (errno == EINTR) continue;
        return Refused("read ", errno);
      }
      p += got;
      offset += got;
      n -= static_cast<size_t>(got);
    }
    return Status();
  }

  bool ReadNow(int64_t offset, void* data, size_t n) const override {
    const iovec piece = {data, n};
    return preadv2(fd_, &piece, 1, offset, RWF_NOWAIT) == static_cast<ssize_t>(n);
  }

  void WillNeed(int64_t offset, size_t n) const override {
    posix_fadvise(fd_, offset, static_cast<off_t>(n), POSIX_FADV_WILLNEED);
  }

  Status Write(int64_t offset, const void* data, size_t n) override {
    const int error = WriteAll(fd_, offset, data, n);
    return error == 0 ? Status() : Refused("write ", error);
  }

 private:
  Status Refused(const char* verb, int error) const {
    const std::string message = std::string("cannot ") + verb + what_ + ": " + strerror(error);
    const bool is_full = error == ENOSPC || error == EDQUOT || error == EFBIG;
    return is_full ? Status::ResourceExhausted(message) : Status::IoError(message);
  }

  std::string what_;
  int fd_;
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

  Status Scratch(const std::string& directory, std::unique_ptr<ScratchFile>* file) override {
    // A name for as long as it takes to remove it: not every file system has files without one (O_TMPFILE).
    std::string path = directory + "/mxrec_scratch_XXXXXX";
    const int fd = mkostemp(&path[0], O_CLOEXEC | O_NOATIME);
    if (fd < 0) return Failure("make scratch space in", directory, errno);
    unlink(path.c_str());
    posix_fadvise(fd, 0, 0, POSIX_FADV_RANDOM);  // neighbours in the file are no neighbours in use
    file->reset(new PosixScratchFile(directory, fd));
    return Status();
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
