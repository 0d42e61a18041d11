#include "tf/border.h"

#include <algorithm>
#include <new>

#include "base/multiply.h"
#include "table/registry.h"
#include "tensorflow/core/framework/resource_mgr.h"
#include "tensorflow/core/platform/threadpool.h"

namespace mxrec {

absl::Status ToTensorFlow(const Status& status) {
  const std::string& m = status.message();
  switch (status.code()) {
    case Status::Code::kOk:
      return absl::OkStatus();
    case Status::Code::kInvalidArgument:
      return absl::InvalidArgumentError(m);
    case Status::Code::kNotFound:
      return absl::NotFoundError(m);
    case Status::Code::kAlreadyExists:
      return absl::AlreadyExistsError(m);
    case Status::Code::kResourceExhausted:
      return absl::ResourceExhaustedError(m);
    case Status::Code::kFailedPrecondition:
      return absl::FailedPreconditionError(m);
    case Status::Code::kDataLoss:
      return absl::DataLossError(m);
    case Status::Code::kIoError:
      // Not Unavailable, which a MonitoredTrainingSession takes for a lost worker: it would begin anew, for ever.
      return absl::UnknownError(m);
    case Status::Code::kOutOfRange:
      return absl::OutOfRangeError(m);
  }
  return absl::InternalError(m);
}

Kernel::Kernel(OpKernelConstruction* construction)
    : OpKernel(construction),
      out_of_memory_(absl::ResourceExhaustedError("out of memory in " + type_string() +
                                                  ": make batches smaller or give the process more memory")) {}

void Kernel::Compute(OpKernelContext* context) {
  try {
    Work(context);
  } catch (const std::bad_alloc&) {
    context->SetStatus(out_of_memory_);
  }
}

void PoolFor::Run(int64_t n, int64_t cost, const Block& fn) const {
  if (n <= 0) return;
  const auto* workers = context_->device()->tensorflow_cpu_worker_threads();
  if (workers == nullptr || workers->workers == nullptr || workers->num_threads <= 1) {
    fn(0, n);
    return;
  }
  // Blocks of about 30 microseconds: short enough that none is long waited for, long enough that taking one costs
  // nothing.
  constexpr int64_t kBlock = 30000;
  const int64_t blocks = std::min<int64_t>(n, std::max<int64_t>(1, n * cost / kBlock));
  if (blocks == 1) {
    fn(0, n);
    return;
  }
  const int helpers = static_cast<int>(std::min<int64_t>(workers->num_threads, blocks) - 1);
  ShareOut(n, blocks, helpers, [&](std::function<void()> work) { workers->workers->Schedule(std::move(work)); }, fn);
}

absl::Status FindTable(const std::string& name, std::shared_ptr<Table>* table) {
  return ToTensorFlow(Registry::Global().Find(name, table));
}

namespace {

// Lies in the container of what a step leaves behind, which TensorFlow empties when the step has ended in any way.
class UseOfStep : public tensorflow::ResourceBase {
 public:
  UseOfStep(std::shared_ptr<Table> table, int64_t use) : table_(std::move(table)), use_(use) {}
  ~UseOfStep() override { table_->EndUse(use_); }
  std::string DebugString() const override { return "rows of table '" + table_->config().name + "' in use"; }

 private:
  const std::shared_ptr<Table> table_;
  const int64_t use_;
};

}  // namespace

absl::Status BeginUse(OpKernelContext* context, const std::shared_ptr<Table>& table, int64_t* use) {
  *use = 0;
  if (table->tier() == nullptr) return absl::OkStatus();
  tensorflow::ScopedStepContainer* container = context->step_container();
  if (container == nullptr) {
    return absl::FailedPreconditionError("table '" + table->config().name +
                                         "' has rows on disk and can only be looked up in a session");
  }
  *use = table->BeginUse();
  // The container owns it, also if it refuses it.
  return container->Create(context->resource_manager(),
                           "mxrec_use/" + table->config().name + "/" + std::to_string(*use),
                           new UseOfStep(table, *use));
}

absl::Status FindRule(const std::string& name, const Rule** rule) {
  *rule = FindRule(name);
  return *rule == nullptr ? absl::InvalidArgumentError("there is no update rule '" + name + "'") : absl::OkStatus();
}

absl::Status ReadNonfinite(OpKernelConstruction* construction, Nonfinite* mode) {
  std::string name;
  TF_RETURN_IF_ERROR(construction->GetAttr("nonfinite", &name));
  return ToTensorFlow(ParseNonfinite(name, mode));
}

absl::Status CheckRule(const Rule& rule, const Table& table, tensorflow::TTypes<float>::ConstFlat hyper,
                       Nonfinite mode) {
  if (hyper.size() != static_cast<int64_t>(rule.hyper.size())) {
    return absl::InvalidArgumentError("rule '" + std::string(rule.name) + "' takes " +
                                      std::to_string(rule.hyper.size()) + " numbers, got " +
                                      std::to_string(hyper.size()));
  }
  const size_t slots = table.layout().slots().size();
  if (rule.slots != static_cast<int>(slots)) {
    return absl::FailedPreconditionError("table '" + table.config().name + "' keeps " + std::to_string(slots) +
                                         " optimizer slots, rule '" + rule.name + "' needs " +
                                         std::to_string(rule.slots) + ": rebuild the graph");
  }
  return mode == Nonfinite::kAllow ? absl::OkStatus() : ToTensorFlow(CheckHyper(rule, hyper.data()));
}

absl::Status ParsePlan(const Tensor& tensor, Plan* plan) {
  const auto words = tensor.flat<int64_t>();
  return ToTensorFlow(Plan::Parse(words.data(), words.size(), plan));
}

absl::Status CheckAttribute(const char* name, const std::vector<int64_t>& values, int64_t low, int64_t high) {
  for (const int64_t value : values) {
    if (value >= low && value <= high) continue;
    return absl::InvalidArgumentError("`" + std::string(name) + "` must be in [" + std::to_string(low) + ", " +
                                      std::to_string(high) + "], got " + std::to_string(value));
  }
  return absl::OkStatus();
}

absl::Status ReadGradient(const Tensor& tensor, const FeaturePlan& feature, int64_t dim, Pooling pooling,
                          int64_t column, FeatureGradient* gradient) {
  Bags bags;
  TF_RETURN_IF_ERROR(ToTensorFlow(BagsOf(feature, pooling, &bags)));
  const bool is_wide = tensor.dims() > 0 && tensor.dim_size(tensor.dims() - 1) > dim;
  const int64_t columns = is_wide ? tensor.dim_size(tensor.dims() - 1) : dim;
  int64_t floats = 0;
  if (!Multiply(bags.count, columns, &floats) || tensor.NumElements() != floats || column < 0 ||
      column > columns - dim) {
    return absl::InvalidArgumentError("the gradient must hold " + std::to_string(bags.count) + " rows of " +
                                      std::to_string(dim) + " floats, got " + tensor.shape().DebugString() +
                                      (column == 0 ? "" : " from column " + std::to_string(column)));
  }
  *gradient = {&feature, tensor.flat<float>().data() + column, columns, Divider(static_cast<uint32_t>(bags.size))};
  return absl::OkStatus();
}

}  // namespace mxrec
