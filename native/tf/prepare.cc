// MxrecPrepare: ids -> plan. Runs inside the input pipeline, ahead of the step, or in the step itself.
//
// Not stateful, on purpose: the only thing it reads from a table is the hints, and these may be out of date. So
// TensorFlow may run it in parallel, ahead, or twice, and a training run gives the same bits.
#include <memory>
#include <mutex>

#include "batch/grouping.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/shape_inference.h"
#include "tf/border.h"

namespace mxrec {
namespace {

using tensorflow::OpKernel;
using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;
using tensorflow::Tensor;

REGISTER_OP("MxrecPrepare")
    .Input("ids: F * int64")
    .Output("plan: int64")
    .Attr("F: int >= 1")
    .Attr("tables: list(string) >= 1")
    .Attr("table_of_feature: list(int) >= 1")
    .SetShapeFn([](tensorflow::shape_inference::InferenceContext* c) {
      c->set_output(0, c->Vector(c->UnknownDim()));
      return absl::OkStatus();
    });

class PrepareOp : public OpKernel {
 public:
  explicit PrepareOp(OpKernelConstruction* c) : OpKernel(c) {
    OP_REQUIRES_OK(c, c->GetAttr("tables", &tables_));
    OP_REQUIRES_OK(c, c->GetAttr("table_of_feature", &table_of_feature_));
    for (const int64_t t : table_of_feature_) {
      OP_REQUIRES(c, t >= 0 && t < static_cast<int64_t>(tables_.size()),
                  absl::InvalidArgumentError("table_of_feature is out of range"));
    }
  }

  void Compute(OpKernelContext* c) override {
    OP_REQUIRES(c, c->num_inputs() == static_cast<int>(table_of_feature_.size()),
                absl::InvalidArgumentError("one table_of_feature per ids tensor is needed"));
    std::vector<std::shared_ptr<Table>> tables(tables_.size());
    for (size_t t = 0; t < tables_.size(); ++t) OP_REQUIRES_OK(c, FindTable(tables_[t], &tables[t]));

    std::vector<FeaturePlan> features;
    std::vector<std::vector<IdSpan>> ids(tables_.size());
    std::vector<int64_t> sizes(tables_.size(), 0);
    for (int f = 0; f < c->num_inputs(); ++f) {
      const Tensor& input = c->input(f);
      FeaturePlan feature;
      feature.table = table_of_feature_[f];
      feature.size = input.NumElements();
      for (int d = 0; d < input.dims(); ++d) feature.shape.push_back(input.dim_size(d));
      ids[feature.table].push_back({input.flat<int64_t>().data(), feature.size});
      sizes[feature.table] += feature.size;
      features.push_back(std::move(feature));
    }
    int64_t total = 0;
    for (size_t t = 0; t < tables_.size(); ++t) {
      OP_REQUIRES(c, sizes[t] < INT32_MAX,
                  absl::InvalidArgumentError("table '" + tables_[t] + "': a batch may hold fewer than 2^31 ids, got " +
                                             std::to_string(sizes[t])));
      total += sizes[t];
    }

    const PoolFor pool(c);
    const int64_t count = static_cast<int64_t>(tables_.size());
    std::unique_ptr<Groupings> scratch = TakeScratch();
    Groupings& groupings = *scratch;
    // A small table is the work of one thread; a large one is shared out among all of them. Never one inside the other:
    // a pool's threads must not wait for the pool.
    constexpr int64_t kLarge = 16384;
    const int64_t cost = 1 + total * 20 / count;  // nanoseconds per table
    pool.Run(count, cost, [&](int64_t begin, int64_t end) {
      for (int64_t t = begin; t < end; ++t) {
        if (sizes[t] <= kLarge) groupings[t].Build(ids[t], tables[t]->shard_bits());
      }
    });
    for (int64_t t = 0; t < count; ++t) {
      if (sizes[t] > kLarge) groupings[t].Build(ids[t], tables[t]->shard_bits(), pool);
    }

    std::vector<PlanWriter::Table> parts;
    for (size_t t = 0; t < tables_.size(); ++t) parts.push_back({tables_[t], &groupings[t]});
    const PlanWriter writer(std::move(parts), std::move(features));
    Tensor* plan = nullptr;
    OP_REQUIRES_OK(c, c->allocate_output(0, {writer.words()}, &plan));
    int64_t* words = plan->flat<int64_t>().data();
    writer.Write(words);
    std::vector<int64_t> shards;
    int64_t units = 0;
    for (const auto& table : tables) {
      shards.push_back(table->shards());
      units += table->shards();
    }
    RunLists(pool, shards, 1 + total * 10 / units, [&](size_t t, int64_t shard) {
      const Grouping& g = groupings[t];
      const int32_t from = g.shard_starts()[shard], n = g.shard_starts()[shard + 1] - from;
      writer.seals(words, t)[shard] =
          tables[t]->Hint(static_cast<int>(shard), g.keys().data() + from, n, writer.hints(words, t) + from);
    });
    std::lock_guard<std::mutex> lock(mutex_);
    scratch_.push_back(std::move(scratch));
  }

 private:
  using Groupings = std::vector<Grouping>;

  // Groupings of an earlier batch, whose memory serves again; several batches may be under way at once.
  std::unique_ptr<Groupings> TakeScratch() {
    std::lock_guard<std::mutex> lock(mutex_);
    if (scratch_.empty()) return std::make_unique<Groupings>(tables_.size());
    std::unique_ptr<Groupings> scratch = std::move(scratch_.back());
    scratch_.pop_back();
    return scratch;
  }

  std::vector<std::string> tables_;
  std::vector<int64_t> table_of_feature_;
  std::mutex mutex_;
  std::vector<std::unique_ptr<Groupings>> scratch_;
};

REGISTER_KERNEL_BUILDER(Name("MxrecPrepare").Device(tensorflow::DEVICE_CPU), PrepareOp);

}  // namespace
}  // namespace mxrec
