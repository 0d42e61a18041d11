// Where the time of a training step goes, stage by stage, without TensorFlow: Adam on the three workloads of
// docs/benchmarks.md. Takes the name of a workload (w1, w1-tracked, w2, w3; default all), and 10 GB.
//
// Beside the stages, what memory itself allows: the rows of the same batches copied and updated with their places known
// beforehand.
#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "batch/fold.h"
#include "batch/grouping.h"
#include "table/bench_workloads.h"
#include "table/commit.h"
#include "table/embed.h"
#include "table/fold_update.h"

namespace mxrec {
namespace {

using namespace bench_workloads;  // NOLINT(build/namespaces): written for benchmarks

constexpr int kThreads = 2;
constexpr int kBatches = 32;
constexpr int kRounds = 4;

// Threads that wait for work by spinning, so that a stage's time is its own.
class Pool : public ParallelFor {
 public:
  Pool() {
    for (int t = 1; t < kThreads; ++t) threads_.emplace_back([this, t] { Serve(t); });
  }
  ~Pool() override {
    stop_ = true;
    for (std::thread& thread : threads_) thread.join();
  }
  void Run(int64_t n, int64_t, const Block& fn) const override {
    n_ = n;
    fn_ = &fn;
    busy_ = kThreads - 1;
    ++round_;
    Share(0);
    while (busy_ > 0) {
    }
  }

