// MxrecLookup: plan -> the handles of its keys and the embeddings of its features, for any number of tables at once
// (table/lookup.h).
//
// `anchors` are the tables' anchor variables. The kernel never touches them; they are the inputs through which
// tf.gradients reaches the tables.
//
// `modes` has one entry per table, `views` one per feature, `with_rows` one per table: the op may serve tables and
// features that no lookup asks for (their outputs are empty), and a training batch may be looked up for evaluation in
// one of its tables. Features may lie side by side in one output, as tf.concat would put them: that of their leader.
// The rows of the keys are only copied out where a script takes them from the collection of rows. With static shape
// `capacities` say how many keys a batch may bring to each table. `pads` say of each table whether anybody sees its
// padding: in a pooled feature padding keys count for nothing, and where there are only such they get no rows.
#include "table/lookup.h"

#include "exchange/ranked_lookup.h"
#include "tf/border.h"
#include "tf/ranked_kernel.h"

namespace mxrec {
namespace {

REGISTER_OP("MxrecLookup")
    .Input("plan: int64")
    .Input("anchors: T * resource")
    .Output("rows: T * float")
    .Output("handles: T * int64")
    .Output("embeddings: F * float")
    .Attr("T: int >= 1")
    .Attr("F: int >= 1")
    .Attr("tables: list(string) >= 1")
    .Attr("table_in_plan: list(int) >= 1")
    .Attr("dims: list(int) >= 1")
    .Attr("features: list(int) >= 1")  // how many features of the plan read the table
    .Attr("modes: list(int) >= 1")
    .Attr("with_rows: list(int) >= 1")
    .Attr("capacities: list(int) >= 1")        // 0: any number of keys; needs a grouped plan otherwise
    .Attr("pads: list(int) = []")              // whether the table's padding keys get rows; without: they do
    .Attr("table_of_feature: list(int) >= 1")  // number among `tables`
    .Attr("feature_in_plan: list(int) >= 1")
    .Attr("views: list(int) >= 1")
    .Attr("leaders: list(int) >= 1")  // per feature, whose output it is written to
    .Attr("columns: list(int) >= 1")  // and from which column on
    .Attr("grouped: bool")            // whether the plan's tables are; if not, there is a handle per position
    .SetIsStateful()
    .SetShapeFn([](InferenceContext* c) {
      std::vector<int64_t> dims;
      TF_RETURN_IF_ERROR(c->GetAttr("dims", &dims));
      TF_RETURN_IF_ERROR(CheckAttribute("dims", dims, 1, kMaxDim));
      const int tables = static_cast<int>(dims.size());
      if (c->num_inputs() != 1 + tables) {
        return absl::InvalidArgumentError("`dims` must have one entry for each anchor: " +
                                          std::to_string(c->num_inputs() - 1) + ", got " + std::to_string(tables));
      }
      for (int t = 0; t < tables; ++t) {
        const auto keys = c->UnknownDim();
        c->set_output(t, c->Matrix(keys, dims[t]));
        c->set_output(tables + t, c->Vector(keys));
      }
      for (int f = 2 * tables; f < c->num_outputs(); ++f) c->set_output(f, c->UnknownShape());
      return absl::OkStatus();
    });

// Values of `modes` and `views`; mx_rec/_ops/lookup.py sets them.
enum Mode { kSkip = 0, kRead = 1, kInsert = 2 };
enum View { kHidden = 0, kEach = 1, kPooled = 2 };

// What the op was told, and the outputs of a run of it.
class LookupWork {
 public:
  explicit LookupWork(OpKernelConstruction* c) {
    OP_REQUIRES_OK(c, c->GetAttr("tables", &tables_));
    OP_REQUIRES_OK(c, c->GetAttr("table_in_plan", &table_in_plan_));
    OP_REQUIRES_OK(c, c->GetAttr("dims", &dims_));
    OP_REQUIRES_OK(c, c->GetAttr("modes", &modes_));
    OP_REQUIRES_OK(c, c->GetAttr("with_rows", &with_rows_));
    OP_REQUIRES_OK(c, c->GetAttr("capacities", &capacities_));
    OP_REQUIRES_OK(c, c->GetAttr("pads", &pads_));
    if (pads_.empty()) pads_.assign(tables_.size(), 1);
    OP_REQUIRES_OK(c, c->GetAttr("table_of_feature", &table_of_feature_));
    OP_REQUIRES_OK(c, c->GetAttr("feature_in_plan", &feature_in_plan_));
    OP_REQUIRES_OK(c, c->GetAttr("views", &views_));
    OP_REQUIRES_OK(c, c->GetAttr("leaders", &leaders_));
    OP_REQUIRES_OK(c, c->GetAttr("columns", &columns_));
    OP_REQUIRES_OK(c, c->GetAttr("grouped", &grouped_));
    for (const int64_t mode : modes_) {
      OP_REQUIRES(c, grouped_ || mode != kInsert, absl::InvalidArgumentError("a batch that trains must be grouped"));
    }
    for (const int64_t capacity : capacities_) {
      OP_REQUIRES(c, grouped_ || capacity == 0,
                  absl::InvalidArgumentError("a batch whose keys are counted must be grouped"));
    }
    const size_t count = tables_.size();
    OP_REQUIRES(c,
                count == table_in_plan_.size() && count == dims_.size() && count == modes_.size() &&
                    count == with_rows_.size() && count == capacities_.size() && count == pads_.size(),
                absl::InvalidArgumentError(
                    "tables, table_in_plan, dims, modes, with_rows, capacities and pads must have equal lengths"));
    const size_t features = table_of_feature_.size();
    OP_REQUIRES(
        c, c->num_inputs() == static_cast<int>(1 + count) && c->num_outputs() == static_cast<int>(2 * count + features),
        absl::InvalidArgumentError("one anchor per table and one output per feature are needed"));
    OP_REQUIRES_OK(c, CheckAttribute("dims", dims_, 1, kMaxDim));
    OP_REQUIRES_OK(c, CheckAttribute("modes", modes_, kSkip, kInsert));
    OP_REQUIRES_OK(c, CheckAttribute("views", views_, kHidden, kPooled));
    OP_REQUIRES_OK(c, CheckAttribute("capacities", capacities_, 0, INT64_MAX));
    OP_REQUIRES(c,
                features == feature_in_plan_.size() && features == views_.size() && features == leaders_.size() &&
                    features == columns_.size(),
                absl::InvalidArgumentError(
                    "table_of_feature, feature_in_plan, views, leaders and columns must have equal lengths"));
    for (const int64_t t : table_of_feature_) {
      OP_REQUIRES(c, t >= 0 && t < static_cast<int64_t>(count),
                  absl::InvalidArgumentError("table_of_feature is out of range"));
    }
    widths_.assign(features, 0);
    for (size_t f = 0; f < features; ++f) {
      const int64_t leader = leaders_[f];
      OP_REQUIRES(c, leader >= 0 && leader <= static_cast<int64_t>(f) && leaders_[leader] == leader,
                  absl::InvalidArgumentError("a leader must be its group's first feature"));
      widths_[leader] += dims_[table_of_feature_[f]];
    }
    for (size_t f = 0; f < features; ++f) {
      OP_REQUIRES(c, columns_[f] >= 0 && columns_[f] <= widths_[leaders_[f]] - dims_[table_of_feature_[f]],
                  absl::InvalidArgumentError("columns are out of range"));
    }
  }

