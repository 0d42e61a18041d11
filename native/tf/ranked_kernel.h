// RankedKernel: the base of kernels that work together with those of other ranks. They bear the label "ranks", by which
// a graph that is built on one of several ranks chooses them (mx_rec/_ops/library.py); with one rank there are none.
//
// They are asynchronous: a kernel that waits for other ranks holds no thread, so that any number of them may wait at
// once, in whatever order they are run on each rank.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "exchange/world.h"
#include "tf/border.h"

namespace mxrec {

class RankedKernel : public tensorflow::AsyncOpKernel {
 public:
  explicit RankedKernel(OpKernelConstruction* construction);
  void ComputeAsync(OpKernelContext* context, DoneCallback done) final;

 protected:
  using Messages = std::vector<Message>;

  // One run of the kernel. Ends when End or Fail is called.
  struct Run {
    OpKernelContext* context;
    DoneCallback done;
    std::shared_ptr<World> world;
  };
  using RunPtr = std::shared_ptr<Run>;
  // Continues a run with what all ranks gave.
  using Next = std::function<absl::Status(const RunPtr& run, Messages messages)>;

  // Does what comes before the first exchange and begins that. What it returns other than OK fails the run, and the
  // exchange `stage` of all ranks with it.
  virtual absl::Status Begin(const RunPtr& run) = 0;
  // The name of the first exchange, after the kernel's.
  virtual const char* first_stage() const = 0;

  // Gives each rank its message; when those of all ranks are there, calls `next` in a thread of TensorFlow's. If `next`
  // fails, so does the exchange `next_stage` of all ranks; nullptr: none follows, and the run ends after `next`.
  void Exchange(const RunPtr& run, const char* stage, Messages messages, const char* next_stage, Next next);

 private:
  void Fail(const RunPtr& run, const char* stage, const absl::Status& status);
  std::string StreamOf(const char* stage) const { return name() + "/" + stage; }

  const absl::Status out_of_memory_;
};

// What tensors of two ranks must have in common: a number of the inputs' types and shapes. It begins the payload of
// what collectives give each other, so that tensors of as many bytes are not taken for each other.
constexpr int64_t kKindBytes = sizeof(uint64_t);
uint64_t KindOf(OpKernelContext* context, bool of_rows = false);  // of_rows: the first axis may be of any length
// Says that rank number `rank` gives the kernel other tensors than this one.
absl::Status OtherKind(OpKernelContext* context, int rank);
// A message that begins with the kind, and has room for `bytes` bytes more.
Message MessageOfKind(uint64_t kind, int64_t bytes);
// Whether a message of that kind has `bytes` bytes more.
bool IsOfKind(const Message& message, uint64_t kind, int64_t bytes);

// The code of a TensorFlow error in the core; FailedPrecondition for those that the core has not.
Status FromTensorFlow(const absl::Status& status);

}  // namespace mxrec
