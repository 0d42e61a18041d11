// MxrecPrepare: ids -> plan. Runs inside the input pipeline, ahead of the step, or in the step itself.
#include "tf/plan_op.h"

namespace mxrec {
namespace {

REGISTER_OP("MxrecPrepare")
    .Input("ids: F * int64")
    .Input("times: N * int64")  // of the batch's samples: none, or one tensor of one time for all or one for each
    .Output("plan: int64")
    .Attr("F: int >= 1")
    .Attr("N: int >= 0")
    .Attr("tables: list(string) >= 1")
    .Attr("table_of_feature: list(int) >= 1")
    .Attr("grouped: bool")
    .SetShapeFn(PlanShape);

class PrepareOp : public PlanOp {
 public:
  explicit PrepareOp(OpKernelConstruction* c) : PlanOp(c) {
    OP_REQUIRES_OK(c, c->GetAttr("table_of_feature", &table_of_feature_));
    OP_REQUIRES_OK(c, c->GetAttr("grouped", &grouped_));
    for (const int64_t t : table_of_feature_) {
      OP_REQUIRES(c, t >= 0 && t < static_cast<int64_t>(tables().size()),
                  absl::InvalidArgumentError("table_of_feature is out of range"));
    }
  }

  void Work(OpKernelContext* c) override {
    const int features_size = static_cast<int>(table_of_feature_.size());
    OP_REQUIRES(c, c->num_inputs() == features_size || c->num_inputs() == features_size + 1,
                absl::InvalidArgumentError("one table_of_feature per ids tensor, and at most one tensor of times"));
    std::vector<FeaturePlan> features;
    Ids ids(tables().size());
    for (int f = 0; f < features_size; ++f) {
      const Tensor& input = c->input(f);
      FeaturePlan feature;
      feature.table = table_of_feature_[f];
      feature.size = input.NumElements();
      for (int d = 0; d < input.dims(); ++d) feature.shape.push_back(input.dim_size(d));
      ids[feature.table].push_back({input.flat<int64_t>().data(), feature.size});
      features.push_back(std::move(feature));
    }
    TimeSpan times;
    if (c->num_inputs() > features_size) {
      const auto input = c->input(features_size).flat<int64_t>();
      times = {input.data(), input.size()};
    }
    MakePlan(c, std::move(features), ids, times, grouped_);
  }

 private:
  std::vector<int64_t> table_of_feature_;
  bool grouped_ = true;
};

REGISTER_KERNEL_BUILDER(Name("MxrecPrepare").Device(tensorflow::DEVICE_CPU), PrepareOp);

}  // namespace
}  // namespace mxrec
