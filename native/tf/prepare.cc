// MxrecPrepare: ids -> plan. Runs inside the input pipeline, ahead of the step, or in the step itself. MxrecGroup: the
// plan of a batch that was prepared to be read only -> one that can be trained on.
//
// Not stateful, on purpose: the only thing they read from a table is the hints, and these may be out of date. So
// TensorFlow may run them in parallel, ahead, or twice, and a training run gives the same bits.
#include <memory>
#include <mutex>

#include "batch/grouping.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/shape_inference.h"
#include "tf/border.h"

namespace mxrec {
namespace {

using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;
using tensorflow::Tensor;

absl::Status PlanShape(tensorflow::shape_inference::InferenceContext* c) {
  c->set_output(0, c->Vector(c->UnknownDim()));
  return absl::OkStatus();
}

REGISTER_OP("MxrecPrepare")
    .Input("ids: F * int64")
    .Input("times: N * int64")  // of the batch's samples: none, or one tensor of one time for all or one for each
    .Output("plan: int64")
    .Attr("F: int >= 1")
    .Attr("N: int >= 0")
    .Attr("tables: list(string) >= 1")
    .Attr("table_of_feature: list(int) >= 1")
    .Attr("grouped: bool")
    .SetShapeFn(PlanShape);

REGISTER_OP("MxrecGroup")
    .Input("plan: int64")
    .Output("grouped: int64")
    .Attr("tables: list(string) >= 1")
    .SetShapeFn(PlanShape);

// What both kernels share: from ids to the plan that they give out.
class PlanOp : public Kernel {
 public:
  explicit PlanOp(OpKernelConstruction* c) : Kernel(c) { OP_REQUIRES_OK(c, c->GetAttr("tables", &tables_)); }

 protected:
  using Ids = std::vector<std::vector<IdSpan>>;  // of each table
  const std::vector<std::string>& tables() const { return tables_; }

  // REQUIRES: the ids of a table come in the order of its features.
  void MakePlan(OpKernelContext* c, std::vector<FeaturePlan> features, const Ids& ids, TimeSpan times, bool grouped) {
    std::vector<std::shared_ptr<Table>> tables(tables_.size());
    std::vector<int64_t> sizes(tables_.size(), 0);
    int64_t total = 0;
    for (size_t t = 0; t < tables_.size(); ++t) {
      // Not OP_REQUIRES_OK, which writes to the log: an input pipeline may still run when its tables are freed. Who
      // asks for the batch gets the error.
      const absl::Status found = FindTable(tables_[t], &tables[t]);
      if (!found.ok()) return c->CtxFailure(found);
      for (const IdSpan& span : ids[t]) sizes[t] += span.size;
      OP_REQUIRES(c, sizes[t] < INT32_MAX,
                  absl::InvalidArgumentError("table '" + tables_[t] + "': a batch may hold fewer than 2^31 ids, got " +
                                             std::to_string(sizes[t])));
      total += sizes[t];
    }

    const PoolFor pool(c);
    std::unique_ptr<Groupings> scratch = TakeScratch();
    Groupings& groupings = *scratch;
    if (grouped) Group(tables, ids, sizes, total, pool, &groupings);

    std::vector<PlanWriter::Table> parts;
    for (size_t t = 0; t < tables_.size(); ++t) {
      if (grouped) {
        parts.push_back({tables_[t], &groupings[t], {}});
      } else {
        parts.push_back({tables_[t], nullptr, ids[t]});
      }
    }
    const PlanWriter writer(std::move(parts), std::move(features), times);
    Tensor* out = nullptr;
    OP_REQUIRES_OK(c, c->allocate_output(0, {writer.words()}, &out));
    int64_t* words = out->flat<int64_t>().data();
    writer.Write(words);
    Plan plan;
    OP_REQUIRES_OK(c, ParsePlan(*out, &plan));
    std::vector<int64_t> units;
    int64_t all_units = 1;
    for (const TablePlan& part : plan.tables()) {
      units.push_back(part.units());
      all_units += part.units();
    }
    RunLists(pool, units, 1 + total * 10 / all_units, [&](size_t t, int64_t unit) {
      const TablePlan& part = plan.tables()[t];
      const int64_t from = part.unit_begin(unit), n = part.unit_end(unit) - from;
      int64_t* hints = writer.hints(words, t) + from;
      writer.seals(words, t)[unit] = grouped ? tables[t]->Hint(static_cast<int>(unit), part.keys + from, n, hints)
                                             : tables[t]->HintAny(part.keys + from, n, hints);
    });
    std::lock_guard<std::mutex> lock(mutex_);
    scratch_.push_back(std::move(scratch));
  }

