// What finding and inserting keys costs. Run without arguments; takes below 20 s and 1 GB.
//
//   Find      one key at a time, in random order, straight from the index: what a cache miss costs
//   batch     65,536 keys at a time through a table, grouped by shard, in one thread: what prefetching leaves of it
//   insert    new keys through Commit, dim 16 and 2 slots, in two threads: initial values and page faults included
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <random>
#include <vector>

#include "base/hash.h"
#include "table/bulk_loader.h"
#include "table/commit.h"

namespace mxrec {
namespace {

constexpr int64_t kMillion = 1000000;
constexpr int64_t kBatch = 65536;

double Now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

void Require(const Status& status) {
  if (status.ok()) return;
  std::fprintf(stderr, "%s\n", status.message().c_str());
  std::exit(1);
}

enum class Pattern { kRandom, kSequential, kStrided };

// The i-th key of a pattern.
int64_t KeyAt(Pattern pattern, int64_t i) {
  switch (pattern) {
    case Pattern::kSequential:
      return i;
    case Pattern::kStrided:
      return i << 20;
    default:
      return static_cast<int64_t>(Mix64(static_cast<uint64_t>(i) * 0xd1342543de82ef95ULL));
  }
}

// `count` keys drawn from the first `n` of a pattern.
std::vector<int64_t> Draw(Pattern pattern, int64_t n, int64_t count, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<int64_t> keys(count);
  for (int64_t& key : keys) key = KeyAt(pattern, static_cast<int64_t>(random() % n));
  return keys;
}

// An index of the first `n` keys of a pattern.
struct Filled {
  Filled(Pattern p, int64_t n) : pattern(p) {
    Require(index.Reserve(n));
    for (int64_t i = 0; i < n; ++i) {
      const int64_t key = KeyAt(pattern, i);
      index.Insert(HashKey(key), key, static_cast<uint32_t>(i));
    }
  }
  const Pattern pattern;
  KeyIndex index;
  double best = 1e9;
};

// Nanoseconds per Find in an index of `n` keys, for each pattern: the best of ten passes over other keys each. The
// patterns take turns, so that a busy neighbour on the machine slows all of them or none.
std::vector<double> FindNanoseconds(const std::vector<Pattern>& patterns, int64_t n) {
  constexpr int64_t kPasses = 10, kPass = 200000;
  std::vector<std::unique_ptr<Filled>> all;
  for (const Pattern p : patterns) all.emplace_back(new Filled(p, n));
  for (int64_t pass = 0; pass < kPasses; ++pass) {
    for (auto& f : all) {
      const std::vector<int64_t> keys = Draw(f->pattern, n, kPass, pass);
      int64_t lost = 0;
      const double start = Now();
      for (const int64_t key : keys) lost += f->index.Find(HashKey(key), key) == KeyIndex::kNone;
      f->best = std::min(f->best, (Now() - start) * 1e9 / kPass);
      if (lost != 0) std::abort();
    }
  }
  std::vector<double> best;
  for (const auto& f : all) best.push_back(f->best);
  return best;
}

std::shared_ptr<Table> MakeTable(int dim, const std::vector<SlotSpec>& slots) {
  TableConfig config;
  config.name = "bench";
  config.dim = dim;
  config.initializer.kind = InitializerSpec::Kind::kTruncatedNormal;
  config.initializer.b = 0.05f;
  std::shared_ptr<Table> table;
  Require(Table::Create(config, &table));
  Require(table->SetSlots(slots));
  return table;
}

struct Batch {
  Batch(const Table& table, const int64_t* ids, int64_t n) {
    grouping.Build({{ids, n}}, table.shard_bits());
    hints.assign(grouping.keys_size(), -1);
    handles.assign(grouping.keys_size(), 0);
  }
  // fn(shard, keys, n, hints, handles) for each shard.
  template <typename Fn>
  void ForEachShard(Fn fn) {
    for (size_t s = 0; s + 1 < grouping.shard_starts().size(); ++s) {
      const int32_t first = grouping.shard_starts()[s], n = grouping.shard_starts()[s + 1] - first;
      fn(static_cast<int>(s), grouping.keys().data() + first, n, hints.data() + first, handles.data() + first);
    }
  }
  Grouping grouping;
  std::vector<int64_t> hints;
  std::vector<int64_t> handles;
};

struct BatchNanoseconds {
  double hint = 0, resolve_hinted = 0, resolve_blind = 0;
};

BatchNanoseconds BatchCost(Pattern pattern, int64_t n) {
  const auto table = MakeTable(1, {});
  std::vector<int64_t> keys(n);
  for (int64_t i = 0; i < n; ++i) keys[i] = KeyAt(pattern, i);
  const float* initial[] = {nullptr};
  Require(BulkLoader(table.get(), ThreadedFor(2)).Insert(keys.data(), initial, n));

  constexpr int64_t kBatches = 16;
  const std::vector<int64_t> ids = Draw(pattern, n, kBatches * kBatch, 1);
  BatchNanoseconds sum;
  int64_t count = 0, missing = 0;
  for (int64_t b = 0; b < kBatches; ++b) {
    Batch batch(*table, ids.data() + b * kBatch, kBatch);
    std::vector<int64_t> seals(table->shards());
    auto resolve = [&](int s, const int64_t* k, int64_t m, int64_t* hints, int64_t* handles) {
      missing += table->Resolve(s, k, hints, m, handles, seals[s]);
    };
    auto hint = [&](int s, const int64_t* k, int64_t m, int64_t* hints, int64_t*) {
      seals[s] = table->Hint(s, k, m, hints);
    };
    const double start = Now();
    // Without hints on one half of the batches, with them on the other: neither warms the cache for the other.
    if (b % 2 == 0) {
      batch.ForEachShard(resolve);
      sum.resolve_blind += Now() - start;
      continue;
    }
    batch.ForEachShard(hint);
    const double hinted = Now();
    batch.ForEachShard(resolve);
    sum.hint += hinted - start;
    sum.resolve_hinted += Now() - hinted;
    count += batch.grouping.keys_size();
  }
  if (missing != 0) std::abort();
  const double scale = 1e9 / count;
  return {sum.hint * scale, sum.resolve_hinted * scale, sum.resolve_blind * scale};
}

double InsertsPerSecond(Pattern pattern, int64_t n) {
  const auto table = MakeTable(16, {{"momentum", 0}, {"velocity", 0}});
  std::vector<int64_t> ids(kBatch);
  double seconds = 0;
  for (int64_t first = 0; first + kBatch <= n; first += kBatch) {
    for (int64_t i = 0; i < kBatch; ++i) ids[i] = KeyAt(pattern, first + i);
    Batch batch(*table, ids.data(), kBatch);
    TablePlan plan;
    plan.shards = table->shards();
    plan.positions_size = batch.grouping.positions_size();
    plan.keys_size = batch.grouping.keys_size();
    plan.keys = batch.grouping.keys().data();
    plan.hints = batch.hints.data();
    plan.shard_starts = batch.grouping.shard_starts().data();
    const double start = Now();
    Require(Commit({{table.get(), plan, batch.handles.data(), true}}, ThreadedFor(2)));
    seconds += Now() - start;
  }
  return table->size() / seconds;
}

void Run() {
  const std::vector<Pattern> patterns = {Pattern::kRandom, Pattern::kSequential, Pattern::kStrided};
  const char* const names[] = {"random", "sequential", "2^20 strided"};

  std::printf("Find, ns per key      %12s %12s\n", "1e6 keys", "1e7 keys");
  const std::vector<double> small_find = FindNanoseconds(patterns, kMillion);
  const std::vector<double> large_find = FindNanoseconds(patterns, 10 * kMillion);
  for (int p = 0; p < 3; ++p) std::printf("  %-19s %12.1f %12.1f\n", names[p], small_find[p], large_find[p]);
  std::printf("  %-19s %12.2f %12.2f\n", "strided / random", small_find[2] / small_find[0],
              large_find[2] / large_find[0]);

  std::printf("batch, ns per key     %12s %12s\n", "1e6 keys", "1e7 keys");
  const BatchNanoseconds small = BatchCost(Pattern::kRandom, kMillion);
  const BatchNanoseconds large = BatchCost(Pattern::kRandom, 10 * kMillion);
  std::printf("  %-19s %12.1f %12.1f\n", "Hint", small.hint, large.hint);
  std::printf("  %-19s %12.1f %12.1f\n", "Resolve, hinted", small.resolve_hinted, large.resolve_hinted);
  std::printf("  %-19s %12.1f %12.1f\n", "Resolve, no hints", small.resolve_blind, large.resolve_blind);

  std::printf("insert, million/s     %12s\n", "1e6 keys");
  for (int p = 0; p < 3; ++p) {
    std::printf("  %-19s %12.2f\n", names[p], InsertsPerSecond(patterns[p], kMillion) / kMillion);
  }
}

}  // namespace
}  // namespace mxrec

int main() { mxrec::Run(); }
