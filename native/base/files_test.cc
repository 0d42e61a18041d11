// Files; those of checkpoints are tested with these, too.
#include "base/files.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "base/pages.h"
#include "base/scratch_fixture.h"

namespace mxrec {
namespace {

using scratch_fixture::TemporaryDirectory;

std::unique_ptr<ScratchFile> MakeScratch(const TemporaryDirectory& directory) {
  std::unique_ptr<ScratchFile> file;
  const Status status = Env::Posix().Scratch(directory.path(), &file);
  EXPECT_TRUE(status.ok()) << status.message();
  return file;
}

std::string RandomBytes(size_t n, std::mt19937_64* random) {
  std::string bytes(n, 0);
  for (char& byte : bytes) byte = static_cast<char>((*random)());
  return bytes;
}

// Throws a file out of the page cache, so that it is read from the disk.
void Drop(const std::string& path) {
  const int fd = open(path.c_str(), O_RDONLY);
  ASSERT_GE(fd, 0);
  EXPECT_EQ(fsync(fd), 0);
  EXPECT_EQ(posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED), 0);
  close(fd);
}

TEST(WritableFile, WritesAnyPartThroughOrPastThePageCache) {
  const TemporaryDirectory directory;
  const std::string path = directory.path() + "/file";
  constexpr size_t kSize = (size_t{4} << 20) + 999;
  std::mt19937_64 random(1);
  std::string content = RandomBytes(kSize, &random);
  // In parts of any length, of which those that lie in memory as they do in the file may bypass the page cache; two
  // threads at a time, so that one's last block is the other's first.
  for (int round = 0; round < 8; ++round) {
    std::unique_ptr<WritableFile> file;
    ASSERT_TRUE(Env::Posix().Create(path, &file).ok());
    const size_t middle = random() % kSize;
    auto write = [&](size_t from, size_t to, uint64_t seed) {
      std::mt19937_64 lengths(seed);
      const Pages buffer(kSize + 2 * kFileBlock, Pages::Kind::kLazy);
      while (from < to) {
        const size_t n = std::min(to - from, 1 + lengths() % (size_t{1} << 20));
        const size_t shift = lengths() % 4 == 0 ? 1 : 0;
        char* data = static_cast<char*>(buffer.data()) + from % kFileBlock + shift;
        content.copy(data, n, from);
        EXPECT_TRUE(file->WriteAt(static_cast<int64_t>(from), data, n).ok());
        from += n;
      }
    };
    std::thread other([&] { write(0, middle, round); });
    write(middle, kSize, round + 100);
    other.join();
    ASSERT_TRUE(file->Sync().ok());
    ASSERT_TRUE(file->Close().ok());
    std::ifstream in(path, std::ios::binary);
    const std::string read((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
    ASSERT_TRUE(read == content);
  }
}

TEST(FileView, ReadsAnyPartInOrPastThePageCache) {
  const TemporaryDirectory directory;
  const std::string path = directory.path() + "/file";
  std::mt19937_64 random(1);
  // Larger ones are read past the page cache, up to their end in the middle of a block.
  for (const size_t size : {size_t{1}, size_t{4096}, size_t{5000}, size_t{1} << 20, (size_t{3} << 20) + 777}) {
    const std::string content = RandomBytes(size, &random);
    std::ofstream(path, std::ios::binary | std::ios::trunc) << content;
    std::unique_ptr<FileView> view;
    ASSERT_TRUE(Env::Posix().Map(path, &view).ok());
    ASSERT_EQ(view->size(), static_cast<int64_t>(size));
    for (int i = 0; i < 60; ++i) {
      if (i % 3 == 0) Drop(path);
      // The whole, its end, a block, or anything.
      size_t from = i % 4 == 0 ? 0 : random() % size, n = size - from;
      if (i % 4 == 2) n = std::min(n, size_t{4096});
      if (i % 4 == 3) n = random() % (n + 1);
      const Pages buffer(n + 2 * kFileBlock, Pages::Kind::kLazy);
      const FileView::Use use = i % 2 == 0 ? FileView::Use::kOnce : FileView::Use::kAgain;
      const char* at = nullptr;
      const Status status =
          view->Read(static_cast<int64_t>(from), static_cast<int64_t>(n), use, static_cast<char*>(buffer.data()), &at);
      ASSERT_TRUE(status.ok()) << status.message();
      ASSERT_TRUE(content.compare(from, n, at, n) == 0) << from << " " << n << " of " << size;
    }
  }
}

TEST(FileView, AFileThatWasCutMeanwhileIsToldWithItsEnd) {
  const TemporaryDirectory directory;
  const std::string path = directory.path() + "/file";
  std::mt19937_64 random(1);
  std::ofstream(path, std::ios::binary) << RandomBytes(2 << 20, &random);
  std::unique_ptr<FileView> view;
  ASSERT_TRUE(Env::Posix().Map(path, &view).ok());
  std::filesystem::resize_file(path, 1000);
  const Pages buffer((2 << 20) + 2 * kFileBlock, Pages::Kind::kLazy);
  for (const FileView::Use use : {FileView::Use::kOnce, FileView::Use::kAgain}) {
    const char* at;
    const Status status = view->Read(0, 2 << 20, use, static_cast<char*>(buffer.data()), &at);
    EXPECT_EQ(status.code(), Status::Code::kIoError);
    EXPECT_NE(status.message().find("'" + path + "': it ends at offset 1000"), std::string::npos) << status.message();
  }
}

TEST(ScratchFile, ReadsWhatWasWrittenAtAnyOffset) {
  const TemporaryDirectory directory;
  const auto file = MakeScratch(directory);
  std::mt19937_64 random(1);
  std::string content;
  for (int i = 0; i < 500; ++i) {
    const size_t offset = random() % 100000;
    const std::string bytes = RandomBytes(1 + random() % 9000, &random);
    if (random() % 4 == 0) {
      ASSERT_TRUE(file->Reserve(static_cast<int64_t>(offset), 20000).ok());
    }
    ASSERT_TRUE(file->Write(static_cast<int64_t>(offset), bytes.data(), bytes.size()).ok());
    if (content.size() < offset + bytes.size()) content.resize(offset + bytes.size(), 0);  // what is skipped is zeros
    content.replace(offset, bytes.size(), bytes);

    const size_t from = random() % content.size(), n = random() % (content.size() - from + 1);
    // It can be asked for in advance or not; also where the file ends, and behind that.
    std::string now(n, 'x'), any(1 + random() % 9000, 'x');
    if (file->ReadNow(static_cast<int64_t>(from), &now[0], n)) {
      ASSERT_TRUE(now == content.substr(from, n));
    }
    file->ReadNow(static_cast<int64_t>(random() % 200000), &any[0], any.size());
    file->WillNeed(static_cast<int64_t>(random() % 200000), 1 + random() % 9000);
    std::string read(n, 'x');
    ASSERT_TRUE(file->Read(static_cast<int64_t>(from), read.data(), n).ok());
    ASSERT_TRUE(read == content.substr(from, n)) << from << " " << n;
  }
}

TEST(ScratchFile, ManyThreadsReadAndWriteDifferentBytes) {
  const TemporaryDirectory directory;
  const auto file = MakeScratch(directory);
  constexpr int kThreads = 4, kRecord = 3000, kRecords = 200;
  std::vector<std::thread> threads;
  std::vector<int> wrong(kThreads, 0);
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      std::mt19937_64 random(t);
      std::vector<std::string> records(kRecords);
      for (int i = 0; i < 2 * kRecords; ++i) {
        const int record = static_cast<int>(random() % kRecords);
        const int64_t offset = int64_t{record * kThreads + t} * kRecord;  // the threads' records take turns
        if (records[record].empty()) {
          records[record] = RandomBytes(kRecord, &random);
          wrong[t] += !file->Write(offset, records[record].data(), kRecord).ok();
          continue;
        }
        std::string read(kRecord, 'x');
        wrong[t] += !file->Read(offset, read.data(), kRecord).ok() || read != records[record];
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, std::vector<int>(kThreads, 0));
}

TEST(ScratchFile, HasNoName) {
  const TemporaryDirectory directory;
  const auto file = MakeScratch(directory), other = MakeScratch(directory);
  EXPECT_EQ(directory.names(), 0);
  ASSERT_TRUE(file->Write(0, "abc", 3).ok());
  ASSERT_TRUE(other->Write(0, "xyz", 3).ok());
  EXPECT_EQ(directory.names(), 0);
  char read[3];
  ASSERT_TRUE(file->Read(0, read, 3).ok());
  EXPECT_EQ(std::string(read, 3), "abc");
}

TEST(ScratchFile, EndingBeforeWhatIsReadIsAnErrorThatNamesTheDirectory) {
  const TemporaryDirectory directory;
  const auto file = MakeScratch(directory);
  ASSERT_TRUE(file->Write(0, "0123456789", 10).ok());
  char read[10];
  for (const int64_t offset : {1, 10, 5000}) {
    const Status status = file->Read(offset, read, 10);
    EXPECT_EQ(status.code(), Status::Code::kIoError);
    EXPECT_NE(status.message().find("'" + directory.path() + "'"), std::string::npos) << status.message();
  }
  char data[10];
  EXPECT_FALSE(file->ReadNow(5, data, 10));
  EXPECT_TRUE(file->Read(0, read, 10).ok());
}

TEST(ScratchFile, CannotBeMadeWhereThereIsNoDirectoryOrNothingCanBeWritten) {
  const TemporaryDirectory directory;
  std::ofstream(directory.path() + "/file") << "no directory";
  // Nobody may write in /proc, not even root, who may write in a directory without permissions.
  for (const std::string& path : {directory.path() + "/missing", directory.path() + "/file", std::string("/proc")}) {
    std::unique_ptr<ScratchFile> file;
    const Status status = Env::Posix().Scratch(path, &file);
    EXPECT_EQ(status.code(), Status::Code::kIoError);
    EXPECT_NE(status.message().find("'" + path + "'"), std::string::npos) << status.message();
    EXPECT_EQ(file, nullptr);
  }
  EXPECT_EQ(directory.names(), 1);
}

TEST(ScratchFile, NoSpaceIsResourceExhausted) {
  const TemporaryDirectory directory;
  const auto file = MakeScratch(directory);
  // A limit on the size of files stands for a full disk: what fits is written, and then no more.
  rlimit before;
  getrlimit(RLIMIT_FSIZE, &before);
  const auto handler = signal(SIGXFSZ, SIG_IGN);
  rlimit limit = before;
  limit.rlim_cur = 1 << 20;
  setrlimit(RLIMIT_FSIZE, &limit);
  const std::string bytes(4096, 'x');
  const Status fits = file->Write((1 << 20) - 4096, bytes.data(), bytes.size());
  const Status half = file->Write((1 << 20) - 2048, bytes.data(), bytes.size());
  const Status reserved = file->Reserve(0, 2 << 20);
  setrlimit(RLIMIT_FSIZE, &before);
  signal(SIGXFSZ, handler);
  EXPECT_TRUE(fits.ok()) << fits.message();
  EXPECT_EQ(half.code(), Status::Code::kResourceExhausted) << half.message();
  EXPECT_EQ(reserved.code(), Status::Code::kResourceExhausted) << reserved.message();
  EXPECT_NE(half.message().find("'" + directory.path() + "'"), std::string::npos) << half.message();
  EXPECT_TRUE(file->Write((1 << 20) - 2048, bytes.data(), bytes.size()).ok());
}

}  // namespace
}  // namespace mxrec