  bool grouped() const { return grouped_; }

  // One run. The tables live as long as it does.
  struct Outputs {
    Plan plan;
    std::vector<std::shared_ptr<Table>> tables;
    std::vector<LookupTable> lookups;
    std::vector<LookupFeature> features;
  };

  // Whether the plan says that this rank's data have ended.
  static bool HasEnded(OpKernelContext* c) {
    return c->input(0).NumElements() == 1 && c->input(0).flat<int64_t>()(0) == kEndedPlan;
  }

  // Makes all outputs empty, and says which tables there are to answer for.
  absl::Status AllocateNothing(OpKernelContext* c, Outputs* outputs) const {
    const int count = static_cast<int>(tables_.size());
    outputs->tables.resize(count);
    outputs->lookups.resize(count);
    for (int i = 0; i < c->num_outputs(); ++i) {
      Tensor* empty = nullptr;
      TF_RETURN_IF_ERROR(c->allocate_output(i, i < count ? TensorShape({0, dims_[i]}) : TensorShape({0}), &empty));
    }
    for (int t = 0; t < count; ++t) {
      if (modes_[t] == kSkip) continue;
      TF_RETURN_IF_ERROR(FindTable(tables_[t], &outputs->tables[t]));
      outputs->lookups[t] = {outputs->tables[t].get(), table_in_plan_[t], modes_[t] == kInsert, pads_[t] != 0};
      TF_RETURN_IF_ERROR(BeginUse(c, outputs->tables[t], &outputs->lookups[t].use));
    }
    return absl::OkStatus();
  }

