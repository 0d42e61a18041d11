// MxrecAllGather: the tensors of all ranks, one after another along the first axis, which may differ in length; scalars
// become a vector.
#include <cstring>

#include "base/multiply.h"
#include "tf/ranked_kernel.h"

namespace mxrec {
namespace {

REGISTER_OP("MxrecAllGather")
    .Input("value: T")
    .Output("gathered: T")
    .Output("lengths: int64")  // of each rank's tensor along the first axis
    .Attr("T: {float, double, int32, int64, bool, half, bfloat16, uint8}")
    .SetIsStateful()
    .SetShapeFn([](InferenceContext* c) {
      ShapeHandle rest, out;
      if (c->RankKnown(c->input(0)) && c->Rank(c->input(0)) > 0) {
        TF_RETURN_IF_ERROR(c->Subshape(c->input(0), 1, &rest));
        TF_RETURN_IF_ERROR(c->Concatenate(c->Vector(c->UnknownDim()), rest, &out));
      } else {
        out = c->RankKnown(c->input(0)) ? c->Vector(c->UnknownDim()) : c->UnknownShape();
      }
      c->set_output(0, out);
      c->set_output(1, c->Vector(c->UnknownDim()));
      return absl::OkStatus();
    });

class AllGatherOp : public RankedKernel {
 public:
  using RankedKernel::RankedKernel;

 protected:
  const char* first_stage() const override { return "values"; }

  absl::Status Begin(const RunPtr& run) override {
    const Tensor& value = run->context->input(0);
    const tensorflow::StringPiece bytes = value.tensor_data();
    const uint64_t kind = KindOf(run->context, true);
    const int64_t length = value.dims() == 0 ? 1 : value.dim_size(0);
    Messages messages;
    for (int r = 0; r < run->world->size(); ++r) {
      messages.push_back(MessageOfKind(kind, static_cast<int64_t>(sizeof(length) + bytes.size())));
      std::memcpy(messages.back().payload() + kKindBytes, &length, sizeof(length));
      std::memcpy(messages.back().payload() + kHeadBytes, bytes.data(), bytes.size());
    }
    Exchange(run, "values", std::move(messages), nullptr, [kind](const RunPtr& run, const Messages& all) {
      OpKernelContext* c = run->context;
      TensorShape shape = c->input(0).shape();
      if (shape.dims() == 0) shape.AddDim(1);
      int64_t each = DataTypeSize(c->input_dtype(0)), total = 0;
      for (int d = 1; d < shape.dims(); ++d) each *= shape.dim_size(d);
      Tensor* lengths = nullptr;
      TF_RETURN_IF_ERROR(c->allocate_output(1, {run->world->size()}, &lengths));
      for (int r = 0; r < run->world->size(); ++r) {
        int64_t length = -1, bytes = 0;
        if (all[r].payload_bytes() >= kHeadBytes) {
          std::memcpy(&length, all[r].payload() + kKindBytes, sizeof(length));
        }
        if (length < 0 || !Multiply(length, each, &bytes) ||
            !IsOfKind(all[r], kind, static_cast<int64_t>(sizeof(length)) + bytes)) {
          return OtherKind(c, r);
        }
        lengths->flat<int64_t>()(r) = length;
        total += length;
      }
      shape.set_dim(0, total);
      Tensor* out = nullptr;
      TF_RETURN_IF_ERROR(c->allocate_output(0, shape, &out));
      char* to = const_cast<char*>(out->tensor_data().data());
      for (const Message& message : all) {
        const int64_t bytes = message.payload_bytes() - kHeadBytes;
        std::memcpy(to, message.payload() + kHeadBytes, bytes);
        to += bytes;
      }
      return absl::OkStatus();
    });
    return absl::OkStatus();
  }

 private:
  static constexpr int64_t kHeadBytes = kKindBytes + sizeof(int64_t);  // what stands before the values
};

REGISTER_KERNEL_BUILDER(Name("MxrecAllGather").Device(tensorflow::DEVICE_CPU).Label("ranks"), AllGatherOp);

}  // namespace
}  // namespace mxrec
