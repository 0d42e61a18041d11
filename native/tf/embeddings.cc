// What stands between a lookup and its gradient.
//
// MxrecEmbeddings passes on what the lookup of one feature gave. It computes nothing: it is the place in the graph
// where the embeddings depend on the rows of their keys, and so where tf.gradients turns from positions to rows. Its
// gradient is MxrecFold. MxrecHasRow says which positions found a row at all, MxrecPadding which
// hold one of the table's padding keys. MxrecTouched keeps the handles of keys
// that occur in some of a table's features: a key that a gradient did not reach must not be updated, not even with
// zeros.
#include <algorithm>

#include "batch/fold.h"
#include "batch/plan_check.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/shape_inference.h"
#include "tf/border.h"

namespace mxrec {
namespace {

using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;
using tensorflow::Tensor;
using tensorflow::TensorShape;
using tensorflow::shape_inference::InferenceContext;
using tensorflow::shape_inference::ShapeHandle;

// The ids' static shape, as far as the graph knows it.
absl::Status IdsShape(InferenceContext* c, ShapeHandle* shape) {
  tensorflow::PartialTensorShape known;
  TF_RETURN_IF_ERROR(c->GetAttr("ids_shape", &known));
  return c->MakeShapeFromPartialTensorShape(known, shape);
}

REGISTER_OP("MxrecEmbeddings")
    .Input("embeddings: float")
    .Input("rows: float")
    .Input("plan: int64")
    .Output("out: float")
    .Attr("table: int")
    .Attr("feature: int")
    .Attr("pooled: bool")
    .Attr("ids_shape: shape")
    .SetShapeFn([](InferenceContext* c) {
      ShapeHandle rows, ids, out;
      bool pooled;
      TF_RETURN_IF_ERROR(c->WithRank(c->input(1), 2, &rows));
      TF_RETURN_IF_ERROR(IdsShape(c, &ids));
      TF_RETURN_IF_ERROR(c->GetAttr("pooled", &pooled));
      if (pooled) {
        TF_RETURN_IF_ERROR(c->WithRankAtLeast(ids, 1, &ids));
        TF_RETURN_IF_ERROR(c->Subshape(ids, 0, -1, &ids));
      }
      TF_RETURN_IF_ERROR(c->Concatenate(ids, c->Vector(c->Dim(rows, 1)), &out));
      c->set_output(0, out);
      return absl::OkStatus();
    });

// The same for features that the lookup wrote side by side.
REGISTER_OP("MxrecJoined")
    .Input("embeddings: float")
    .Input("rows: F * float")
    .Input("plan: int64")
    .Output("out: float")
    .Attr("F: int >= 1")
    .Attr("tables: list(int) >= 1")
    .Attr("features: list(int) >= 1")
    .Attr("pooled: list(int) >= 1")
    .Attr("shape: shape")
    .SetShapeFn([](InferenceContext* c) {
      tensorflow::PartialTensorShape known;
      TF_RETURN_IF_ERROR(c->GetAttr("shape", &known));
      ShapeHandle out;
      TF_RETURN_IF_ERROR(c->MakeShapeFromPartialTensorShape(known, &out));
      c->set_output(0, out);
      return absl::OkStatus();
    });

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

REGISTER_OP("MxrecHasRow")
    .Input("handles: int64")
    .Input("plan: int64")
    .Output("has_row: bool")
    .Attr("table: int")
    .Attr("feature: int")
    .Attr("ids_shape: shape")
    .SetShapeFn([](InferenceContext* c) {
      ShapeHandle ids;
      TF_RETURN_IF_ERROR(IdsShape(c, &ids));
      c->set_output(0, ids);
      return absl::OkStatus();
    });

REGISTER_OP("MxrecPadding")
    .Input("plan: int64")
    .Output("is_padding: bool")
    .Attr("table: int")
    .Attr("feature: int")
    .Attr("keys: list(int) >= 1")
    .Attr("ids_shape: shape")
    .SetShapeFn([](InferenceContext* c) {
      ShapeHandle ids;
      TF_RETURN_IF_ERROR(IdsShape(c, &ids));
      c->set_output(0, ids);
      return absl::OkStatus();
    });

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

absl::Status CheckOneHandlePerKey(const TablePlan& table, int64_t handles) {
  if (handles == table.keys_size) return absl::OkStatus();
  return absl::InvalidArgumentError("one handle per key is needed: " + std::to_string(table.keys_size) + ", got " +
                                    std::to_string(handles));
}

class EmbeddingsOp : public Kernel {
 public:
  using Kernel::Kernel;
  void Work(OpKernelContext* c) override { c->set_output(0, c->input(0)); }
  bool IsExpensive() override { return false; }  // runs where it stands, without a trip through a queue
};

// What some of the kernels share: a plan as the last input, and the feature the attributes name.
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
    OP_REQUIRES_OK(c, FindFeature(plan, feature_, table_, &feature));
    OP_REQUIRES_OK(c, ToTensorFlow(CheckContents({{&plan.tables()[table_], true}}, PoolFor(c))));
    Run(c, plan.tables()[table_], *feature);
  }

