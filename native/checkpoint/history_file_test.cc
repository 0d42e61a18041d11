// What a table knows of its keys, saved and loaded: counts, times, steps, clock and filter.
#include <gtest/gtest.h>

#include <map>
#include <random>
#include <set>
#include <tuple>

#include "base/crc32c.h"
#include "checkpoint/checkpoint_fixture.h"
#include "table/eviction.h"
#include "table/tracking_fixture.h"

namespace mxrec {
namespace {

using namespace checkpoint_fixture;  // NOLINT(build/namespaces): written for these tests
using namespace table_fixture;       // NOLINT(build/namespaces)
using namespace tracking_fixture;    // NOLINT(build/namespaces)
namespace fs = std::filesystem;

constexpr int64_t kOff = Tracking::kOff;
constexpr int64_t kNow = 1700000000;
const char* const kHistoryData = "history_record/slice.data";
const char* const kStepData = "last_step/slice.data";

// Everything a table knows of its keys.
struct Known {
  std::map<int64_t, std::tuple<uint32_t, int64_t, uint32_t>> rows;
  std::map<int64_t, std::pair<uint32_t, int64_t>> refused;
  int64_t now = 0;
};
bool operator==(const Known& a, const Known& b) { return a.rows == b.rows && a.refused == b.refused && a.now == b.now; }

Known KnownOf(const Table& table) {
  Known known;
  std::vector<int64_t> keys;
  table.ForEach(
      [&](int64_t key, int64_t) { keys.push_back(key); },
      [&](const Candidate& c) { EXPECT_TRUE(known.refused.emplace(c.key, std::pair(c.count, c.time)).second); });
  for (const int64_t key : keys) {  // after the walk, which holds a lock
    const RowFacts facts = table.Facts(key);
    known.rows[key] = {facts.count, facts.time, facts.step};
  }
  EXPECT_EQ(static_cast<int64_t>(known.rows.size()), table.size());
  known.now = table.history()->now();
  return known;
}

// Some rows and some refused keys, of counts, times and steps of all kinds.
std::shared_ptr<Table> MakeTrained(int64_t keys, const Tracking& tracking = {3, 100, 1, 0}, int64_t max_rows = 0) {
  const auto table = MakeTracked(tracking, Config(max_rows), {{"accumulator", 0.25f}});
  std::mt19937_64 random(keys);
  for (int step = 0; step < 8; ++step) {
    Keys ids(keys), times(keys);
    for (int64_t& id : ids) id = static_cast<int64_t>(random() % (3 * keys)) * (random() % 2 == 0 ? 1 : -7919);
    for (int64_t& time : times) time = kNow + static_cast<int64_t>(random() % 1000);
    MustTrain(table, ids, times);
  }
  EXPECT_GT(table->size(), 0);
  EXPECT_GT(table->lives().candidates, 0);
  return table;
}

class HistoryFile : public CheckpointTest {
 protected:
  // As a restore does it: first everything is verified.
  Status Restore(Table* table, bool with_checksums = true) {
    MXREC_RETURN_IF_ERROR(Verify(*table, with_checksums));
    return Load(table);
  }
  std::string Path(const std::string& file) const { return directory_ + "/" + file; }
  std::vector<int64_t> ReadNumbers(const std::string& file) const { return Numbers(ReadFile(Path(file))); }
  bool Exists(const std::string& column) const { return fs::exists(Path(column)); }
};

TEST_F(HistoryFile, HoldsClockAndTriplesAsTheLayoutSays) {
  const auto table = MakeTracked({2, 50, 1, 0});
  MustTrain(table, {10, 10, -11, 12, 12, 12}, {kNow});
  MustTrain(table, {12, 13}, {kNow - 5});
  Save(*table);
  const std::map<int64_t, std::pair<int64_t, int64_t>> expected = {
      {10, {2, kNow}}, {-11, {1, kNow}}, {12, {4, kNow}}, {13, {1, kNow - 5}}};
  const std::vector<int64_t> words = ReadNumbers(kHistoryData);
  ASSERT_EQ(words.size(), 1 + 4 * 3u);
  EXPECT_EQ(words[0], kNow);
  std::map<int64_t, std::pair<int64_t, int64_t>> triples;
  for (size_t i = 1; i < words.size(); i += 3) triples[words[i]] = {words[i + 1], words[i + 2]};
  EXPECT_EQ(triples, expected);
  EXPECT_EQ(ReadNumbers("history_record/slice.attribute"), (std::vector<int64_t>{4, 3, 8}));

  const std::vector<int64_t> keys = ReadNumbers("key/slice.data"), steps = ReadNumbers(kStepData);
  ASSERT_EQ(keys.size(), 2u);
  ASSERT_EQ(steps.size(), 2u);
  for (size_t i = 0; i < 2; ++i) EXPECT_EQ(steps[i], keys[i] == 10 ? 1 : 2);
  EXPECT_EQ(ReadNumbers("last_step/slice.attribute"), (std::vector<int64_t>{2, 8}));
  EXPECT_EQ(ReadFile(Path("table_2_threshold/slice.data")), Bytes<int32_t>({2, 50, 1}));
  EXPECT_EQ(ReadNumbers("table_2_threshold/slice.attribute"), (std::vector<int64_t>{3, 4}));
  EXPECT_FALSE(Exists("admission_filter"));

  std::set<std::string> names;
  for (const CheckpointFile& file : files_) {
    names.insert(file.name);
    const std::string content = ReadFile(Path(file.name));
    EXPECT_EQ(static_cast<int64_t>(content.size()), file.bytes) << file.name;
    EXPECT_EQ(crc32c::Extend(0, content.data(), content.size()), file.crc32c) << file.name;
  }
  std::set<std::string> there;
  for (const auto& entry : fs::recursive_directory_iterator(directory_)) {
    if (entry.is_regular_file()) there.insert(fs::relative(entry.path(), directory_).string());
  }
  EXPECT_EQ(names, there);
  EXPECT_EQ(names.size(), 10u);
}

TEST_F(HistoryFile, ThresholdsThatAreOffAreSavedAsMinusOne) {
  Save(*MakeTracked({kOff, 7, 3, 0}));
  EXPECT_EQ(ReadFile(Path("table_2_threshold/slice.data")), Bytes<int32_t>({-1, 7, 1}));
  EXPECT_EQ(ReadNumbers(kHistoryData), (std::vector<int64_t>{0}));
  EXPECT_EQ(ReadNumbers(kStepData), std::vector<int64_t>());
}

TEST_F(HistoryFile, SaveThenLoadIsTheIdentityForAnyNumberOfShards) {
  for (const int64_t keys : {5, 300, 15000}) {
    const auto table = MakeTrained(keys);
    Save(*table);
    const Known expected = KnownOf(*table);
    for (const int64_t max_rows : {0, 100000, 1 << 20}) {
      for (const int threads : {1, 3}) {
        const auto copy = MakeTracked({5, 9, 2, 0}, Config(max_rows), {{"accumulator", 0.25f}});
        MustTrain(copy, {1, 1, 1, 77777777, 88888888}, {kNow * 2});  // what was there before goes
        const auto lives = copy->lives();
        ASSERT_TRUE(Verify(*copy).ok());
        ASSERT_TRUE(Load(copy.get(), threads).ok());
        EXPECT_TRUE(KnownOf(*copy) == expected);
        const int64_t all = static_cast<int64_t>(expected.rows.size() + expected.refused.size());
        EXPECT_EQ(copy->lives().seen, lives.seen + all);
        EXPECT_EQ(copy->lives().candidates, static_cast<int64_t>(expected.refused.size()));
        ExpectLivesAddUp(*copy);
        EXPECT_TRUE(copy->history()->tracking() == (Tracking{5, 9, 2, 0}));  // thresholds are the caller's business
      }
    }
  }
}

TEST_F(HistoryFile, ALoadedTableGoesOnWhereTheSavedOneStopped) {
  const auto table = MakeTracked({3, 100, 1, 0});
  MustTrain(table, {1, 1, 2, 3, 3, 3}, {kNow});
  MustTrain(table, {4, 4, 4}, {kNow + 100});
  Save(*table);
  const auto copy = MakeTracked({3, 100, 1, 0}, Config(1000));
  ASSERT_TRUE(Restore(copy.get()).ok());
  MustTrain(copy, {1, 2}, {kNow + 50});
  EXPECT_TRUE(HasRow(*copy, 1));
  EXPECT_FALSE(HasRow(*copy, 2));
  EXPECT_EQ(copy->Facts(1).count, 3u);
  std::unique_ptr<Eviction> eviction;  // the clock is that of the file
  ASSERT_TRUE(Eviction::Begin(copy, {EvictionPolicy::Score::kTime, 100, -1}, &eviction).ok());
  ASSERT_TRUE(eviction->Run(1 << 20));
  EXPECT_EQ(eviction->evicted(), 1);
  EXPECT_FALSE(HasRow(*copy, 3));
}

TEST_F(HistoryFile, AFilterIsSavedAndLoadedForAnyNumberOfShards) {
  const Tracking tracking{3, 100, 1, 1 << 16};
  const auto table = MakeTracked(tracking);
  MustTrain(table, {1, 1, 2, 3, 3, 3}, {kNow});
  Save(*table);
  EXPECT_EQ(fs::file_size(Path("admission_filter/slice.data")), size_t{1} << 16);
  EXPECT_EQ(ReadNumbers("admission_filter/slice.attribute"), (std::vector<int64_t>{1 << 15, 2}));
  EXPECT_EQ(ReadNumbers(kHistoryData), (std::vector<int64_t>{kNow, 3, 3, kNow}));  // the row alone
  for (const int64_t max_rows : {0, 1000, 1 << 22}) {
    const auto copy = MakeTracked(tracking, Config(max_rows));
    MustTrain(copy, {5, 5}, {1});
    ASSERT_TRUE(Restore(copy.get()).ok());
    EXPECT_EQ(copy->Facts(1).count, 2u);
    EXPECT_EQ(copy->Facts(2).count, 1u);
    EXPECT_EQ(copy->Facts(5).count, 0u);
    MustTrain(copy, {1, 2}, {kNow});
    EXPECT_TRUE(HasRow(*copy, 1));
    EXPECT_FALSE(HasRow(*copy, 2));
    ExpectLivesAddUp(*copy);
  }
}

TEST_F(HistoryFile, BetweenTablesWithAndWithoutAFilterRefusedKeysBeginAnew) {
  const Tracking exact{3, kOff, 1, 0}, small{3, kOff, 1, 1 << 16}, large{3, kOff, 1, 1 << 20};
  for (const auto& [from, to] : {std::pair(exact, small), std::pair(small, exact), std::pair(small, large)}) {
    const auto table = MakeTracked(from);
    MustTrain(table, {1, 1, 2, 3, 3, 3});
    Save(*table);
    const auto copy = MakeTracked(to);
    MustTrain(copy, {1, 2});
    ASSERT_TRUE(Restore(copy.get()).ok());
    EXPECT_EQ(copy->size(), 1);
    EXPECT_EQ(copy->Facts(3).count, 3u);
    EXPECT_EQ(copy->Facts(1).count, 0u);
    EXPECT_EQ(copy->lives().candidates, 0);
    ExpectLivesAddUp(*copy);
    Save(*copy);  // nothing of them is left that would be saved again
    EXPECT_EQ(ReadNumbers(kHistoryData), (std::vector<int64_t>{0, 3, 3, 0}));
  }
}

TEST_F(HistoryFile, ATableThatDoesNotTrackNeitherWritesNorReadsIt) {
  const auto plain = Make(Config());
  MustInsert(plain.get(), {1, 2, 3});
  Save(*plain);
  for (const char* column : {"history_record", "last_step", "table_2_threshold", "admission_filter"}) {
    EXPECT_FALSE(Exists(column)) << column;
  }
  EXPECT_EQ(files_.size(), 4u);

  // A directory without history leaves a tracked table without facts, whatever it knew before.
  const auto tracked = MakeTracked({2, 10, 1, 0});
  MustTrain(tracked, {1, 1, 1, 9}, {kNow});
  ASSERT_TRUE(Restore(tracked.get()).ok());
  EXPECT_EQ(tracked->size(), 3);
  EXPECT_EQ(tracked->lives().candidates, 0);
  for (const int64_t key : {1, 2, 3, 9}) ExpectFacts(*tracked, key, 0, 0, 0);
  ExpectLivesAddUp(*tracked);

  // And a directory with one, even damaged, is read without it.
  for (const int64_t filter_bytes : {0, 4096}) {
    const auto source = MakeTracked({2, 10, 1, filter_bytes});
    MustTrain(source, {4, 4, 5}, {kNow});
    Save(*source);
    for (const bool damaged : {false, true}) {
      if (damaged) WriteFile(Path(kHistoryData), "damaged");
      for (const bool with_checksums : {true, false}) {
        const Status status = Restore(plain.get(), with_checksums);
        EXPECT_TRUE(status.ok()) << status.message();
        EXPECT_EQ(plain->size(), 1);
        EXPECT_EQ(plain->history(), nullptr);
      }
    }
  }
}

TEST_F(HistoryFile, StepsMayBeAbsentAsInTheOriginal) {
  const auto table = MakeTracked({2, 10, 1, 0});
  MustTrain(table, {4, 4, 5}, {kNow});
  Save(*table);
  fs::remove_all(Path("last_step"));
  const auto copy = MakeTracked({2, 10, 1, 0});
  ASSERT_TRUE(Restore(copy.get(), false).ok());
  ExpectFacts(*copy, 4, 2, kNow, 0);
  ExpectFacts(*copy, 5, 1, kNow, 0);
  ExpectDataLoss(Verify(*copy), kStepData);  // it was written, and is missed
}

TEST_F(HistoryFile, NamesOfItsFilesAreNoSlotNames) {
  for (const char* name : {"history_record", "last_step", "table_2_threshold", "admission_filter"}) {
    const auto table = Make(Config(), {{name, 0.0f}});
    const Status status = WriteAll(Env::Posix(), *table, directory_, &rows_, &files_);
    EXPECT_EQ(status.code(), Status::Code::kInvalidArgument) << name;
    EXPECT_NE(status.message().find(name), std::string::npos) << status.message();
    EXPECT_FALSE(fs::exists(directory_));
  }
}

TEST_F(HistoryFile, EveryFailingFileOperationIsReported) {
  const auto table = MakeTracked({3, 100, 1, 4096});
  MustTrain(table, {1, 1, 1, 2}, {kNow});
  FailingEnv healthy(-1);
  ASSERT_TRUE(WriteAll(healthy, *table, directory_, &rows_, &files_).ok());
  for (int n = 0; n < healthy.operations(); ++n) {
    fs::remove_all(directory_);
    FailingEnv env(n);
    EXPECT_EQ(WriteAll(env, *table, directory_, &rows_, &files_).code(), Status::Code::kIoError) << n;
  }
  Save(*table);
  std::unique_ptr<TableReader> reader;
  FailingEnv reading(-1);
  ASSERT_TRUE(TableReader::Open(reading, directory_, *table, false, &reader).ok());
  for (int n = 0; n < reading.operations(); ++n) {
    FailingEnv env(n);
    EXPECT_EQ(TableReader::Open(env, directory_, *table, false, &reader).code(), Status::Code::kIoError) << n;
  }
}

}  // namespace
}  // namespace mxrec
