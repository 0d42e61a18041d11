#include "base/parallel.h"

#include <thread>
#include <vector>

namespace mxrec {

void ThreadedFor::Run(int64_t n, int64_t, const Block& fn) const {
  std::vector<std::thread> threads;
  for (int t = 0; t < threads_; ++t) {
    const int64_t begin = n * t / threads_, end = n * (t + 1) / threads_;
    if (begin < end) threads.emplace_back([&fn, begin, end] { fn(begin, end); });
  }
  for (std::thread& t : threads) t.join();
}

}  // namespace mxrec
