// MxrecUpdate: applies an optimizer's rule to rows, in place. `handles` and `gradient` rows go together; with
// unique = false the same row may come several times and its gradients are summed first.
#include "table/update_rows.h"
#include "tf/border.h"

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

class UpdateOp : public Kernel {
 public:
  explicit UpdateOp(OpKernelConstruction* c) : Kernel(c) {
    std::string rule;
    OP_REQUIRES_OK(c, c->GetAttr("table", &table_));
    OP_REQUIRES_OK(c, c->GetAttr("rule", &rule));
    OP_REQUIRES_OK(c, c->GetAttr("unique", &unique_));
    OP_REQUIRES_OK(c, FindRule(rule, &rule_));
    OP_REQUIRES_OK(c, ReadNonfinite(c, &nonfinite_));
  }

  void Work(OpKernelContext* c) override {
    std::shared_ptr<Table> table;
    OP_REQUIRES_OK(c, FindTable(table_, &table));
    const auto handles = c->input(0).flat<int64_t>();
    const Tensor& gradient = c->input(1);
    const auto hyper = c->input(2).flat<float>();
    const int64_t dim = table->config().dim, n = handles.size();
    OP_REQUIRES(c, gradient.shape() == TensorShape({n, dim}),
                absl::InvalidArgumentError("table '" + table_ + "': " + std::to_string(n) + " addresses need [" +
                                           std::to_string(n) + ", " + std::to_string(dim) + "] gradients, got " +
                                           gradient.shape().DebugString()));
    OP_REQUIRES_OK(c, CheckRule(*rule_, *table, hyper, nonfinite_));
    OP_REQUIRES_OK(c, ToTensorFlow(table->CheckHandles(handles.data(), n)));
    const auto update = unique_ ? UpdateRows : UpdateRepeatedRows;
    OP_REQUIRES_OK(c, ToTensorFlow(update(table.get(), *rule_, hyper.data(), handles.data(),
                                          gradient.flat<float>().data(), n, nonfinite_, PoolFor(c))));
  }

 private:
  std::string table_;
  const Rule* rule_ = nullptr;
  Nonfinite nonfinite_ = Nonfinite::kError;
  bool unique_ = true;
};

REGISTER_KERNEL_BUILDER(Name("MxrecUpdate").Device(tensorflow::DEVICE_CPU), UpdateOp);

}  // namespace
}  // namespace mxrec
