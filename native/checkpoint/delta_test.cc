// Checkpoints of what has changed, and checkpoints that are written while training goes on.
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "checkpoint/checkpoint_fixture.h"
#include "table/changes_fixture.h"

namespace mxrec {
namespace {

using namespace changes_fixture;     // NOLINT(build/namespaces): written for such tests
using namespace checkpoint_fixture;  // NOLINT(build/namespaces)

class DeltaTest : public ::testing::Test {
 protected:
  struct Link {
    std::string directory;
    bool is_delta;
    std::vector<CheckpointFile> files;
    Everything expected;
  };

  Status Save(Trainee* trainee, bool is_delta, const ParallelFor& parallel, Link* link) {
    *link = {root_.path() + "/" + std::to_string(number_++), is_delta, {}, trainee->everything()};
    std::unique_ptr<Snapshot> snapshot;
    MXREC_RETURN_IF_ERROR(Snapshot::Take(trainee->table(), moment_, !is_delta, &snapshot));
    int64_t rows;
    MXREC_RETURN_IF_ERROR(WriteTable(Env::Posix(), snapshot.get(), link->directory, &rows, &link->files, parallel));
    moment_ = snapshot->moment();
    return Status();
  }
  static Status Restore(const std::vector<Link>& chain, Table* table) {
    const ThreadedFor parallel(2);
    for (const Link& link : chain) {
      std::unique_ptr<TableReader> reader;
      MXREC_RETURN_IF_ERROR(TableReader::Open(Env::Posix(), link.directory, *table, link.is_delta, &reader));
      MXREC_RETURN_IF_ERROR(reader->Verify(link.files, true, parallel));
      MXREC_RETURN_IF_ERROR(reader->Load(table, {}, parallel));
    }
    return Status();
  }

