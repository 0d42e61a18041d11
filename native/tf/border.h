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
#include "table/nonfinite.h"
#include "table/table.h"
#include "tensorflow/core/framework/op_kernel.h"

namespace mxrec {

absl::Status ToTensorFlow(const Status& status);

// What all kernels derive from. A lack of memory inside of one, in whichever thread, is a ResourceExhausted error of
// the step: TensorFlow does not catch exceptions, so any that leaves a kernel ends the process.
class Kernel : public tensorflow::OpKernel {
 public:
  explicit Kernel(tensorflow::OpKernelConstruction* construction);
  void Compute(tensorflow::OpKernelContext* context) final;

 protected:
  virtual void Work(tensorflow::OpKernelContext* context) = 0;

 private:
  const absl::Status out_of_memory_;  // made beforehand: there may be no memory to make it
};

// TensorFlow's own thread pool, lent to the core for the duration of one kernel.
class PoolFor : public ParallelFor {
 public:
  explicit PoolFor(tensorflow::OpKernelContext* context) : context_(context) {}
  void Run(int64_t n, int64_t cost, const Block& fn) const override;

 private:
  tensorflow::OpKernelContext* context_;
};

absl::Status FindTable(const std::string& name, std::shared_ptr<Table>* table);

// Begins a use of the table that ends with the step (TensorFlow's, that is: a run of the session); 0 if the table needs
// none.
absl::Status BeginUse(tensorflow::OpKernelContext* context, const std::shared_ptr<Table>& table, int64_t* use);

// The update rule of that name.
absl::Status FindRule(const std::string& name, const Rule** rule);

// The attribute "nonfinite" of a kernel that updates.
absl::Status ReadNonfinite(tensorflow::OpKernelConstruction* construction, Nonfinite* mode);

// Whether `rule` can update rows of `table` with these per-step numbers, which must be finite unless `mode` is kAllow.
absl::Status CheckRule(const Rule& rule, const Table& table, tensorflow::TTypes<float>::ConstFlat hyper,
                       Nonfinite mode);

// Reads input `index` of the kernel as a plan. The view lives as long as the input.
absl::Status ParsePlan(const tensorflow::Tensor& tensor, Plan* plan);

// Feature `feature` of the plan, which must belong to its table `table`.
absl::Status FindFeature(const Plan& plan, int64_t feature, int64_t table, const FeaturePlan** found);

// How many positions of a pooled feature make one row of the output, and how many rows there are.
struct Bags {
  int64_t size;  // in [1, 2^31), also where the bags are empty
  int64_t count;
};
// InvalidArgument if pooled ids have no dimension to pool, or are so many that they cannot be counted. (Ids that hold
// nothing may have dimensions like [0, 2^40].)
absl::Status BagsOf(const FeaturePlan& feature, bool pooled, Bags* bags);

// The shape of the output of a lookup, `width` floats for each position, or bag. InvalidArgument as for BagsOf.
absl::Status EmbeddingsShape(const FeaturePlan& feature, bool pooled, int64_t width, tensorflow::TensorShape* shape);
absl::Status ShapeOf(const FeaturePlan& feature, tensorflow::TensorShape* shape);

// InvalidArgument unless all `values` of the attribute lie in [low, high].
absl::Status CheckAttribute(const char* name, const std::vector<int64_t>& values, int64_t low, int64_t high);
// The bounds of a table's `dim`, as Table::Create has them.
constexpr int64_t kMaxDim = 8192;

// Reads `tensor` as the gradient of what a lookup of `feature` gave: `dim` columns of it from `column` on. A tensor of
// exactly `dim` columns may have any shape.
absl::Status ReadGradient(const tensorflow::Tensor& tensor, const FeaturePlan& feature, int64_t dim, bool pooled,
                          int64_t column, FeatureGradient* gradient);

}  // namespace mxrec
