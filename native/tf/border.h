// The border between TensorFlow and the core: errors, threads, tables and plans, each converted once.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "base/parallel.h"
#include "base/status.h"
#include "batch/fold.h"
#include "batch/plan.h"
#include "batch/pooling.h"
#include "table/nonfinite.h"
#include "table/table.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/shape_inference.h"

namespace mxrec {

using tensorflow::OpInputList;
using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;
using tensorflow::Tensor;
using tensorflow::TensorShape;
using tensorflow::shape_inference::InferenceContext;
using tensorflow::shape_inference::ShapeHandle;

absl::Status ToTensorFlow(const Status& status);

// The base of all kernels. A lack of memory inside of one, in whichever thread, becomes a ResourceExhausted error of
// the step: TensorFlow does not catch exceptions, so any that leaves a kernel ends the process.
class Kernel : public tensorflow::OpKernel {
 public:
  explicit Kernel(OpKernelConstruction* construction);
  void Compute(OpKernelContext* context) final;

 protected:
  virtual void Work(OpKernelContext* context) = 0;

 private:
  const absl::Status out_of_memory_;  // made beforehand: there may be no memory to make it
};

// A kernel that passes on its first input.
class PassOnOp : public Kernel {
 public:
  using Kernel::Kernel;
  void Work(OpKernelContext* c) override { c->set_output(0, c->input(0)); }
  bool IsExpensive() override { return false; }  // runs where it stands, without a trip through a queue
};

// Lends TensorFlow's own thread pool to the core for the duration of one kernel.
class PoolFor : public ParallelFor {
 public:
  explicit PoolFor(OpKernelContext* context) : context_(context) {}
  void Run(int64_t n, int64_t cost, const Block& fn) const override;

 private:
  OpKernelContext* context_;
};

absl::Status FindTable(const std::string& name, std::shared_ptr<Table>* table);

// Begins a use of the table that ends with TensorFlow's step, a run of the session; 0 if the table needs none.
absl::Status BeginUse(OpKernelContext* context, const std::shared_ptr<Table>& table, int64_t* use);

// Finds the update rule of that name.
absl::Status FindRule(const std::string& name, const Rule** rule);

// Reads the attribute "nonfinite" of a kernel that updates.
absl::Status ReadNonfinite(OpKernelConstruction* construction, Nonfinite* mode);

// Checks that `rule` can update rows of `table` with these per-step numbers, which must be finite unless `mode` is
// kAllow.
absl::Status CheckRule(const Rule& rule, const Table& table, tensorflow::TTypes<float>::ConstFlat hyper,
                       Nonfinite mode);

// Reads a tensor as a plan, a view that is good as long as the tensor lives.
absl::Status ParsePlan(const Tensor& tensor, Plan* plan);

// InvalidArgument unless all `values` of the attribute lie in [low, high].
absl::Status CheckAttribute(const char* name, const std::vector<int64_t>& values, int64_t low, int64_t high);
// The bounds of a table's `dim`, as Table::Create has them.
constexpr int64_t kMaxDim = 8192;

// Reads `tensor` as the gradient of what a lookup of `feature` gave: `dim` columns of it from `column` on. A tensor of
// exactly `dim` columns may have any shape.
absl::Status ReadGradient(const Tensor& tensor, const FeaturePlan& feature, int64_t dim, Pooling pooling,
                          int64_t column, FeatureGradient* gradient);

}  // namespace mxrec