  TemporaryDirectory root_;
  int64_t moment_ = Changes::kNoMoment;
  int number_ = 0;
};

TEST_F(DeltaTest, ABaseAndItsDeltasGiveEveryStateBack) {
  for (const Kind& kind : AllKinds()) {
    SCOPED_TRACE(kind.name);
    Trainee trainee(kind, 8);
    ASSERT_TRUE(trainee.table()->FollowChanges(true).ok());
    moment_ = Changes::kNoMoment;
    std::vector<Link> chain;
    const std::shared_ptr<Table> copy = trainee.MakeTable();
    for (int round = 0; round < 12; ++round) {
      SCOPED_TRACE(round);
      for (int i = 0; i < 5 + 10 * (round % 3); ++i) trainee.Act();
      const bool is_delta = round % 6 != 0;
      if (!is_delta) chain.clear();
      Link link;
      const Status status = Save(&trainee, is_delta, ThreadedFor(2), &link);
      ASSERT_TRUE(status.ok()) << status.message();
      chain.push_back(link);
      const Status restored = Restore(chain, copy.get());
      ASSERT_TRUE(restored.ok()) << restored.message();
      ASSERT_TRUE(EverythingOf(*copy, Trainee::kKeys) == link.expected);
    }
  }
}

TEST_F(DeltaTest, ASaveThatFailedIsMadeUpForByTheNext) {
  Trainee trainee(AllKinds()[2], 9);
  ASSERT_TRUE(trainee.table()->FollowChanges(true).ok());
  std::vector<Link> chain(1);
  for (int i = 0; i < 20; ++i) trainee.Act();
  ASSERT_TRUE(Save(&trainee, false, SerialFor(), &chain[0]).ok());
  for (int i = 0; i < 20; ++i) trainee.Act();
  const int64_t base = moment_;
  {
    std::unique_ptr<Snapshot> snapshot;
    ASSERT_TRUE(Snapshot::Take(trainee.table(), base, false, &snapshot).ok());
    FailingEnv env(20);
    int64_t rows;
    std::vector<CheckpointFile> files;
    EXPECT_EQ(WriteTable(env, snapshot.get(), root_.path() + "/failed", &rows, &files).code(), Status::Code::kIoError);
  }
  for (int i = 0; i < 20; ++i) trainee.Act();
  chain.emplace_back();
  ASSERT_EQ(moment_, base);
  ASSERT_TRUE(Save(&trainee, true, SerialFor(), &chain[1]).ok());
  const std::shared_ptr<Table> copy = trainee.MakeTable();
  ASSERT_TRUE(Restore(chain, copy.get()).ok());
  EXPECT_TRUE(EverythingOf(*copy, Trainee::kKeys) == chain[1].expected);
}

TEST_F(DeltaTest, WritingWhileOthersTrainGivesTheInstantOfTheSnapshot) {
  for (const Kind& kind : AllKinds()) {
    SCOPED_TRACE(kind.name);
    Trainee trainee(kind, 10);
    ASSERT_TRUE(trainee.table()->FollowChanges(true).ok());
    moment_ = Changes::kNoMoment;
    for (int i = 0; i < 50; ++i) trainee.Act();
    std::vector<Link> chain;
    for (int round = 0; round < 6; ++round) {
      SCOPED_TRACE(round);
      Link link = {root_.path() + "/" + std::to_string(number_++), round > 0, {}, trainee.everything()};
      std::unique_ptr<Snapshot> snapshot;
      ASSERT_TRUE(Snapshot::Take(trainee.table(), moment_, round == 0, &snapshot).ok());
      Status status;
      std::atomic<bool> is_done{false};
      std::thread writer([&] {
        int64_t rows;
        status = WriteTable(Env::Posix(), snapshot.get(), link.directory, &rows, &link.files, ThreadedFor(2));
        moment_ = snapshot->moment();
        snapshot.reset();
        is_done = true;
      });
      for (int i = 0; i < 10 || !is_done; ++i) trainee.Act(ThreadedFor(2));
      writer.join();
      ASSERT_TRUE(status.ok()) << status.message();
      chain.push_back(link);
    }
    for (size_t n = 1; n <= chain.size(); ++n) {
      const std::shared_ptr<Table> copy = trainee.MakeTable();
      ASSERT_TRUE(Restore({chain.begin(), chain.begin() + static_cast<int64_t>(n)}, copy.get()).ok());
      ASSERT_TRUE(EverythingOf(*copy, Trainee::kKeys) == chain[n - 1].expected) << n;
    }
  }
}

TEST_F(DeltaTest, DamageIsTold) {
  Trainee trainee(AllKinds()[2], 11);
  ASSERT_TRUE(trainee.table()->FollowChanges(true).ok());
  std::vector<Link> chain(2);
  for (int i = 0; i < 20; ++i) trainee.Act();
  ASSERT_TRUE(Save(&trainee, false, SerialFor(), &chain[0]).ok());
  for (int i = 0; i < 20; ++i) trainee.Act();
  ASSERT_TRUE(Save(&trainee, true, SerialFor(), &chain[1]).ok());
  const std::string deleted = chain[1].directory + "/deleted/slice.data";
  const std::string attribute = chain[1].directory + "/deleted/slice.attribute";
  ASSERT_GT(std::filesystem::file_size(deleted), 0u);
  auto verify = [&](bool with_checksums) {
    const std::shared_ptr<Table> copy = trainee.MakeTable();
    std::unique_ptr<TableReader> reader;
    MXREC_RETURN_IF_ERROR(TableReader::Open(Env::Posix(), chain[1].directory, *copy, true, &reader));
    return reader->Verify(with_checksums ? chain[1].files : std::vector<CheckpointFile>(), true, SerialFor());
  };
  ASSERT_TRUE(verify(true).ok());
  for (const std::string& path : {deleted, attribute}) {
    const std::string whole = ReadFile(path);
    for (size_t i = 0; i < whole.size(); ++i) {
      std::string damaged = whole;
      damaged[i] = static_cast<char>(damaged[i] ^ 16);
      WriteFile(path, damaged);
      EXPECT_EQ(verify(true).code(), Status::Code::kDataLoss) << path << " " << i;
      WriteFile(path, whole.substr(0, i));
      EXPECT_EQ(verify(false).code(), Status::Code::kDataLoss) << path << " " << i;
    }
    std::filesystem::remove(path);
    const Status status = verify(false);
    EXPECT_EQ(status.code(), Status::Code::kDataLoss);
    EXPECT_NE(status.message().find(path), std::string::npos) << status.message();
    WriteFile(path, whole);
  }
  ASSERT_TRUE(verify(true).ok());
}

}  // namespace
}  // namespace mxrec
