// Momentum, as TensorFlow's MomentumOptimizer:
//
//   accumulator = momentum * accumulator + g
//   w          -= learning_rate * accumulator                                    plain
//   w          -= learning_rate * g + learning_rate * momentum * accumulator     with use_nesterov = 1
#include "base/vectorize.h"
#include "update/rule.h"

namespace mxrec {
namespace {

// Both forms are  w -= direct * g + delayed * accumulator.
MXREC_VECTORIZED
void Update(float* __restrict w, float* __restrict accumulator, const float* __restrict g, int64_t dim, float momentum,
            float direct, float delayed) {
  for (int64_t i = 0; i < dim; ++i) {
    const float sum = momentum * accumulator[i] + g[i];
    accumulator[i] = sum;
    w[i] -= direct * g[i] + delayed * sum;
  }
}

void Apply(float* row, const float* gradient, int64_t dim, const float* hyper) {
  const float learning_rate = hyper[0];
  const float momentum = hyper[1];
  const bool use_nesterov = hyper[2] != 0.0f;
  Update(row, row + dim, gradient, dim, momentum, use_nesterov ? learning_rate : 0.0f,
         use_nesterov ? learning_rate * momentum : learning_rate);
}

}  // namespace

Rule MomentumRule() { return {"momentum", {"learning_rate", "momentum", "use_nesterov"}, 1, Apply}; }

}  // namespace mxrec
