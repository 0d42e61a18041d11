// How many keys of a batch Frames has in memory, beside exact LRU and the best that is possible, and what it costs. Run
// without arguments: 5 million keys, takes 40 s and 0.2 GB; or with another number of keys.
//
//   frames    store/frames.h as a table uses it: shards, victims of a whole batch at once
//   LRU       the rows used least recently leave; a list, exact
//   popular   the most popular keys stay for ever: what cannot be beaten when popularity does not change
//
// Keys are drawn by Zipf's law with exponent 1.05, 65,536 to a batch, and counted once in a batch. 200 batches are
// measured when memory has been warm for a while, and again much later: Frames goes on learning, LRU does not.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <vector>

#include "base/hash.h"
#include "store/frames.h"

namespace mxrec {
namespace {

constexpr int64_t kBatch = 65536;
constexpr int kWarm[] = {400, 1600}, kMeasured = 200;
constexpr uint32_t kNone = UINT32_MAX;

double Now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

// Ranks, 0 the most popular, by Zipf's law. The same seed gives the same batches.
class Zipf {
 public:
  Zipf(uint32_t keys, double exponent, uint64_t seed) : random_(seed), sums_(keys), seen_(keys, -1) {
    double sum = 0;
    for (uint32_t i = 0; i < keys; ++i) sums_[i] = sum += std::pow(i + 1.0, -exponent);
    // Where the search for a number begins: all but one step of most.
    guide_.resize(kGuide + 1, keys - 1);
    uint32_t rank = 0;
    for (int g = 0; g <= kGuide; ++g) {
      while (rank + 1 < keys && sums_[rank] < sum * g / kGuide) ++rank;
      guide_[g] = rank;
    }
  }
  // The different ranks of the next batch.
  const std::vector<uint32_t>& Next() {
    ++number_;
    batch_.clear();
    for (int64_t i = 0; i < kBatch; ++i) {
      const double u = static_cast<double>(random_() >> 11) * 0x1p-53;
      const int g = static_cast<int>(u * kGuide);
      const auto begin = sums_.begin() + guide_[g], end = sums_.begin() + guide_[g + 1];
      const uint32_t rank = static_cast<uint32_t>(std::lower_bound(begin, end, u * sums_.back()) - sums_.begin());
      if (seen_[rank] == number_) continue;
      seen_[rank] = number_;
      batch_.push_back(rank);
    }
    return batch_;
  }

 private:
  static constexpr int kGuide = 1 << 20;
  std::mt19937_64 random_;
  std::vector<double> sums_;
  std::vector<uint32_t> guide_;
  std::vector<int> seen_;
  std::vector<uint32_t> batch_;
  int number_ = -1;
};

// Every policy: Step(ranks) returns how many were in memory, and brings the others there.

class FramesPolicy {
 public:
  FramesPolicy(uint32_t keys, int64_t rows)
      : shards_(ShardsOf(rows)), frames_(rows, shards_), row_of_(keys, kNone), misses_(shards_) {
    free_.resize(shards_);
    for (uint32_t row = 0; row < rows; ++row) free_[row % shards_].push_back(row);
  }

  int64_t Step(const std::vector<uint32_t>& ranks) {
    ++use_;
    for (auto& some : misses_) some.clear();
    int64_t hits = 0;
    for (size_t i = 0; i < ranks.size(); ++i) {
      if (i + 16 < ranks.size() && row_of_[ranks[i + 16]] != kNone) frames_.Prefetch(row_of_[ranks[i + 16]]);
      const uint32_t row = row_of_[ranks[i]];
      if (row == kNone) {
        misses_[HashKey(ranks[i]) % shards_].push_back(ranks[i]);
      } else {
        frames_.Touch(row, use_);
        ++hits;
      }
    }
    for (int s = 0; s < shards_; ++s) {
      const int64_t n = static_cast<int64_t>(misses_[s].size() - std::min(misses_[s].size(), free_[s].size()));
      const std::vector<uint32_t> victims = frames_.Victims(s, use_, n);
      if (static_cast<int64_t>(victims.size()) < n) std::abort();
      for (const uint32_t row : victims) {
        row_of_[frames_.KeyOf(row)] = kNone;
        frames_.Vacate(s, row);
        free_[s].push_back(row);
      }
      for (const uint32_t rank : misses_[s]) {
        const uint32_t row = free_[s].back();
        free_[s].pop_back();
        if (!frames_.Occupy(s, row, rank, use_).ok()) std::abort();
        row_of_[rank] = row;
      }
    }
    return hits;
  }

