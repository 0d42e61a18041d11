// Uses: which steps are under way. A step's use has a number, higher than all before it; a row that is stamped with the
// number of a use that has not ended, or a higher one, stays in memory.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <mutex>
#include <vector>

namespace mxrec {

class Uses {
 public:
  // Numbers start at 1; 0 stands for no use at all.
  int64_t Begin() {
    std::lock_guard<std::mutex> lock(mutex_);
    running_.push_back(next_++);
    oldest_.store(running_.front(), std::memory_order_release);
    return running_.back();
  }

  void End(int64_t use) {
    std::lock_guard<std::mutex> lock(mutex_);
    running_.erase(std::find(running_.begin(), running_.end(), use));
    oldest_.store(running_.empty() ? next_ : running_.front(), std::memory_order_release);
  }

  // The lowest number that is under way, or the next one.
  int64_t oldest() const { return oldest_.load(std::memory_order_acquire); }

  // Those under way, in ascending order.
  std::vector<int64_t> running() const {
    std::lock_guard<std::mutex> lock(mutex_);
    return running_;
  }

 private:
  mutable std::mutex mutex_;
  std::vector<int64_t> running_;
  int64_t next_ = 1;
  std::atomic<int64_t> oldest_{1};
};

}  // namespace mxrec
