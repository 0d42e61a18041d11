// Lazy Adam: Adam on the rows of the batch only; the moments of an absent key do not decay.
//
//   momentum = beta1 * momentum + (1 - beta1) * g
//   velocity = beta2 * velocity + (1 - beta2) * g^2
//   w       -= step_size * momentum / (sqrt(velocity) + epsilon)
//
// step_size is learning_rate * sqrt(1 - beta2^t) / (1 - beta1^t) at the global step t: one number for the whole batch,
// so the caller computes it.
#include <cmath>

#include "base/vectorize.h"
#include "update/rule.h"

namespace mxrec {
namespace {

MXREC_VECTORIZED
void Update(float* __restrict w, float* __restrict momentum, float* __restrict velocity, const float* __restrict g,
            int64_t dim, float step_size, float beta1, float beta2, float epsilon) {
  const float rest1 = 1.0f - beta1;
  const float rest2 = 1.0f - beta2;
  for (int64_t i = 0; i < dim; ++i) {
    const float m = beta1 * momentum[i] + rest1 * g[i];
    const float v = beta2 * velocity[i] + rest2 * (g[i] * g[i]);
    momentum[i] = m;
    velocity[i] = v;
    w[i] -= step_size * m / (std::sqrt(v) + epsilon);
  }
}

void Apply(float* row, const float* gradient, int64_t dim, const float* hyper) {
  Update(row, row + dim, row + 2 * dim, gradient, dim, hyper[0], hyper[1], hyper[2], hyper[3]);
}

}  // namespace

Rule LazyAdamRule() { return {"lazy_adam", {"step_size", "beta1", "beta2", "epsilon"}, 2, Apply}; }

}  // namespace mxrec
