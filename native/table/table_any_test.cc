// Hints and handles of keys of any shard, as evaluation asks for them.
#include <gtest/gtest.h>

#include <atomic>
#include <random>
#include <thread>

#include "table/table_fixture.h"

namespace mxrec {
namespace {

using namespace table_fixture;  // NOLINT(build/namespaces): written for these tests

Keys ResolveAny(const Table& table, const Keys& keys, const Keys& hints, int64_t seal) {
  Keys handles(keys.size(), -99);
  table.ResolveAny(keys.data(), hints.data(), static_cast<int64_t>(keys.size()), handles.data(), seal);
  EXPECT_TRUE(table.CheckHandles(handles.data(), static_cast<int64_t>(handles.size())).ok());
  for (int64_t& handle : handles) handle = RowOf(handle);
  return handles;
}

// What `keys` should resolve to.
Keys HandlesOf(const Table& table, const Keys& keys) {
  Keys handles;
  for (const int64_t key : keys) {
    int64_t hint;
    table.HintAny(&key, 1, &hint);
    handles.push_back(hint);
    Floats row(kDim);
    table.Gather(&hint, 1, row.data());
    Floats expected = ReadRow(table, key);
    expected.resize(kDim);
    EXPECT_EQ(row, expected) << "key " << key;
  }
  return handles;
}

TEST(Table, FindsKeysOfAnyShardInAnyOrder) {
  const auto table = Make(Config());
  MustInsert(table.get(), Range(0, 2000));
  std::mt19937_64 random(5);
  Keys keys(5000);
  for (int64_t& key : keys) key = static_cast<int64_t>(random() % 3000);  // a third of them unknown, many twice
  Keys hints(keys.size());
  const int64_t seal = table->HintAny(keys.data(), static_cast<int64_t>(keys.size()), hints.data());
  const Keys expected = HandlesOf(*table, keys);
  for (size_t i = 0; i < keys.size(); ++i) ASSERT_EQ(expected[i] == kNoRow, keys[i] >= 2000);
  EXPECT_EQ(ResolveAny(*table, keys, hints, seal), expected);
  // Whatever the hints are, without their seal they are not believed.
  EXPECT_EQ(ResolveAny(*table, keys, hints, seal + 1), expected);
  EXPECT_EQ(ResolveAny(*table, keys, Keys(keys.size(), 7), seal), expected);
  EXPECT_EQ(ResolveAny(*table, keys, Keys(keys.size(), INT64_MAX), 0), expected);
  EXPECT_TRUE(ResolveAny(*table, {}, {}, seal).empty());
}

TEST(Table, HintsForAnyShardOutliveInsertsButNotErases) {
  const auto table = Make(Config());
  MustInsert(table.get(), Range(0, 1000));
  const Keys keys = Range(0, 1200);
  Keys hints(keys.size());
  const int64_t seal = table->HintAny(keys.data(), 1200, hints.data());
  MustInsert(table.get(), Range(1000, 1100));
  EXPECT_EQ(ResolveAny(*table, keys, hints, seal), HandlesOf(*table, keys));
  // The rows of erased keys go to others; no old hint may lead there.
  const Keys gone = Range(300, 600);
  table->Erase(gone.data(), 300);
  MustInsert(table.get(), Range(5000, 5300));
  EXPECT_EQ(ResolveAny(*table, keys, hints, seal), HandlesOf(*table, keys));
  table->Clear();
  MustInsert(table.get(), Range(900, 950));
  EXPECT_EQ(ResolveAny(*table, keys, hints, seal), HandlesOf(*table, keys));
}

TEST(Table, IsReadWhileItGrows) {
  const auto table = Make(Config());
  std::atomic<bool> stop{false};
  std::thread reader([&] {
    const Keys keys = Range(0, 3000);
    Keys hints(keys.size()), handles(keys.size());
    while (!stop) {
      const int64_t seal = table->HintAny(keys.data(), 3000, hints.data());
      table->ResolveAny(keys.data(), hints.data(), 3000, handles.data(), seal);
      EXPECT_TRUE(table->CheckHandles(handles.data(), 3000).ok());
    }
  });
  for (int64_t from = 0; from < 3000; from += 100) MustInsert(table.get(), Range(from, from + 100));
  stop = true;
  reader.join();
}

}  // namespace
}  // namespace mxrec
