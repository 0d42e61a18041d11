// MxrecSetThreshold: changes which new keys tables admit, while they train.
#include "table/registry.h"
#include "tf/border.h"

namespace mxrec {
namespace {

REGISTER_OP("MxrecSetThreshold")
    .Input("value: int32")
    .Output("tables: int32")  // how many were changed
    .Attr("table: string")    // empty: all that count their keys
    .SetIsStateful()
    .SetShapeFn([](InferenceContext* c) {
      c->set_output(0, c->Scalar());
      return absl::OkStatus();
    });

class SetThresholdOp : public Kernel {
 public:
  explicit SetThresholdOp(OpKernelConstruction* c) : Kernel(c) { OP_REQUIRES_OK(c, c->GetAttr("table", &table_)); }

  void Work(OpKernelContext* c) override {
    OP_REQUIRES(c, c->input(0).NumElements() == 1,
                absl::InvalidArgumentError("set_threshold: the threshold must be one number, got shape " +
                                           c->input(0).shape().DebugString()));
    int changed = 0;
    const Status status = Registry::Global().SetAccessThreshold(table_, c->input(0).flat<int32_t>()(0), &changed);
    OP_REQUIRES(c, status.ok(), absl::InvalidArgumentError("set_threshold: " + status.message()));
    Tensor* out = nullptr;
    OP_REQUIRES_OK(c, c->allocate_output(0, {}, &out));
    out->scalar<int32_t>()() = changed;
  }

 private:
  std::string table_;
};

REGISTER_KERNEL_BUILDER(Name("MxrecSetThreshold").Device(tensorflow::DEVICE_CPU), SetThresholdOp);

}  // namespace
}  // namespace mxrec
