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

#include "tf/border.h"

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

class LookupOp : public Kernel {
 public:
  explicit LookupOp(OpKernelConstruction* c) : Kernel(c) {
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

  void Work(OpKernelContext* c) override {
    Plan plan;
    OP_REQUIRES_OK(c, ParsePlan(c->input(0), &plan));
    // Every output is there before the first row is: a step that lacks the memory for one inserts and counts nothing.
    const int count = static_cast<int>(tables_.size());
    std::vector<std::shared_ptr<Table>> tables(count);
    std::vector<LookupTable> lookups(count);
    for (int t = 0; t < count; ++t) {
      const bool is_read = modes_[t] != kSkip;
      if (is_read) {
        OP_REQUIRES_OK(c, FindTable(tables_[t], &tables[t]));
        OP_REQUIRES(c, tables[t]->config().dim == dims_[t],
                    absl::FailedPreconditionError("table '" + tables_[t] + "' has dim " +
                                                  std::to_string(tables[t]->config().dim) + ", the graph expects " +
                                                  std::to_string(dims_[t]) + ": rebuild the graph"));
        OP_REQUIRES_OK(c, ToTensorFlow(plan.CheckTable(table_in_plan_[t], tables_[t], tables[t]->shards())));
      }
      const int64_t keys = is_read ? plan.tables()[table_in_plan_[t]].keys_size : 0;
      const bool with_rows = with_rows_[t] != 0;
      Tensor *rows = nullptr, *handles = nullptr;
      OP_REQUIRES_OK(c, c->allocate_output(t, {with_rows ? keys : 0, dims_[t]}, &rows));
      OP_REQUIRES_OK(c, c->allocate_output(count + t, {keys}, &handles));
      if (!is_read) continue;
      lookups[t] = {tables[t].get(), table_in_plan_[t], modes_[t] == kInsert, pads_[t] != 0, capacities_[t]};
      lookups[t].handles = handles->flat<int64_t>().data();
      if (with_rows) lookups[t].rows = rows->flat<float>().data();
      OP_REQUIRES_OK(c, BeginUse(c, tables[t], &lookups[t].use));
    }
    std::vector<LookupFeature> features;
    OP_REQUIRES_OK(c, AllocateEmbeddings(c, plan, &features));
    OP_REQUIRES_OK(c, ToTensorFlow(Lookup(plan, grouped_, lookups, features, PoolFor(c))));
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

REGISTER_KERNEL_BUILDER(Name("MxrecLookup").Device(tensorflow::DEVICE_CPU), LookupOp);

}  // namespace
}  // namespace mxrec
