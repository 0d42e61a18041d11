// MxrecTimestamp: tells the time of the machine, for data that carry none.
#include <chrono>

#include "tf/border.h"

namespace mxrec {
namespace {

REGISTER_OP("MxrecTimestamp")
    .Input("any: int64")
    .Output("seconds: int64")
    .SetIsStateful()
    .SetShapeFn([](InferenceContext* c) {
      c->set_output(0, c->Scalar());
      return absl::OkStatus();
    });

class TimestampOp : public Kernel {
 public:
  using Kernel::Kernel;

  void Work(OpKernelContext* c) override {
    const auto now = std::chrono::system_clock::now().time_since_epoch();
    Tensor* out = nullptr;
    OP_REQUIRES_OK(c, c->allocate_output(0, {}, &out));
    out->scalar<int64_t>()() = std::chrono::duration_cast<std::chrono::seconds>(now).count();
  }
};

REGISTER_KERNEL_BUILDER(Name("MxrecTimestamp").Device(tensorflow::DEVICE_CPU), TimestampOp);

}  // namespace
}  // namespace mxrec
