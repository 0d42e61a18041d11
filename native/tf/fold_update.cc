// MxrecFoldUpdate: fold and update for all tables of a plan in one op. What an optimizer builds when nothing stands
// between the gradients of the looked-up embeddings and the rows.
#include "table/fold_update.h"

#include "batch/plan_check.h"
#include "tf/border.h"

namespace mxrec {
namespace {

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
    .Attr("pooled: list(int) >= 1")               // per gradient: whether its feature was looked up pooled
    .Attr("columns: list(int) >= 1")              // per gradient: its first column in the tensor
    .Attr("rule: string")
    .Attr("nonfinite: {'error', 'skip', 'allow'} = 'error'")  // what becomes of gradients with NaN or infinity
    .SetIsStateful()
    .SetShapeFn([](InferenceContext*) { return absl::OkStatus(); });

class FoldUpdateOp : public Kernel {
 public:
  explicit FoldUpdateOp(OpKernelConstruction* c) : Kernel(c) {
    std::string rule;
    OP_REQUIRES_OK(c, c->GetAttr("tables", &tables_));
    OP_REQUIRES_OK(c, c->GetAttr("table_in_plan", &table_in_plan_));
    OP_REQUIRES_OK(c, c->GetAttr("table_of_gradient", &table_of_gradient_));
    OP_REQUIRES_OK(c, c->GetAttr("feature_of_gradient", &feature_of_gradient_));
    OP_REQUIRES_OK(c, c->GetAttr("pooled", &pooled_));
    OP_REQUIRES_OK(c, c->GetAttr("columns", &columns_));
    OP_REQUIRES_OK(c, c->GetAttr("rule", &rule));
    OP_REQUIRES_OK(c, FindRule(rule, &rule_));
    OP_REQUIRES_OK(c, ReadNonfinite(c, &nonfinite_));
    const size_t gradients = table_of_gradient_.size();
    OP_REQUIRES(c,
                tables_.size() == table_in_plan_.size() && gradients == feature_of_gradient_.size() &&
                    gradients == pooled_.size() && gradients == columns_.size(),
                absl::InvalidArgumentError("lists of tables and of gradients must have equal lengths"));
    for (const int64_t t : table_of_gradient_) {
      OP_REQUIRES(c, t >= 0 && t < static_cast<int64_t>(tables_.size()),
                  absl::InvalidArgumentError("table_of_gradient is out of range"));
    }
  }

  void Work(OpKernelContext* c) override {
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
      OP_REQUIRES_OK(c, CheckRule(*rule_, *tables[t], hyper, nonfinite_));
      const TablePlan& part = plan.tables()[table_in_plan_[t]];
      OP_REQUIRES(c, part.is_grouped(), absl::InvalidArgumentError("a batch that trains must be grouped"));
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
      OP_REQUIRES_OK(
          c, ToTensorFlow(plan.FindFeature(feature_of_gradient_[g], table_in_plan_[table_of_gradient_[g]], &feature)));
      FeatureGradient gradient;
      const Pooling pooling = pooled_[g] != 0 ? Pooling::kSum : Pooling::kNone;
      OP_REQUIRES_OK(c,
                     ReadGradient(gradients[g], *feature, item.table->config().dim, pooling, columns_[g], &gradient));
      item.gradients.push_back(gradient);
    }
    for (const FoldUpdateItem& item : items) {
      OP_REQUIRES(c, !item.gradients.empty(), absl::InvalidArgumentError("a table without a gradient"));
    }
    const PoolFor pool(c);
    std::vector<PlanRead> reads;
    for (const FoldUpdateItem& item : items) reads.push_back({&item.plan, true});
    OP_REQUIRES_OK(c, ToTensorFlow(CheckContents(reads, pool)));
    OP_REQUIRES_OK(c, ToTensorFlow(FoldUpdate(items, *rule_, hyper.data(), nonfinite_, pool)));
  }

 private:
  std::vector<std::string> tables_;
  std::vector<int64_t> table_in_plan_;
  std::vector<int64_t> table_of_gradient_;
  std::vector<int64_t> feature_of_gradient_;
  std::vector<int64_t> pooled_;
  std::vector<int64_t> columns_;
  const Rule* rule_ = nullptr;
  Nonfinite nonfinite_ = Nonfinite::kError;
};

REGISTER_KERNEL_BUILDER(Name("MxrecFoldUpdate").Device(tensorflow::DEVICE_CPU), FoldUpdateOp);

}  // namespace
}  // namespace mxrec