 protected:
  virtual void Run(OpKernelContext* c, const TablePlan& table, const FeaturePlan& feature) = 0;

 private:
  int64_t table_ = 0;
  int64_t feature_ = 0;
};

class FoldOp : public FeatureOp {
 public:
  explicit FoldOp(OpKernelConstruction* c) : FeatureOp(c) {
    OP_REQUIRES_OK(c, c->GetAttr("dim", &dim_));
    OP_REQUIRES_OK(c, CheckAttribute("dim", {dim_}, 1, kMaxDim));
    OP_REQUIRES_OK(c, c->GetAttr("pooled", &pooled_));
  }

 protected:
  void Run(OpKernelContext* c, const TablePlan& table, const FeaturePlan& feature) override {
    FeatureGradient gradient;
    OP_REQUIRES_OK(c, ReadGradient(c->input(0), feature, dim_, pooled_, 0, &gradient));
    Tensor* out = nullptr;
    OP_REQUIRES_OK(c, c->allocate_output(0, {table.keys_size, dim_}, &out));
    Fold(table, gradient, dim_, out->flat<float>().data(), PoolFor(c));
  }

 private:
  int64_t dim_ = 0;
  bool pooled_ = false;
};

class HasRowOp : public FeatureOp {
 public:
  using FeatureOp::FeatureOp;

 protected:
  void Run(OpKernelContext* c, const TablePlan& table, const FeaturePlan& feature) override {
    const auto handles = c->input(0).flat<int64_t>();
    OP_REQUIRES_OK(c, CheckOneHandlePerKey(table, handles.size()));
    Tensor* out = nullptr;
    TensorShape shape;
    OP_REQUIRES_OK(c, ShapeOf(feature, &shape));
    OP_REQUIRES_OK(c, c->allocate_output(0, shape, &out));
    bool* has_row = out->flat<bool>().data();
    for (int64_t i = 0; i < feature.size; ++i) has_row[i] = handles(table.key_at(feature.first + i)) != kNoRow;
  }
};

class PaddingOp : public FeatureOp {
 public:
  explicit PaddingOp(OpKernelConstruction* c) : FeatureOp(c) {
    OP_REQUIRES_OK(c, c->GetAttr("keys", &keys_));
    std::sort(keys_.begin(), keys_.end());
  }

 protected:
  void Run(OpKernelContext* c, const TablePlan& table, const FeaturePlan& feature) override {
    TensorShape shape;
    OP_REQUIRES_OK(c, ShapeOf(feature, &shape));
    Tensor* out = nullptr;
    OP_REQUIRES_OK(c, c->allocate_output(0, shape, &out));
    bool* is_padding = out->flat<bool>().data();
    for (int64_t i = 0; i < feature.size; ++i) {
      is_padding[i] = std::binary_search(keys_.begin(), keys_.end(), table.keys[table.key_at(feature.first + i)]);
    }
  }

 private:
  std::vector<int64_t> keys_;
};

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
    auto touched = out->flat<int64_t>();
    touched.setConstant(kNoRow);
    OP_REQUIRES(c, table_ >= 0 && table_ < static_cast<int64_t>(plan.tables().size()),
                absl::InvalidArgumentError("`table` is out of range"));
    OP_REQUIRES_OK(c, ToTensorFlow(CheckContents({{&plan.tables()[table_], false}}, PoolFor(c))));
    for (const int64_t number : features_) {
      const FeaturePlan* feature = nullptr;
      OP_REQUIRES_OK(c, FindFeature(plan, number, table_, &feature));
      const TablePlan& table = plan.tables()[table_];
      OP_REQUIRES_OK(c, CheckOneHandlePerKey(table, handles.size()));
      for (int64_t i = 0; i < feature->size; ++i) {
        const int64_t key = table.key_at(feature->first + i);
        touched(key) = handles(key);
      }
    }
  }

 private:
  int64_t table_ = 0;
  std::vector<int64_t> features_;
};

REGISTER_KERNEL_BUILDER(Name("MxrecTouched").Device(tensorflow::DEVICE_CPU), TouchedOp);
REGISTER_KERNEL_BUILDER(Name("MxrecEmbeddings").Device(tensorflow::DEVICE_CPU), EmbeddingsOp);
REGISTER_KERNEL_BUILDER(Name("MxrecJoined").Device(tensorflow::DEVICE_CPU), EmbeddingsOp);
REGISTER_KERNEL_BUILDER(Name("MxrecFold").Device(tensorflow::DEVICE_CPU), FoldOp);
REGISTER_KERNEL_BUILDER(Name("MxrecHasRow").Device(tensorflow::DEVICE_CPU), HasRowOp);
REGISTER_KERNEL_BUILDER(Name("MxrecPadding").Device(tensorflow::DEVICE_CPU), PaddingOp);

}  // namespace
}  // namespace mxrec
