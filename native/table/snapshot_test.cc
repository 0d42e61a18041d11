// A snapshot against a copy of the table that was made at the same instant, while the table goes on.
#include "table/snapshot.h"

#include <gtest/gtest.h>

#include "table/changes_fixture.h"

namespace mxrec {
namespace {

using namespace changes_fixture;  // NOLINT(build/namespaces): written for such tests

// What a walk gives; between its rows `act` may change the table.
template <typename Act>
Status Collect(Snapshot* snapshot, Act act, Everything* all) {
  const Table& table = snapshot->table();
  std::map<int64_t, std::tuple<uint32_t, int64_t, uint32_t>> facts;
  snapshot->Prepare(SerialFor());
  for (int s = 0; s < table.shards(); ++s) {
    int64_t rows = 0, refused = 0;
    MXREC_RETURN_IF_ERROR(snapshot->Walk(
        s,
        [&](int64_t key, const RowFacts& known, const float* row) {
          EXPECT_TRUE(all->rows.emplace(key, Floats(row, row + RowFloats(table))).second) << key << " came twice";
          facts[key] = {known.count, known.time, known.step};
          ++rows;
          act();
          return Status();
        },
        [&](const Candidate& candidate) {
          facts[candidate.key] = {candidate.count, candidate.time, 0};
          ++refused;
          return Status();
        },
        [&](const uint16_t* cells, int64_t n) {
          all->filter.insert(all->filter.end(), cells, cells + n);
          return Status();
        }));
    EXPECT_EQ(rows, snapshot->rows(s));
    EXPECT_EQ(refused, snapshot->refused(s));
    act();
  }
  all->now = snapshot->now();
  for (int64_t key = 0; table.history() != nullptr && key < Trainee::kKeys; ++key) all->facts.push_back(facts[key]);
  return Status();
}

TEST(Snapshot, ShowsTheInstantItWasTakenAtWhateverHappensLater) {
  for (const Kind& kind : AllKinds()) {
    SCOPED_TRACE(kind.name);
    Trainee trainee(kind, 5);
    for (int i = 0; i < 60; ++i) trainee.Act();
    ASSERT_TRUE(trainee.table()->FollowChanges(false).ok());
    for (int round = 0; round < 8; ++round) {
      SCOPED_TRACE(round);
      for (int i = 0; i < 10; ++i) trainee.Act();
      const Everything before = trainee.everything();
      std::unique_ptr<Snapshot> snapshot;
      ASSERT_TRUE(Snapshot::Take(trainee.table(), Changes::kNoMoment, true, &snapshot).ok());
      // From nothing before the first row to a great deal.
      for (int i = 0; i < 10 * (round % 3); ++i) trainee.Act();
      Everything seen;
      int64_t calls = 0;
      const Status status = Collect(
          snapshot.get(),
          [&] {
            if (round > 0 && calls++ % (round % 2 == 0 ? 7 : 70) == 0) trainee.Act();
          },
          &seen);
      ASSERT_TRUE(status.ok()) << status.message();
      EXPECT_EQ(seen.rows == before.rows, true);
      EXPECT_EQ(seen.now, before.now);
      EXPECT_EQ(seen.filter, before.filter);
      // Of a filter's keys single counts are not known.
      if (before.filter.empty()) EXPECT_EQ(seen.facts, before.facts);
      EXPECT_EQ(snapshot->table_rows(), static_cast<int64_t>(before.rows.size()));
      if (HasFailure()) return;
    }
  }
}

TEST(Snapshot, OfWhatChangedHoldsTheRowsThatDifferAndTheKeysThatWent) {
  for (const Kind& kind : AllKinds()) {
    SCOPED_TRACE(kind.name);
    Trainee trainee(kind, 6);
    ASSERT_TRUE(trainee.table()->FollowChanges(true).ok());
    for (int i = 0; i < 60; ++i) trainee.Act();
    Everything base = trainee.everything();
    int64_t moment = trainee.table()->Moment();
    for (int round = 0; round < 12; ++round) {
      SCOPED_TRACE(round);
      for (int i = 0; i < round; ++i) trainee.Act();
      const Everything now = trainee.everything();
      std::unique_ptr<Snapshot> snapshot;
      ASSERT_TRUE(Snapshot::Take(trainee.table(), moment, false, &snapshot).ok());
      moment = snapshot->moment();
      Everything seen;
      int64_t calls = 0;
      const Status status = Collect(
          snapshot.get(),
          [&] {
            if (calls++ % 9 == 0) trainee.Act();
          },
          &seen);
      ASSERT_TRUE(status.ok()) << status.message();
      Rows replayed = base.rows;
      for (const int64_t key : snapshot->erased()) replayed.erase(key);
      int64_t needless = 0;
      for (const auto& [key, row] : seen.rows) {
        const auto was = base.rows.find(key);
        needless += was != base.rows.end() && was->second == row ? 1 : 0;
        replayed[key] = row;
      }
      EXPECT_TRUE(replayed == now.rows);
      EXPECT_EQ(seen.filter, now.filter);
      // Rows of padding keys are counted, and a row may be set to what it was; no other is there for nothing.
      if (kind.tracking.is_on() == false) EXPECT_LE(needless, 4);
      if (round == 0) {
        EXPECT_TRUE(seen.rows.empty());
        EXPECT_TRUE(snapshot->erased().empty());
        for (int s = 0; s < trainee.table()->shards(); ++s) EXPECT_EQ(snapshot->refused(s), 0);
      }
      if (HasFailure()) return;
      snapshot.reset();
      // What has happened since belongs to the next.
      base = now;
    }
  }
}

TEST(Snapshot, OnlyOneAtATimeAndOnlyOfChangesThatAreKnown) {
  std::shared_ptr<Table> table = Make(Config(100));
  MustInsert(table.get(), Range(0, 50));
  std::unique_ptr<Snapshot> one, other;
  EXPECT_EQ(Snapshot::Take(table, Changes::kNoMoment, false, &one).code(), Status::Code::kFailedPrecondition);
  EXPECT_EQ(table->Moment(), Changes::kNoMoment);
  ASSERT_TRUE(table->FollowChanges(true).ok());
  EXPECT_EQ(Snapshot::Take(table, Changes::kNoMoment, false, &one).code(), Status::Code::kFailedPrecondition);
  const int64_t moment = table->Moment();
  EXPECT_TRUE(table->KnowsSince(moment));
  ASSERT_TRUE(Snapshot::Take(table, moment, false, &one).ok());
  EXPECT_EQ(Snapshot::Take(table, moment, true, &other).code(), Status::Code::kFailedPrecondition);
  EXPECT_EQ(table->SetSlots({{"accumulator", 0}}).code(), Status::Code::kFailedPrecondition);
  one.reset();
  EXPECT_TRUE(table->SetSlots({{"accumulator", 0}}).ok());
  EXPECT_TRUE(table->KnowsSince(moment));
  table->Clear();
  EXPECT_FALSE(table->KnowsSince(moment));
}

TEST(Snapshot, AMomentIsForgottenWhenMarksBeginAnew) {
  std::shared_ptr<Table> table = Make(Config(100));
  ASSERT_TRUE(table->FollowChanges(true).ok());
  int64_t begun_anew = 0;
  for (int i = 0; i < 600; ++i) {
    if (i % 100 == 0) table->Moment();
    MustInsert(table.get(), {i % 90});
    const int64_t moment = table->Moment();
    const Keys erased = {(i + 5) % 90};
    table->Erase(erased.data(), 1);
    if (!table->KnowsSince(moment)) {  // then all must be saved
      ++begun_anew;
      continue;
    }
    std::unique_ptr<Snapshot> snapshot;
    ASSERT_TRUE(Snapshot::Take(table, moment, false, &snapshot).ok());
    snapshot->Prepare(SerialFor());
    for (int s = 0; s < table->shards(); ++s) EXPECT_EQ(snapshot->rows(s), 0);
    EXPECT_LE(snapshot->erased().size(), 1u);
  }
  EXPECT_GT(begun_anew, 0);
  EXPECT_LT(begun_anew, 10);
}

TEST(Snapshot, FailsIfTheTableIsEmptiedMeanwhile) {
  std::shared_ptr<Table> table = Make(Config(100));
  MustInsert(table.get(), Range(0, 50));
  ASSERT_TRUE(table->FollowChanges(false).ok());
  std::unique_ptr<Snapshot> snapshot;
  ASSERT_TRUE(Snapshot::Take(table, Changes::kNoMoment, true, &snapshot).ok());
  table->Clear();
  Everything seen;
  EXPECT_EQ(Collect(snapshot.get(), [] {}, &seen).code(), Status::Code::kFailedPrecondition);
  snapshot.reset();
  MustInsert(table.get(), {1, 2});
  ASSERT_TRUE(Snapshot::Take(table, Changes::kNoMoment, true, &snapshot).ok());
  ASSERT_TRUE(Collect(snapshot.get(), [] {}, &seen).ok());
  EXPECT_EQ(seen.rows.size(), 2u);
}

}  // namespace
}  // namespace mxrec
