// MxrecUpdate: applies an optimizer's rule to rows, in place. `handles` and `gradient` rows go together; with
// unique = false the same row may come several times and its gradients are summed first.
#include "exchange/ranked_update.h"
#include "table/update_rows.h"
#include "tf/border.h"
#include "tf/ranked_kernel.h"

namespace mxrec {
namespace {

REGISTER_OP("MxrecUpdate")
    .Input("handles: int64")
    .Input("gradient: float")
    .Input("hyper: float")
    .Attr("table: string")
    .Attr("rule: string")
    .Attr("unique: bool")
    .Attr("nonfinite: {'error', 'skip', 'allow'} = 'error'")  // what becomes of gradients with NaN or infinity
    .SetIsStateful()
    .SetShapeFn([](InferenceContext* c) {
      ShapeHandle unused;
      TF_RETURN_IF_ERROR(c->WithRank(c->input(0), 1, &unused));
      return c->WithRank(c->input(2), 1, &unused);
    });

// What the op was told, and how its inputs are read.
class UpdateWork {
 public:
  explicit UpdateWork(OpKernelConstruction* c) {
    std::string rule;
    OP_REQUIRES_OK(c, c->GetAttr("table", &table_));
    OP_REQUIRES_OK(c, c->GetAttr("rule", &rule));
    OP_REQUIRES_OK(c, c->GetAttr("unique", &unique_));
    OP_REQUIRES_OK(c, FindRule(rule, &rule_));
    OP_REQUIRES_OK(c, ReadNonfinite(c, &nonfinite_));
  }

  const Rule& rule() const { return *rule_; }
  Nonfinite nonfinite() const { return nonfinite_; }
  bool unique() const { return unique_; }

  // Reads and checks everything but the handles.
  absl::Status Read(OpKernelContext* c, std::shared_ptr<Table>* table) const {
    TF_RETURN_IF_ERROR(FindTable(table_, table));
    const Tensor& gradient = c->input(1);
    const int64_t dim = (*table)->config().dim, n = c->input(0).NumElements();
    if (gradient.shape() != TensorShape({n, dim})) {
      return absl::InvalidArgumentError("table '" + table_ + "': " + std::to_string(n) + " addresses need [" +
                                        std::to_string(n) + ", " + std::to_string(dim) + "] gradients, got " +
                                        gradient.shape().DebugString());
    }
    return CheckRule(*rule_, **table, c->input(2).flat<float>(), nonfinite_);
  }

 private:
  std::string table_;
  const Rule* rule_ = nullptr;
  Nonfinite nonfinite_ = Nonfinite::kError;
  bool unique_ = true;
};

class UpdateOp : public Kernel {
 public:
  explicit UpdateOp(OpKernelConstruction* c) : Kernel(c), work_(c) {}

  void Work(OpKernelContext* c) override {
    std::shared_ptr<Table> table;
    OP_REQUIRES_OK(c, work_.Read(c, &table));
    const auto handles = c->input(0).flat<int64_t>();
    OP_REQUIRES_OK(c, ToTensorFlow(table->CheckHandles(handles.data(), handles.size())));
    const auto update = work_.unique() ? UpdateRows : UpdateRepeatedRows;
    OP_REQUIRES_OK(
        c, ToTensorFlow(update(table.get(), work_.rule(), c->input(2).flat<float>().data(), handles.data(),
                               c->input(1).flat<float>().data(), handles.size(), work_.nonfinite(), PoolFor(c))));
  }

 private:
  const UpdateWork work_;
};

// Gradients travel to the ranks that own the rows.
class RankedUpdateOp : public RankedKernel {
 public:
  explicit RankedUpdateOp(OpKernelConstruction* c) : RankedKernel(c), work_(c) {}

 protected:
  const char* first_stage() const override { return "gradients"; }

  absl::Status Begin(const RunPtr& run) override {
    OpKernelContext* c = run->context;
    std::shared_ptr<Table> table;
    TF_RETURN_IF_ERROR(work_.Read(c, &table));
    RankedGradients gradients{table.get(), table->gradient_scale()};
    gradients.rows = c->input(1).flat<float>().data();
    gradients.handles = c->input(0).flat<int64_t>().data();
    gradients.count = c->input(0).NumElements();
    Messages messages;
    TF_RETURN_IF_ERROR(ToTensorFlow(
        SendGradients({gradients}, run->world->rank(), run->world->size(), work_.nonfinite(), PoolFor(c), &messages)));
    Exchange(
        run, "gradients", std::move(messages), nullptr, [this, table](const RunPtr& run, const Messages& messages) {
          const float* hyper = run->context->input(2).flat<float>().data();
          return ToTensorFlow(
              ApplyGradients({table.get()}, messages, work_.rule(), hyper, work_.nonfinite(), PoolFor(run->context)));
        });
    return absl::OkStatus();
  }

 private:
  const UpdateWork work_;
};

REGISTER_KERNEL_BUILDER(Name("MxrecUpdate").Device(tensorflow::DEVICE_CPU), UpdateOp);
REGISTER_KERNEL_BUILDER(Name("MxrecUpdate").Device(tensorflow::DEVICE_CPU).Label("ranks"), RankedUpdateOp);

}  // namespace
}  // namespace mxrec
