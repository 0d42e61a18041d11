// Damaged files of a table that tracks its keys: told, or loaded as what they say, and never more than that.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "checkpoint/checkpoint_fixture.h"
#include "table/eviction.h"
#include "table/tracking_fixture.h"

namespace mxrec {
namespace {

using namespace checkpoint_fixture;  // NOLINT(build/namespaces): written for these tests
using namespace table_fixture;       // NOLINT(build/namespaces)
using namespace tracking_fixture;    // NOLINT(build/namespaces)

constexpr int64_t kNow = 1700000000;

class HistoryDamage : public CheckpointTest {
 protected:
  void SetUp() override {
    CheckpointTest::SetUp();
    source_ = MakeTracked({3, 100, 1, 0});
    MustTrain(source_, {1, 1, 1, 2, 2, 3, 4, 4, 4}, {kNow});
    MustTrain(source_, {3, 5, 6, 6, 6}, {kNow + 7});
    Save(*source_);
    target_ = MakeTracked({2, 100, 1, 0}, Config(500));
    MustTrain(target_, {50, 50, 51}, {kNow - 1});
    before_ = Walk(*target_);
  }

  std::string Path(const std::string& file) const { return directory_ + "/" + file; }

  // The files that a tracked table reads.
  std::vector<std::string> FilesRead() const {
    return {"key/slice.data",
            "key/slice.attribute",
            "embedding/slice.data",
            "embedding/slice.attribute",
            "history_record/slice.data",
            "last_step/slice.data"};
  }

  void ExpectTargetUnchanged() {
    ASSERT_TRUE(Walk(*target_) == before_);
    ExpectFacts(*target_, 50, 2, kNow - 1, 1);
    ExpectFacts(*target_, 51, 1, kNow - 1, 0);
    ExpectLives(*target_, 2, 1, 1);
    ASSERT_EQ(target_->history()->now(), kNow - 1);
  }

  // Loads what passes without checksums into a fresh table, which must then be whole.
  void ExpectErrorOrWholeTable() {
    const auto table = MakeTracked({2, 100, 1, 0});
    MustTrain(table, {50, 50, 51}, {kNow - 1});
    if (!Verify(*table, false).ok()) return;
    if (Load(table.get()).ok()) ++loaded_;
    int64_t rows = 0, refused = 0;
    table->ForEach([&](int64_t, int64_t) { ++rows; },
                   [&](const Candidate& c) {
                     ++refused;
                     ASSERT_GE(c.count, 1u);
                     ASSERT_GE(c.time, 0);
                   });
    ASSERT_EQ(rows, table->size());
    ASSERT_EQ(refused, table->lives().candidates);
    ExpectLivesAddUp(*table);
    MustTrain(table, {1, 2, 3, 4, 5, 6, 7, 50, 51}, {kNow + 500});
    for (const EvictionPolicy::Score score : {EvictionPolicy::Score::kTime, EvictionPolicy::Score::kStep}) {
      std::unique_ptr<Eviction> eviction;
      ASSERT_TRUE(Eviction::Begin(table, {score, 100, -1}, &eviction).ok());
      ASSERT_TRUE(eviction->Run(1 << 20));
    }
    ExpectLivesAddUp(*table);
  }

  void WriteHistory(const std::vector<int64_t>& words) { WriteFile(Path("history_record/slice.data"), Bytes(words)); }

