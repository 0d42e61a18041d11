// What the benchmarks of steps share: the three workloads of docs/benchmarks.md, tables with all their rows, batches,
// and the times of a step's stages.
#pragma once

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "base/hash.h"
#include "base/parallel.h"
#include "base/status.h"
#include "table/bulk_loader.h"
#include "table/table.h"

namespace mxrec {
namespace bench_workloads {

inline void Require(const Status& status) {
  if (status.ok()) return;
  std::fprintf(stderr, "%s\n", status.message().c_str());
  std::exit(1);
}

struct Workload {
  const char* name;
  int tables;
  int64_t rows;
  int64_t ids;  // per table and batch
  int64_t dim;
  double skew;  // of Zipf's law; 0: uniform
  int64_t bag;
  bool is_tracked;  // keys are counted and dated
};
inline constexpr Workload kWorkloads[] = {{"w1", 26, 1000000, 4096, 16, 1.05, 1, false},
                                          {"w1-tracked", 26, 1000000, 4096, 16, 1.05, 1, true},
                                          {"w2", 1, 10000000, 163840, 64, 1.05, 20, false},
                                          {"w3", 1, 10000000, 100000, 32, 0, 1, false}};

inline int64_t KeyOf(int table, int64_t i) {
  return static_cast<int64_t>(Mix64(static_cast<uint64_t>(i) + (static_cast<uint64_t>(table) << 40)));
}

// Draws row numbers; the most frequent ones lie anywhere in the table.
class Draw {
 public:
  explicit Draw(const Workload& w) : rows_(w.rows) {
    if (w.skew == 0) return;
    double sum = 0;
    for (int64_t i = 1; i <= w.rows; ++i) cumulated_.push_back(sum += std::pow(static_cast<double>(i), -w.skew));
  }
  int64_t operator()() {
    if (cumulated_.empty()) return static_cast<int64_t>(random_() % rows_);
    const double u = static_cast<double>(random_() >> 11) * 0x1p-53 * cumulated_.back();
    const int64_t rank = std::lower_bound(cumulated_.begin(), cumulated_.end(), u) - cumulated_.begin();
    return static_cast<int64_t>(static_cast<uint64_t>(rank) * 2654435761u % rows_);
  }

 private:
  int64_t rows_;
  std::vector<double> cumulated_;
  std::mt19937_64 random_{7};
};

// The workload's tables with slots for Adam, and of their rows those that `has` names by their keys.
inline std::vector<std::shared_ptr<Table>> TablesOf(const Workload& w, const std::function<bool(int64_t key)>& has,
                                                    const ParallelFor& parallel) {
  std::vector<std::shared_ptr<Table>> tables(w.tables);
  for (int t = 0; t < w.tables; ++t) {
    TableConfig config;
    config.name = "t" + std::to_string(t);
    config.dim = static_cast<int>(w.dim);
    config.max_rows = w.rows;
    config.initializer.kind = InitializerSpec::Kind::kUniform;
    config.initializer.a = -0.05f;
    config.initializer.b = 0.05f;
    Require(Table::Create(config, &tables[t]));
    Require(tables[t]->SetSlots({{"momentum", 0.0f}, {"velocity", 0.0f}}));
    if (w.is_tracked) Require(tables[t]->Track({1, 86400, 1, 0}));
    constexpr int64_t kChunk = 1 << 18;
    std::vector<int64_t> keys;
    for (int64_t from = 0; from < w.rows; from += kChunk) {
      keys.clear();
      for (int64_t i = from; i < std::min(w.rows, from + kChunk); ++i) {
        if (has(KeyOf(t, i))) keys.push_back(KeyOf(t, i));
      }
      const float* columns[3] = {nullptr, nullptr, nullptr};
      Require(BulkLoader(tables[t].get(), parallel).Insert(keys.data(), columns, static_cast<int64_t>(keys.size())));
    }
  }
  return tables;
}

// The keys of each table in each batch.
using Batches = std::vector<std::vector<std::vector<int64_t>>>;
inline Batches BatchesOf(const Workload& w, int count) {
  Draw draw(w);
  Batches batches(count);
  for (auto& batch : batches) {
    batch.resize(w.tables);
    for (int t = 0; t < w.tables; ++t) {
      for (int64_t i = 0; i < w.ids; ++i) batch[t].push_back(KeyOf(t, draw()));
    }
  }
  return batches;
}

// Seconds since some moment.
inline double Now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

class Stages {
 public:
  // `clock` tells seconds.
  explicit Stages(std::function<double()> clock = Now) : clock_(std::move(clock)) {}

  void Time(const std::string& name, const std::function<void()>& fn) {
    const double start = clock_();
    fn();
    if (seconds_.find(name) == seconds_.end()) order_.push_back(name);
    seconds_[name].push_back(clock_() - start);
  }

  // Prints the medians; returns the sum of those whose names begin with no parenthesis.
  double Print(double ids) {
    double total = 0;
    for (const std::string& name : order_) {
      std::vector<double>& s = seconds_[name];
      std::sort(s.begin(), s.end());
      const double median = s[s.size() / 2];
      if (name[0] != '(') total += median;
      std::printf("  %-18s %7.2f ms  (fastest tenth %.2f)  %6.1f ns/id\n", name.c_str(), median * 1e3,
                  s[s.size() / 10] * 1e3, median * 1e9 / ids);
    }
    return total;
  }

 private:
  std::function<double()> clock_;
  std::map<std::string, std::vector<double>> seconds_;
  std::vector<std::string> order_;
};

}  // namespace bench_workloads
}  // namespace mxrec
