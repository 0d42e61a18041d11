// Tables that track their keys against a std::map: every operation, in random order, for thresholds, coefficients,
// times, hints and numbers of threads of every kind.
#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <map>
#include <random>

#include "table/bulk_loader.h"
#include "table/tracking_fixture.h"

namespace mxrec {
namespace {

using namespace table_fixture;     // NOLINT(build/namespaces): written for these tests
using namespace tracking_fixture;  // NOLINT(build/namespaces)

enum class Hints { kGood, kStale, kGarbage };

// What a table must know, by the plain meaning of the words.
struct Model {
  struct Known {
    bool has_row = false;
    uint64_t count = 0;
    int64_t time = 0;
    uint32_t step = 0;
  };
  struct Occurred {
    uint64_t weight = 0;
    int64_t time = 0;
  };

  Tracking tracking;
  int64_t max_rows = 0;
  std::map<int64_t, Known> known;
  int64_t now = 0;
  uint32_t step = 0;
  int64_t seen = 0, inserted = 0, erased = 0, ended_without_row = 0;

  int64_t rows() const {
    return std::count_if(known.begin(), known.end(), [](const auto& entry) { return entry.second.has_row; });
  }
  std::map<int64_t, Occurred> Count(const Keys& ids, const Keys& times) const {
    std::map<int64_t, Occurred> counted;
    for (size_t i = 0; i < ids.size(); ++i) {
      Occurred& o = counted[ids[i]];
      o.weight = std::min<uint64_t>(UINT32_MAX, o.weight + static_cast<uint64_t>(tracking.coefficient));
      if (!times.empty()) o.time = std::max(o.time, times[i / (ids.size() / times.size())]);
    }
    return counted;
  }
  bool Admits(int64_t key, const Occurred& o) const {
    const auto it = known.find(key);
    const uint64_t before = it == known.end() ? 0 : it->second.count;
    return static_cast<int64_t>(before + o.weight) >= tracking.access_threshold;
  }
  bool HasRow(int64_t key) const {
    const auto it = known.find(key);
    return it != known.end() && it->second.has_row;
  }
  bool HasRoom(const Keys& ids, const Keys& times) const {
    int64_t fresh = 0;
    for (const auto& [key, o] : Count(ids, times)) fresh += !HasRow(key) && Admits(key, o);
    return max_rows == 0 || rows() + fresh <= max_rows;
  }
  void Train(const Keys& ids, const Keys& times) {
    ++step;
    for (const int64_t time : times) now = std::max(now, time);
    for (const auto& [key, o] : Count(ids, times)) {
      const bool admits = Admits(key, o);
      if (known.count(key) == 0) ++seen;
      Known& k = known[key];
      if (!k.has_row && admits) {
        k.has_row = true;
        ++inserted;
      }
      k.count = std::min<uint64_t>(UINT32_MAX, k.count + o.weight);
      k.time = std::max(k.time, o.time);
      if (k.has_row) k.step = step;
    }
  }
  void Put(int64_t key) {
    if (HasRow(key)) return;
    if (known.count(key) == 0) ++seen;
    known[key].has_row = true;
    ++inserted;
  }
  bool Erase(int64_t key) {
    const auto it = known.find(key);
    if (it == known.end()) return false;
    const bool had_row = it->second.has_row;
    ++(had_row ? erased : ended_without_row);
    known.erase(it);
    return had_row;
  }
};

class Simulation {
 public:
  Simulation(uint64_t seed, const Tracking& tracking, int64_t max_rows, int threads, Hints hints)
      : random_(seed), parallel_(threads), hints_(hints) {
    universe_ = {0, -1, INT64_MIN, INT64_MAX};
    for (int64_t i = 1; i < 250; ++i) universe_.push_back(i * 7919);
    // Another number of shards; padding keys have frozen handles.
    tables_ = {MakeTracked(tracking, Config(max_rows, {0, 7919})), MakeTracked(tracking, Config())};
    models_.resize(2);
    for (Model& model : models_) model.tracking = tracking;
    models_[0].max_rows = max_rows;
  }

  void Run(int steps) {
    for (int i = 0; i < steps; ++i) {
      SCOPED_TRACE(i);
      const uint64_t dice = random_() % 100;
      if (dice < 62) {
        Train();
      } else if (dice < 72) {
        Evaluate();
      } else if (dice < 84) {
        Erase();
      } else if (dice < 90) {
        Assign();
      } else if (dice < 94) {
        InsertRows();
      } else if (dice < 98) {
        ChangeThresholds();
      } else if (dice < 99) {
        Clear();
      }
      ExpectSameNumbers();
      if (i % 10 == 0) ExpectSameFacts();
      if (testing::Test::HasFailure()) return;
    }
    ExpectSameFacts();
  }

