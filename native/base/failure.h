// Failure: the first failure of several threads.
#pragma once

#include <atomic>
#include <mutex>

#include "base/status.h"

namespace mxrec {

class Failure {
 public:
  void Set(const Status& status) {
    std::lock_guard<std::mutex> lock(mutex_);
    if (status_.ok()) status_ = status;
    failed_.store(true, std::memory_order_relaxed);
  }
  bool failed() const { return failed_.load(std::memory_order_relaxed); }  // the others need not go on
  const Status& status() const { return status_; }                         // REQUIRES: all threads are done

 private:
  std::mutex mutex_;
  std::atomic<bool> failed_{false};
  Status status_;
};

}  // namespace mxrec
