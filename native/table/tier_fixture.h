// What the tests of tables with rows on disk share: such tables, training steps whose gradients belong to key and step,
// and a map that is trained alike.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "base/scratch_fixture.h"
#include "table/tracking_fixture.h"

namespace mxrec {
namespace tier_fixture {

using namespace scratch_fixture;   // NOLINT(build/namespaces): written for such tests
using namespace table_fixture;     // NOLINT(build/namespaces)
using namespace tracking_fixture;  // NOLINT(build/namespaces)

using Rows = std::map<int64_t, Floats>;

// The slots of adagrad, and more that nobody uses: they make a row so large that a segment on disk has 16 rows only,
// and segments are emptied every few steps. Without them it has 2,048.
inline std::vector<SlotSpec> LargeRow() {
  std::vector<SlotSpec> slots = {{"accumulator", 0.25f}};
  for (int i = 1; i < 420; ++i) slots.push_back({"idle_" + std::to_string(i), static_cast<float>(i)});
  return slots;
}
inline std::vector<SlotSpec> SmallRow() { return {{"accumulator", 0.25f}}; }

// A row as it is inserted.
inline Floats FreshRow(const Table& table, int64_t key) {
  Floats row = InitialRow(key);
  for (const SlotSpec& slot : table.layout().slots()) row.insert(row.end(), kDim, slot.initial_value);
  return row;
}

inline Floats GradientOf(int64_t key, int64_t step) {
  Floats gradient(kDim);
  for (int j = 0; j < kDim; ++j) {
    gradient[j] =
        static_cast<float>(static_cast<int64_t>(Mix64(static_cast<uint64_t>(key * 31 + step * 7 + j)) % 2001) - 1000) /
        256;
  }
  return gradient;
}

constexpr float kAdagrad[] = {0.1f, 1e-7f};

// Updates the rows of a step that was committed.
inline Status UpdateRows(Table* table, const Step& step, int64_t number, size_t t = 0) {
  Floats gradients;
  for (const int64_t key : step.keys(t)) {
    const Floats gradient = GradientOf(key, number);
    gradients.insert(gradients.end(), gradient.begin(), gradient.end());
  }
  const int64_t n = static_cast<int64_t>(step.handles(t).size());
  MXREC_RETURN_IF_ERROR(table->CheckHandles(step.handles(t).data(), n));
  table->Update(*FindRule("adagrad"), kAdagrad, step.handles(t).data(), gradients.data(), n);
  return Status();
}

inline Status TrainStep(const std::shared_ptr<Table>& table, const Keys& ids, int64_t number, const Keys& times = {},
                        const ParallelFor& parallel = SerialFor()) {
  Step step({table}, {ids}, times);
  MXREC_RETURN_IF_ERROR(step.Train(parallel));
  return UpdateRows(table.get(), step, number);
}

// The same on a map; padding keys are inserted and stay as they are.
inline void TrainRows(Rows* rows, const Table& table, const Keys& ids, int64_t number) {
  for (const int64_t key : std::set<int64_t>(ids.begin(), ids.end())) {
    const auto at = rows->emplace(key, Floats()).first;
    if (at->second.empty()) at->second = FreshRow(table, key);
    const Keys& padding = table.config().padding_keys;
    if (std::count(padding.begin(), padding.end(), key) != 0) continue;
    FindRule("adagrad")->apply(at->second.data(), GradientOf(key, number).data(), kDim, kAdagrad);
  }
}

inline Rows RowsOf(const Table& table) {
  const Content walked = Walk(table);
  const Rows rows(walked.begin(), walked.end());
  EXPECT_EQ(rows.size(), walked.size()) << "a key came twice";
  return rows;
}

inline int64_t RowsOnDisk(const Table& table) { return table.tier()->disk->rows(); }
inline int64_t RowsInMemory(const Table& table) { return table.size() - RowsOnDisk(table); }
inline int64_t MostInMemory(const Table& table) { return table.tier()->quota * table.shards(); }

// What an evaluation that was not grouped gives for ids of any kind, zeros where there is no row.
inline Status EvaluateAny(Table* table, const Keys& ids, Floats* out, const ParallelFor& parallel = SerialFor()) {
  const int64_t n = static_cast<int64_t>(ids.size());
  TablePlan plan;
  plan.positions_size = plan.keys_size = n;
  plan.keys = ids.data();
  Keys hints(n), seals(plan.units()), handles(n, -99);
  for (int64_t u = 0; u < plan.units(); ++u) {
    const int64_t begin = plan.unit_begin(u);
    seals[u] = table->HintAny(ids.data() + begin, plan.unit_end(u) - begin, hints.data() + begin);
  }
  plan.hints = hints.data();
  plan.seals = seals.data();
  const int64_t use = table->BeginUse();
  const Status status = Commit({{table, plan, handles.data(), false, {}, use}}, parallel);
  if (status.ok()) {
    out->assign(n * kDim, -99.0f);
    table->Gather(handles.data(), n, out->data());
  }
  table->EndUse(use);
  return status;
}

inline void ExpectEmbeddings(const Rows& rows, const Keys& ids, const Floats& embeddings) {
  for (size_t i = 0; i < ids.size(); ++i) {
    const auto at = rows.find(ids[i]);
    const Floats expected =
        at == rows.end() ? Floats(kDim, 0.0f) : Floats(at->second.begin(), at->second.begin() + kDim);
    ASSERT_EQ(Floats(embeddings.begin() + i * kDim, embeddings.begin() + (i + 1) * kDim), expected) << ids[i];
  }
}

inline bool Contains(const Status& status, const std::string& text) {
  return status.message().find(text) != std::string::npos;
}

class TierTest : public ::testing::Test {
 protected:
  // At most memory_rows + disk_rows rows.
  TableConfig Tiered(int64_t memory_rows, int64_t disk_rows, Keys padding_keys = {}) {
    TableConfig config = Config(memory_rows + disk_rows, std::move(padding_keys));
    config.tier.memory_rows = memory_rows;
    config.tier.disk_rows = disk_rows;
    config.tier.paths = {directory_.path()};
    config.tier.env = &env_;
    return config;
  }
  // Any number of rows.
  TableConfig Growing(int64_t memory_rows, int64_t disk_rows) {
    TableConfig config = Tiered(memory_rows, disk_rows);
    config.max_rows = 0;
    return config;
  }
  Keys Draw(int64_t n, int64_t universe) {
    Keys keys(n);
    for (int64_t& key : keys) key = static_cast<int64_t>(random_() % universe);
    return keys;
  }
  // Different ones.
  Keys DrawDistinct(int64_t n, int64_t universe) {
    Keys keys = Range(0, universe);
    std::shuffle(keys.begin(), keys.end(), random_);
    keys.resize(n);
    return keys;
  }

  std::mt19937_64 random_{7};
  TemporaryDirectory directory_;
  ScratchEnv env_;
};

}  // namespace tier_fixture
}  // namespace mxrec
