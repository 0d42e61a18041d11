// Table against a std::map: every operation, in random order, with hints of every kind.
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <random>
#include <set>

#include "table/table.h"
#include "table/table_fixture.h"

namespace mxrec {
namespace {

using namespace table_fixture;  // NOLINT(build/namespaces): written for these tests

enum class Hints { kNone, kTrue, kStale, kGarbage };

Keys MakeHints(Hints kind, const Keys& stale, int64_t n, std::mt19937_64* random) {
  Keys hints(n, -1);
  for (int64_t& hint : hints) {
    if (kind == Hints::kStale) hint = stale.empty() ? -1 : stale[(*random)() % stale.size()];
    if (kind != Hints::kGarbage) continue;
    switch ((*random)() % 6) {
      case 0:
        hint = static_cast<int64_t>((*random)());
        break;
      case 1:
        hint = static_cast<int64_t>((*random)() % 2000);  // somebody's row, or nobody's
        break;
      case 2:
        hint = static_cast<int64_t>(UINT32_MAX) + static_cast<int64_t>((*random)() % 3) - 1;
        break;
      case 3:
        hint = INT64_MIN + static_cast<int64_t>((*random)() % 2);
        break;
      case 4:
        hint = static_cast<int64_t>((*random)() % 2000) | kFrozen;
        break;
      default:
        hint = static_cast<int64_t>((*random)() >> 32);  // an unmapped slab
    }
  }
  return hints;
}

class Simulation {
 public:
  Simulation(uint64_t seed, Hints hints, int64_t max_rows)
      : random_(seed), hint_random_(seed), hints_(hints), max_rows_(max_rows), padding_({0, INT64_MAX}) {
    table_ = Make(Config(max_rows, Keys(padding_.begin(), padding_.end())), {{"accumulator", 0.25f}});
    universe_ = {0, -1, INT64_MIN, INT64_MAX};
    for (int64_t i = 1; i < 500; ++i) universe_.push_back(i * (int64_t{1} << 20));
  }

  void Run(int steps) {
    for (int step = 0; step < steps; ++step) {
      SCOPED_TRACE(step);
      const uint64_t dice = random_() % 100;
      if (dice < 45) {
        Train();
      } else if (dice < 65) {
        Evaluate();
      } else if (dice < 80) {
        Erase();
      } else if (dice < 90) {
        Assign();
      } else if (dice < 99) {
        ReadOne();
      } else {
        table_->Clear();
        model_.clear();
      }
      ExpectNumbersAddUp(*table_, static_cast<int64_t>(model_.size()));
      if (step % 20 == 0) ExpectSameContent();
      if (testing::Test::HasFailure()) return;
    }
    ExpectSameContent();
  }

  const Table& table() const { return *table_; }
  int times_full() const { return times_full_; }

 private:
  Keys Draw(size_t most) {
    Keys keys(random_() % most);
    for (int64_t& key : keys) key = universe_[random_() % universe_.size()];
    return keys;
  }
  Floats DrawFloats(int64_t n) {
    Floats floats(n);
    for (float& x : floats) x = static_cast<float>(static_cast<int64_t>(random_() % 2001) - 1000) / 256;
    return floats;
  }
  int64_t Missing(const Keys& keys) const {
    int64_t missing = 0;
    for (const int64_t key : keys) missing += model_.count(key) == 0;
    return missing;
  }

  void Prepare(Batch* batch) {
    if (hints_ == Hints::kTrue) {
      batch->Hint(*table_);
    } else {
      batch->hints = MakeHints(hints_, stale_, batch->size(), &hint_random_);
    }
  }

  void Train() {
    Batch batch(*table_, Draw(60));
    Prepare(&batch);
    const int64_t missing = Missing(batch.keys());
    ASSERT_EQ(batch.Resolve(*table_), missing);
    const Status status = batch.Insert(table_.get());
    if (max_rows_ > 0 && static_cast<int64_t>(model_.size()) + missing > max_rows_) {
      ++times_full_;
      ASSERT_EQ(status.code(), Status::Code::kResourceExhausted);
      return;
    }
    ASSERT_TRUE(status.ok()) << status.message();
    for (const int64_t key : batch.keys()) {
      if (model_.count(key) != 0) continue;
      Floats row = InitialRow(key);
      row.resize(2 * kDim, 0.25f);
      model_[key] = row;
    }
    ExpectRows(batch);

    const Rule& rule = *FindRule("adagrad");
    const float hyper[] = {0.1f, 1e-7f};
    const Floats gradient = DrawFloats(batch.size() * kDim);
    ASSERT_TRUE(table_->CheckHandles(batch.handles.data(), batch.size()).ok());
    table_->Update(rule, hyper, batch.handles.data(), gradient.data(), batch.size());
    for (int64_t u = 0; u < batch.size(); ++u) {
      const int64_t key = batch.keys()[u];
      if (padding_.count(key) == 0) rule.apply(model_[key].data(), gradient.data() + u * kDim, kDim, hyper);
    }
    stale_ = batch.handles;
  }

