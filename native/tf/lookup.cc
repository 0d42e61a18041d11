// MxrecLookup: plan -> the rows and handles of its keys, for any number of tables at once (commit and gather).
//
// `anchors` are the tables' anchor variables. The kernel never touches them; they are the inputs through which
// tf.gradients reaches the tables.
//
// `modes` has one entry per table: the op may serve tables that no lookup asks for (their outputs are empty), and a
// training batch may be looked up for evaluation in one of its tables.
#include "table/commit.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/shape_inference.h"
#include "tf/border.h"

namespace mxrec {
namespace {

using tensorflow::OpKernel;
using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;
using tensorflow::Tensor;

REGISTER_OP("MxrecLookup")
    .Input("plan: int64")
    .Input("anchors: T * resource")
    .Output("rows: T * float")
    .Output("handles: T * int64")
    .Attr("T: int >= 1")
    .Attr("tables: list(string) >= 1")
    .Attr("table_in_plan: list(int) >= 1")
    .Attr("dims: list(int) >= 1")
    .Attr("features: list(int) >= 1")  // how many features of the plan read the table
    .Attr("modes: list(int) >= 1")
    .SetIsStateful()
    .SetShapeFn([](tensorflow::shape_inference::InferenceContext* c) {
      std::vector<int64_t> dims;
      TF_RETURN_IF_ERROR(c->GetAttr("dims", &dims));
      const int tables = static_cast<int>(dims.size());
      for (int t = 0; t < tables; ++t) {
        const auto keys = c->UnknownDim();
        c->set_output(t, c->Matrix(keys, dims[t]));
        c->set_output(tables + t, c->Vector(keys));
      }
      return absl::OkStatus();
    });

// Values of `modes`; mx_rec/core/_lookup.py sets them.
enum Mode { kSkip = 0, kRead = 1, kInsert = 2 };

class LookupOp : public OpKernel {
 public:
  explicit LookupOp(OpKernelConstruction* c) : OpKernel(c) {
    OP_REQUIRES_OK(c, c->GetAttr("tables", &tables_));
    OP_REQUIRES_OK(c, c->GetAttr("table_in_plan", &table_in_plan_));
    OP_REQUIRES_OK(c, c->GetAttr("dims", &dims_));
    OP_REQUIRES_OK(c, c->GetAttr("modes", &modes_));
    const size_t count = tables_.size();
    OP_REQUIRES(c, count == table_in_plan_.size() && count == dims_.size() && count == modes_.size(),
                absl::InvalidArgumentError("tables, table_in_plan, dims and modes must have equal lengths"));
  }

  void Compute(OpKernelContext* c) override {
    Plan plan;
    OP_REQUIRES_OK(c, ParsePlan(c->input(0), &plan));
    const int count = static_cast<int>(tables_.size());
    std::vector<std::shared_ptr<Table>> tables(count);
    std::vector<CommitItem> items;
    for (int t = 0; t < count; ++t) {
      Tensor *rows = nullptr, *handles = nullptr;
      if (modes_[t] == kSkip) {
        OP_REQUIRES_OK(c, c->allocate_output(t, {0, dims_[t]}, &rows));
        OP_REQUIRES_OK(c, c->allocate_output(count + t, {0}, &handles));
        continue;
      }
      OP_REQUIRES_OK(c, FindTable(tables_[t], &tables[t]));
      OP_REQUIRES(c, tables[t]->config().dim == dims_[t],
                  absl::FailedPreconditionError("table '" + tables_[t] + "' has dim " +
                                                std::to_string(tables[t]->config().dim) + ", the graph expects " +
                                                std::to_string(dims_[t]) + ": rebuild the graph"));
      OP_REQUIRES_OK(c, ToTensorFlow(plan.CheckTable(table_in_plan_[t], tables_[t], tables[t]->shards())));
      const TablePlan& part = plan.tables()[table_in_plan_[t]];
      OP_REQUIRES_OK(c, c->allocate_output(t, {part.keys_size, dims_[t]}, &rows));
      OP_REQUIRES_OK(c, c->allocate_output(count + t, {part.keys_size}, &handles));
      items.push_back(
          {tables[t].get(), part, handles->flat<int64_t>().data(), rows->flat<float>().data(), modes_[t] == kInsert});
    }
    OP_REQUIRES_OK(c, ToTensorFlow(Commit(items, PoolFor(c))));
  }

 private:
  std::vector<std::string> tables_;
  std::vector<int64_t> table_in_plan_;
  std::vector<int64_t> dims_;
  std::vector<int64_t> modes_;
};

REGISTER_KERNEL_BUILDER(Name("MxrecLookup").Device(tensorflow::DEVICE_CPU), LookupOp);

}  // namespace
}  // namespace mxrec
