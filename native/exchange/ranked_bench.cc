// Where the time of a step of two ranks goes, stage by stage, beside that of one rank with the same global batch: Adam
// on the three workloads of docs/benchmarks.md, without TensorFlow and without messages on their way. Takes the name of
// a workload (default all), and a divisor of the tables' rows.
//
// The ranks take turns in one thread, and what counts is the thread's own time: that of one rank for its half of the
// batch, with a core of its own. What it does not show are two cores that share the memory, and waiting.
#include <ctime>
#include <deque>

#include "base/heap.h"
#include "exchange/ranked_lookup.h"
#include "exchange/ranked_update.h"
#include "table/bench_workloads.h"
#include "table/lookup.h"
#include "table/preparer.h"

namespace mxrec {
namespace {

using namespace bench_workloads;  // NOLINT(build/namespaces): written for benchmarks

constexpr int kBatches = 16;
constexpr int kRounds = 3;

double OwnSeconds() {
  timespec now;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

// What one rank has of a step.
struct Rank {
  explicit Rank(bool is_alone) : local(is_alone) {}

  std::vector<std::shared_ptr<Table>> tables;
  Preparer local, owner{false};
  std::vector<int64_t> words;
  Plan plan;
  std::vector<std::vector<int64_t>> handles;
  std::vector<std::vector<float>> embeddings, gradients;
  std::vector<LookupTable> lookups;
  std::vector<LookupFeature> features;
  std::unique_ptr<RankedLookup> lookup;
  std::vector<Message> sent, got;

  // Makes the plan of the positions [from, from + size) of each table.
  void Prepare(const std::vector<std::vector<int64_t>>& batch, int64_t from, int64_t size) {
    Preparer::Ids ids(tables.size());
    std::vector<FeaturePlan> parts;
    for (size_t t = 0; t < tables.size(); ++t) {
      ids[t].push_back({batch[t].data() + from, size});
      parts.push_back({static_cast<int64_t>(t), 0, size, {size}});
    }
    Require(local.Prepare(tables, ids, parts, TimeSpan(), true, SerialFor(), [&](int64_t n) {
      words.resize(n);
      return words.data();
    }));
    Require(Plan::Parse(words.data(), static_cast<int64_t>(words.size()), &plan));
  }

  void Allocate(const Workload& w, int64_t size) {
    handles.resize(tables.size());
    embeddings.resize(tables.size());
    gradients.resize(tables.size());
    lookups.clear();
    features.clear();
    for (size_t t = 0; t < tables.size(); ++t) {
      handles[t].resize(plan.tables()[t].keys_size);
      embeddings[t].resize(size / w.bag * w.dim);
      gradients[t].resize(size / w.bag * w.dim);
      lookups.push_back({tables[t].get(), static_cast<int64_t>(t), true});
      lookups.back().handles = handles[t].data();
      const Bags bags{w.bag, size / w.bag};
      features.push_back({static_cast<int64_t>(t), &plan.features()[t], bags, embeddings[t].data(), w.dim});
    }
  }

  std::vector<FoldUpdateItem> Folds(const Workload& w) {
    std::vector<FoldUpdateItem> items;
    for (size_t t = 0; t < tables.size(); ++t) {
      for (size_t j = 0; j < gradients[t].size(); ++j) gradients[t][j] = 1e-3f * embeddings[t][j];
      items.push_back({tables[t].get(),
                       plan.tables()[t],
                       handles[t].data(),
                       {{&plan.features()[t], gradients[t].data(), w.dim, Divider(static_cast<uint32_t>(w.bag))}}});
    }
    return items;
  }
};

// Hands each rank's messages to those that they are for.
void Deliver(std::deque<Rank>* ranks) {
  for (Rank& to : *ranks) to.got.clear();
  for (Rank& from : *ranks) {
    for (size_t r = 0; r < ranks->size(); ++r) (*ranks)[r].got.push_back(std::move(from.sent[r]));
    from.sent.clear();
  }
}

void Run(const Workload& w, int size) {
  const SerialFor parallel;
  const Batches batches = BatchesOf(w, kBatches);
  const Rule& rule = *FindRule("lazy_adam");
  const float hyper[] = {1e-3f, 0.9f, 0.999f, 1e-8f};
  std::deque<Rank> ranks;
  for (int r = 0; r < size; ++r) {
    ranks.emplace_back(size == 1);
    ranks[r].tables = TablesOf(w, [&](int64_t key) { return OwnerOf(key, size) == r; }, parallel);
  }
  const int64_t each = w.ids / w.bag / size * w.bag;
  Stages stages(OwnSeconds);
  for (int step = 0; step < kRounds * kBatches; ++step) {
    const auto& batch = batches[step % kBatches];
    const auto on_all = [&](const char* stage, auto fn) {
      for (int r = 0; r < size; ++r) {
        stages.Time(stage, [&] { fn(ranks[r], r); });
      }
    };
    on_all("prepare", [&](Rank& rank, int r) { rank.Prepare(batch, r * each, each); });
    for (Rank& rank : ranks) rank.Allocate(w, each);
    if (size == 1) {
      Rank& rank = ranks[0];
      stages.Time("look up", [&] { Require(Lookup(rank.plan, true, rank.lookups, rank.features, parallel)); });
      const std::vector<FoldUpdateItem> items = rank.Folds(w);
      stages.Time("fold and update", [&] { Require(FoldUpdate(items, rule, hyper, Nonfinite::kError, parallel)); });
      continue;
    }
    on_all("ask", [&](Rank& rank, int r) {
      rank.lookup = std::make_unique<RankedLookup>(r, size, rank.plan, rank.tables, rank.lookups, rank.features);
      Require(rank.lookup->Ask(parallel, &rank.sent));
    });
    Deliver(&ranks);
    on_all("answer", [&](Rank& rank, int) {
      Require(rank.lookup->Answer(std::move(rank.got), &rank.owner, parallel, &rank.sent));
    });
    Deliver(&ranks);
    on_all("finish", [&](Rank& rank, int) { Require(rank.lookup->Finish(std::move(rank.got), parallel)); });
    std::vector<std::vector<RankedGradients>> gradients(size);
    for (int r = 0; r < size; ++r) {
      for (FoldUpdateItem& item : ranks[r].Folds(w)) {
        gradients[r].push_back({item.table});
        gradients[r].back().item = std::move(item);
      }
    }
    on_all("send gradients", [&](Rank& rank, int r) {
      Require(SendGradients(gradients[r], r, size, Nonfinite::kError, parallel, &rank.sent));
    });
    Deliver(&ranks);
    on_all("apply gradients", [&](Rank& rank, int) {
      std::vector<Table*> tables;
      for (const auto& table : rank.tables) tables.push_back(table.get());
      Require(ApplyGradients(tables, rank.got, rule, hyper, Nonfinite::kError, parallel));
      rank.got.clear();
    });
  }
  const double ids = static_cast<double>(w.tables) * static_cast<double>(w.ids);
  std::printf("%s on %d rank%s: %.0f ids a step, one thread each\n", w.name, size, size == 1 ? "" : "s", ids);
  const double total = stages.Print(ids);
  std::printf("  %-18s %7.2f ms\n", "all", total * 1e3);
}

}  // namespace
}  // namespace mxrec

int main(int argc, char** argv) {
  using mxrec::bench_workloads::Workload;
  mxrec::KeepFreedMemory();
  for (Workload w : mxrec::bench_workloads::kWorkloads) {
    if (w.is_tracked || (argc > 1 && std::string(argv[1]) != w.name)) continue;
    if (argc > 2) w.rows /= std::atoi(argv[2]);
    for (const int size : {1, 2}) mxrec::Run(w, size);
  }
}