  int times_full() const { return times_full_; }
  int times_trained() const { return times_trained_; }
  int times_refused() const { return times_refused_; }

 private:
  // Few keys are frequent, many are rare.
  int64_t DrawKey() {
    const uint64_t n = random_() % 3 == 0 ? 20 : universe_.size();
    return universe_[random_() % n];
  }
  Keys DrawKeys(int64_t n) {
    Keys keys(n);
    for (int64_t& key : keys) key = DrawKey();
    return keys;
  }
  bool NeedsTime() const { return models_[0].tracking.eviction_threshold >= 0; }

  void Train() {
    const int64_t samples = 1 + static_cast<int64_t>(random_() % 30);
    Keys times(random_() % 3 == 0 ? 1 : samples);
    if (!NeedsTime() && random_() % 2 == 0) times.clear();
    const int64_t about = 1700000000 + static_cast<int64_t>(random_() % 2000);  // back and forth
    for (int64_t& time : times) time = about + static_cast<int64_t>(random_() % 50);
    std::vector<Keys> ids = {DrawKeys(samples * static_cast<int64_t>(random_() % 3)),
                             DrawKeys(samples * static_cast<int64_t>(random_() % 4))};
    waiting_.emplace_back(tables_, std::move(ids), std::move(times));
    if (hints_ == Hints::kStale && waiting_.size() < 5) return;
    Step step = std::move(waiting_.front());
    waiting_.pop_front();
    if (hints_ == Hints::kGarbage) step.SpoilHints(random_());
    if (NeedsTime() && step.times().empty()) return;  // prepared when it was not needed

    bool has_room = true;
    for (size_t t = 0; t < 2; ++t) has_room = has_room && models_[t].HasRoom(step.ids(t), step.times());
    const Status status = step.Train(parallel_);
    if (!has_room) {
      ++times_full_;
      ASSERT_EQ(status.code(), Status::Code::kResourceExhausted);
      return ExpectSameFacts();
    }
    ASSERT_TRUE(status.ok()) << status.message();
    ++times_trained_;
    for (size_t t = 0; t < 2; ++t) models_[t].Train(step.ids(t), step.times());
    ExpectHandles(step);
  }

  void Evaluate() {
    Step step(tables_, {DrawKeys(40), DrawKeys(40)}, {1900000000});
    if (hints_ == Hints::kGarbage) step.SpoilHints(random_());
    const int64_t bytes[] = {tables_[0]->bytes(), tables_[1]->bytes()};
    ASSERT_TRUE(step.Evaluate(parallel_).ok());
    ExpectHandles(step);
    for (size_t t = 0; t < 2; ++t) ASSERT_EQ(tables_[t]->bytes(), bytes[t]);
    ExpectSameFacts();
  }

  // Keys with a row have its handle, the others none and zeros.
  void ExpectHandles(const Step& step) {
    for (size_t t = 0; t < 2; ++t) {
      std::map<int64_t, int64_t> handle_of;
      for (size_t u = 0; u < step.keys(t).size(); ++u) handle_of[step.keys(t)[u]] = step.handles(t)[u];
      for (size_t i = 0; i < step.ids(t).size(); ++i) {
        const int64_t key = step.ids(t)[i], handle = handle_of.at(key);
        ASSERT_EQ(handle != kNoRow, models_[t].HasRow(key)) << key;
        Floats expected(kDim, 0.0f);
        if (handle == kNoRow) {
          ++times_refused_;
        } else {
          const float* row = tables_[t]->Row(handle);
          expected.assign(row, row + kDim);
          ASSERT_EQ(expected, ReadRow(*tables_[t], key));
          ASSERT_EQ((handle & kFrozen) != 0, t == 0 && (key == 0 || key == 7919));
        }
        ASSERT_EQ(step.embedding(t, static_cast<int64_t>(i)), expected);
      }
    }
  }

