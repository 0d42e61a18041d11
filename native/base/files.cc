#include "base/files.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <mutex>
#include <vector>

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

// The same file again, to be read or written past the page cache; -1 if it cannot.
int OpenDirect(int fd, int mode) {
  return open(("/proc/self/fd/" + std::to_string(fd)).c_str(), mode | O_DIRECT | O_CLOEXEC);
}

class PosixWritableFile : public WritableFile {
 public:
  PosixWritableFile(std::string path, int fd) : path_(std::move(path)), fd_(fd) {}
  ~PosixWritableFile() override {
    if (fd_ >= 0) close(fd_);
    if (direct_ >= 0) close(direct_);
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

  // Past the page cache 2.1 GB/s were measured, for 0.06 ns of processor time a byte; through it, 0.3 to 2.2 GB/s for
  // 0.4 to 1.4 ns, on the same disk within minutes: pages must be found, and on a virtual machine the host must find
  // them.
  Status WriteAt(int64_t offset, const void* data, size_t n) override {
    const char* from = static_cast<const char*>(data);
    const int64_t end = offset + static_cast<int64_t>(n);
    const int64_t first = (offset + kFileBlock - 1) / kFileBlock * kFileBlock, last = end / kFileBlock * kFileBlock;
    const bool fits = (reinterpret_cast<uintptr_t>(data) - static_cast<uintptr_t>(offset)) % kFileBlock == 0;
    if (!fits || last - first < kWorthwhile || !HasDirect()) return WriteCached(offset, from, n);
    const int error = WriteAll(direct_, first, from + (first - offset), static_cast<size_t>(last - first));
    if (error == EINVAL) return WriteCached(offset, from, n);  // it cannot do that after all
    if (error != 0) return Failure("write", path_, error);
    MXREC_RETURN_IF_ERROR(WriteCached(offset, from, static_cast<size_t>(first - offset)));
    return WriteCached(last, from + (last - offset), static_cast<size_t>(end - last));
  }

  Status Sync() override { return fsync(fd_) == 0 ? Status() : Failure("sync", path_, errno); }

  Status Close() override {
    const int fd = fd_;
    fd_ = -1;
    return close(fd) == 0 ? Status() : Failure("close", path_, errno);
  }

 private:
  static constexpr int64_t kWorthwhile = 256 << 10;

  bool HasDirect() {
    std::call_once(is_asked_, [this] { direct_ = OpenDirect(fd_, O_WRONLY); });
    return direct_ >= 0;
  }

  Status WriteCached(int64_t offset, const char* data, size_t n) {
    if (n == 0) return Status();
    const int error = WriteAll(fd_, offset, data, n);
    if (error != 0) return Failure("write", path_, error);
    // The disk can begin at once: all that is written is synced in the end.
    sync_file_range(fd_, offset, static_cast<off64_t>(n), SYNC_FILE_RANGE_WRITE);
    return Status();
  }

  std::string path_;
  int fd_, direct_ = -1;
  std::once_flag is_asked_;
};

class PosixFileView : public FileView {
 public:
  // Takes over both descriptors; `direct` reads past the page cache, or is -1.
  PosixFileView(std::string path, int fd, int direct, void* data, int64_t size)
      : FileView(static_cast<const char*>(data), size), path_(std::move(path)), fd_(fd), direct_(direct) {}
  ~PosixFileView() override {
    if (data() != nullptr) munmap(const_cast<char*>(data()), static_cast<size_t>(size()));
    close(fd_);
    if (direct_ >= 0) close(direct_);
  }

  // Past the page cache a disk that delivers 4.4 GB/s does so at a tenth of a core; through it, 0.5 to 5 GB/s were
  // measured, for up to 2 ns a byte: pages must be found, and on a virtual machine the host must find them, too.
  Status Read(int64_t offset, int64_t n, Use use, char* buffer, const char** at) const override {
    const int64_t begin = offset / kFileBlock * kFileBlock,
                  end = (offset + n + kFileBlock - 1) / kFileBlock * kFileBlock;
    *at = buffer + (offset - begin);
    int64_t got = 0;
    if (use == Use::kOnce && direct_ >= 0 && !IsCached(begin, end)) {
      const int error = ReadAtLeast(direct_, begin, offset + n - begin, buffer, end - begin, &got);
      if (error == 0 && got >= offset + n - begin) return Status();
      if (error != 0 && error != EINVAL) return Failed(begin + got, error);  // EINVAL: it cannot do that after all
      got = 0;
    }
    const int error = ReadAtLeast(fd_, offset, n, buffer + (offset - begin), n, &got);
    if (error != 0) return Failed(offset + got, error);
    if (got == n) return Status();
    return Status::IoError("cannot read '" + path_ + "': it ends at offset " + std::to_string(offset + got) +
                           ", it had " + std::to_string(size()) + " bytes before");
  }

