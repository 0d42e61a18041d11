// MxrecAllToAll: deals the rows of a tensor out to the ranks, an equal part to each, and gives the parts that the ranks
// have for this one, in their order.
#include <cstring>

#include "tf/ranked_kernel.h"

namespace mxrec {
namespace {

REGISTER_OP("MxrecAllToAll")
    .Input("value: T")
    .Output("dealt: T")
    .Attr("T: {float, double, int32, int64, bool, half, bfloat16, uint8}")
    .SetIsStateful()
    .SetShapeFn([](InferenceContext* c) {
      c->set_output(0, c->input(0));
      return absl::OkStatus();
    });

class AllToAllOp : public RankedKernel {
 public:
  using RankedKernel::RankedKernel;

 protected:
  const char* first_stage() const override { return "values"; }

  absl::Status Begin(const RunPtr& run) override {
    const Tensor& value = run->context->input(0);
    const int ranks = run->world->size();
    if (value.dims() == 0 || value.dim_size(0) % ranks != 0) {
      return absl::InvalidArgumentError("'" + name() + "': the first axis must be a multiple of the number of ranks, " +
                                        std::to_string(ranks) + ", got shape " + value.shape().DebugString());
    }
    const tensorflow::StringPiece bytes = value.tensor_data();
    const int64_t each = static_cast<int64_t>(bytes.size()) / ranks;
    const uint64_t kind = KindOf(run->context);
    Messages messages;
    for (int r = 0; r < ranks; ++r) {
      messages.push_back(MessageOfKind(kind, each));
      std::memcpy(messages.back().payload() + kKindBytes, bytes.data() + r * each, each);
    }
    Exchange(run, "values", std::move(messages), nullptr, [kind, each](const RunPtr& run, const Messages& all) {
      OpKernelContext* c = run->context;
      Tensor* out = nullptr;
      TF_RETURN_IF_ERROR(c->allocate_output(0, c->input(0).shape(), &out));
      char* to = const_cast<char*>(out->tensor_data().data());
      for (size_t r = 0; r < all.size(); ++r) {
        if (!IsOfKind(all[r], kind, each)) return OtherKind(c, static_cast<int>(r));
        std::memcpy(to + static_cast<int64_t>(r) * each, all[r].payload() + kKindBytes, each);
      }
      return absl::OkStatus();
    });
    return absl::OkStatus();
  }
};

REGISTER_KERNEL_BUILDER(Name("MxrecAllToAll").Device(tensorflow::DEVICE_CPU).Label("ranks"), AllToAllOp);

}  // namespace
}  // namespace mxrec
