// MxrecHasRow: says which positions of a feature found a row at all.
#include "table/positions.h"
#include "tf/feature_op.h"

namespace mxrec {
namespace {

REGISTER_OP("MxrecHasRow")
    .Input("handles: int64")
    .Input("plan: int64")
    .Output("has_row: bool")
    .Attr("table: int")
    .Attr("feature: int")
    .Attr("ids_shape: shape")
    .SetShapeFn(ShapeOfIds);

class HasRowOp : public FeatureOp {
 public:
  using FeatureOp::FeatureOp;

 protected:
  void Run(OpKernelContext* c, const TablePlan& table, const FeaturePlan& feature) override {
    const auto handles = c->input(0).flat<int64_t>();
    bool* has_row = nullptr;
    OP_REQUIRES_OK(c, AllocateForIds(c, feature, &has_row));
    OP_REQUIRES_OK(c, ToTensorFlow(HasRow(table, feature, handles.data(), handles.size(), has_row)));
  }
};

REGISTER_KERNEL_BUILDER(Name("MxrecHasRow").Device(tensorflow::DEVICE_CPU), HasRowOp);

}  // namespace
}  // namespace mxrec