 private:
  void Share(int t) const {
    const int64_t begin = n_ * t / kThreads, end = n_ * (t + 1) / kThreads;
    if (begin < end) (*fn_)(begin, end);
  }
  void Serve(int t) {
    for (int64_t seen = 0; !stop_;) {
      if (round_ == seen) continue;
      seen = round_;
      Share(t);
      --busy_;
    }
  }
  mutable int64_t n_ = 0;
  mutable const Block* fn_ = nullptr;
  mutable std::atomic<int> busy_{0};
  mutable std::atomic<int64_t> round_{0};
  std::atomic<bool> stop_{false};
  std::vector<std::thread> threads_;
};

void Run(const Workload& w) {
  const Pool parallel;
  const std::vector<std::shared_ptr<Table>> tables = TablesOf(w, [](int64_t) { return true; }, parallel);
  const Batches ids = BatchesOf(w, kBatches);
  const Rule& rule = *FindRule("lazy_adam");
  const float hyper[] = {1e-3f, 0.9f, 0.999f, 1e-8f};
  Stages stages;
  std::vector<Grouping> groupings(w.tables);
  std::vector<std::vector<float>> embeddings(w.tables), gradients(w.tables);
  for (int t = 0; t < w.tables; ++t) {
    embeddings[t].resize(w.ids * w.dim);
    gradients[t].assign(w.ids * w.dim, 1e-3f);
  }
  std::vector<std::vector<float*>> all_places(kBatches);
  int64_t keys = 0;
  for (int step = 0; step < kRounds * kBatches; ++step) {
    const auto& batch = ids[step % kBatches];
    stages.Time("group", [&] {
      if (w.tables == 1) {
        groupings[0].Build({{batch[0].data(), w.ids}}, tables[0]->shard_bits(), parallel);
        return;
      }
      parallel.Run(w.tables, 1, [&](int64_t begin, int64_t end) {
        for (int64_t t = begin; t < end; ++t) groupings[t].Build({{batch[t].data(), w.ids}}, tables[t]->shard_bits());
      });
    });
    std::vector<PlanWriter::Table> parts;
    std::vector<FeaturePlan> features;
    for (int t = 0; t < w.tables; ++t) {
      parts.push_back({tables[t]->config().name, &groupings[t], {}});
      FeaturePlan feature;
      feature.table = t;
      feature.size = w.ids;
      feature.shape = {w.ids};
      features.push_back(feature);
    }
    const int64_t time = 1600000000 + step;
    const PlanWriter writer(parts, features, {&time, w.is_tracked ? 1 : 0});
    std::unique_ptr<int64_t[]> words(new int64_t[writer.words()]);
    stages.Time("write plan", [&] { writer.Write(words.get()); });
    stages.Time("hint", [&] {
      RunLists(parallel, std::vector<int64_t>(w.tables, tables[0]->shards()), 1, [&](size_t t, int64_t shard) {
        const Grouping& g = groupings[t];
        const int32_t from = g.shard_starts()[shard], n = g.shard_starts()[shard + 1] - from;
        writer.seals(words.get(), t)[shard] =
            tables[t]->Hint(static_cast<int>(shard), g.keys().data() + from, n, writer.hints(words.get(), t) + from);
      });
    });
    Plan plan;
    stages.Time("parse", [&] { Require(Plan::Parse(words.get(), writer.words(), &plan)); });
    std::vector<std::vector<int64_t>> handles(w.tables);
    std::vector<CommitItem> items;
    keys = 0;
    for (int t = 0; t < w.tables; ++t) {
      const int64_t n = plan.tables()[t].keys_size;
      keys += n;
      handles[t].resize(n);
      items.push_back({tables[t].get(), plan.tables()[t], handles[t].data(), true});
    }
    stages.Time("commit", [&] {
      for (int t = 0; t < w.tables && w.is_tracked; ++t) {
        Require(Tally::Make(plan, t, tables[t]->config().name, 1, true, &items[t].tally));
      }
      Require(Commit(items, parallel));
    });
    stages.Time("embed", [&] {
      std::vector<EmbedItem> embeds;
      for (int t = 0; t < w.tables; ++t) {
        embeds.push_back({tables[t].get(), plan.tables()[t], &plan.features()[t], handles[t].data(), w.bag,
                          embeddings[t].data(), w.dim});
      }
      Embed(embeds, parallel);
    });
    std::vector<FoldUpdateItem> updates;
    for (int t = 0; t < w.tables; ++t) {
      updates.push_back({tables[t].get(),
                         plan.tables()[t],
                         handles[t].data(),
                         {{&plan.features()[t], gradients[t].data(), w.dim, Divider(static_cast<uint32_t>(w.bag))}}});
    }
    // The model writes the gradients just before.
    for (int t = 0; t < w.tables; ++t) {
      parallel.Run(w.ids / w.bag * w.dim, 1, [&](int64_t begin, int64_t end) {
        for (int64_t j = begin; j < end; ++j) gradients[t][j] = 1e-3f * embeddings[t][j];
      });
    }
    // Every other step without the check for NaN and infinity, to compare.
    const Nonfinite mode = (step + step / kBatches) % 2 == 0 ? Nonfinite::kError : Nonfinite::kAllow;
    stages.Time(mode == Nonfinite::kError ? "fold and update" : "(without check)",
                [&] { Require(FoldUpdate(updates, rule, hyper, mode, parallel)); });
    // The rows of a batch long gone from the caches, with their places known: what memory allows.
    all_places[step % kBatches].clear();
    std::vector<float*>& now = all_places[step % kBatches];
    for (int t = 0; t < w.tables; ++t) {
      for (const int64_t handle : handles[t]) now.push_back(tables[t]->Row(handle));
    }
    if (step < kBatches) continue;
    const std::vector<float*>& places = all_places[(step + kBatches / 2) % kBatches];
    const int64_t n = static_cast<int64_t>(places.size());
    constexpr int64_t kAhead = 16;
    stages.Time("(limit: gather)", [&] {
      parallel.Run(n, 1, [&](int64_t begin, int64_t end) {
        std::vector<float> out(w.dim);
        float sum = 0;
        for (int64_t i = begin; i < end; ++i) {
          if (i + kAhead < end) {
            for (int64_t j = 0; j < w.dim; j += 16) __builtin_prefetch(places[i + kAhead] + j);
          }
          std::memcpy(out.data(), places[i], w.dim * 4);
          sum += out[0];
        }
        if (sum == 42.0f) std::printf("\n");
      });
    });
    stages.Time("(limit: update)", [&] {
      parallel.Run(n, 1, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) {
          if (i + kAhead < end) {
            for (int64_t j = 0; j < 3 * w.dim; j += 16) __builtin_prefetch(places[i + kAhead] + j, 1);
          }
          rule.apply(places[i], gradients[0].data() + i % w.ids * w.dim, w.dim, hyper);
        }
      });
    });
  }
  const double all = static_cast<double>(w.tables) * static_cast<double>(w.ids);
  std::printf("%s: %.0f ids, %.0f distinct keys a batch, %d threads\n", w.name, all, static_cast<double>(keys),
              kThreads);
  const double total = stages.Print(all);
  std::printf("  %-18s %7.2f ms, %.1f million ids/s\n", "all", total * 1e3, all / total / 1e6);
}

}  // namespace
}  // namespace mxrec

int main(int argc, char** argv) {
  for (const auto& w : mxrec::kWorkloads) {
    if (argc < 2 || std::string(argv[1]) == w.name) mxrec::Run(w);
  }
}
