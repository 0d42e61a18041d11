// MxrecFoldUpdate: fold and update for all tables of a plan in one op. What an optimizer builds when nothing stands
// between the gradients of the looked-up embeddings and the rows.
#include "table/fold_update.h"

#include "batch/plan_check.h"
#include "exchange/ranked_update.h"
#include "tf/border.h"
#include "tf/ranked_kernel.h"

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

// What the op was told, and how its inputs are read.
class FoldUpdateWork {
 public:
  explicit FoldUpdateWork(OpKernelConstruction* c) {
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

  const Rule& rule() const { return *rule_; }
  Nonfinite nonfinite() const { return nonfinite_; }

  // One run. The tables live as long as it does.
  struct Inputs {
    Plan plan;
    std::vector<std::shared_ptr<Table>> tables;
    std::vector<FoldUpdateItem> items;
    const float* hyper = nullptr;
  };

  // Reads and checks everything but the handles.
  absl::Status Read(OpKernelContext* c, Inputs* inputs) const {
    Plan& plan = inputs->plan;
    TF_RETURN_IF_ERROR(ParsePlan(c->input(0), &plan));
    OpInputList handles, gradients;
    TF_RETURN_IF_ERROR(c->input_list("handles", &handles));
    TF_RETURN_IF_ERROR(c->input_list("gradients", &gradients));
    const auto hyper = c->input(c->num_inputs() - 1).flat<float>();
    inputs->hyper = hyper.data();
    if (handles.size() != static_cast<int>(tables_.size()) ||
        gradients.size() != static_cast<int>(table_of_gradient_.size())) {
      return absl::InvalidArgumentError("one handles tensor per table and one gradient per feature are needed");
    }
    std::vector<std::shared_ptr<Table>>& tables = inputs->tables;
    std::vector<FoldUpdateItem>& items = inputs->items;
    tables.resize(tables_.size());
    items.resize(tables_.size());
    for (size_t t = 0; t < tables_.size(); ++t) {
      TF_RETURN_IF_ERROR(FindTable(tables_[t], &tables[t]));
      TF_RETURN_IF_ERROR(ToTensorFlow(plan.CheckTable(table_in_plan_[t], tables_[t], tables[t]->shards())));
      TF_RETURN_IF_ERROR(CheckRule(*rule_, *tables[t], hyper, nonfinite_));
      const TablePlan& part = plan.tables()[table_in_plan_[t]];
      if (!part.is_grouped()) return absl::InvalidArgumentError("a batch that trains must be grouped");
      const auto these = handles[t].flat<int64_t>();
      if (these.size() != part.keys_size) {
        return absl::InvalidArgumentError("table '" + tables_[t] + "': one address per key is needed: " +
                                          std::to_string(part.keys_size) + ", got " + std::to_string(these.size()));
      }
      items[t] = {tables[t].get(), part, these.data(), {}};
    }
    for (size_t g = 0; g < table_of_gradient_.size(); ++g) {
      FoldUpdateItem& item = items[table_of_gradient_[g]];
      const FeaturePlan* feature = nullptr;
      TF_RETURN_IF_ERROR(
          ToTensorFlow(plan.FindFeature(feature_of_gradient_[g], table_in_plan_[table_of_gradient_[g]], &feature)));
      FeatureGradient gradient;
      const Pooling pooling = pooled_[g] != 0 ? Pooling::kSum : Pooling::kNone;
      TF_RETURN_IF_ERROR(
          ReadGradient(gradients[g], *feature, item.table->config().dim, pooling, columns_[g], &gradient));
      item.gradients.push_back(gradient);
    }
    std::vector<PlanRead> reads;
    for (const FoldUpdateItem& item : items) {
      if (item.gradients.empty()) return absl::InvalidArgumentError("a table without a gradient");
      reads.push_back({&item.plan, true});
    }
    return ToTensorFlow(CheckContents(reads, PoolFor(c)));
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

class FoldUpdateOp : public Kernel {
 public:
  explicit FoldUpdateOp(OpKernelConstruction* c) : Kernel(c), work_(c) {}

  void Work(OpKernelContext* c) override {
    FoldUpdateWork::Inputs in;
    OP_REQUIRES_OK(c, work_.Read(c, &in));
    for (const FoldUpdateItem& item : in.items) {
      OP_REQUIRES_OK(c, ToTensorFlow(item.table->CheckHandles(item.handles, item.plan.keys_size)));
    }
    OP_REQUIRES_OK(c, ToTensorFlow(FoldUpdate(in.items, work_.rule(), in.hyper, work_.nonfinite(), PoolFor(c))));
  }

 private:
  const FoldUpdateWork work_;
};

// Gradients travel to the ranks that own the rows.
class RankedFoldUpdateOp : public RankedKernel {
 public:
  explicit RankedFoldUpdateOp(OpKernelConstruction* c) : RankedKernel(c), work_(c) {}

 protected:
  const char* first_stage() const override { return "gradients"; }

  absl::Status Begin(const RunPtr& run) override {
    const auto in = std::make_shared<FoldUpdateWork::Inputs>();
    TF_RETURN_IF_ERROR(work_.Read(run->context, in.get()));
    std::vector<RankedGradients> gradients;
    for (FoldUpdateItem& item : in->items) {
      RankedGradients one{item.table, item.table->gradient_scale()};
      one.item = std::move(item);
      gradients.push_back(std::move(one));
    }
    Messages messages;
    TF_RETURN_IF_ERROR(ToTensorFlow(SendGradients(gradients, run->world->rank(), run->world->size(), work_.nonfinite(),
                                                  PoolFor(run->context), &messages)));
    Exchange(run, "gradients", std::move(messages), nullptr, [this, in](const RunPtr& run, const Messages& messages) {
      std::vector<Table*> tables;
      for (const auto& table : in->tables) tables.push_back(table.get());
      return ToTensorFlow(
          ApplyGradients(tables, messages, work_.rule(), in->hyper, work_.nonfinite(), PoolFor(run->context)));
    });
    return absl::OkStatus();
  }

 private:
  const FoldUpdateWork work_;
};

REGISTER_KERNEL_BUILDER(Name("MxrecFoldUpdate").Device(tensorflow::DEVICE_CPU), FoldUpdateOp);
REGISTER_KERNEL_BUILDER(Name("MxrecFoldUpdate").Device(tensorflow::DEVICE_CPU).Label("ranks"), RankedFoldUpdateOp);

}  // namespace
}  // namespace mxrec
