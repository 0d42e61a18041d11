#include "table/commit.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <map>
#include <random>
#include <set>
#include <thread>

#include "base/address_space_fixture.h"

namespace mxrec {
namespace {

using Floats = std::vector<float>;
using Ids = std::vector<int64_t>;
using Tables = std::vector<std::shared_ptr<Table>>;
using Content = std::vector<std::pair<int64_t, Floats>>;

InitializerSpec RandomRows() {
  InitializerSpec spec;
  spec.kind = InitializerSpec::Kind::kNormal;
  spec.b = 1;
  return spec;
}

std::shared_ptr<Table> Make(const std::string& name, int dim, int64_t max_rows = 0) {
  TableConfig config;
  config.name = name;
  config.dim = dim;
  config.max_rows = max_rows;
  config.initializer = RandomRows();
  std::shared_ptr<Table> table;
  Status status = Table::Create(config, &table);
  if (status.ok()) status = table->SetSlots({{"accumulator", 0.5f}});
  EXPECT_TRUE(status.ok()) << status.message();
  return table;
}

// Three tables that differ in width, number of shards and limit.
Tables MakeTables() { return {Make("user", 4), Make("item", 9, 100000), Make("city", 1, 1 << 20)}; }

Floats InitialRow(const Table& table, int64_t key) {
  Floats row(table.config().dim);
  Initializer(RandomRows(), table.config().name, table.config().dim).Fill(key, row.data());
  return row;
}

Content Walk(const Table& table) {
  const int64_t floats = table.config().dim * (1 + table.layout().slots().size());
  Content content;
  table.ForEach([&](int64_t key, int64_t handle) {
    const float* row = table.Row(handle);
    content.push_back({key, Floats(row, row + floats)});
  });
  return content;
}

std::set<int64_t> KeySet(const Table& table) {
  std::set<int64_t> keys;
  for (const auto& entry : Walk(table)) EXPECT_TRUE(keys.insert(entry.first).second) << "two rows: " << entry.first;
  return keys;
}

void ExpectNumbersAddUp(const Table& table, size_t size) {
  EXPECT_EQ(table.size(), static_cast<int64_t>(size));
  EXPECT_EQ(table.inserted(), table.size() + table.erased());
}

// A batch: ids for each table, prepared as the input pipeline does it.
class Batch {
 public:
  Batch(const Tables& tables, std::vector<Ids> ids) : tables_(tables), ids_(std::move(ids)), groupings_(tables.size()) {
    std::vector<PlanWriter::Table> parts;
    std::vector<FeaturePlan> features;
    for (size_t t = 0; t < tables_.size(); ++t) {
      const int64_t n = static_cast<int64_t>(ids_[t].size());
      groupings_[t].Build({{ids_[t].data(), n}}, tables_[t]->shard_bits());
      parts.push_back({tables_[t]->config().name, &groupings_[t]});
      features.push_back({static_cast<int64_t>(t), 0, n, {n}});
      handles_.emplace_back(groupings_[t].keys_size(), -99);
      rows_.emplace_back(groupings_[t].keys_size() * tables_[t]->config().dim, -99.0f);
    }
    const PlanWriter writer(std::move(parts), std::move(features));
    words_.assign(writer.words(), -1);
    writer.Write(words_.data());
    for (size_t t = 0; t < tables_.size(); ++t) {
      const Grouping& g = groupings_[t];
      for (int s = 0; s < tables_[t]->shards(); ++s) {
        const int32_t first = g.shard_starts()[s], n = g.shard_starts()[s + 1] - first;
        writer.seals(words_.data(), t)[s] =
            tables_[t]->Hint(s, g.keys().data() + first, n, writer.hints(words_.data(), t) + first);
      }
    }
  }

  Status Run(bool insert, const ParallelFor& parallel = SerialFor()) {
    Plan plan;
    MXREC_RETURN_IF_ERROR(Plan::Parse(words_.data(), words_.size(), &plan));
    std::vector<CommitItem> items;
    for (size_t t = 0; t < tables_.size(); ++t) {
      MXREC_RETURN_IF_ERROR(plan.CheckTable(t, tables_[t]->config().name, tables_[t]->shards()));
      items.push_back({tables_[t].get(), plan.tables()[t], handles_[t].data(), insert});
    }
    MXREC_RETURN_IF_ERROR(Commit(items, parallel));
    for (size_t t = 0; t < tables_.size(); ++t) {
      tables_[t]->Gather(handles_[t].data(), static_cast<int64_t>(handles_[t].size()), rows_[t].data());
    }
    return Status();
  }

