// MxrecGroup: turns the plan of a batch that was prepared to be read only into one that can be trained on.
#include "tf/plan_op.h"

namespace mxrec {
namespace {

REGISTER_OP("MxrecGroup")
    .Input("plan: int64")
    .Output("grouped: int64")
    .Attr("tables: list(string) >= 1")
    .SetShapeFn(PlanShape);

class GroupOp : public PlanOp {
 public:
  using PlanOp::PlanOp;

  void Work(OpKernelContext* c) override {
    Plan plan;
    OP_REQUIRES_OK(c, ParsePlan(c->input(0), &plan));
    OP_REQUIRES(c, plan.tables().size() == tables().size(),
                absl::InvalidArgumentError("the plan must hold as many tables as the op names"));
    Ids ids(tables().size());
    for (size_t t = 0; t < tables().size(); ++t) {
      const TablePlan& part = plan.tables()[t];
      OP_REQUIRES_OK(c, ToTensorFlow(plan.CheckTable(static_cast<int64_t>(t), tables()[t], part.shards)));
      OP_REQUIRES(c, !part.is_grouped(), absl::InvalidArgumentError("the plan is grouped already"));
      ids[t].push_back({part.keys, part.keys_size});
    }
    MakePlan(c, plan.features(), ids, plan.times(), true);
  }
};

REGISTER_KERNEL_BUILDER(Name("MxrecGroup").Device(tensorflow::DEVICE_CPU), GroupOp);

}  // namespace
}  // namespace mxrec
