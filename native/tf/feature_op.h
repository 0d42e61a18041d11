// FeatureOp: what the ops have in common that tell something of one feature of a plan.
#pragma once

#include "batch/plan_check.h"
#include "tf/border.h"

namespace mxrec {

// Reads the attribute "ids_shape": the ids' static shape, as far as the graph knows it.
inline absl::Status IdsShape(InferenceContext* c, ShapeHandle* shape) {
  tensorflow::PartialTensorShape known;
  TF_RETURN_IF_ERROR(c->GetAttr("ids_shape", &known));
  return c->MakeShapeFromPartialTensorShape(known, shape);
}

// The shape function of ops whose output has the shape of the ids.
inline absl::Status ShapeOfIds(InferenceContext* c) {
  ShapeHandle ids;
  TF_RETURN_IF_ERROR(IdsShape(c, &ids));
  c->set_output(0, ids);
  return absl::OkStatus();
}

// A kernel with a plan as its last input, and attributes that name a feature of it.
class FeatureOp : public Kernel {
 public:
  explicit FeatureOp(OpKernelConstruction* c) : Kernel(c) {
    OP_REQUIRES_OK(c, c->GetAttr("table", &table_));
    OP_REQUIRES_OK(c, c->GetAttr("feature", &feature_));
  }

  void Work(OpKernelContext* c) override {
    Plan plan;
    OP_REQUIRES_OK(c, ParsePlan(c->input(c->num_inputs() - 1), &plan));
    const FeaturePlan* feature = nullptr;
    OP_REQUIRES_OK(c, ToTensorFlow(plan.FindFeature(feature_, table_, &feature)));
    OP_REQUIRES_OK(c, ToTensorFlow(CheckContents({{&plan.tables()[table_], true}}, PoolFor(c))));
    Run(c, plan.tables()[table_], *feature);
  }

 protected:
  virtual void Run(OpKernelContext* c, const TablePlan& table, const FeaturePlan& feature) = 0;

  // An output that holds a bool for each id.
  static absl::Status AllocateForIds(OpKernelContext* c, const FeaturePlan& feature, bool** values) {
    TensorShape shape;
    TF_RETURN_IF_ERROR(TensorShape::BuildTensorShape(feature.shape, &shape));
    Tensor* out = nullptr;
    TF_RETURN_IF_ERROR(c->allocate_output(0, shape, &out));
    *values = out->flat<bool>().data();
    return absl::OkStatus();
  }

 private:
  int64_t table_ = 0;
  int64_t feature_ = 0;
};

}  // namespace mxrec
