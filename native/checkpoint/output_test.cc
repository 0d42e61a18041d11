// Columns whose parts are written by several threads, past the page cache or through it: the file has every byte in its
// place, and the checksum is that of the whole.
#include "checkpoint/output.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/crc32c.h"
#include "base/failure.h"
#include "base/parallel.h"
#include "base/scratch_fixture.h"
#include "checkpoint/checkpoint_fixture.h"

namespace mxrec {
namespace {

using checkpoint_fixture::FailingEnv;
using checkpoint_fixture::ReadFile;
using scratch_fixture::TemporaryDirectory;

// An element that tells its place.
std::string Element(int64_t number, int64_t width) {
  std::string bytes(static_cast<size_t>(width), 0);
  for (int64_t i = 0; i < width; ++i) bytes[i] = static_cast<char>((number * 31 + i * 7 + (number >> 8)) & 0xff);
  return bytes;
}

Status Write(Env& env, const std::string& directory, int64_t width, const std::vector<int64_t>& starts,
             const std::vector<int64_t>& header, const ParallelFor& parallel, std::vector<CheckpointFile>* files) {
  ColumnOutput column("column", width, starts);
  MXREC_RETURN_IF_ERROR(column.Open(env, directory, header));
  Failure failure;
  parallel.Run(static_cast<int64_t>(starts.size()) - 1, 1, [&](int64_t begin, int64_t end) {
    for (int64_t p = begin; p < end; ++p) {
      ColumnOutput::Part part(&column, static_cast<int>(p));
      Status status;
      for (int64_t i = starts[p]; i < starts[p + 1] && status.ok(); ++i) status = part.Append(Element(i, width).data());
      if (status.ok()) status = part.Flush();
      if (!status.ok()) failure.Set(status);
    }
  });
  MXREC_RETURN_IF_ERROR(failure.status());
  return column.Finish(env, directory, {starts.back(), width}, files);
}

void ExpectWritten(int64_t width, const std::vector<int64_t>& starts, const std::vector<int64_t>& header) {
  std::string expected(reinterpret_cast<const char*>(header.data()), header.size() * sizeof(int64_t));
  for (int64_t i = 0; i < starts.back(); ++i) expected += Element(i, width);
  for (const int threads : {1, 3}) {
    SCOPED_TRACE(testing::Message() << width << " bytes, " << starts.back() << " elements, " << threads << " threads");
    const TemporaryDirectory directory;
    std::vector<CheckpointFile> files;
    const Status status = Write(Env::Posix(), directory.path(), width, starts, header, ThreadedFor(threads), &files);
    ASSERT_TRUE(status.ok()) << status.message();
    EXPECT_TRUE(ReadFile(directory.path() + "/column/slice.data") == expected);
    ASSERT_EQ(files.size(), 2u);
    EXPECT_EQ(files[0].name, "column/slice.data");
    EXPECT_EQ(files[0].bytes, static_cast<int64_t>(expected.size()));
    EXPECT_EQ(files[0].crc32c, crc32c::Extend(0, expected.data(), expected.size()));
    EXPECT_EQ(ReadFile(directory.path() + "/column/slice.attribute").size(), 2 * sizeof(int64_t));
  }
}

TEST(ColumnOutput, HasEveryByteInItsPlace) {
  // Empty ones, parts within a block, parts that end in the middle of one, and parts of several buffers.
  ExpectWritten(4, {0, 0}, {});
  ExpectWritten(8, {0, 0, 1, 1, 3}, {});
  ExpectWritten(8, {0, 100, 100, 70000, 70001, 200000}, {});
  ExpectWritten(24, {0, 33333, 33334, 60000}, {42});
  ExpectWritten(100, {0, 30011, 30012, 100000}, {});
  ExpectWritten(64, {0, 70000, 140000}, {7});
  ExpectWritten(32768, {0, 1, 40, 200}, {});
}

TEST(ColumnOutput, EveryFailingOperationIsReported) {
  const std::vector<int64_t> starts = {0, 25000, 50000};
  const TemporaryDirectory whole;
  FailingEnv healthy(-1);
  std::vector<CheckpointFile> files;
  ASSERT_TRUE(Write(healthy, whole.path(), 128, starts, {}, SerialFor(), &files).ok());
  EXPECT_GE(healthy.operations(), 10);
  for (int n = 0; n < healthy.operations(); ++n) {
    const TemporaryDirectory directory;
    FailingEnv env(n);
    const Status status = Write(env, directory.path(), 128, starts, {}, SerialFor(), &files);
    EXPECT_EQ(status.code(), Status::Code::kIoError) << "operation " << n;
  }
}

}  // namespace
}  // namespace mxrec
