// MxrecBroadcast: the tensors of one rank, on every rank, in one exchange. All ranks must give tensors of the same
// types and shapes.
#include <cstring>

#include "tf/ranked_kernel.h"

namespace mxrec {
namespace {

REGISTER_OP("MxrecBroadcast")
    .Input("values: T")
    .Output("of_root: T")
    .Attr("T: list({float, double, int32, int64, bool, half, bfloat16, uint8}) >= 1")
    .Attr("root: int >= 0")
    .SetIsStateful()
    .SetShapeFn([](InferenceContext* c) {
      for (int i = 0; i < c->num_inputs(); ++i) c->set_output(i, c->input(i));
      return absl::OkStatus();
    });

class BroadcastOp : public RankedKernel {
 public:
  explicit BroadcastOp(OpKernelConstruction* c) : RankedKernel(c) { OP_REQUIRES_OK(c, c->GetAttr("root", &root_)); }

 protected:
  const char* first_stage() const override { return "values"; }

  absl::Status Begin(const RunPtr& run) override {
    OpKernelContext* c = run->context;
    if (root_ >= run->world->size()) {
      return absl::InvalidArgumentError("there is no rank " + std::to_string(root_) + " to broadcast from");
    }
    int64_t bytes = 0;
    for (int i = 0; i < c->num_inputs(); ++i) bytes += static_cast<int64_t>(c->input(i).tensor_data().size());
    const uint64_t kind = KindOf(c);
    Messages messages;
    for (int r = 0; r < run->world->size(); ++r) {
      messages.push_back(MessageOfKind(kind, run->world->rank() == root_ ? bytes : 0));
      char* to = messages.back().payload() + kKindBytes;
      for (int i = 0; run->world->rank() == root_ && i < c->num_inputs(); ++i) {
        const tensorflow::StringPiece from = c->input(i).tensor_data();
        std::memcpy(to, from.data(), from.size());
        to += from.size();
      }
    }
    Exchange(run, "values", std::move(messages), nullptr, [this, kind, bytes](const RunPtr& run, const Messages& all) {
      OpKernelContext* c = run->context;
      for (int r = 0; r < run->world->size(); ++r) {
        if (!IsOfKind(all[r], kind, r == root_ ? bytes : 0)) return OtherKind(c, r);
      }
      const char* from = all[root_].payload() + kKindBytes;
      for (int i = 0; i < c->num_inputs(); ++i) {
        Tensor* out = nullptr;
        TF_RETURN_IF_ERROR(c->allocate_output(i, c->input(i).shape(), &out));
        const int64_t size = static_cast<int64_t>(out->tensor_data().size());
        std::memcpy(const_cast<char*>(out->tensor_data().data()), from, size);
        from += size;
      }
      return absl::OkStatus();
    });
    return absl::OkStatus();
  }

 private:
  int64_t root_ = 0;
};

REGISTER_KERNEL_BUILDER(Name("MxrecBroadcast").Device(tensorflow::DEVICE_CPU).Label("ranks"), BroadcastOp);

}  // namespace
}  // namespace mxrec
