#include "table/table.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <map>
#include <random>
#include <set>
#include <thread>

#include "base/hash.h"
#include "batch/grouping.h"

namespace mxrec {
namespace {

using Floats = std::vector<float>;
using Keys = std::vector<int64_t>;
using Content = std::vector<std::pair<int64_t, Floats>>;

constexpr int kDim = 5;  // not a whole vector

// Every key starts from other numbers.
InitializerSpec RandomRows() {
  InitializerSpec spec;
  spec.kind = InitializerSpec::Kind::kUniform;
  spec.a = -1;
  spec.b = 1;
  spec.seed = 3;
  return spec;
}

TableConfig Config(int64_t max_rows = 0, Keys padding_keys = {}) {
  TableConfig config;
  config.name = "user";
  config.dim = kDim;
  config.max_rows = max_rows;
  config.initializer = RandomRows();
  config.padding_keys = std::move(padding_keys);
  return config;
}

std::shared_ptr<Table> Make(const TableConfig& config, const std::vector<SlotSpec>& slots = {}) {
  std::shared_ptr<Table> table;
  Status status = Table::Create(config, &table);
  if (status.ok()) status = table->SetSlots(slots);
  EXPECT_TRUE(status.ok()) << status.message();
  return table;
}

Floats InitialRow(int64_t key) {
  Floats row(kDim);
  Initializer(RandomRows(), "user", kDim).Fill(key, row.data());
  return row;
}

// A batch on its way through a table, by the calls a step makes.
struct Batch {
  Batch(const Table& table, const Keys& ids) {
    grouping.Build({{ids.data(), static_cast<int64_t>(ids.size())}}, table.shard_bits());
    hints.assign(size(), -1);
    handles.assign(size(), -99);
  }

  int64_t size() const { return grouping.keys_size(); }
  const Keys& keys() const { return grouping.keys(); }

  template <typename Fn>
  void ForEachShard(Fn fn) {  // fn(shard, first, n)
    for (size_t s = 0; s + 1 < grouping.shard_starts().size(); ++s) {
      const int32_t first = grouping.shard_starts()[s];
      fn(static_cast<int>(s), first, grouping.shard_starts()[s + 1] - first);
    }
  }
  void Hint(const Table& table) {
    ForEachShard([&](int s, int first, int n) { table.Hint(s, keys().data() + first, n, hints.data() + first); });
  }
  int64_t Resolve(const Table& table) {
    int64_t missing = 0;
    ForEachShard([&](int s, int first, int n) {
      missing += table.Resolve(s, keys().data() + first, hints.data() + first, n, handles.data() + first);
    });
    return missing;
  }
  Status Insert(Table* table) {
    const int64_t missing = Resolve(*table);
    MXREC_RETURN_IF_ERROR(table->Claim(missing));
    int64_t inserted = 0;
    Status status;
    ForEachShard([&](int s, int first, int n) {
      const Status part = table->Insert(s, keys().data() + first, n, handles.data() + first, &inserted);
      if (!part.ok()) status = part;
    });
    table->Release(missing - inserted);
    return status;
  }
  Floats Gather(const Table& table) const {
    Floats out(size() * kDim, -99.0f);
    table.Gather(handles.data(), size(), out.data());
    return out;
  }