 private:
  using Groupings = std::vector<Grouping>;

  void Group(const std::vector<std::shared_ptr<Table>>& tables, const Ids& ids, const std::vector<int64_t>& sizes,
             int64_t total, const PoolFor& pool, Groupings* groupings) const {
    // A small table is the work of one thread; a large one is shared out among all of them. Never one inside the other:
    // a pool's threads must not wait for the pool.
    constexpr int64_t kLarge = 16384;
    const int64_t count = static_cast<int64_t>(tables.size());
    const int64_t cost = 1 + total * 20 / count;  // nanoseconds per table
    pool.Run(count, cost, [&](int64_t begin, int64_t end) {
      for (int64_t t = begin; t < end; ++t) {
        if (sizes[t] <= kLarge) (*groupings)[t].Build(ids[t], tables[t]->shard_bits());
      }
    });
    for (int64_t t = 0; t < count; ++t) {
      if (sizes[t] > kLarge) (*groupings)[t].Build(ids[t], tables[t]->shard_bits(), pool);
    }
  }

  // Groupings of an earlier batch, whose memory serves again; several batches may be under way at once.
  std::unique_ptr<Groupings> TakeScratch() {
    std::lock_guard<std::mutex> lock(mutex_);
    if (scratch_.empty()) return std::make_unique<Groupings>(tables_.size());
    std::unique_ptr<Groupings> scratch = std::move(scratch_.back());
    scratch_.pop_back();
    return scratch;
  }

  std::vector<std::string> tables_;
  std::mutex mutex_;
  std::vector<std::unique_ptr<Groupings>> scratch_;
};

class PrepareOp : public PlanOp {
 public:
  explicit PrepareOp(OpKernelConstruction* c) : PlanOp(c) {
    OP_REQUIRES_OK(c, c->GetAttr("table_of_feature", &table_of_feature_));
    OP_REQUIRES_OK(c, c->GetAttr("grouped", &grouped_));
    for (const int64_t t : table_of_feature_) {
      OP_REQUIRES(c, t >= 0 && t < static_cast<int64_t>(tables().size()),
                  absl::InvalidArgumentError("table_of_feature is out of range"));
    }
  }

  void Work(OpKernelContext* c) override {
    const int features_size = static_cast<int>(table_of_feature_.size());
    OP_REQUIRES(c, c->num_inputs() == features_size || c->num_inputs() == features_size + 1,
                absl::InvalidArgumentError("one table_of_feature per ids tensor, and at most one tensor of times"));
    std::vector<FeaturePlan> features;
    Ids ids(tables().size());
    for (int f = 0; f < features_size; ++f) {
      const Tensor& input = c->input(f);
      FeaturePlan feature;
      feature.table = table_of_feature_[f];
      feature.size = input.NumElements();
      for (int d = 0; d < input.dims(); ++d) feature.shape.push_back(input.dim_size(d));
      ids[feature.table].push_back({input.flat<int64_t>().data(), feature.size});
      features.push_back(std::move(feature));
    }
    TimeSpan times;
    if (c->num_inputs() > features_size) {
      const auto input = c->input(features_size).flat<int64_t>();
      times = {input.data(), input.size()};
    }
    MakePlan(c, std::move(features), ids, times, grouped_);
  }

 private:
  std::vector<int64_t> table_of_feature_;
  bool grouped_ = true;
};

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

REGISTER_KERNEL_BUILDER(Name("MxrecPrepare").Device(tensorflow::DEVICE_CPU), PrepareOp);
REGISTER_KERNEL_BUILDER(Name("MxrecGroup").Device(tensorflow::DEVICE_CPU), GroupOp);

}  // namespace
}  // namespace mxrec
