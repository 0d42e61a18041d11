// MxrecJoined: MxrecEmbeddings for features that the lookup wrote side by side.
#include "tf/border.h"

namespace mxrec {
namespace {

REGISTER_OP("MxrecJoined")
    .Input("embeddings: float")
    .Input("rows: F * float")
    .Input("plan: int64")
    .Output("out: float")
    .Attr("F: int >= 1")
    .Attr("tables: list(int) >= 1")
    .Attr("features: list(int) >= 1")
    .Attr("pooled: list(int) >= 1")
    .Attr("shape: shape")
    .SetShapeFn([](InferenceContext* c) {
      tensorflow::PartialTensorShape known;
      TF_RETURN_IF_ERROR(c->GetAttr("shape", &known));
      ShapeHandle out;
      TF_RETURN_IF_ERROR(c->MakeShapeFromPartialTensorShape(known, &out));
      c->set_output(0, out);
      return absl::OkStatus();
    });

REGISTER_KERNEL_BUILDER(Name("MxrecJoined").Device(tensorflow::DEVICE_CPU), PassOnOp);

}  // namespace
}  // namespace mxrec