  Grouping grouping;
  Keys hints;
  Keys handles;
};

void MustInsert(Table* table, const Keys& keys) {
  const Status status = Batch(*table, keys).Insert(table);
  ASSERT_TRUE(status.ok()) << status.message();
}

Keys Range(int64_t begin, int64_t end) {
  Keys keys;
  for (int64_t k = begin; k < end; ++k) keys.push_back(k);
  return keys;
}

int64_t RowFloats(const Table& table) { return kDim * (1 + static_cast<int64_t>(table.layout().slots().size())); }

// Everything a walk sees, slots included, in its order.
Content Walk(const Table& table) {
  Content content;
  table.ForEach([&](int64_t key, const float* row) { content.push_back({key, Floats(row, row + RowFloats(table))}); });
  return content;
}

Floats ReadRow(const Table& table, int64_t key) {
  Floats row(RowFloats(table), -99.0f);
  table.Read(key, row.data());
  return row;
}

Status AssignRow(Table* table, int64_t key, const Floats& row) {
  std::vector<const float*> parts;
  for (size_t i = 0; i < row.size(); i += kDim) parts.push_back(row.data() + i);
  return table->Assign(key, parts.data());
}

void UpdateAll(Table* table, const Batch& batch, const char* rule, const Floats& hyper, float gradient) {
  const Floats gradients(batch.size() * kDim, gradient);
  ASSERT_TRUE(table->CheckHandles(batch.handles.data(), batch.size()).ok());
  table->Update(*FindRule(rule), hyper.data(), batch.handles.data(), gradients.data(), batch.size());
}

void ExpectNumbersAddUp(const Table& table, int64_t size) {
  EXPECT_EQ(table.size(), size);
  EXPECT_EQ(table.inserted(), table.size() + table.erased());
}

// ---- Against a std::map: every operation, in random order. ----

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
    universe_ = {0, -1, INT64_MIN, INT64_MAX, MemoryStore::kVacant};
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
    const bool found = table_->Read(key, row.data());
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

TEST(Table, AnySequenceOfOperationsEqualsTheSameOnAMap) {
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

TEST(Table, HintsOfAnyKindChangeNothing) {
  Simulation reference(5, Hints::kTrue, 0);
  reference.Run(400);
  const Content expected = Walk(reference.table());
  for (const Hints hints : {Hints::kNone, Hints::kStale, Hints::kGarbage}) {
    Simulation other(5, hints, 0);
    other.Run(400);
    EXPECT_TRUE(Walk(other.table()) == expected) << static_cast<int>(hints);  // content and order
  }
}

// ---- The path of a batch. ----

TEST(Table, NewRowsStartFromTheKeysInitialValuesInAnyOrder) {
  const auto a = Make(Config()), b = Make(Config());
  Keys keys = Range(-300, 300);
  MustInsert(a.get(), keys);
  std::reverse(keys.begin(), keys.end());
  for (const int64_t key : keys) MustInsert(b.get(), {key});
  for (const int64_t key : keys) {
    EXPECT_EQ(ReadRow(*a, key), InitialRow(key));
    EXPECT_EQ(ReadRow(*b, key), InitialRow(key));
  }
}

TEST(Table, EvaluationChangesNoByte) {
  const auto table = Make(Config(), {{"m", 0.5f}});
  MustInsert(table.get(), Range(0, 200));
  const Content before = Walk(*table);
  const int64_t bytes = table->bytes();
  Batch batch(*table, Range(100, 400));
  batch.Hint(*table);
  EXPECT_EQ(batch.Resolve(*table), 200);
  const Floats rows = batch.Gather(*table);
  for (int64_t u = 0; u < batch.size(); ++u) {
    const Floats row(rows.begin() + u * kDim, rows.begin() + (u + 1) * kDim);
    EXPECT_EQ(row, batch.keys()[u] < 200 ? InitialRow(batch.keys()[u]) : Floats(kDim, 0.0f));
  }
  EXPECT_TRUE(Walk(*table) == before);
  EXPECT_EQ(table->bytes(), bytes);
  ExpectNumbersAddUp(*table, 200);
}

TEST(Table, TrueHintsLeadToTheKeysOwnRows) {
  const auto table = Make(Config());
  MustInsert(table.get(), Range(0, 20000));
  Batch batch(*table, Range(0, 20000));
  batch.Hint(*table);
  EXPECT_EQ(batch.Resolve(*table), 0);
  int64_t right = 0;
  for (int64_t u = 0; u < batch.size(); ++u) right += batch.hints[u] == batch.handles[u];
  EXPECT_GE(right, 19000);  // the others cost a second search, not a wrong row
  const Floats rows = batch.Gather(*table);
  for (int64_t u = 0; u < batch.size(); ++u) {
    ASSERT_EQ(Floats(&rows[u * kDim], &rows[u * kDim] + kDim), InitialRow(batch.keys()[u]));
  }
}

TEST(Table, InsertGivesAKeyThatComesTwiceOneRow) {
  const auto table = Make(Config());
  const int64_t keys[] = {7, 7, 7};
  int64_t handles[] = {kNoRow, kNoRow, kNoRow}, inserted = 0;
  const int shard = static_cast<int>(HashKey(7) >> (64 - table->shard_bits()));
  ASSERT_TRUE(table->Claim(3).ok());
  ASSERT_TRUE(table->Insert(shard, keys, 3, handles, &inserted).ok());
  table->Release(3 - inserted);
  EXPECT_EQ(inserted, 1);
  EXPECT_EQ(handles[0], handles[1]);
  EXPECT_EQ(handles[0], handles[2]);
  ExpectNumbersAddUp(*table, 1);
}

TEST(Table, UpdateAppliesTheRuleToEachRowOnce) {
  const auto table = Make(Config());
  MustInsert(table.get(), Range(0, 100));
  Batch batch(*table, Range(0, 150));  // 50 without a row
  EXPECT_EQ(batch.Resolve(*table), 50);
  UpdateAll(table.get(), batch, "gradient_descent", {0.5f, 0.0f}, 0.25f);
  for (int64_t key = 0; key < 150; ++key) {
    Floats expected = InitialRow(key);
    for (float& x : expected) x -= 0.125f;
    EXPECT_EQ(ReadRow(*table, key), key < 100 ? expected : Floats(kDim, 0.0f));
  }
}

TEST(Table, HandlesStayGoodWhileTheTableGrows) {
  const auto table = Make(Config());
  Batch first(*table, Range(0, 1000));
  ASSERT_TRUE(first.Insert(table.get()).ok());
  const Floats before = first.Gather(*table);
  for (int64_t i = 1; i <= 60; ++i) MustInsert(table.get(), Range(2000 * i, 2000 * i + 2000));
  EXPECT_EQ(first.Gather(*table), before);
}

TEST(Table, PaddingKeysAreReadButNeverUpdated) {
  const Keys padding = {30, -7, 0};
  const auto table = Make(Config(0, padding), {{"accumulator", 0.5f}});
  Batch batch(*table, {-7, 1, 0, 2, 30, 3});
  ASSERT_TRUE(batch.Insert(table.get()).ok());
  for (int64_t u = 0; u < batch.size(); ++u) {
    const bool is_padding = std::count(padding.begin(), padding.end(), batch.keys()[u]) != 0;
    EXPECT_EQ((batch.handles[u] & kFrozen) != 0, is_padding) << batch.keys()[u];
  }
  const Floats before = batch.Gather(*table);
  UpdateAll(table.get(), batch, "adagrad", {0.1f, 0.0f}, 1.0f);
  Batch again(*table, {-7, 1, 0, 2, 30, 3});  // found, not inserted: marked all the same
  again.Hint(*table);
  EXPECT_EQ(again.Resolve(*table), 0);
  EXPECT_EQ(again.handles, batch.handles);
  UpdateAll(table.get(), again, "adagrad", {0.1f, 0.0f}, 1.0f);
  const Floats after = again.Gather(*table);
  for (int64_t u = 0; u < batch.size(); ++u) {
    const int64_t key = batch.keys()[u];
    const bool is_padding = std::count(padding.begin(), padding.end(), key) != 0;
    const Floats was(&before[u * kDim], &before[u * kDim] + kDim), is(&after[u * kDim], &after[u * kDim] + kDim);
    EXPECT_EQ(was, InitialRow(key));
    EXPECT_EQ(was == is, is_padding) << key;
    EXPECT_EQ(ReadRow(*table, key)[kDim], is_padding ? 0.5f : 2.5f) << "the slot of " << key;
  }
}

TEST(Table, ChecksHandlesBeforeTheyAreUsed) {
  const auto table = Make(Config(0, {5}));
  EXPECT_FALSE(table->CheckHandles(Keys{0}.data(), 1).ok()) << "an empty table has no rows";
  Batch batch(*table, Range(0, 50));
  ASSERT_TRUE(batch.Insert(table.get()).ok());
  EXPECT_TRUE(table->CheckHandles(batch.handles.data(), batch.size()).ok());
  EXPECT_TRUE(table->CheckHandles(Keys{kNoRow, batch.handles[0], kNoRow}.data(), 3).ok());
  EXPECT_TRUE(table->CheckHandles(nullptr, 0).ok());
  const int64_t row = batch.handles[0] & ~kFrozen;
  for (const int64_t bad : {int64_t{-2}, INT64_MIN, INT64_MAX, int64_t{1} << 32, int64_t{UINT32_MAX}, row + (1 << 20),
                            row | kFrozen << 1, kFrozen - 1, -kFrozen}) {
    const Keys handles = {batch.handles[0], bad, -5};
    const Status status = table->CheckHandles(handles.data(), 3);
    EXPECT_EQ(status.code(), Status::Code::kInvalidArgument) << bad;
    EXPECT_NE(status.message().find("'user'"), std::string::npos) << status.message();
    EXPECT_NE(status.message().find(std::to_string(bad)), std::string::npos) << status.message();
  }
}

// ---- Limits. ----

TEST(Table, AFullTableSaysSoAndLosesNothing) {
  const auto table = Make(Config(100), {{"m", 1}});
  MustInsert(table.get(), Range(0, 90));
  const Content before = Walk(*table);
  const Status status = Batch(*table, Range(80, 120)).Insert(table.get());
  EXPECT_EQ(status.code(), Status::Code::kResourceExhausted);
  for (const char* word : {"'user'", "90 rows", "30 new", "100", "device_vocabulary_size", "use_dynamic_expansion"}) {
    EXPECT_NE(status.message().find(word), std::string::npos) << word << " is not in: " << status.message();
  }
  EXPECT_TRUE(Walk(*table) == before);
  ExpectNumbersAddUp(*table, 90);

  MustInsert(table.get(), Range(90, 100));  // exactly full
  ExpectNumbersAddUp(*table, 100);
  MustInsert(table.get(), Range(0, 100));  // nothing new
  EXPECT_FALSE(Batch(*table, {100}).Insert(table.get()).ok());
  EXPECT_FALSE(AssignRow(table.get(), 100, Floats(2 * kDim, 0.0f)).ok());
  EXPECT_TRUE(AssignRow(table.get(), 99, Floats(2 * kDim, 0.0f)).ok());
  ExpectNumbersAddUp(*table, 100);

  const int64_t gone = 50;
  EXPECT_EQ(table->Erase(&gone, 1), 1);
  MustInsert(table.get(), {100});
  ExpectNumbersAddUp(*table, 100);
}

TEST(Table, AClaimThatFailsDisturbsNoOther) {
  const auto table = Make(Config(100));
  std::atomic<int> failed{0}, refused{0};
  std::thread greedy([&] {
    for (int i = 0; i < 100000; ++i) failed += !table->Claim(101).ok();
  });
  while (failed.load() == 0) std::this_thread::yield();
  while (failed.load() < 100000) {
    if (table->Claim(1).ok()) {
      table->Release(1);
    } else {
      ++refused;
    }
  }
  greedy.join();
  EXPECT_EQ(refused.load(), 0);
  EXPECT_EQ(table->size(), 0);
}

TEST(Table, CapacityIsTheLimitOrWhatIsAllocated) {
  EXPECT_EQ(Make(Config(1000))->capacity(), 1000);
  const auto table = Make(Config());
  EXPECT_EQ(table->capacity(), 0);
  MustInsert(table.get(), Range(0, 5000));
  EXPECT_GE(table->capacity(), 5000);
  EXPECT_GE(table->bytes(), static_cast<int64_t>(5000 * (kDim * sizeof(float) + sizeof(int64_t))));
}

TEST(Table, RefusesConfigurationsThatCannotWork) {
  auto refused = [](TableConfig config, const char* word) {
    std::shared_ptr<Table> table;
    const Status status = Table::Create(config, &table);
    EXPECT_EQ(status.code(), Status::Code::kInvalidArgument);
    EXPECT_NE(status.message().find(word), std::string::npos) << status.message();
    EXPECT_EQ(table, nullptr);
  };
  TableConfig config = Config();
  config.name = "";
  refused(config, "name");
  for (const int dim : {0, -1, 8193}) {
    config = Config();
    config.dim = dim;
    refused(config, "'user'");
    refused(config, std::to_string(dim).c_str());
  }
  config = Config(-5);
  refused(config, "-5");
  config = Config();
  config.initializer.a = NAN;
  refused(config, "'user'");
}

TEST(Table, ChoosesMoreShardsForLargerTables) {
  EXPECT_LT(Make(Config(1000))->shards(), Make(Config(10000000))->shards());
  for (const int64_t max_rows : {int64_t{0}, int64_t{1}, int64_t{1} << 24, int64_t{1} << 40}) {
    const auto table = Make(Config(max_rows));
    EXPECT_EQ(table->shards(), 1 << table->shard_bits());
    EXPECT_LE(table->shards(), 256);  // what a plan can carry
  }
}

// ---- Outside the step. ----

TEST(Table, SetSlotsKeepsEmbeddingsAndStartsSlotsAtTheirInitialValue) {
  const auto table = Make(Config());
  MustInsert(table.get(), Range(0, 500));
  ASSERT_TRUE(table->SetSlots({{"m", 0.5f}, {"v", 2.0f}}).ok());
  MustInsert(table.get(), Range(500, 600));
  const Content content = Walk(*table);
  ASSERT_EQ(content.size(), 600u);
  for (const auto& [key, row] : content) {
    Floats expected = InitialRow(key);
    expected.resize(2 * kDim, 0.5f);
    expected.resize(3 * kDim, 2.0f);
    EXPECT_EQ(row, expected);
  }
}

TEST(Table, KeepsTheSlotsOfOneOptimizerOnly) {
  const auto table = Make(Config(), {{"m", 0.5f}, {"v", 0}});
  MustInsert(table.get(), Range(0, 10));
  Floats row(3 * kDim, 9.0f);
  ASSERT_TRUE(AssignRow(table.get(), 4, row).ok());
  const Content before = Walk(*table);
  EXPECT_TRUE(table->SetSlots({{"m", 0.5f}, {"v", 0}}).ok());
  for (const std::vector<SlotSpec>& other :
       std::vector<std::vector<SlotSpec>>{{{"accumulator", 0.5f}}, {{"m", 0.5f}}, {{"m", 0.1f}, {"v", 0}}, {}}) {
    const Status status = table->SetSlots(other);
    EXPECT_EQ(status.code(), Status::Code::kFailedPrecondition);
    const std::string wanted = other.empty() ? "[]" : other[0].name;
    for (const std::string& word : {std::string("'user'"), std::string("m, v"), wanted}) {
      EXPECT_NE(status.message().find(word), std::string::npos) << status.message();
    }
  }
  EXPECT_TRUE(Walk(*table) == before);
}

TEST(Table, RowsAfterEraseStartAnewWithFreshSlots) {
  const auto table = Make(Config(), {{"m", 0.5f}, {"v", 0}});
  const Keys old_keys = Range(0, 300);
  Batch batch(*table, old_keys);
  ASSERT_TRUE(batch.Insert(table.get()).ok());
  for (int i = 0; i < 3; ++i) UpdateAll(table.get(), batch, "lazy_adam", {0.1f, 0.9f, 0.99f, 1e-8f}, 1.0f);
  EXPECT_NE(ReadRow(*table, 5)[kDim], 0.5f);
  EXPECT_EQ(table->Erase(old_keys.data(), 300), 300);
  ExpectNumbersAddUp(*table, 0);

  MustInsert(table.get(), Range(150, 450));  // old keys and new ones, in rows used before
  EXPECT_LE(table->capacity(), 300 + 2 * 64 * static_cast<int64_t>(MemoryStore::kRun));
  for (int64_t key = 150; key < 450; ++key) {
    Floats expected = InitialRow(key);
    expected.resize(2 * kDim, 0.5f);
    expected.resize(3 * kDim, 0.0f);
    ASSERT_EQ(ReadRow(*table, key), expected) << key;
  }
}

TEST(Table, AssignAddsAndReplacesWholeRows) {
  const auto table = Make(Config(), {{"m", 0.5f}});
  MustInsert(table.get(), {1});
  Floats row(2 * kDim);
  for (const int64_t key : {int64_t{1}, int64_t{2}, INT64_MIN, MemoryStore::kVacant}) {
    for (size_t i = 0; i < row.size(); ++i) row[i] = static_cast<float>(key % 100) + 0.5f * i;
    ASSERT_TRUE(AssignRow(table.get(), key, row).ok());
    EXPECT_EQ(ReadRow(*table, key), row);
  }
  ExpectNumbersAddUp(*table, 4);
  EXPECT_EQ(table->inserted(), 4);
}

// Columns of a checkpoint: an embedding and a slot for each key, told apart by the key.
struct Columns {
  explicit Columns(const Keys& keys) {
    for (const int64_t key : keys) {
      for (int j = 0; j < kDim; ++j) embedding.push_back(static_cast<float>(key) + 0.25f * j);
      for (int j = 0; j < kDim; ++j) slot.push_back(static_cast<float>(-key) - 0.25f * j);
    }
  }
  Floats embedding, slot;
};

TEST(Table, InsertRowsEqualsAssignForAnyNumberOfThreads) {
  Keys keys = Range(-2000, 2000);
  std::shuffle(keys.begin(), keys.end(), std::mt19937_64(1));
  const Columns columns(keys);
  const auto assigned = Make(Config(), {{"m", 0.5f}});
  for (size_t i = 0; i < keys.size(); ++i) {
    const float* parts[] = {&columns.embedding[i * kDim], &columns.slot[i * kDim]};
    ASSERT_TRUE(assigned->Assign(keys[i], parts).ok());
  }
  const Content expected = Walk(*assigned);
  for (int threads = 1; threads <= 4; ++threads) {
    const auto table = Make(Config(), {{"m", 0.5f}});
    const float* all[] = {columns.embedding.data(), columns.slot.data()};
    ASSERT_TRUE(table->InsertRows(keys.data(), all, 4000, ThreadedFor(threads)).ok());
    EXPECT_TRUE(Walk(*table) == expected) << threads << " threads";
    ExpectNumbersAddUp(*table, 4000);
  }
}

TEST(Table, InsertRowsFillsMissingColumnsWithInitialValues) {
  const Keys keys = Range(0, 100);
  const Columns columns(keys);
  const auto table = Make(Config(), {{"m", 0.5f}, {"v", 2}});
  Batch batch(*table, Range(0, 200));  // leaves rows whose old content must not shine through
  ASSERT_TRUE(batch.Insert(table.get()).ok());
  UpdateAll(table.get(), batch, "lazy_adam", {0.1f, 0.9f, 0.99f, 1e-8f}, 1.0f);
  const Keys all = Range(0, 200);
  table->Erase(all.data(), 200);

  const float* parts[] = {nullptr, columns.slot.data(), nullptr};
  ASSERT_TRUE(table->InsertRows(keys.data(), parts, 100, SerialFor()).ok());
  for (int64_t key = 0; key < 100; ++key) {
    Floats expected = InitialRow(key);
    expected.insert(expected.end(), &columns.slot[key * kDim], &columns.slot[key * kDim] + kDim);
    expected.resize(3 * kDim, 2.0f);
    ASSERT_EQ(ReadRow(*table, key), expected);
  }
}

TEST(Table, InsertRowsRefusesKeysThatArePresentAndTooManyRows) {
  const float* none[] = {nullptr};
  const auto table = Make(Config(100));
  MustInsert(table.get(), {7});
  const Keys present = {1, 2, 7}, twice = {20, 21, 20}, many = Range(200, 300);
  for (const Keys& keys : {present, twice}) {
    const Status status = table->InsertRows(keys.data(), none, 3, SerialFor());
    EXPECT_EQ(status.code(), Status::Code::kAlreadyExists);
    EXPECT_NE(status.message().find(std::to_string(keys[2])), std::string::npos) << status.message();
    ExpectNumbersAddUp(*table, static_cast<int64_t>(Walk(*table).size()));
  }
  const Content before = Walk(*table);
  EXPECT_EQ(table->InsertRows(many.data(), none, 100, SerialFor()).code(), Status::Code::kResourceExhausted);
  EXPECT_TRUE(Walk(*table) == before);
  EXPECT_TRUE(table->InsertRows(nullptr, none, 0, SerialFor()).ok());
  ExpectNumbersAddUp(*table, static_cast<int64_t>(before.size()));
}

TEST(Table, EraseCountsEachPresentKeyOnce) {
  const auto table = Make(Config());
  MustInsert(table.get(), Range(0, 10));
  const Keys keys = {3, 3, 100, 4, -1, 3};
  EXPECT_EQ(table->Erase(keys.data(), 6), 2);
  EXPECT_EQ(table->Erase(keys.data(), 6), 0);
  EXPECT_EQ(table->Erase(nullptr, 0), 0);
  ExpectNumbersAddUp(*table, 8);
  EXPECT_EQ(table->erased(), 2);
}

TEST(Table, ClearRemovesEverythingAndGivesTheMemoryBack) {
  const auto table = Make(Config(500), {{"m", 0.5f}});
  MustInsert(table.get(), Range(0, 500));
  Batch batch(*table, Range(0, 500));
  EXPECT_EQ(batch.Resolve(*table), 0);
  UpdateAll(table.get(), batch, "momentum", {0.1f, 0.9f, 0.0f}, 1.0f);
  table->Clear();
  EXPECT_EQ(table->bytes(), 0);
  ExpectNumbersAddUp(*table, 0);
  EXPECT_TRUE(Walk(*table).empty());
  EXPECT_EQ(batch.Resolve(*table), 500);
  MustInsert(table.get(), Range(0, 500));
  for (int64_t key = 0; key < 500; ++key) {
    Floats expected = InitialRow(key);
    expected.resize(2 * kDim, 0.5f);
    ASSERT_EQ(ReadRow(*table, key), expected);
  }
  ExpectNumbersAddUp(*table, 500);
}

TEST(Table, WalksEachKeyOnceInAnOrderThatTheOperationsDetermine) {
  auto run = [] {
    const auto table = Make(Config());
    MustInsert(table.get(), Range(0, 3000));
    const Keys gone = Range(500, 1500);
    table->Erase(gone.data(), 1000);
    MustInsert(table.get(), Range(1200, 4000));
    return Walk(*table);
  };
  const Content content = run();
  std::set<int64_t> keys;
  for (const auto& entry : content) EXPECT_TRUE(keys.insert(entry.first).second) << entry.first;
  EXPECT_EQ(keys.size(), 3300u);
  EXPECT_TRUE(run() == content);
}

// ---- Threads. ----

TEST(Table, InsertsAndErasesOfTheSameKeysFromManyThreadsLeaveAWholeTable) {
  const auto table = Make(Config(), {{"m", 0.5f}});
  constexpr int kThreads = 4;
  std::vector<std::thread> threads;
  std::atomic<int64_t> erased{0};
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      std::mt19937_64 random(t);
      for (int round = 0; round < 60; ++round) {
        Keys keys(100);
        for (int64_t& key : keys) key = static_cast<int64_t>(random() % 400);
        Batch batch(*table, keys);
        batch.Hint(*table);
        EXPECT_TRUE(batch.Insert(table.get()).ok());
        if (t % 2 == 0) erased += table->Erase(keys.data(), 50);
        Floats row(2 * kDim);
        table->Read(keys[99], row.data());
      }
    });
  }
  for (std::thread& t : threads) t.join();
  EXPECT_EQ(table->erased(), erased.load());
  const Content content = Walk(*table);
  ExpectNumbersAddUp(*table, static_cast<int64_t>(content.size()));
  std::set<int64_t> keys;
  for (const auto& [key, row] : content) {
    EXPECT_TRUE(keys.insert(key).second) << key << " has two rows";
    Floats expected = InitialRow(key);
    expected.resize(2 * kDim, 0.5f);
    EXPECT_EQ(row, expected);
  }
  for (int64_t key = 0; key < 400; ++key) {
    Floats row(2 * kDim);
    EXPECT_EQ(table->Read(key, row.data()), keys.count(key) != 0);
  }
}

TEST(Table, PreparationMayRunWhileTheTableIsCleared) {
  const auto table = Make(Config());
  std::atomic<bool> stop{false};
  std::thread prepare([&] {
    Batch batch(*table, Range(0, 2000));
    while (!stop) batch.Hint(*table);
  });
  for (int round = 0; round < 30; ++round) {
    MustInsert(table.get(), Range(0, 2000));
    table->Clear();
  }
  stop = true;
  prepare.join();
  ExpectNumbersAddUp(*table, 0);
}

}  // namespace
}  // namespace mxrec