  void Erase() {
    for (size_t t = 0; t < 2; ++t) {
      const Keys keys = DrawKeys(static_cast<int64_t>(random_() % 30));
      int64_t erased = 0;
      for (const int64_t key : keys) erased += models_[t].Erase(key);
      ASSERT_EQ(tables_[t]->Erase(keys.data(), static_cast<int64_t>(keys.size())), erased);
    }
  }
  void Assign() {
    const size_t t = random_() % 2;
    const int64_t key = DrawKey();
    Model& model = models_[t];
    const bool fits = model.HasRow(key) || model.max_rows == 0 || model.rows() < model.max_rows;
    ASSERT_EQ(AssignRow(tables_[t].get(), key, Floats(kDim, 1.5f)).ok(), fits);
    if (fits) model.Put(key);
  }
  void InsertRows() {
    Keys fresh;
    for (const int64_t key : DrawKeys(5)) {
      if (!models_[1].HasRow(key) && std::count(fresh.begin(), fresh.end(), key) == 0) fresh.push_back(key);
    }
    const float* none[] = {nullptr};
    ASSERT_TRUE(
        BulkLoader(tables_[1].get(), parallel_).Insert(fresh.data(), none, static_cast<int64_t>(fresh.size())).ok());
    for (const int64_t key : fresh) models_[1].Put(key);
  }
  void ChangeThresholds() {
    Tracking tracking = models_[0].tracking;
    const int64_t choices[] = {Tracking::kOff, 0, 1, 2, 5, 30, INT32_MAX};
    tracking.access_threshold = choices[random_() % 7];
    tracking.coefficient = 1 + static_cast<int64_t>(random_() % 3);
    for (size_t t = 0; t < 2; ++t) {
      ASSERT_TRUE(tables_[t]->Track(tracking).ok());
      models_[t].tracking = tracking;
    }
  }
  void Clear() {
    const size_t t = random_() % 2;
    tables_[t]->Clear();
    for (const int64_t key : universe_) models_[t].Erase(key);
  }

  void ExpectSameNumbers() {
    for (size_t t = 0; t < 2; ++t) {
      const Model& model = models_[t];
      const int64_t rows = model.rows(), waiting = static_cast<int64_t>(model.known.size()) - rows;
      ASSERT_EQ(tables_[t]->size(), rows);
      ASSERT_EQ(tables_[t]->inserted(), model.inserted);
      ASSERT_EQ(tables_[t]->erased(), model.erased);
      ExpectLives(*tables_[t], model.seen, waiting + model.ended_without_row, waiting);
      ASSERT_EQ(tables_[t]->history()->now(), model.now);
      ASSERT_EQ(tables_[t]->history()->step(), model.step);
    }
  }
  void ExpectSameFacts() {
    for (size_t t = 0; t < 2; ++t) {
      for (const int64_t key : universe_) {
        const auto it = models_[t].known.find(key);
        const Model::Known known = it == models_[t].known.end() ? Model::Known() : it->second;
        ASSERT_EQ(HasRow(*tables_[t], key), known.has_row) << key;
        ExpectFacts(*tables_[t], key, static_cast<uint32_t>(known.count), known.time, known.step);
      }
    }
  }

  std::mt19937_64 random_;
  ThreadedFor parallel_;
  const Hints hints_;
  Keys universe_;
  Tables tables_;
  std::vector<Model> models_;
  std::deque<Step> waiting_;
  int times_full_ = 0;
  int times_trained_ = 0;
  int times_refused_ = 0;
};

TEST(TrackingModel, AnySequenceOfOperationsEqualsTheSameOnAMap) {
  constexpr int64_t kOff = Tracking::kOff;
  const Tracking settings[] = {{kOff, 100, 1, 0}, {0, kOff, 1, 0},        {3, kOff, 1, 0},
                               {12, 50, 3, 0},    {1, 0, INT32_MAX, 0},   {INT32_MAX, 5, 100000000, 0},
                               {5, 1000, 1, 0},   {kOff, 7, INT32_MAX, 0}};
  uint64_t seed = 0;
  for (const Tracking& tracking : settings) {
    for (const Hints hints : {Hints::kGood, Hints::kStale, Hints::kGarbage}) {
      SCOPED_TRACE(testing::Message() << "threshold " << tracking.access_threshold << ", coefficient "
                                      << tracking.coefficient << ", hints " << static_cast<int>(hints));
      Simulation simulation(seed, tracking, 0, seed % 2 == 0 ? 1 : 4, hints);
      simulation.Run(120);
      EXPECT_GT(simulation.times_trained(), 40);
      ++seed;
      if (HasFailure()) return;
    }
  }
}

TEST(TrackingModel, AFullTableCountsNothingAndInsertsNothingInAnyTable) {
  int times_full = 0;
  for (uint64_t seed = 0; seed < 4; ++seed) {
    for (const Hints hints : {Hints::kGood, Hints::kStale, Hints::kGarbage}) {
      SCOPED_TRACE(testing::Message() << "seed " << seed << ", hints " << static_cast<int>(hints));
      Simulation simulation(100 + seed, {3, seed % 2 == 0 ? 100 : Tracking::kOff, 1, 0}, 60, seed < 2 ? 1 : 4, hints);
      simulation.Run(200);
      times_full += simulation.times_full();
      EXPECT_GT(simulation.times_trained(), 30);
      EXPECT_GT(simulation.times_refused(), 100);
      if (HasFailure()) return;
    }
  }
  EXPECT_GT(times_full, 200);
}

}  // namespace
}  // namespace mxrec
