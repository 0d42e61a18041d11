// Makes file operations fail on purpose. Loaded by LD_PRELOAD, it stands between a program and the C library, counts
// what is done to files below one directory, and has the n-th operation fail:
//
//   faults_arm("/tmp/x", 17, FAIL_ONCE, ENOSPC);  ...  long seen = faults_disarm();
//
// Counted is what changes files or waits for the disk; opening to read, and reading, is not. A stream's operations
// count as they are called, for the C library's own calls under them cannot be intercepted. Below the directory, fsync
// does not wait: it would take most of the time, and what a power cut takes is not what is tested here.

#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdio_ext.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

enum Mode {
  COUNT = 0,      // nothing fails
  FAIL_ONCE = 1,  // the n-th fails, having done nothing
  DIE = 2,   // the n-th, if it writes, stores half of its bytes; it and all later ones fail, having done nothing else
  KILL = 3,  // the same, and the process is killed
};

static char root[PATH_MAX];
static size_t root_length;
static int mode, failure;
static long target;
static atomic_int armed;
static atomic_long count;
static char log_text[1 << 20];
static atomic_size_t log_length;

void faults_arm(const char* directory, long n, int how, int error) {
  snprintf(root, sizeof root, "%s/", directory);
  root_length = strlen(root);
  target = n, mode = how, failure = error;
  atomic_store(&count, 0);
  atomic_store(&log_length, 0);
  atomic_store(&armed, 1);
}

long faults_disarm(void) {
  atomic_store(&armed, 0);
  return atomic_load(&count);
}

// The operations since faults_arm, a line each: name, path.
const char* faults_log(void) {
  log_text[atomic_load(&log_length)] = 0;
  return log_text;
}

