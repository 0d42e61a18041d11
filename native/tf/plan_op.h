// PlanOp: what MxrecPrepare and MxrecGroup have in common: from ids to the plan that they give out.
//
// Neither is stateful, on purpose: the only thing they read from a table is the hints, and these may be out of date. So
// TensorFlow may run them in parallel, ahead, or twice, and a training run gives the same bits.
#pragma once

#include "exchange/world.h"
#include "table/preparer.h"
#include "tf/border.h"

namespace mxrec {

inline absl::Status PlanShape(InferenceContext* c) {
  c->set_output(0, c->Vector(c->UnknownDim()));
  return absl::OkStatus();
}

class PlanOp : public Kernel {
 public:
  // One of several ranks has the rows of a part of the keys, and finds them when all ranks have asked for theirs.
  explicit PlanOp(OpKernelConstruction* c) : Kernel(c), preparer_(World::Current() == nullptr) {
    OP_REQUIRES_OK(c, c->GetAttr("tables", &tables_));
  }

 protected:
  using Ids = Preparer::Ids;
  const std::vector<std::string>& tables() const { return tables_; }

  // REQUIRES: the ids of a table come in the order of its features.
  void MakePlan(OpKernelContext* c, std::vector<FeaturePlan> features, const Ids& ids, TimeSpan times, bool grouped) {
    Preparer::Tables tables(tables_.size());
    for (size_t t = 0; t < tables_.size(); ++t) {
      // Not OP_REQUIRES_OK, which writes to the log: an input pipeline may still run when its tables are freed. Who
      // asks for the batch gets the error.
      const absl::Status found = FindTable(tables_[t], &tables[t]);
      if (!found.ok()) return c->CtxFailure(found);
    }
    absl::Status allocated;
    const auto allocate = [&](int64_t words) {
      Tensor* out = nullptr;
      allocated = c->allocate_output(0, {words}, &out);
      return allocated.ok() ? out->flat<int64_t>().data() : nullptr;
    };
    const Status status = preparer_.Prepare(tables, ids, std::move(features), times, grouped, PoolFor(c), allocate);
    OP_REQUIRES_OK(c, allocated);
    OP_REQUIRES_OK(c, ToTensorFlow(status));
  }

 private:
  std::vector<std::string> tables_;
  Preparer preparer_;
};

}  // namespace mxrec
