// Adagrad:
//
//   accumulator += g^2
//   w           -= learning_rate * g / sqrt(accumulator + epsilon)
//
// epsilon is 0 for TensorFlow's tf.compat.v1.train.AdagradOptimizer, which relies on a positive initial accumulator.
#include <cmath>

#include "base/vectorize.h"
#include "update/rule.h"

namespace mxrec {
namespace {

MXREC_VECTORIZED
void Update(float* __restrict w, float* __restrict accumulator, const float* __restrict g, int64_t dim,
            float learning_rate, float epsilon) {
  for (int64_t i = 0; i < dim; ++i) {
    const float sum = accumulator[i] + g[i] * g[i];
    accumulator[i] = sum;
    w[i] -= learning_rate * g[i] / std::sqrt(sum + epsilon);
  }
}

void Apply(float* row, const float* gradient, int64_t dim, const float* hyper) {
  Update(row, row + dim, gradient, dim, hyper[0], hyper[1]);
}

}  // namespace

Rule AdagradRule() { return {"adagrad", {"learning_rate", "epsilon"}, 1, Apply}; }

}  // namespace mxrec
