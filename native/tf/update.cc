// MxrecUpdate: applies an optimizer's rule to rows, in place. `handles` and `gradient` rows go together; with
// unique = false the same row may come several times and its gradients are summed first.
#include "batch/fold.h"
#include "batch/grouping.h"
#include "table/update_rows.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/shape_inference.h"
#include "tf/border.h"

namespace mxrec {
namespace {

using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;
using tensorflow::Tensor;

REGISTER_OP("MxrecUpdate")
    .Input("handles: int64")
    .Input("gradient: float")
    .Input("hyper: float")
    .Attr("table: string")
    .Attr("rule: string")
    .Attr("unique: bool")
    .Attr("nonfinite: {'error', 'skip', 'allow'} = 'error'")  // what becomes of gradients with NaN or infinity
    .SetIsStateful()
    .SetShapeFn([](tensorflow::shape_inference::InferenceContext* c) {
      tensorflow::shape_inference::ShapeHandle unused;
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
    OP_REQUIRES(c, gradient.shape() == tensorflow::TensorShape({n, dim}),
                absl::InvalidArgumentError("table '" + table_ + "': " + std::to_string(n) + " addresses need [" +
                                           std::to_string(n) + ", " + std::to_string(dim) + "] gradients, got " +
                                           gradient.shape().DebugString()));
    OP_REQUIRES_OK(c, CheckRule(*rule_, *table, hyper, nonfinite_));
    OP_REQUIRES_OK(c, ToTensorFlow(table->CheckHandles(handles.data(), n)));
    const PoolFor pool(c);
    const float* gradients = gradient.flat<float>().data();
    if (unique_) {
      const Status status =
          UpdateRows(table.get(), *rule_, hyper.data(), handles.data(), gradients, n, nonfinite_, pool);
      OP_REQUIRES_OK(c, ToTensorFlow(status));
      return;
    }
    Grouping grouping;
    OP_REQUIRES(c, n < INT32_MAX, absl::InvalidArgumentError("too many gradients in one step"));
    // Addresses of one row may differ in their tags.
    std::vector<int64_t> rows_of(handles.data(), handles.data() + n);
    for (int64_t& handle : rows_of) handle = handle == kNoRow ? kNoRow : handle & (kFrozen | kRowBits);
    grouping.Build({{rows_of.data(), n}}, 0);
    const int64_t rows = grouping.keys_size();
    std::vector<float> sums(rows * dim);
    TablePlan groups;
    groups.shards = 1;
    groups.positions_size = n;
    groups.keys_size = rows;
    groups.offsets = grouping.offsets().data();
    groups.positions = grouping.positions().data();
    FeaturePlan everything;
    everything.size = n;
    Fold(groups, {&everything, gradients, dim}, dim, sums.data(), pool);
    std::vector<int32_t> firsts(rows);
    for (int64_t r = 0; r < rows; ++r) firsts[r] = groups.positions[groups.offsets[r]];
    const Status status = UpdateRows(table.get(), *rule_, hyper.data(), grouping.keys().data(), sums.data(), rows,
                                     nonfinite_, pool, firsts.data());
    OP_REQUIRES_OK(c, ToTensorFlow(status));
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
