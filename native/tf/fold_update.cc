// MxrecFoldUpdate: fold and update for all tables of a plan in one op. What an optimizer builds when nothing stands
// between the gradients of the looked-up embeddings and the rows.
#include "table/fold_update.h"

#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/shape_inference.h"
#include "tf/border.h"

namespace mxrec {
namespace {

using tensorflow::OpInputList;
using tensorflow::OpKernel;
using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;

REGISTER_OP("MxrecFoldUpdate")
    .Input("plan: int64")
    .Input("handles: T * int64")
    .Input("gradients: G * float")
    .Input("hyper: float")
    .Attr("T: int >= 1")
    .Attr("G: int >= 1")
    .Attr("tables: list(string) >= 1")
    .Attr("table_in_plan: list(int) >= 1")
    .Attr("table_of_gradient: list(int) >= 1")    // number among `tables`
    .Attr("feature_of_gradient: list(int) >= 1")  // number among the plan's features
    .Attr("rule: string")
    .SetIsStateful()
    .SetShapeFn([](tensorflow::shape_inference::InferenceContext*) { return absl::OkStatus(); });

class FoldUpdateOp : public OpKernel {
 public:
  explicit FoldUpdateOp(OpKernelConstruction* c) : OpKernel(c) {
    std::string rule;
    OP_REQUIRES_OK(c, c->GetAttr("tables", &tables_));
    OP_REQUIRES_OK(c, c->GetAttr("table_in_plan", &table_in_plan_));
    OP_REQUIRES_OK(c, c->GetAttr("table_of_gradient", &table_of_gradient_));
    OP_REQUIRES_OK(c, c->GetAttr("feature_of_gradient", &feature_of_gradient_));
    OP_REQUIRES_OK(c, c->GetAttr("rule", &rule));
    OP_REQUIRES_OK(c, FindRule(rule, &rule_));
    OP_REQUIRES(c, tables_.size() == table_in_plan_.size() && table_of_gradient_.size() == feature_of_gradient_.size(),
                absl::InvalidArgumentError("lists of tables and of gradients must have equal lengths"));
    for (const int64_t t : table_of_gradient_) {
      OP_REQUIRES(c, t >= 0 && t < static_cast<int64_t>(tables_.size()),
                  absl::InvalidArgumentError("table_of_gradient is out of range"));
    }
  }

  void Compute(OpKernelContext* c) override {
    Plan plan;
    OP_REQUIRES_OK(c, ParsePlan(c->input(0), &plan));
    OpInputList handles, gradients;
    OP_REQUIRES_OK(c, c->input_list("handles", &handles));
    OP_REQUIRES_OK(c, c->input_list("gradients", &gradients));
    const auto hyper = c->input(c->num_inputs() - 1).flat<float>();
    OP_REQUIRES(c,
                handles.size() == static_cast<int>(tables_.size()) &&
                    gradients.size() == static_cast<int>(table_of_gradient_.size()),
                absl::InvalidArgumentError("one handles tensor per table and one gradient per feature are needed"));
    std::vector<std::shared_ptr<Table>> tables(tables_.size());
    std::vector<FoldUpdateItem> items(tables_.size());
    for (size_t t = 0; t < tables_.size(); ++t) {
      OP_REQUIRES_OK(c, FindTable(tables_[t], &tables[t]));
      OP_REQUIRES_OK(c, ToTensorFlow(plan.CheckTable(table_in_plan_[t], tables_[t], tables[t]->shards())));
      OP_REQUIRES_OK(c, CheckRule(*rule_, *tables[t], hyper.size()));
      const TablePlan& part = plan.tables()[table_in_plan_[t]];
      const auto these = handles[t].flat<int64_t>();
      OP_REQUIRES(c, these.size() == part.keys_size,
                  absl::InvalidArgumentError("table '" + tables_[t] + "': one address per key is needed: " +
                                             std::to_string(part.keys_size) + ", got " + std::to_string(these.size())));
      OP_REQUIRES_OK(c, ToTensorFlow(tables[t]->CheckHandles(these.data(), these.size())));
      items[t] = {tables[t].get(), part, these.data(), {}};
    }
    for (size_t g = 0; g < table_of_gradient_.size(); ++g) {
      FoldUpdateItem& item = items[table_of_gradient_[g]];
      const FeaturePlan* feature = nullptr;
      OP_REQUIRES_OK(c, FindFeature(plan, feature_of_gradient_[g], table_in_plan_[table_of_gradient_[g]], &feature));
      OP_REQUIRES(c, gradients[g].NumElements() == feature->size * item.table->config().dim,
                  absl::InvalidArgumentError("the gradient must hold " + std::to_string(feature->size) + " rows of " +
                                             std::to_string(item.table->config().dim) + " floats, got " +
                                             gradients[g].shape().DebugString()));
      item.gradients.push_back({feature, gradients[g].flat<float>().data()});
    }
    for (const FoldUpdateItem& item : items) {
      OP_REQUIRES(c, !item.gradients.empty(), absl::InvalidArgumentError("a table without a gradient"));
    }
    FoldUpdate(items, *rule_, hyper.data(), PoolFor(c));
  }

 private:
  std::vector<std::string> tables_;
  std::vector<int64_t> table_in_plan_;
  std::vector<int64_t> table_of_gradient_;
  std::vector<int64_t> feature_of_gradient_;
  const Rule* rule_ = nullptr;
};

REGISTER_KERNEL_BUILDER(Name("MxrecFoldUpdate").Device(tensorflow::DEVICE_CPU), FoldUpdateOp);

}  // namespace
}  // namespace mxrec
