// MxrecTouched: keeps the handles of keys that occur in some of a table's features. A key that a gradient did not reach
// must not be updated, not even with zeros.
#include "table/positions.h"
#include "tf/border.h"

namespace mxrec {
namespace {

REGISTER_OP("MxrecTouched")
    .Input("handles: int64")
    .Input("plan: int64")
    .Output("touched: int64")
    .Attr("table: int")
    .Attr("features: list(int) >= 1")
    .SetShapeFn([](InferenceContext* c) {
      c->set_output(0, c->input(0));
      return absl::OkStatus();
    });

class TouchedOp : public Kernel {
 public:
  explicit TouchedOp(OpKernelConstruction* c) : Kernel(c) {
    OP_REQUIRES_OK(c, c->GetAttr("table", &table_));
    OP_REQUIRES_OK(c, c->GetAttr("features", &features_));
  }

  void Work(OpKernelContext* c) override {
    Plan plan;
    OP_REQUIRES_OK(c, ParsePlan(c->input(1), &plan));
    const auto handles = c->input(0).flat<int64_t>();
    Tensor* out = nullptr;
    OP_REQUIRES_OK(c, c->allocate_output(0, c->input(0).shape(), &out));
    OP_REQUIRES_OK(c, ToTensorFlow(Touched(plan, table_, features_, handles.data(), handles.size(), PoolFor(c),
                                           out->flat<int64_t>().data())));
  }

 private:
  int64_t table_ = 0;
  std::vector<int64_t> features_;
};

REGISTER_KERNEL_BUILDER(Name("MxrecTouched").Device(tensorflow::DEVICE_CPU), TouchedOp);

}  // namespace
}  // namespace mxrec
