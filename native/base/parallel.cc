#include "base/parallel.h"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <exception>
#include <memory>
#include <mutex>
#include <new>
#include <thread>

namespace mxrec {

namespace {

// The first exception of several threads. One that leaves a thread's own function ends the process.
class FirstException {
 public:
  template <typename Fn>
  void Guard(Fn fn) {
    try {
      fn();
    } catch (...) {
      std::lock_guard<std::mutex> lock(mutex_);
      if (first_ == nullptr) first_ = std::current_exception();
    }
  }
  // REQUIRES: all threads are done.
  void Rethrow() const {
    if (first_ != nullptr) std::rethrow_exception(first_);
  }

 private:
  std::mutex mutex_;
  std::exception_ptr first_;
};

}  // namespace

void ThreadedFor::Run(int64_t n, int64_t, const Block& fn) const {
  std::vector<std::thread> threads;
  FirstException exception;
  for (int t = 0; t < threads_; ++t) {
    const int64_t begin = n * t / threads_, end = n * (t + 1) / threads_;
    if (begin == end) continue;
    auto work = [&fn, &exception, begin, end] { exception.Guard([&] { fn(begin, end); }); };
    try {
      threads.emplace_back(work);
    } catch (const std::exception&) {  // no memory, or no more threads
      work();
    }
  }
  for (std::thread& t : threads) t.join();
  exception.Rethrow();
}

void ShareOut(int64_t n, int64_t blocks, int helpers, const std::function<void(std::function<void()>)>& launch,
              const ParallelFor::Block& fn) {
  // Late helpers look at this after the caller, and `fn`, are gone.
  struct State {
    State(int64_t size, int64_t block_count, const ParallelFor::Block* function)
        : n(size), blocks(block_count), left(block_count), fn(function) {}
    const int64_t n, blocks;
    std::atomic<int64_t> next{0};  // block to take
    std::atomic<int64_t> left;     // blocks that are not done
    const ParallelFor::Block* fn;
    std::mutex mutex;
    std::condition_variable done;
    FirstException exception;

    void Work() {
      for (int64_t block; (block = next.fetch_add(1, std::memory_order_relaxed)) < blocks;) {
        exception.Guard([&] { (*fn)(n* block / blocks, n * (block + 1) / blocks); });
        if (left.fetch_sub(1, std::memory_order_acq_rel) == 1) {
          std::lock_guard<std::mutex> lock(mutex);
          done.notify_one();
        }
      }
    }
  };
  const auto state = std::make_shared<State>(n, blocks, &fn);
  // The work gets done with fewer helpers, too, so a lack of memory for one is no failure.
  try {
    for (int h = 0; h < helpers; ++h) launch([state] { state->Work(); });
  } catch (const std::bad_alloc&) {
  }
  state->Work();
  if (state->left.load(std::memory_order_acquire) > 0) {
    std::unique_lock<std::mutex> lock(state->mutex);
    state->done.wait(lock, [&] { return state->left.load(std::memory_order_acquire) == 0; });
  }
  state->exception.Rethrow();
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
