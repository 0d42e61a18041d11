// Ops that scripts run beside the training step: MxrecSetThreshold changes a table's admission while it trains,
// MxrecTimestamp tells the time of the machine, for data that carry none.
#include <chrono>

#include "table/registry.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/shape_inference.h"
#include "tf/border.h"

namespace mxrec {
namespace {

using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;
using tensorflow::Tensor;

absl::Status ScalarShape(tensorflow::shape_inference::InferenceContext* c) {
  c->set_output(0, c->Scalar());
  return absl::OkStatus();
}

REGISTER_OP("MxrecSetThreshold")
    .Input("value: int32")
    .Output("tables: int32")  // how many were changed
    .Attr("table: string")    // empty: all that count their keys
    .SetIsStateful()
    .SetShapeFn(ScalarShape);

REGISTER_OP("MxrecTimestamp").Input("any: int64").Output("seconds: int64").SetIsStateful().SetShapeFn(ScalarShape);

class SetThresholdOp : public Kernel {
 public:
  explicit SetThresholdOp(OpKernelConstruction* c) : Kernel(c) { OP_REQUIRES_OK(c, c->GetAttr("table", &table_)); }

  void Work(OpKernelContext* c) override {
    OP_REQUIRES(c, c->input(0).NumElements() == 1,
                absl::InvalidArgumentError("set_threshold: the threshold must be one number, got shape " +
                                           c->input(0).shape().DebugString()));
    const int32_t value = c->input(0).flat<int32_t>()(0);
    OP_REQUIRES(c, value >= 0,
                absl::InvalidArgumentError("set_threshold: the threshold must not be negative, got " +
                                           std::to_string(value) + "; 0 lets every key in"));
    int32_t changed = 0;
    for (const std::string& name : table_.empty() ? Registry::Global().Names() : std::vector<std::string>{table_}) {
      std::shared_ptr<Table> table;
      const Status found = Registry::Global().Find(name, &table);
      OP_REQUIRES(c, found.ok(), absl::InvalidArgumentError("set_threshold: " + found.message()));
      History* history = table->history();
      if (history == nullptr && table_.empty()) continue;
      OP_REQUIRES(
          c, history != nullptr,
          absl::InvalidArgumentError("set_threshold: table '" + name +
                                     "' does not count its keys; give it an access_threshold when the graph is built"));
      Tracking tracking = history->tracking();
      tracking.access_threshold = value;
      const Status status = CheckTracking(tracking, name);
      OP_REQUIRES(c, status.ok(), absl::InvalidArgumentError("set_threshold: " + status.message()));
      history->SetThresholds(value, tracking.eviction_threshold, tracking.coefficient);
      ++changed;
    }
    Tensor* out = nullptr;
    OP_REQUIRES_OK(c, c->allocate_output(0, {}, &out));
    out->scalar<int32_t>()() = changed;
  }

 private:
  std::string table_;
};

class TimestampOp : public Kernel {
 public:
  using Kernel::Kernel;

  void Work(OpKernelContext* c) override {
    const auto now = std::chrono::system_clock::now().time_since_epoch();
    Tensor* out = nullptr;
    OP_REQUIRES_OK(c, c->allocate_output(0, {}, &out));
    out->scalar<int64_t>()() = std::chrono::duration_cast<std::chrono::seconds>(now).count();
  }
};

REGISTER_KERNEL_BUILDER(Name("MxrecSetThreshold").Device(tensorflow::DEVICE_CPU), SetThresholdOp);
REGISTER_KERNEL_BUILDER(Name("MxrecTimestamp").Device(tensorflow::DEVICE_CPU), TimestampOp);

}  // namespace
}  // namespace mxrec
