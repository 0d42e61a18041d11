#include "base/parallel.h"

#include <algorithm>
#include <thread>

namespace mxrec {

void ThreadedFor::Run(int64_t n, int64_t, const Block& fn) const {
  std::vector<std::thread> threads;
  for (int t = 0; t < threads_; ++t) {
    const int64_t begin = n * t / threads_, end = n * (t + 1) / threads_;
    if (begin < end) threads.emplace_back([&fn, begin, end] { fn(begin, end); });
  }
  for (std::thread& t : threads) t.join();
}

void RunLists(const ParallelFor& parallel, const std::vector<int64_t>& sizes, int64_t cost,
              const std::function<void(size_t list, int64_t unit)>& fn) {
  std::vector<int64_t> starts(1, 0);
  for (const int64_t size : sizes) starts.push_back(starts.back() + size);
  parallel.Run(starts.back(), cost, [&](int64_t begin, int64_t end) {
    size_t list = std::upper_bound(starts.begin(), starts.end(), begin) - starts.begin() - 1;
    for (int64_t unit = begin; unit < end; ++unit) {
      while (unit >= starts[list + 1]) ++list;
      fn(list, unit - starts[list]);
    }
  });
}

}  // namespace mxrec