 private:
  // Reads `n` bytes, but does not ask again once it has got `least`: behind a file's end a direct read is refused.
  // 0, or what the system said; less than `least` bytes only at the end of the file.
  static int ReadAtLeast(int fd, int64_t offset, int64_t least, char* to, int64_t n, int64_t* got) {
    while (*got < least) {
      const ssize_t more = pread(fd, to + *got, static_cast<size_t>(n - *got), offset + *got);
      if (more == 0) return 0;
      if (more < 0 && errno == EINTR) continue;
      if (more < 0) return errno;
      *got += more;
    }
    return 0;
  }

  // Whether all of it can be had without the disk.
  bool IsCached(int64_t begin, int64_t end) const {
    std::vector<unsigned char> pages(static_cast<size_t>((end - begin) / kFileBlock));
    const int64_t n = std::min(end, size()) - begin;
    if (mincore(const_cast<char*>(data()) + begin, static_cast<size_t>(n), pages.data()) != 0) return true;
    pages.resize(static_cast<size_t>((n + kFileBlock - 1) / kFileBlock));
    return std::all_of(pages.begin(), pages.end(), [](unsigned char page) { return (page & 1) != 0; });
  }

  Status Failed(int64_t offset, int error) const {
    return Status::IoError("cannot read '" + path_ + "' at offset " + std::to_string(offset) + ": " + strerror(error));
  }

  std::string path_;
  int fd_, direct_;
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

// -1 if it cannot.
int OpenToRead(const std::string& path) {
  // A FIFO would keep us waiting for a writer; what is no regular file is refused later.
  constexpr int kFlags = O_RDONLY | O_CLOEXEC | O_NONBLOCK;
  const int fd = open(path.c_str(), kFlags);
  if (fd >= 0 || errno != EMFILE) return fd;
  // A restore keeps all files of its tables open, and 1024 is what most processes may.
  struct rlimit limit;
  if (getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur < limit.rlim_max) {
    limit.rlim_cur = limit.rlim_max;
    if (setrlimit(RLIMIT_NOFILE, &limit) == 0) return open(path.c_str(), kFlags);
  }
  errno = EMFILE;
  return -1;
}

// Reading a smaller file past the page cache would gain nothing.
constexpr int64_t kWorthwhile = 1 << 20;

class PosixEnv : public Env {
 public:
  Status Create(const std::string& path, std::unique_ptr<WritableFile>* file) override {
    return Open(path, O_TRUNC, file);
  }

  Status Join(const std::string& path, std::unique_ptr<WritableFile>* file) override { return Open(path, 0, file); }

  Status Map(const std::string& path, std::unique_ptr<FileView>* view) override {
    const int fd = OpenToRead(path);
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
      view->reset(new PosixFileView(path, fd, -1, nullptr, 0));  // the kernel maps no empty files
      return status;
    } else {
      void* data = mmap(nullptr, static_cast<size_t>(facts.st_size), PROT_READ, MAP_SHARED, fd, 0);
      if (data == MAP_FAILED) {
        status = Failure("map", path, errno);
      } else {
        madvise(data, static_cast<size_t>(facts.st_size), MADV_SEQUENTIAL);  // read well ahead
        view->reset(new PosixFileView(path, fd, facts.st_size < kWorthwhile ? -1 : OpenDirect(fd, O_RDONLY), data,
                                      facts.st_size));
        return status;
      }
    }
    close(fd);
    return status;
  }

  Status MakeDirectory(const std::string& path) override {
    return mkdir(path.c_str(), 0750) == 0 ? Status() : Failure("make the directory", path, errno);
  }

  Status JoinDirectory(const std::string& path) override {
    if (mkdir(path.c_str(), 0750) == 0 || errno == EEXIST) return Status();
    return Failure("make the directory", path, errno);
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

 private:
  static Status Open(const std::string& path, int flags, std::unique_ptr<WritableFile>* file) {
    const int fd = open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | flags, 0640);
    if (fd < 0) return Failure("create", path, errno);
    file->reset(new PosixWritableFile(path, fd));
    return Status();
  }
};

}  // namespace

Env& Env::Posix() {
  static PosixEnv env;
  return env;
}

}  // namespace mxrec