  // Every output is there before the first row is: a step that lacks the memory for one inserts and counts nothing.
  absl::Status Allocate(OpKernelContext* c, Outputs* outputs) const {
    Plan& plan = outputs->plan;
    TF_RETURN_IF_ERROR(ParsePlan(c->input(0), &plan));
    const int count = static_cast<int>(tables_.size());
    std::vector<std::shared_ptr<Table>>& tables = outputs->tables;
    std::vector<LookupTable>& lookups = outputs->lookups;
    tables.resize(count);
    lookups.resize(count);
    for (int t = 0; t < count; ++t) {
      const bool is_read = modes_[t] != kSkip;
      if (is_read) {
        TF_RETURN_IF_ERROR(FindTable(tables_[t], &tables[t]));
        if (tables[t]->config().dim != dims_[t]) {
          return absl::FailedPreconditionError("table '" + tables_[t] + "' has dim " +
                                               std::to_string(tables[t]->config().dim) + ", the graph expects " +
                                               std::to_string(dims_[t]) + ": rebuild the graph");
        }
        TF_RETURN_IF_ERROR(ToTensorFlow(plan.CheckTable(table_in_plan_[t], tables_[t], tables[t]->shards())));
      }
      const int64_t keys = is_read ? plan.tables()[table_in_plan_[t]].keys_size : 0;
      const bool with_rows = with_rows_[t] != 0;
      Tensor *rows = nullptr, *handles = nullptr;
      TF_RETURN_IF_ERROR(c->allocate_output(t, {with_rows ? keys : 0, dims_[t]}, &rows));
      TF_RETURN_IF_ERROR(c->allocate_output(count + t, {keys}, &handles));
      if (!is_read) continue;
      lookups[t] = {tables[t].get(), table_in_plan_[t], modes_[t] == kInsert, pads_[t] != 0, capacities_[t]};
      lookups[t].handles = handles->flat<int64_t>().data();
      if (with_rows) lookups[t].rows = rows->flat<float>().data();
      TF_RETURN_IF_ERROR(BeginUse(c, tables[t], &lookups[t].use));
    }
    return AllocateEmbeddings(c, plan, &outputs->features);
  }

 private:
  // Allocates the outputs of all features, and says where in them the embeddings of each go.
  absl::Status AllocateEmbeddings(OpKernelContext* c, const Plan& plan, std::vector<LookupFeature>* features) const {
    std::vector<Tensor*> outputs(views_.size(), nullptr);
    for (size_t f = 0; f < views_.size(); ++f) {
      const int number = static_cast<int>(2 * tables_.size() + f);
      const int64_t t = table_of_feature_[f], leader = leaders_[f];
      const bool is_visible = views_[f] != kHidden && modes_[t] != kSkip, leads = leader == static_cast<int64_t>(f);
      if (!is_visible || !leads) {
        Tensor* empty = nullptr;
        TF_RETURN_IF_ERROR(c->allocate_output(number, {0}, &empty));
        if (!is_visible) continue;
      }
      const FeaturePlan* feature = nullptr;
      TF_RETURN_IF_ERROR(ToTensorFlow(plan.FindFeature(feature_in_plan_[f], table_in_plan_[t], &feature)));
      const Pooling pooling = views_[f] == kPooled ? Pooling::kSum : Pooling::kNone;
      if (pooling == Pooling::kSum && feature->shape.empty()) {
        return absl::InvalidArgumentError("table '" + tables_[t] + "': a combiner needs ids of rank 1 or more");
      }
      Bags bags;
      TF_RETURN_IF_ERROR(ToTensorFlow(BagsOf(*feature, pooling, &bags)));
      std::vector<int64_t> dims = feature->shape;
      if (pooling == Pooling::kSum) dims.pop_back();
      dims.push_back(widths_[leader]);
      TensorShape shape;
      TF_RETURN_IF_ERROR(TensorShape::BuildTensorShape(dims, &shape));
      Tensor*& out = outputs[leader];
      if (leads) TF_RETURN_IF_ERROR(c->allocate_output(number, shape, &out));
      if (out == nullptr) return absl::InvalidArgumentError("a leader must be visible");
      if (out->shape() != shape) {
        return absl::InvalidArgumentError("table '" + tables_[t] + "': embeddings of " + shape.DebugString() +
                                          " cannot be concatenated with others of " + out->shape().DebugString() +
                                          " (both as wide as the whole)");
      }
      features->push_back({t, feature, bags, out->flat<float>().data() + columns_[f], widths_[leader]});
    }
    return absl::OkStatus();
  }