  void Evaluate() {
    Batch batch(*table_, Draw(60));
    Prepare(&batch);
    ASSERT_EQ(batch.Resolve(*table_), Missing(batch.keys()));
    ExpectRows(batch);
  }

  void ExpectRows(const Batch& batch) {
    const Floats rows = batch.Gather(*table_);
    for (int64_t u = 0; u < batch.size(); ++u) {
      const auto it = model_.find(batch.keys()[u]);
      ASSERT_EQ(batch.handles[u] == kNoRow, it == model_.end());
      for (int j = 0; j < kDim; ++j) ASSERT_EQ(rows[u * kDim + j], it == model_.end() ? 0.0f : it->second[j]);
    }
  }

  void Erase() {
    const Keys keys = Draw(40);
    int64_t erased = 0;
    for (const int64_t key : keys) erased += static_cast<int64_t>(model_.erase(key));
    ASSERT_EQ(table_->Erase(keys.data(), static_cast<int64_t>(keys.size())), erased);
  }

  void Assign() {
    const int64_t key = universe_[random_() % universe_.size()];
    Floats row = DrawFloats(2 * kDim);
    for (float& x : row) x = std::fabs(x);  // adagrad takes the root of its slot
    const bool fits = model_.count(key) != 0 || max_rows_ == 0 || static_cast<int64_t>(model_.size()) < max_rows_;
    ASSERT_EQ(AssignRow(table_.get(), key, row).ok(), fits);
    if (fits) model_[key] = row;
  }

  void ReadOne() {
    const int64_t key = universe_[random_() % universe_.size()];
    Floats row(2 * kDim, -99.0f);
    const bool found = ReadInto(*table_, key, row.data());
    ASSERT_EQ(found, model_.count(key) != 0);
    ASSERT_EQ(row, found ? model_[key] : Floats(2 * kDim, 0.0f));
  }

  void ExpectSameContent() const {
    const Content walked = Walk(*table_);
    const std::map<int64_t, Floats> content(walked.begin(), walked.end());
    ASSERT_EQ(walked.size(), model_.size());
    ASSERT_TRUE(content == model_);
  }

  std::mt19937_64 random_;
  std::mt19937_64 hint_random_;  // its own, so that all kinds of hints see the same operations
  const Hints hints_;
  const int64_t max_rows_;
  std::set<int64_t> padding_;
  std::shared_ptr<Table> table_;
  Keys universe_;
  Keys stale_;
  std::map<int64_t, Floats> model_;
  int times_full_ = 0;
};

TEST(TableModel, AnySequenceOfOperationsEqualsTheSameOnAMap) {
  for (uint64_t seed = 0; seed < 4; ++seed) {
    for (const Hints hints : {Hints::kNone, Hints::kTrue, Hints::kStale, Hints::kGarbage}) {
      SCOPED_TRACE(testing::Message() << "seed " << seed << ", hints " << static_cast<int>(hints));
      Simulation unlimited(seed, hints, 0);
      unlimited.Run(600);
      Simulation tight(seed, hints, 150);
      tight.Run(600);
      EXPECT_GT(tight.times_full(), 0);
      if (HasFailure()) return;
    }
  }
}

TEST(TableModel, HintsOfAnyKindChangeNothing) {
  Simulation reference(5, Hints::kTrue, 0);
  reference.Run(400);
  const Content expected = Walk(reference.table());
  for (const Hints hints : {Hints::kNone, Hints::kStale, Hints::kGarbage}) {
    Simulation other(5, hints, 0);
    other.Run(400);
    EXPECT_TRUE(Walk(other.table()) == expected) << static_cast<int>(hints);  // content and order
  }
}

}  // namespace
}  // namespace mxrec
