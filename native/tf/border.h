// The border between TensorFlow and the core: errors, threads, tables and plans, each converted once.
#pragma once

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "base/parallel.h"
#include "base/status.h"
#include "batch/fold.h"
#include "batch/plan.h"
#include "table/table.h"
#include "tensorflow/core/framework/op_kernel.h"

namespace mxrec {

absl::Status ToTensorFlow(const Status& status);

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

// Whether `rule`, given `hyper_size` numbers, can update rows of `table`.
absl::Status CheckRule(const Rule& rule, const Table& table, int64_t hyper_size);

// Reads input `index` of the kernel as a plan. The view lives as long as the input.
absl::Status ParsePlan(const tensorflow::Tensor& tensor, Plan* plan);

// Feature `feature` of the plan, which must belong to its table `table`.
absl::Status FindFeature(const Plan& plan, int64_t feature, int64_t table, const FeaturePlan** found);

// How many positions of a pooled feature make one row of the output, and how many rows there are.
struct Bags {
  int64_t size;  // at least 1, also where the bags are empty
  int64_t count;
};
Bags BagsOf(const FeaturePlan& feature, bool pooled);

// Reads `tensor` as the gradient of what a lookup of `feature` gave: `dim` columns of it from `column` on. A tensor of
// exactly `dim` columns may have any shape.
absl::Status ReadGradient(const tensorflow::Tensor& tensor, const FeaturePlan& feature, int64_t dim, bool pooled,
                          int64_t column, FeatureGradient* gradient);

}  // namespace mxrec