  void MoveTo(const Tables& tables) { tables_ = tables; }

  // A step of training: look up, then update with gradients made from the keys.
  void Train(const ParallelFor& parallel) {
    const Status status = Run(true, parallel);
    ASSERT_TRUE(status.ok()) << status.message();
    const float hyper[] = {0.1f, 1e-7f};
    for (size_t t = 0; t < tables_.size(); ++t) {
      const int64_t dim = tables_[t]->config().dim;
      Floats gradient;
      for (const int64_t key : keys(t)) gradient.insert(gradient.end(), dim, static_cast<float>(key % 13) - 6.5f);
      parallel.Run(static_cast<int64_t>(keys(t).size()), 1, [&](int64_t begin, int64_t end) {
        tables_[t]->Update(*FindRule("adagrad"), hyper, handles_[t].data() + begin, gradient.data() + begin * dim,
                           end - begin);
      });
    }
  }

  const Ids& keys(size_t t) const { return groupings_[t].keys(); }
  const Ids& handles(size_t t) const { return handles_[t]; }
  const std::vector<Floats>& rows() const { return rows_; }
  Floats row(size_t t, int64_t u) const {
    const int64_t dim = tables_[t]->config().dim;
    return Floats(rows_[t].begin() + u * dim, rows_[t].begin() + (u + 1) * dim);
  }

