// Tables with rows on disk against twins without: every operation, in random order. Where a row is must change nothing.
#include <gtest/gtest.h>

#include <deque>

#include "checkpoint/checkpoint_fixture.h"
#include "table/eviction.h"
#include "table/tier_fixture.h"

namespace mxrec {
namespace {

using namespace tier_fixture;  // NOLINT(build/namespaces): written for such tests
using Score = EvictionPolicy::Score;

enum class Hints { kGood, kStale, kGarbage };

struct Setting {
  int64_t memory_rows = 0;  // 5 % of the keys
  Tracking tracking{};
  const char* rule = "adagrad";
  int threads = 1;
  Hints hints = Hints::kGood;
};

class Simulation {
 public:
  Simulation(uint64_t seed, const Setting& setting, const std::string& root)
      : setting_(setting),
        keys_(20 * setting.memory_rows),
        random_(seed),
        parallel_(setting.threads),
        directory_(root + "/checkpoint") {
    TableConfig config = Config(2 * keys_, {0, 7});
    // Two slots for the rules, and more that make segments so small that many are emptied.
    std::vector<SlotSpec> slots = {{"first", 0.25f}, {"second", 0.5f}};
    for (int i = 2; i < 16; ++i) slots.push_back({"idle_" + std::to_string(i), 1.0f});
    plain_ = Make(config, slots);
    config.tier = {setting.memory_rows, 2 * keys_ - setting.memory_rows, {scratch_.path()}, &env_};
    tiered_ = Make(config, slots);
    if (!setting.tracking.is_on()) return;
    EXPECT_TRUE(plain_->Track(setting.tracking).ok());
    EXPECT_TRUE(tiered_->Track(setting.tracking).ok());
  }

  void Run(int steps) {
    for (int i = 0; i < steps; ++i) {
      SCOPED_TRACE(i);
      const uint64_t dice = random_() % 100;
      if (dice < 75) {
        Train(i);
      } else if (dice < 85) {
        Evaluate();
      } else if (dice < 90) {
        Erase();
      } else if (dice < 94) {
        Assign();
      } else if (dice < 96) {
        SetFacts();
      } else if (dice < 98) {
        Evict();
      }
      if (i % 100 == 70) Reload();
      EXPECT_EQ(tiered_->size(), plain_->size());
      EXPECT_EQ(tiered_->inserted(), tiered_->size() + tiered_->erased());
      EXPECT_LE(RowsInMemory(*tiered_), MostInMemory(*tiered_));
      if (i % 50 == 0) ExpectSame();
      if (testing::Test::HasFailure()) return;
    }
    ExpectSame();
    EXPECT_GT(tiered_->tier()->promotions, 2 * setting_.memory_rows);
    EXPECT_GT(tiered_->tier()->moved, 0);
  }

 private:
  bool tracked() const { return setting_.tracking.is_on(); }
  // A few keys are frequent.
  Keys Draw(int64_t n) {
    Keys keys(n);
    for (int64_t& key : keys) key = static_cast<int64_t>(random_() % (random_() % 3 == 0 ? keys_ / 20 : keys_));
    return keys;
  }