  std::shared_ptr<Table> source_, target_;
  Content before_;
  int loaded_ = 0;
};

TEST_F(HistoryDamage, EveryTruncationIsFoundByChecksumsAndChangesNothing) {
  for (const std::string& file : FilesRead()) {
    const std::string good = ReadFile(Path(file));
    ASSERT_FALSE(good.empty()) << file;
    for (size_t size = 0; size < good.size(); ++size) {
      WriteFile(Path(file), good.substr(0, size));
      ExpectDataLoss(Verify(*target_), file);
      ExpectErrorOrWholeTable();
      if (HasFatalFailure()) return;
    }
    WriteFile(Path(file), good + "x");
    ExpectDataLoss(Verify(*target_), file);
    std::filesystem::remove(Path(file));
    ExpectDataLoss(Verify(*target_), file);
    WriteFile(Path(file), good);
  }
  ExpectTargetUnchanged();
  EXPECT_GT(loaded_, 0);  // a file of whole triples is as good as any
  EXPECT_TRUE(Verify(*target_).ok());
}

TEST_F(HistoryDamage, EveryChangedByteIsFoundByChecksumsAndChangesNothing) {
  for (const std::string& file : FilesRead()) {
    const std::string good = ReadFile(Path(file));
    for (size_t i = 0; i < good.size(); ++i) {
      for (const char flip : {'\x01', '\x80'}) {
        std::string bad = good;
        bad[i] = static_cast<char>(bad[i] ^ flip);
        WriteFile(Path(file), bad);
        ExpectDataLoss(Verify(*target_), file);
        ExpectErrorOrWholeTable();
        if (HasFatalFailure()) return;
      }
    }
    WriteFile(Path(file), good);
  }
  ExpectTargetUnchanged();
  EXPECT_GT(loaded_, 100);
}

TEST_F(HistoryDamage, AnyWordsAreAnErrorOrLoadedAsTheyAre) {
  std::mt19937_64 random(5);
  const std::string history = ReadFile(Path("history_record/slice.data")),
                    steps = ReadFile(Path("last_step/slice.data"));
  for (int round = 0; round < 300; ++round) {
    for (const auto& [file, good] :
         {std::pair("history_record/slice.data", history), std::pair("last_step/slice.data", steps)}) {
      std::vector<int64_t> words = Numbers(good);
      for (int64_t& word : words) {
        const int64_t values[] = {0, 1, 5, kNow, UINT32_MAX, INT64_MAX, -1, INT64_MIN};
        if (random() % 8 == 0) word = values[random() % (round % 2 == 0 ? 6 : 8)];  // every second could be right
      }
      WriteFile(Path(file), Bytes(words));
    }
    ExpectErrorOrWholeTable();
    if (HasFatalFailure()) return;
  }
  EXPECT_GT(loaded_, 50);
}

TEST_F(HistoryDamage, NumbersThatCannotBeAreNamedAndChangeNothing) {
  const std::pair<std::vector<int64_t>, const char*> bad[] = {
      {{-5}, "-5"},
      {{kNow, 99, -1, kNow}, "key 99 has count -1"},
      {{kNow, 99, int64_t{1} << 32, kNow}, "count 4294967296"},
      {{kNow, 99, 1, -77}, "time -77"},
      {{kNow, 1, 1, 1, 99, INT64_MIN, 5}, "key 99"},
      {{}, "0 bytes"},
      {{kNow, 1}, "16 bytes"},
      {{kNow, 1, 1}, "24 bytes"},
  };
  for (const auto& [words, what] : bad) {
    WriteHistory(words);
    for (const Status& status : {Verify(*target_, false), Load(target_.get())}) {
      ExpectDataLoss(status, "history_record/slice.data");
      EXPECT_NE(status.message().find(what), std::string::npos) << status.message();
    }
    ExpectTargetUnchanged();
  }
  WriteHistory({kNow});
  for (const int64_t step : {int64_t{-1}, int64_t{1} << 32, INT64_MIN}) {
    WriteFile(Path("last_step/slice.data"), Bytes<int64_t>({1, step, 1}));
    for (const Status& status : {Verify(*target_, false), Load(target_.get())}) {
      ExpectDataLoss(status, "last_step/slice.data");
      EXPECT_NE(status.message().find(std::to_string(step)), std::string::npos) << status.message();
    }
    ExpectTargetUnchanged();
  }
}

TEST_F(HistoryDamage, ARefusedKeyThatWasNeverCountedIsNoCandidate) {
  WriteHistory({kNow, 99, 0, kNow, 98, 1, 0, 97, UINT32_MAX, INT64_MAX});
  ASSERT_TRUE(Verify(*target_, false).ok());
  ASSERT_TRUE(Load(target_.get()).ok());
  EXPECT_EQ(target_->lives().candidates, 2);
  ExpectFacts(*target_, 99, 0, 0, 0);
  EXPECT_EQ(target_->Facts(98).count, 1u);
  ExpectFacts(*target_, 97, UINT32_MAX, INT64_MAX, 0);
  ExpectLivesAddUp(*target_);
}

TEST_F(HistoryDamage, AFilterOfAnotherSizeIsLeftOut) {
  const auto source = MakeTracked({3, 100, 1, 4096});
  MustTrain(source, {1, 1, 2}, {kNow});
  Save(*source);
  const std::string file = "admission_filter/slice.data", good = ReadFile(Path(file));
  ASSERT_EQ(good.size(), 4096u);
  const auto copy = MakeTracked({3, 100, 1, 4096});
  std::string changed = good;
  changed[100] = static_cast<char>(changed[100] ^ 1);
  for (const std::string& bad : {good.substr(0, 4095), good + "xx", std::string(), changed}) {
    WriteFile(Path(file), bad);
    ExpectDataLoss(Verify(*copy), file);
    ASSERT_TRUE(Verify(*copy, false).ok());
    ASSERT_TRUE(Load(copy.get()).ok());
    if (bad.size() != 4096) EXPECT_EQ(copy->Facts(1).count, 0u);
  }
  WriteFile(Path(file), good);
  ASSERT_TRUE(Verify(*copy).ok());
  ASSERT_TRUE(Load(copy.get()).ok());
  EXPECT_EQ(copy->Facts(1).count, 2u);
}

}  // namespace
}  // namespace mxrec
