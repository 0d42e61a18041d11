// MxrecPadding: says which positions of a feature hold one of the table's padding keys.
#include <algorithm>

#include "table/positions.h"
#include "tf/feature_op.h"

namespace mxrec {
namespace {

REGISTER_OP("MxrecPadding")
    .Input("plan: int64")
    .Output("is_padding: bool")
    .Attr("table: int")
    .Attr("feature: int")
    .Attr("keys: list(int) >= 1")
    .Attr("ids_shape: shape")
    .SetShapeFn(ShapeOfIds);

class PaddingOp : public FeatureOp {
 public:
  explicit PaddingOp(OpKernelConstruction* c) : FeatureOp(c) {
    OP_REQUIRES_OK(c, c->GetAttr("keys", &keys_));
    std::sort(keys_.begin(), keys_.end());
  }

 protected:
  void Run(OpKernelContext* c, const TablePlan& table, const FeaturePlan& feature) override {
    bool* is_padding = nullptr;
    OP_REQUIRES_OK(c, AllocateForIds(c, feature, &is_padding));
    IsPadding(table, feature, keys_, is_padding);
  }

 private:
  std::vector<int64_t> keys_;
};

REGISTER_KERNEL_BUILDER(Name("MxrecPadding").Device(tensorflow::DEVICE_CPU), PaddingOp);

}  // namespace
}  // namespace mxrec