 private:
  Tables tables_;
  std::vector<Ids> ids_;
  std::vector<Grouping> groupings_;
  std::vector<int64_t> words_;
  std::vector<Ids> handles_;
  std::vector<Floats> rows_;
};

Ids Range(int64_t begin, int64_t end) {
  Ids ids;
  for (int64_t i = begin; i < end; ++i) ids.push_back(i);
  return ids;
}

// Ids for each of three tables; later steps bring new keys and old ones.
std::vector<Ids> StepIds(int step) {
  std::mt19937_64 random(step);
  std::vector<Ids> ids(3);
  for (int t = 0; t < 3; ++t) {
    for (int i = 0; i < 400; ++i) ids[t].push_back(static_cast<int64_t>(random() % (200 * (step + 1))) - 50 * t);
  }
  return ids;
}

void EraseSome(const Tables& tables, int step) {
  const Ids keys = Range(step * 20, step * 20 + 100);
  for (const auto& table : tables) table->Erase(keys.data(), 100);
}

TEST(Commit, FindsTheRowsOfKeysThatMovedAfterTheBatchWasPrepared) {
  const Tables tables = {Make("user", 4)};
  ASSERT_TRUE(Batch(tables, {Range(0, 500)}).Run(true).ok());
  Batch prepared(tables, {Range(0, 1000)});
  // Rows change hands: those of the first keys go to others, and come back in another order.
  const Ids gone = Range(0, 300);
  ASSERT_EQ(tables[0]->Erase(gone.data(), 300), 300);
  ASSERT_TRUE(Batch(tables, {Range(5000, 5200)}).Run(true).ok());
  Ids back = Range(100, 200);
  std::reverse(back.begin(), back.end());
  ASSERT_TRUE(Batch(tables, {back}).Run(true).ok());
  ASSERT_TRUE(prepared.Run(true).ok());
  for (size_t u = 0; u < prepared.keys(0).size(); ++u) {
    EXPECT_EQ(prepared.row(0, u), InitialRow(*tables[0], prepared.keys(0)[u]));
  }
  ExpectNumbersAddUp(*tables[0], 1200);
}

TEST(Commit, DoesNotTrustTheHintsOfAnotherTableOfTheSameName) {
  const Tables old_tables = {Make("user", 4)}, tables = {Make("user", 4)};
  ASSERT_TRUE(Batch(old_tables, {Range(0, 500)}).Run(true).ok());
  Ids other = Range(0, 500);
  std::reverse(other.begin(), other.end());
  ASSERT_TRUE(Batch(tables, {other}).Run(true).ok());
  Batch cached(old_tables, {Range(0, 500)});  // as a dataset cached by an earlier process brings it
  cached.MoveTo(tables);
  ASSERT_TRUE(cached.Run(false).ok());
  for (size_t u = 0; u < cached.keys(0).size(); ++u) {
    EXPECT_EQ(cached.row(0, u), InitialRow(*tables[0], cached.keys(0)[u]));
  }
}

TEST(Commit, InsertsNewKeysIntoAllTablesAndCopiesTheirRows) {
  const Tables tables = MakeTables();
  Batch batch(tables, {Range(0, 300), Range(-50, 50), Range(1000, 1001)});
  ASSERT_TRUE(batch.Run(true).ok());
  for (size_t t = 0; t < 3; ++t) {
    ExpectNumbersAddUp(*tables[t], batch.keys(t).size());
    EXPECT_TRUE(tables[t]->CheckHandles(batch.handles(t).data(), batch.keys(t).size()).ok());
    for (size_t u = 0; u < batch.keys(t).size(); ++u) {
      ASSERT_NE(batch.handles(t)[u], kNoRow);
      ASSERT_EQ(batch.row(t, u), InitialRow(*tables[t], batch.keys(t)[u]));
    }
  }
  Batch again(tables, {Range(0, 300), Range(-50, 50), Range(1000, 1001)});
  ASSERT_TRUE(again.Run(true).ok());
  for (size_t t = 0; t < 3; ++t) {
    EXPECT_EQ(again.handles(t), batch.handles(t));
    ExpectNumbersAddUp(*tables[t], batch.keys(t).size());
  }
}

TEST(Commit, WithoutInsertGivesZerosAndChangesNoByte) {
  const Tables tables = MakeTables();
  Batch train(tables, {Range(0, 100), Range(0, 10), {}});
  train.Train(SerialFor());
  const std::vector<Content> before = {Walk(*tables[0]), Walk(*tables[1]), Walk(*tables[2])};
  Batch eval(tables, {Range(50, 150), Range(5, 15), Range(0, 5)});
  ASSERT_TRUE(eval.Run(false, ThreadedFor(3)).ok());
  for (size_t t = 0; t < 3; ++t) {
    const std::map<int64_t, Floats> known(before[t].begin(), before[t].end());
    for (size_t u = 0; u < eval.keys(t).size(); ++u) {
      const auto it = known.find(eval.keys(t)[u]);
      Floats expected(tables[t]->config().dim, 0.0f);
      if (it != known.end()) std::copy_n(it->second.begin(), expected.size(), expected.begin());
      EXPECT_EQ(eval.handles(t)[u] == kNoRow, it == known.end());
      EXPECT_EQ(eval.row(t, u), expected);
    }
    EXPECT_TRUE(Walk(*tables[t]) == before[t]);
    ExpectNumbersAddUp(*tables[t], before[t].size());
  }
}

TEST(Commit, AnyNumberOfThreadsGivesTheSameBits) {
  constexpr int kSteps = 12;
  auto train = [](const ParallelFor& parallel, std::vector<std::vector<Floats>>* rows) {
    const Tables tables = MakeTables();
    for (int step = 0; step < kSteps; ++step) {
      Batch batch(tables, StepIds(step));
      batch.Train(parallel);
      rows->push_back(batch.rows());
      if (step % 3 == 2) EraseSome(tables, step);
    }
    return std::vector<Content>{Walk(*tables[0]), Walk(*tables[1]), Walk(*tables[2])};
  };
  std::vector<std::vector<Floats>> serial_rows;
  const std::vector<Content> serial = train(SerialFor(), &serial_rows);
  for (int threads = 1; threads <= 5; ++threads) {
    std::vector<std::vector<Floats>> rows;
    const std::vector<Content> content = train(ThreadedFor(threads), &rows);
    EXPECT_TRUE(rows == serial_rows) << threads << " threads";
    EXPECT_TRUE(content == serial) << threads << " threads";  // in the order of the walk
  }
}

TEST(Commit, PreparingAheadByAnyNumberOfBatchesChangesNothing) {
  constexpr int kSteps = 12;
  auto train = [](int ahead, std::vector<std::vector<Floats>>* rows) {
    const Tables tables = MakeTables();
    std::vector<Batch> queue;
    for (int step = 0; step < kSteps; ++step) {
      while (static_cast<int>(queue.size()) < kSteps && static_cast<int>(queue.size()) <= step + ahead) {
        queue.emplace_back(tables, StepIds(static_cast<int>(queue.size())));
      }
      queue[step].Train(SerialFor());
      rows->push_back(queue[step].rows());
      // Rows that hints of waiting batches point to change hands.
      if (step % 3 == 2) EraseSome(tables, step);
      if (step == 7) tables[1]->Clear();
    }
    return std::vector<Content>{Walk(*tables[0]), Walk(*tables[1]), Walk(*tables[2])};
  };
  std::vector<std::vector<Floats>> in_time_rows;
  const std::vector<Content> in_time = train(0, &in_time_rows);
  for (const int ahead : {1, 2, 5, kSteps}) {
    std::vector<std::vector<Floats>> rows;
    EXPECT_TRUE(train(ahead, &rows) == in_time) << ahead;
    EXPECT_TRUE(rows == in_time_rows) << ahead;
  }
}

TEST(Commit, IfOneTableIsFullNothingIsInsertedIntoAny) {
  for (size_t full = 0; full < 3; ++full) {
    Tables tables;
    for (size_t t = 0; t < 3; ++t) tables.push_back(Make("table" + std::to_string(t), 3, t == full ? 50 : 1000));
    Batch first(tables, {Range(0, 40), Range(0, 40), Range(0, 40)});
    ASSERT_TRUE(first.Run(true).ok());
    const std::vector<Content> before = {Walk(*tables[0]), Walk(*tables[1]), Walk(*tables[2])};

    Batch second(tables, {Range(20, 60), Range(20, 60), Range(20, 60)});
    const Status status = second.Run(true, ThreadedFor(2));
    EXPECT_EQ(status.code(), Status::Code::kResourceExhausted);
    EXPECT_NE(status.message().find("'table" + std::to_string(full) + "'"), std::string::npos) << status.message();
    EXPECT_NE(status.message().find("50"), std::string::npos) << status.message();
    for (size_t t = 0; t < 3; ++t) {
      EXPECT_TRUE(Walk(*tables[t]) == before[t]);
      ExpectNumbersAddUp(*tables[t], 40);
    }

    Batch third(tables, {Range(30, 50), Range(30, 50), Range(30, 50)});  // what still fits
    EXPECT_TRUE(third.Run(true).ok());
    for (size_t t = 0; t < 3; ++t) ExpectNumbersAddUp(*tables[t], 50);
    EXPECT_TRUE(second.Run(false).ok());  // reading never fails
  }
}

TEST(Commit, AcceptsEmptyBatches) {
  const Tables tables = MakeTables();
  for (const int threads : {1, 3}) {
    Batch empty(tables, {{}, {}, {}});
    EXPECT_TRUE(empty.Run(true, ThreadedFor(threads)).ok());
    Batch half(tables, {{}, Range(0, 5), {}});
    EXPECT_TRUE(half.Run(true, ThreadedFor(threads)).ok());
  }
  ExpectNumbersAddUp(*tables[0], 0);
  ExpectNumbersAddUp(*tables[1], 5);
  ExpectNumbersAddUp(*tables[2], 0);
}

TEST(Commit, AcceptsAPlanForNoTables) {
  Batch none({}, {});
  EXPECT_TRUE(none.Run(true).ok());
  EXPECT_TRUE(Commit({}, ThreadedFor(2)).ok());
}

TEST(Commit, OneTableMayComeTwice) {
  const auto table = Make("user", 2);
  for (const int threads : {1, 2, 4}) {
    Batch batch({table, table}, {Range(0, 100), Range(50, 150)});
    ASSERT_TRUE(batch.Run(true, ThreadedFor(threads)).ok());
    std::map<int64_t, int64_t> handle_of;
    for (size_t t = 0; t < 2; ++t) {
      for (size_t u = 0; u < batch.keys(t).size(); ++u) {
        const int64_t handle = batch.handles(t)[u];
        EXPECT_EQ(handle_of.emplace(batch.keys(t)[u], handle).first->second, handle);
        EXPECT_EQ(batch.row(t, u), InitialRow(*table, batch.keys(t)[u]));
      }
    }
    EXPECT_EQ(handle_of.size(), 150u);
    ExpectNumbersAddUp(*table, 150);
    table->Clear();
  }
}

TEST(Commit, ConcurrentCommitsPreparationAndErasesKeepEveryTableWhole) {
  const Tables tables = MakeTables();
  // Keys from 100,000 on are old: present at the start, erased by two threads at once while others commit.
  const Ids old_keys = Range(100000, 101000);
  Batch old(tables, {old_keys, old_keys, old_keys});
  ASSERT_TRUE(old.Run(true).ok());

  constexpr int kRounds = 25;
  std::vector<std::set<int64_t>> expected(3);
  std::vector<std::thread> threads;
  std::vector<std::vector<std::vector<Ids>>> ids(3);
  for (int c = 0; c < 3; ++c) {
    std::mt19937_64 random(c);
    for (int round = 0; round < kRounds; ++round) {
      std::vector<Ids> batch(3);
      for (size_t t = 0; t < 3; ++t) {
        for (int i = 0; i < 200; ++i) batch[t].push_back(static_cast<int64_t>(random() % 3000));
        expected[t].insert(batch[t].begin(), batch[t].end());
      }
      ids[c].push_back(std::move(batch));
    }
  }
  for (int c = 0; c < 3; ++c) {
    threads.emplace_back([&, c] {
      for (const std::vector<Ids>& round : ids[c]) {
        Batch batch(tables, round);
        EXPECT_TRUE(batch.Run(true, ThreadedFor(1 + c % 2)).ok());
        for (size_t t = 0; t < 3; ++t) {
          for (size_t u = 0; u < batch.keys(t).size(); ++u) {
            EXPECT_EQ(batch.row(t, u), InitialRow(*tables[t], batch.keys(t)[u]));
          }
        }
      }
    });
  }
  std::atomic<bool> stop{false};
  threads.emplace_back([&] {
    // Looks for keys of every kind; hints may be anything by the time they are used.
    while (!stop) Batch(tables, {Range(0, 300), old_keys, Range(2000, 3500)});
  });
  std::atomic<int64_t> erased{0};
  for (int e = 0; e < 2; ++e) {
    threads.emplace_back([&] {
      for (int64_t first = 0; first < 900; first += 10) {
        for (const auto& table : tables) erased += table->Erase(old_keys.data() + first, 10);
      }
    });
  }
  for (size_t i = 0; i < threads.size(); ++i) {
    if (i != 3) threads[i].join();
  }
  stop = true;
  threads[3].join();

  EXPECT_EQ(erased.load(), 3 * 900);
  for (size_t t = 0; t < 3; ++t) {
    expected[t].insert(old_keys.begin() + 900, old_keys.end());
    EXPECT_EQ(KeySet(*tables[t]), expected[t]);
    ExpectNumbersAddUp(*tables[t], expected[t].size());
    for (const auto& [key, row] : Walk(*tables[t])) {
      Floats whole = InitialRow(*tables[t], key);
      whole.resize(2 * whole.size(), 0.5f);
      ASSERT_EQ(row, whole);
    }
  }
}

TEST(Commit, ConcurrentCommitsOfDifferentKeysFillATableToItsLastRow) {
  const auto table = Make("user", 2, 2000);
  std::vector<std::thread> threads;
  for (int c = 0; c < 4; ++c) {
    threads.emplace_back([&table, c] {
      for (int64_t first = c * 500; first < c * 500 + 500; first += 50) {
        Batch batch({table}, {Range(first, first + 50)});
        const Status status = batch.Run(true);
        EXPECT_TRUE(status.ok()) << status.message();
      }
    });
  }
  for (std::thread& t : threads) t.join();
  ExpectNumbersAddUp(*table, 2000);
  EXPECT_EQ(KeySet(*table).size(), 2000u);
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)  // they need the address space for themselves

// Runs in a child process; says by its exit code how far it came.
[[noreturn]] void RunOutOfMemoryAndRecover() {
  const Tables tables = {Make("narrow", 1), Make("wide", 8192)};  // a slab of the second is 4 GiB
  Batch batch(tables, {Range(0, 20), Range(0, 20)});
  LimitAddressSpace(rlim_t{256} << 20);
  if (batch.Run(true).code() != Status::Code::kResourceExhausted) std::exit(1);
  for (const auto& table : tables) {
    if (table->size() != static_cast<int64_t>(KeySet(*table).size())) std::exit(2);
    if (table->inserted() != table->size()) std::exit(3);
  }
  LimitAddressSpace(RLIM_INFINITY);
  if (!batch.Run(true).ok()) std::exit(4);
  for (const auto& table : tables) {
    if (table->size() != 20 || KeySet(*table).size() != 20) std::exit(5);
  }
  std::exit(0);
}

TEST(CommitDeathTest, OutOfMemoryIsAnErrorAfterWhichTheTableStillAddsUp) {
  EXPECT_EXIT(RunOutOfMemoryAndRecover(), testing::ExitedWithCode(0), "");
}

#endif

}  // namespace
}  // namespace mxrec
