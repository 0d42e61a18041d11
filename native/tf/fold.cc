// MxrecFold: sums the gradients of a feature's positions, or bags, for each key. It is the gradient of MxrecEmbeddings.
#include "batch/fold.h"

#include "tf/feature_op.h"

namespace mxrec {
namespace {

REGISTER_OP("MxrecFold")
    .Input("gradient: float")
    .Input("plan: int64")
    .Output("rows_gradient: float")
    .Attr("table: int")
    .Attr("feature: int")
    .Attr("pooled: bool")
    .Attr("dim: int")
    .SetShapeFn([](InferenceContext* c) {
      int64_t dim;
      TF_RETURN_IF_ERROR(c->GetAttr("dim", &dim));
      TF_RETURN_IF_ERROR(CheckAttribute("dim", {dim}, 1, kMaxDim));
      c->set_output(0, c->Matrix(c->UnknownDim(), dim));
      return absl::OkStatus();
    });

class FoldOp : public FeatureOp {
 public:
  explicit FoldOp(OpKernelConstruction* c) : FeatureOp(c) {
    OP_REQUIRES_OK(c, c->GetAttr("dim", &dim_));
    OP_REQUIRES_OK(c, CheckAttribute("dim", {dim_}, 1, kMaxDim));
    bool pooled = false;
    OP_REQUIRES_OK(c, c->GetAttr("pooled", &pooled));
    pooling_ = pooled ? Pooling::kSum : Pooling::kNone;
  }

 protected:
  void Run(OpKernelContext* c, const TablePlan& table, const FeaturePlan& feature) override {
    FeatureGradient gradient;
    OP_REQUIRES_OK(c, ReadGradient(c->input(0), feature, dim_, pooling_, 0, &gradient));
    Tensor* out = nullptr;
    OP_REQUIRES_OK(c, c->allocate_output(0, {table.keys_size, dim_}, &out));
    Fold(table, gradient, dim_, out->flat<float>().data(), PoolFor(c));
  }

 private:
  int64_t dim_ = 0;
  Pooling pooling_ = Pooling::kNone;
};

REGISTER_KERNEL_BUILDER(Name("MxrecFold").Device(tensorflow::DEVICE_CPU), FoldOp);

}  // namespace
}  // namespace mxrec
