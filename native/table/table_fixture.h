// What the tests of Table share: a table whose rows start from numbers that belong to their key, and a batch on its way
// through it by the calls a step makes.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "batch/grouping.h"
#include "table/table.h"

namespace mxrec {
namespace table_fixture {

using Floats = std::vector<float>;
using Keys = std::vector<int64_t>;
using Content = std::vector<std::pair<int64_t, Floats>>;

constexpr int kDim = 5;  // not a whole vector

// Every key starts from other numbers.
inline InitializerSpec RandomRows() {
  InitializerSpec spec;
  spec.kind = InitializerSpec::Kind::kUniform;
  spec.a = -1;
  spec.b = 1;
  spec.seed = 3;
  return spec;
}

inline TableConfig Config(int64_t max_rows = 0, Keys padding_keys = {}) {
  TableConfig config;
  config.name = "user";
  config.dim = kDim;
  config.max_rows = max_rows;
  config.initializer = RandomRows();
  config.padding_keys = std::move(padding_keys);
  return config;
}

inline std::shared_ptr<Table> Make(const TableConfig& config, const std::vector<SlotSpec>& slots = {}) {
  std::shared_ptr<Table> table;
  Status status = Table::Create(config, &table);
  if (status.ok()) status = table->SetSlots(slots);
  EXPECT_TRUE(status.ok()) << status.message();
  return table;
}

inline Floats InitialRow(int64_t key) {
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

// The row number in a handle; kNoRow if there is none.
inline int64_t RowOf(int64_t handle) { return handle == kNoRow ? kNoRow : handle & kRowBits; }

inline void MustInsert(Table* table, const Keys& keys) {
  const Status status = Batch(*table, keys).Insert(table);
  ASSERT_TRUE(status.ok()) << status.message();
}

inline Keys Range(int64_t begin, int64_t end) {
  Keys keys;
  for (int64_t k = begin; k < end; ++k) keys.push_back(k);
  return keys;
}

inline int64_t RowFloats(const Table& table) {
  return kDim * (1 + static_cast<int64_t>(table.layout().slots().size()));
}

// Everything a walk sees, slots included, in its order.
inline Content Walk(const Table& table) {
  Content content;
  const Status status = table.ForEachRow([&](int64_t key, int64_t, const float* row) {
    content.push_back({key, Floats(row, row + RowFloats(table))});
    return Status();
  });
  EXPECT_TRUE(status.ok()) << status.message();
  return content;
}

// Whether the key has a row, and its values.
inline bool ReadInto(const Table& table, int64_t key, float* row) {
  bool found = false;
  const Status status = table.Read(key, row, &found);
  EXPECT_TRUE(status.ok()) << status.message();
  return found;
}

inline Floats ReadRow(const Table& table, int64_t key) {
  Floats row(RowFloats(table), -99.0f);
  ReadInto(table, key, row.data());
  return row;
}

inline Status AssignRow(Table* table, int64_t key, const Floats& row) {
  std::vector<const float*> parts;
  for (size_t i = 0; i < row.size(); i += kDim) parts.push_back(row.data() + i);
  return table->Assign(key, parts.data());
}

inline void UpdateAll(Table* table, const Batch& batch, const char* rule, const Floats& hyper, float gradient) {
  const Floats gradients(batch.size() * kDim, gradient);
  ASSERT_TRUE(table->CheckHandles(batch.handles.data(), batch.size()).ok());
  table->Update(*FindRule(rule), hyper.data(), batch.handles.data(), gradients.data(), batch.size());
}

inline void ExpectNumbersAddUp(const Table& table, int64_t size) {
  EXPECT_EQ(table.size(), size);
  EXPECT_EQ(table.inserted(), table.size() + table.erased());
}

}  // namespace table_fixture
}  // namespace mxrec