  void Train(int number) {
    const Keys ids = Draw(setting_.memory_rows * 4 / 5);
    const Keys times = {1700000000 + 10 * number - static_cast<int64_t>(random_() % 30)};
    waiting_.emplace_back(Tables{tiered_, plain_}, std::vector<Keys>{ids, ids}, times);
    if (setting_.hints == Hints::kStale && waiting_.size() < 4) return;
    Step step = std::move(waiting_.front());
    waiting_.pop_front();
    if (setting_.hints == Hints::kGarbage) step.SpoilHints(random_());
    const Status status = step.Train(parallel_);
    ASSERT_TRUE(status.ok()) << status.message();
    ExpectSameEmbeddings(step);
    const float adam[] = {0.01f, 0.9f, 0.999f, 1e-8f};
    const bool is_adam = setting_.rule == std::string("lazy_adam");
    for (size_t t = 0; t < 2; ++t) {
      Table* table = t == 0 ? tiered_.get() : plain_.get();
      Floats gradients;
      for (const int64_t key : step.keys(t)) {
        const Floats gradient = GradientOf(key, number);
        gradients.insert(gradients.end(), gradient.begin(), gradient.end());
      }
      const Keys& handles = step.handles(t);
      const int64_t n = static_cast<int64_t>(handles.size());
      ASSERT_TRUE(table->CheckHandles(handles.data(), n).ok());
      table->Update(*FindRule(setting_.rule), is_adam ? adam : kAdagrad, handles.data(), gradients.data(), n);
    }
  }
  void ExpectSameEmbeddings(const Step& step) {
    for (size_t i = 0; i < step.ids(0).size(); ++i) {
      ASSERT_EQ(step.embedding(0, static_cast<int64_t>(i)), step.embedding(1, static_cast<int64_t>(i)))
          << step.ids(0)[i];
    }
  }
  void Evaluate() {
    const Keys ids = Draw(setting_.memory_rows * 4 / 5);
    Step step({tiered_, plain_}, {ids, ids});
    if (setting_.hints == Hints::kGarbage) step.SpoilHints(random_());
    ASSERT_TRUE(step.Evaluate(parallel_).ok());
    ExpectSameEmbeddings(step);
    step.End();
    Floats some, others;
    ASSERT_TRUE(EvaluateAny(tiered_.get(), ids, &some, parallel_).ok());
    ASSERT_TRUE(EvaluateAny(plain_.get(), ids, &others, parallel_).ok());
    ASSERT_EQ(some, others);
  }
  void Erase() {
    const Keys keys = Draw(static_cast<int64_t>(random_() % setting_.memory_rows));
    const int64_t n = static_cast<int64_t>(keys.size());
    ASSERT_EQ(tiered_->Erase(keys.data(), n), plain_->Erase(keys.data(), n));
  }
  void Assign() {
    const int64_t key = static_cast<int64_t>(random_() % keys_);
    const Floats row(RowFloats(*plain_), static_cast<float>(random_() % 100) / 64);
    ASSERT_TRUE(AssignRow(tiered_.get(), key, row).ok());
    ASSERT_TRUE(AssignRow(plain_.get(), key, row).ok());
  }
  void SetFacts() {
    if (!tracked()) return;
    const int64_t key = static_cast<int64_t>(random_() % keys_);
    const RowFacts facts = {1700000000, static_cast<uint32_t>(1 + random_() % 10), 1};
    ASSERT_TRUE(tiered_->SetFacts(key, facts).ok());
    ASSERT_TRUE(plain_->SetFacts(key, facts).ok());
  }
  void Evict() {
    Score score = static_cast<Score>(random_() % 4);
    if (!tracked()) score = Score::kNorm;
    const double thresholds[] = {1500, 100, 2, 0.5};
    int64_t evicted[2];
    for (int t = 0; t < 2; ++t) {
      std::unique_ptr<Eviction> eviction;
      ASSERT_TRUE(
          Eviction::Begin(t == 0 ? tiered_ : plain_, {score, thresholds[static_cast<int>(score)], -1}, &eviction).ok());
      while (!eviction->Run(100)) {
      }
      evicted[t] = eviction->evicted();
    }
    ASSERT_EQ(evicted[0], evicted[1]);
  }
  // One of them saves, both load it.
  void Reload() {
    std::filesystem::remove_all(directory_);
    int64_t rows;
    std::vector<CheckpointFile> files;
    Status status =
        checkpoint_fixture::WriteAll(env_, random_() % 2 == 0 ? *tiered_ : *plain_, directory_, &rows, &files);
    ASSERT_TRUE(status.ok()) << status.message();
    for (Table* table : {tiered_.get(), plain_.get()}) {
      std::unique_ptr<TableReader> reader;
      status = TableReader::Open(Env::Posix(), directory_, *table, false, &reader);
      if (status.ok()) status = reader->Verify(files, true, parallel_);
      if (status.ok()) status = reader->Load(table, {}, parallel_);
      ASSERT_TRUE(status.ok()) << status.message();
    }
  }

  void ExpectSame() {
    ASSERT_TRUE(RowsOf(*tiered_) == RowsOf(*plain_));
    if (!tracked()) return;
    for (int64_t key = 0; key < keys_; ++key) {
      const RowFacts facts = plain_->Facts(key);
      ExpectFacts(*tiered_, key, facts.count, facts.time, facts.step);
    }
    ASSERT_EQ(tiered_->history()->now(), plain_->history()->now());
    ASSERT_EQ(tiered_->history()->step(), plain_->history()->step());
    const Table::Lives some = tiered_->lives(), others = plain_->lives();
    ASSERT_EQ(some.seen, others.seen);
    ASSERT_EQ(some.refused, others.refused);
    ASSERT_EQ(some.candidates, others.candidates);
  }

  const Setting setting_;
  const int64_t keys_;
  std::mt19937_64 random_;
  ThreadedFor parallel_;
  const std::string directory_;
  TemporaryDirectory scratch_;
  ScratchEnv env_;
  std::shared_ptr<Table> plain_, tiered_;
  std::deque<Step> waiting_;
};

TEST(TierModel, AnySequenceOfOperationsEqualsTheSameWithoutADisk) {
  constexpr int64_t kOff = Tracking::kOff;
  const TemporaryDirectory root;
  uint64_t seed = 0;
  for (const Tracking& tracking : {Tracking{}, Tracking{0, 100, 1, 0}, Tracking{3, kOff, 1, 0}}) {
    for (const Hints hints : {Hints::kGood, Hints::kStale, Hints::kGarbage}) {
      SCOPED_TRACE(testing::Message() << "seed " << seed);
      const int threads = seed % 2 == 0 ? 1 : 3;
      const char* rule = seed % 4 < 2 ? "lazy_adam" : "adagrad";
      Simulation(seed, {50, tracking, rule, threads, hints}, root.path()).Run(300);
      ++seed;
      if (HasFailure()) return;
    }
  }
}

TEST(TierModel, TheSameWithSeveralShards) {
  const TemporaryDirectory root;
  for (uint64_t seed = 0; seed < 2; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    const Tracking tracking = seed == 0 ? Tracking{} : Tracking{2, 5000, 1, 0};
    const Hints hints = seed == 0 ? Hints::kGood : Hints::kStale;
    Simulation(seed, {8192, tracking, "lazy_adam", 3, hints}, root.path()).Run(50);
    if (HasFailure()) return;
  }
}

}  // namespace
}  // namespace mxrec