  std::vector<std::string> tables_;
  std::vector<int64_t> table_in_plan_;
  std::vector<int64_t> dims_;
  std::vector<int64_t> modes_;
  std::vector<int64_t> with_rows_;
  std::vector<int64_t> capacities_;
  std::vector<int64_t> pads_;
  std::vector<int64_t> table_of_feature_;
  std::vector<int64_t> feature_in_plan_;
  std::vector<int64_t> views_;
  std::vector<int64_t> leaders_;
  std::vector<int64_t> columns_;
  std::vector<int64_t> widths_;  // of the features' outputs, if they lead
  bool grouped_ = true;
};

class LookupOp : public Kernel {
 public:
  explicit LookupOp(OpKernelConstruction* c) : Kernel(c), work_(c) {}

  void Work(OpKernelContext* c) override {
    LookupWork::Outputs out;
    OP_REQUIRES_OK(c, work_.Allocate(c, &out));
    OP_REQUIRES_OK(c, ToTensorFlow(Lookup(out.plan, work_.grouped(), out.lookups, out.features, PoolFor(c))));
  }

 private:
  const LookupWork work_;
};

// Keys travel to the ranks that own them, and rows back.
class RankedLookupOp : public RankedKernel {
 public:
  explicit RankedLookupOp(OpKernelConstruction* c) : RankedKernel(c), work_(c) {
    OP_REQUIRES(c, work_.grouped(), absl::InvalidArgumentError("a batch of several ranks must be grouped"));
  }

 protected:
  const char* first_stage() const override { return "keys"; }

  absl::Status Begin(const RunPtr& run) override {
    const int rank = run->world->rank(), ranks = run->world->size();
    LookupWork::Outputs out;
    std::shared_ptr<RankedLookup> lookup;
    if (LookupWork::HasEnded(run->context)) {
      TF_RETURN_IF_ERROR(work_.AllocateNothing(run->context, &out));
      lookup = std::make_shared<RankedLookup>(rank, ranks, std::move(out.tables), std::move(out.lookups));
    } else {
      TF_RETURN_IF_ERROR(work_.Allocate(run->context, &out));
      lookup = std::make_shared<RankedLookup>(rank, ranks, std::move(out.plan), std::move(out.tables),
                                              std::move(out.lookups), std::move(out.features));
    }
    Messages requests;
    TF_RETURN_IF_ERROR(ToTensorFlow(lookup->Ask(PoolFor(run->context), &requests)));
    Exchange(run, "keys", std::move(requests), "rows", [this, lookup](const RunPtr& run, Messages requests) {
      Messages answers;
      TF_RETURN_IF_ERROR(
          ToTensorFlow(lookup->Answer(std::move(requests), &preparer_, PoolFor(run->context), &answers)));
      Exchange(run, "rows", std::move(answers), nullptr, [lookup](const RunPtr& run, Messages answers) {
        return ToTensorFlow(lookup->Finish(std::move(answers), PoolFor(run->context)));
      });
      return absl::OkStatus();
    });
    return absl::OkStatus();
  }

 private:
  const LookupWork work_;
  Preparer preparer_{false};  // of the keys that all ranks ask for; the commit that follows at once finds their rows
};

REGISTER_KERNEL_BUILDER(Name("MxrecLookup").Device(tensorflow::DEVICE_CPU), LookupOp);
REGISTER_KERNEL_BUILDER(Name("MxrecLookup").Device(tensorflow::DEVICE_CPU).Label("ranks"), RankedLookupOp);

}  // namespace
}  // namespace mxrec
