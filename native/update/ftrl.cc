// FTRL-Proximal as TensorFlow's tf.compat.v1.train.FtrlOptimizer computes it. With p = -learning_rate_power (0.5 unless
// the user says otherwise) and soft(x, t) = x moved towards 0 by t, but not past it:
//
//   new_accum = accum + g^2
//   sigma     = (new_accum^p - accum^p) / learning_rate
//   linear   += g + 2 * l2_shrinkage * w - sigma * w
//   w         = -soft(linear, l1) / (new_accum^p / learning_rate + 2 * l2)
//   accum     = new_accum
//
// Shrinkage enters the linear term only, never the accumulator. The formula divides by the learning rate, and
// TensorFlow refuses 0; schedules do reach 0, and there a row is left as it is.
#include <algorithm>
#include <cmath>

#include "base/vectorize.h"
#include "update/rule.h"

namespace mxrec {
namespace {

struct Strength {
  float learning_rate;
  float l1;
  float twice_l2;
  float twice_shrinkage;
};

// What follows once the two powers of the accumulator are known.
inline void Step(float g, float old_power, float new_power, const Strength& s, float* w, float* linear) {
  const float sigma = (new_power - old_power) / s.learning_rate;
  const float z = *linear + ((g + s.twice_shrinkage * *w) - sigma * *w);
  const float clipped = std::max(-s.l1, std::min(z, s.l1));
  *linear = z;
  // The select keeps a coordinate that has never seen a gradient at 0 even where its divisor is 0 too.
  *w = std::fabs(z) > s.l1 ? (clipped - z) / (new_power / s.learning_rate + s.twice_l2) : 0.0f;
}

MXREC_VECTORIZED
void UpdateBySquareRoot(float* __restrict w, float* __restrict accum, float* __restrict linear,
                        const float* __restrict g, int64_t dim, Strength s) {
  for (int64_t i = 0; i < dim; ++i) {
    const float new_accum = accum[i] + g[i] * g[i];
    Step(g[i], std::sqrt(accum[i]), std::sqrt(new_accum), s, &w[i], &linear[i]);
    accum[i] = new_accum;
  }
}

// Scalar: pow is a call into libm, whose last bit may differ between machines, unlike everything else here.
void UpdateByPower(float* __restrict w, float* __restrict accum, float* __restrict linear, const float* __restrict g,
                   int64_t dim, Strength s, float p) {
  for (int64_t i = 0; i < dim; ++i) {
    const float new_accum = accum[i] + g[i] * g[i];
    Step(g[i], std::pow(accum[i], p), std::pow(new_accum, p), s, &w[i], &linear[i]);
    accum[i] = new_accum;
  }
}

void Apply(float* row, const float* gradient, int64_t dim, const float* hyper) {
  const Strength s = {hyper[0], hyper[2], 2.0f * hyper[3], 2.0f * hyper[4]};
  const float p = -hyper[1];
  if (s.learning_rate == 0.0f) return;
  if (p == 0.5f) {
    UpdateBySquareRoot(row, row + dim, row + 2 * dim, gradient, dim, s);
  } else {
    UpdateByPower(row, row + dim, row + 2 * dim, gradient, dim, s, p);
  }
}

}  // namespace

Rule FtrlRule() { return {"ftrl", {"learning_rate", "learning_rate_power", "l1", "l2", "l2_shrinkage"}, 2, Apply}; }

}  // namespace mxrec
