// ParallelFor: the core owns no threads. Its caller lends them: TensorFlow's pool in the ops, a few std::threads or
// none in the tests. No result may depend on how the range is cut.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

namespace mxrec {

class ParallelFor {
 public:
  using Block = std::function<void(int64_t begin, int64_t end)>;
  virtual ~ParallelFor() = default;

  // Covers [0, n) with disjoint blocks, each passed to `fn` once, and returns when all are done. `cost` is a rough
  // number of nanoseconds per item; small totals run in the calling thread. What `fn` throws, in any thread, the caller
  // gets when no block is under way any more: the first exception, if there are several. (The core throws nothing but
  // the std::bad_alloc of its containers.)
  virtual void Run(int64_t n, int64_t cost, const Block& fn) const = 0;
};

// Everything in the calling thread.
class SerialFor : public ParallelFor {
 public:
  void Run(int64_t n, int64_t, const Block& fn) const override {
    if (n > 0) fn(0, n);
  }
};

// A fixed number of fresh threads per call, however small the range: for tests of thread independence.
class ThreadedFor : public ParallelFor {
 public:
  explicit ThreadedFor(int threads) : threads_(threads) {}
  void Run(int64_t n, int64_t cost, const Block& fn) const override;

 private:
  int threads_;
};

// Covers [0, n) with `blocks` blocks, which the calling thread and `helpers` others take one after another. `launch` is
// given what a helper shall do; it may do so at any time in any thread, also after ShareOut has returned, when nothing
// is left to do. So a thread that is busy with something else delays nobody: with one fixed part per thread, a step
// that shared two cores with its input pipeline left them idle for a fifth of the time.
void ShareOut(int64_t n, int64_t blocks, int helpers, const std::function<void(std::function<void()>)>& launch,
              const ParallelFor::Block& fn);

// Several lists of units as one range, so that many short lists keep all threads busy: calls fn(list, unit) for every
// unit in [0, sizes[list]) of every list. `cost` is per unit.
void RunLists(const ParallelFor& parallel, const std::vector<int64_t>& sizes, int64_t cost,
              const std::function<void(size_t list, int64_t unit)>& fn);

}  // namespace mxrec