#define REAL(name)                                                \
  ({                                                              \
    static __typeof__(&name) real;                                \
    if (!real) real = (__typeof__(&name))dlsym(RTLD_NEXT, #name); \
    real;                                                         \
  })

enum Verdict { PASS, FAIL, TEAR };

static int is_below(const char* path) {
  return root_length && (strncmp(path, root, root_length) == 0 ||
                         (strncmp(path, root, root_length - 1) == 0 && strlen(path) == root_length - 1));
}

static enum Verdict judge(const char* operation, const char* path) {
  if (!is_below(path)) return PASS;
  const long i = atomic_fetch_add(&count, 1) + 1;
  char line[PATH_MAX + 32];
  const size_t length = (size_t)snprintf(line, sizeof line, "%s %s\n", operation, path);
  const size_t at = atomic_fetch_add(&log_length, length);
  if (at + length < sizeof log_text) memcpy(log_text + at, line, length);
  enum Verdict verdict = PASS;
  if (mode != COUNT && i == target) verdict = mode == FAIL_ONCE ? FAIL : TEAR;
  if ((mode == DIE || mode == KILL) && i > target) verdict = FAIL;
  if (verdict != PASS) errno = failure;
  return verdict;
}

static void die(void) {
  if (mode == KILL) {
    kill(getpid(), SIGKILL);
    pause();
  }
  errno = failure;
}

static enum Verdict judge_path(const char* operation, int directory, const char* path) {
  if (!atomic_load(&armed)) return PASS;
  char full[2 * PATH_MAX];
  if (path[0] != '/' && directory != AT_FDCWD) {
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", directory);
    const ssize_t length = readlink(link, full, PATH_MAX - 1);
    if (length < 0) return PASS;
    snprintf(full + length, sizeof full - (size_t)length, "/%s", path);
    path = full;
  }
  return judge(operation, path);
}

static int path_of(int file, char* path) {
  char link[64];
  snprintf(link, sizeof link, "/proc/self/fd/%d", file);
  const int saved = errno;
  const ssize_t length = readlink(link, path, PATH_MAX - 1);
  errno = saved;
  if (length < 0) return 0;
  path[length] = 0;
  return 1;
}

static enum Verdict judge_file(const char* operation, int file) {
  char path[PATH_MAX];
  return atomic_load(&armed) && path_of(file, path) ? judge(operation, path) : PASS;
}

static int writes(int file) {
  const int flags = fcntl(file, F_GETFL);
  return flags >= 0 && (flags & O_ACCMODE) != O_RDONLY;
}

// Of an operation that does nothing if it fails. A torn one is that, and the end.
#define OR_FAIL(verdict, result)      \
  do {                                \
    const enum Verdict v = (verdict); \
    if (v == TEAR) die();             \
    if (v != PASS) return result;     \
  } while (0)

// ---- Opening and closing.

#define OPEN(name)                                                                        \
  int name(const char* path, int flags, ...) {                                            \
    mode_t rights = 0;                                                                    \
    if (flags & (O_CREAT | O_TMPFILE)) {                                                  \
      va_list rest;                                                                       \
      va_start(rest, flags);                                                              \
      rights = va_arg(rest, mode_t);                                                      \
      va_end(rest);                                                                       \
    }                                                                                     \
    if ((flags & O_ACCMODE) != O_RDONLY) OR_FAIL(judge_path("open", AT_FDCWD, path), -1); \
    return REAL(name)(path, flags, rights);                                               \
  }
OPEN(open)
OPEN(open64)

#define OPENAT(name)                                                                       \
  int name(int directory, const char* path, int flags, ...) {                              \
    mode_t rights = 0;                                                                     \
    if (flags & (O_CREAT | O_TMPFILE)) {                                                   \
      va_list rest;                                                                        \
      va_start(rest, flags);                                                               \
      rights = va_arg(rest, mode_t);                                                       \
      va_end(rest);                                                                        \
    }                                                                                      \
    if ((flags & O_ACCMODE) != O_RDONLY) OR_FAIL(judge_path("open", directory, path), -1); \
    return REAL(name)(directory, path, flags, rights);                                     \
  }
OPENAT(openat)
OPENAT(openat64)

int creat(const char* path, mode_t rights) {
  OR_FAIL(judge_path("open", AT_FDCWD, path), -1);
  return REAL(creat)(path, rights);
}

int creat64(const char* path, mode_t rights) {
  OR_FAIL(judge_path("open", AT_FDCWD, path), -1);
  return REAL(creat64)(path, rights);
}

int close(int file) {
  const enum Verdict verdict = atomic_load(&armed) && writes(file) ? judge_file("close", file) : PASS;
  const int result = REAL(close)(file);
  if (verdict == TEAR) die();
  if (verdict == PASS) return result;
  errno = failure;
  return -1;
}

// ---- Writing.

ssize_t write(int file, const void* data, size_t size) {
  const enum Verdict verdict = judge_file("write", file);
  if (verdict == PASS) return REAL(write)(file, data, size);
  if (verdict == TEAR) {
    if (REAL(write)(file, data, size / 2) < 0) abort();
    die();
  }
  return -1;
}

#define PWRITE(name, offset_type)                                             \
  ssize_t name(int file, const void* data, size_t size, offset_type offset) { \
    const enum Verdict verdict = judge_file("pwrite", file);                  \
    if (verdict == PASS) return REAL(name)(file, data, size, offset);         \
    if (verdict == TEAR) {                                                    \
      if (REAL(name)(file, data, size / 2, offset) < 0) abort();              \
      die();                                                                  \
    }                                                                         \
    return -1;                                                                \
  }
PWRITE(pwrite, off_t)
PWRITE(pwrite64, off64_t)

ssize_t writev(int file, const struct iovec* parts, int n) {
  const enum Verdict verdict = judge_file("writev", file);
  if (verdict == PASS) return REAL(writev)(file, parts, n);
  if (verdict == TEAR) {
    if (n > 0 && REAL(write)(file, parts[0].iov_base, parts[0].iov_len / 2) < 0) abort();
    die();
  }
  return -1;
}

ssize_t sendfile(int out, int in, off_t* offset, size_t size) {
  OR_FAIL(judge_file("sendfile", out), -1);
  return REAL(sendfile)(out, in, offset, size);
}

ssize_t copy_file_range(int in, off64_t* from, int out, off64_t* to, size_t size, unsigned flags) {
  OR_FAIL(judge_file("copy_file_range", out), -1);
  return REAL(copy_file_range)(in, from, out, to, size, flags);
}

#define TRUNCATE(name, offset_type)             \
  int name(int file, offset_type size) {        \
    OR_FAIL(judge_file("ftruncate", file), -1); \
    return REAL(name)(file, size);              \
  }
TRUNCATE(ftruncate, off_t)
TRUNCATE(ftruncate64, off64_t)

#define ALLOCATE(name, offset_type)                                   \
  int name(int file, int how, offset_type offset, offset_type size) { \
    OR_FAIL(judge_file("fallocate", file), -1);                       \
    return REAL(name)(file, how, offset, size);                       \
  }
ALLOCATE(fallocate, off_t)
ALLOCATE(fallocate64, off64_t)

static int is_file_below(int file) {
  char path[PATH_MAX];
  return path_of(file, path) && is_below(path);
}

int fsync(int file) {
  OR_FAIL(judge_file("fsync", file), -1);
  return is_file_below(file) ? 0 : REAL(fsync)(file);
}

int fdatasync(int file) {
  OR_FAIL(judge_file("fdatasync", file), -1);
  return is_file_below(file) ? 0 : REAL(fdatasync)(file);
}

// ---- Streams.

#define FOPEN(name)                                                              \
  FILE* name(const char* path, const char* how) {                                \
    if (strpbrk(how, "wa+")) OR_FAIL(judge_path("fopen", AT_FDCWD, path), NULL); \
    return REAL(name)(path, how);                                                \
  }
FOPEN(fopen)
FOPEN(fopen64)

size_t fwrite(const void* data, size_t size, size_t n, FILE* stream) {
  const enum Verdict verdict = judge_file("fwrite", fileno(stream));
  if (verdict == PASS) return REAL(fwrite)(data, size, n, stream);
  if (verdict == TEAR) {
    REAL(fwrite)(data, 1, size * n / 2, stream);
    REAL(fflush)(stream);
    die();
  }
  return 0;
}

int fflush(FILE* stream) {
  if (stream && writes(fileno(stream))) OR_FAIL(judge_file("fflush", fileno(stream)), EOF);
  return REAL(fflush)(stream);
}

int fclose(FILE* stream) {
  const enum Verdict verdict =
      atomic_load(&armed) && writes(fileno(stream)) ? judge_file("fclose", fileno(stream)) : PASS;
  if (verdict == PASS) return REAL(fclose)(stream);
  if (mode != FAIL_ONCE) __fpurge(stream);  // the dead write nothing more
  if (verdict == TEAR) die();
  REAL(fclose)(stream);
  errno = failure;
  return EOF;
}

// ---- Names.

int rename(const char* from, const char* to) {
  OR_FAIL(judge_path("rename", AT_FDCWD, to), -1);
  return REAL(rename)(from, to);
}

int renameat(int from_directory, const char* from, int to_directory, const char* to) {
  OR_FAIL(judge_path("rename", to_directory, to), -1);
  return REAL(renameat)(from_directory, from, to_directory, to);
}

int link(const char* from, const char* to) {
  OR_FAIL(judge_path("link", AT_FDCWD, to), -1);
  return REAL(link)(from, to);
}

int linkat(int from_directory, const char* from, int to_directory, const char* to, int flags) {
  OR_FAIL(judge_path("link", to_directory, to), -1);
  return REAL(linkat)(from_directory, from, to_directory, to, flags);
}

int mkdir(const char* path, mode_t rights) {
  OR_FAIL(judge_path("mkdir", AT_FDCWD, path), -1);
  return REAL(mkdir)(path, rights);
}

int mkdirat(int directory, const char* path, mode_t rights) {
  OR_FAIL(judge_path("mkdir", directory, path), -1);
  return REAL(mkdirat)(directory, path, rights);
}

int unlink(const char* path) {
  OR_FAIL(judge_path("unlink", AT_FDCWD, path), -1);
  return REAL(unlink)(path);
}

int unlinkat(int directory, const char* path, int flags) {
  OR_FAIL(judge_path("unlink", directory, path), -1);
  return REAL(unlinkat)(directory, path, flags);
}

int rmdir(const char* path) {
  OR_FAIL(judge_path("rmdir", AT_FDCWD, path), -1);
  return REAL(rmdir)(path);
}

int remove(const char* path) {
  OR_FAIL(judge_path("remove", AT_FDCWD, path), -1);
  return REAL(remove)(path);
}