 private:
  // As table/table.cc.
  static int ShardsOf(int64_t rows) {
    int shards = 128;
    while (rows / shards < 4096) shards /= 2;
    return shards;
  }

  const int shards_;
  Frames frames_;
  std::vector<uint32_t> row_of_;
  std::vector<std::vector<uint32_t>> misses_, free_;
  int64_t use_ = 0;
};

class LruPolicy {
 public:
  LruPolicy(uint32_t keys, int64_t rows) : rows_(rows), next_(keys + 1, kNone), previous_(keys + 1, kNone), end_(keys) {
    next_[end_] = previous_[end_] = end_;
  }

  int64_t Step(const std::vector<uint32_t>& ranks) {
    misses_.clear();
    for (const uint32_t rank : ranks) {  // what is there stays for the whole of the step
      if (next_[rank] == kNone) {
        misses_.push_back(rank);
      } else {
        Unlink(rank);
        Link(rank);
      }
    }
    for (const uint32_t rank : misses_) {
      if (size_ < rows_) {
        ++size_;
      } else {
        Unlink(previous_[end_]);
      }
      Link(rank);
    }
    return static_cast<int64_t>(ranks.size() - misses_.size());
  }

 private:
  void Link(uint32_t rank) {
    next_[rank] = next_[end_];
    previous_[rank] = end_;
    previous_[next_[end_]] = rank;
    next_[end_] = rank;
  }
  void Unlink(uint32_t rank) {
    next_[previous_[rank]] = next_[rank];
    previous_[next_[rank]] = previous_[rank];
    next_[rank] = kNone;
  }

  const int64_t rows_;
  int64_t size_ = 0;
  std::vector<uint32_t> misses_;
  std::vector<uint32_t> next_, previous_;  // a ring of the ranks in memory and `end_`
  const uint32_t end_;
};

class PopularPolicy {
 public:
  explicit PopularPolicy(int64_t rows) : rows_(rows) {}
  int64_t Step(const std::vector<uint32_t>& ranks) {
    return std::count_if(ranks.begin(), ranks.end(), [&](uint32_t rank) { return rank < rows_; });
  }

 private:
  const int64_t rows_;
};

// What a policy did in some batches.
struct Result {
  template <typename Policy>
  void Step(Policy* policy, const std::vector<uint32_t>& ranks) {
    const double start = Now();
    hits += policy->Step(ranks);
    seconds += Now() - start;
    keys += static_cast<int64_t>(ranks.size());
  }
  double percent() const { return 100.0 * static_cast<double>(hits) / static_cast<double>(keys); }
  double nanoseconds() const { return 1e9 * seconds / static_cast<double>(keys); }

  int64_t hits = 0, keys = 0;
  double seconds = 0;
};

void Measure(uint32_t keys, double share) {
  const int64_t rows = static_cast<int64_t>(share * keys);
  Zipf zipf(keys, 1.05, 1);
  FramesPolicy frames(keys, rows);
  LruPolicy lru(keys, rows);
  PopularPolicy popular(rows);
  int done = 0;
  for (const int warm : kWarm) {
    for (; done < warm; ++done) {
      const std::vector<uint32_t>& ranks = zipf.Next();
      frames.Step(ranks);
      lru.Step(ranks);
    }
    Result of_frames, of_lru, of_popular;
    for (; done < warm + kMeasured; ++done) {
      const std::vector<uint32_t>& ranks = zipf.Next();
      of_frames.Step(&frames, ranks);
      of_lru.Step(&lru, ranks);
      of_popular.Step(&popular, ranks);
    }
    std::printf("%12.0f %%   %7d   %6.1f  %6.1f    %6.1f   %6.1f  %6.1f\n", 100 * share, warm, of_frames.percent(),
                of_lru.percent(), of_popular.percent(), of_frames.nanoseconds(), of_lru.nanoseconds());
  }
}

void Run(uint32_t keys) {
  std::printf("%9u keys      after    hits in memory, %%           ns per key\n", keys);
  std::printf("rows in memory   batches   frames     LRU   popular   frames     LRU\n");
  for (const double share : {0.2, 0.05}) Measure(keys, share);
}

}  // namespace
}  // namespace mxrec

int main(int argc, char** argv) {
  const long keys = argc > 1 ? std::atol(argv[1]) : 5000000;
  if (keys < 1000000 || keys > 100000000) {
    std::fprintf(stderr, "usage: frames_bench [keys from 1000000, which a batch fits in, to 100000000]\n");
    return 1;
  }
  mxrec::Run(static_cast<uint32_t>(keys));
}
