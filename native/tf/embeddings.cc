// MxrecEmbeddings: passes on what the lookup of one feature gave. It computes nothing: it is the place in the graph
// where the embeddings depend on the rows of their keys, and so where tf.gradients turns from positions to rows. Its
// gradient is MxrecFold.
#include "tf/feature_op.h"

namespace mxrec {
namespace {

REGISTER_OP("MxrecEmbeddings")
    .Input("embeddings: float")
    .Input("rows: float")
    .Input("plan: int64")
    .Output("out: float")
    .Attr("table: int")
    .Attr("feature: int")
    .Attr("pooled: bool")
    .Attr("ids_shape: shape")
    .SetShapeFn([](InferenceContext* c) {
      ShapeHandle rows, ids, out;
      bool pooled;
      TF_RETURN_IF_ERROR(c->WithRank(c->input(1), 2, &rows));
      TF_RETURN_IF_ERROR(IdsShape(c, &ids));
      TF_RETURN_IF_ERROR(c->GetAttr("pooled", &pooled));
      if (pooled) {
        TF_RETURN_IF_ERROR(c->WithRankAtLeast(ids, 1, &ids));
        TF_RETURN_IF_ERROR(c->Subshape(ids, 0, -1, &ids));
      }
      TF_RETURN_IF_ERROR(c->Concatenate(ids, c->Vector(c->Dim(rows, 1)), &out));
      c->set_output(0, out);
      return absl::OkStatus();
    });

REGISTER_KERNEL_BUILDER(Name("MxrecEmbeddings").Device(tensorflow::DEVICE_CPU), PassOnOp);

}  // namespace
}  // namespace mxrec
