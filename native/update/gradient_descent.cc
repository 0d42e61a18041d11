// Gradient descent with weight decay:
//
//   w -= learning_rate * (g + weight_decay * w)
#include "base/vectorize.h"
#include "update/rule.h"

namespace mxrec {
namespace {

MXREC_VECTORIZED
void Update(float* __restrict w, const float* __restrict g, int64_t dim, float learning_rate, float weight_decay) {
  for (int64_t i = 0; i < dim; ++i) w[i] -= learning_rate * (g[i] + weight_decay * w[i]);
}

void Apply(float* row, const float* gradient, int64_t dim, const float* hyper) {
  Update(row, gradient, dim, hyper[0], hyper[1]);
}

}  // namespace

Rule GradientDescentRule() { return {"gradient_descent", {"learning_rate", "weight_decay"}, 0, Apply}; }

}  // namespace mxrec
