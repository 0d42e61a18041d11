// FTRL-Proximal with decay, as the optimizer `ftrl_t` of older scripts has it:
//
//   g'   = grad_factor * g' + (1 - grad_factor) * g               a running mean of the gradients
//   rho  = (sqrt(n + g'^2) - sqrt(n)) / alpha
//   z    = (1 - epsilon) * z + g' - rho * w
//   n    = (1 - epsilon) * n + g'^2
//   w    = -soft(z, lambda1) / ((beta + sqrt(n)) / alpha + lambda2)     soft as in ftrl.cc
//
// A row's first update takes its w for 0, whatever the initializer gave: an n of 0 tells that it is the first. The
// formula divides by alpha; at 0 a row is left as it is.
#include <algorithm>
#include <cmath>

#include "base/vectorize.h"
#include "update/rule.h"

namespace mxrec {
namespace {

struct Settings {
  float alpha;
  float beta;
  float lambda1;
  float lambda2;
  float kept;         // 1 - epsilon
  float grad_factor;  // how much of the mean is the past
};

MXREC_VECTORIZED
void Update(float* __restrict w, float* __restrict z, float* __restrict n, float* __restrict mean,
            const float* __restrict g, int64_t dim, Settings s) {
  for (int64_t i = 0; i < dim; ++i) {
    const float now = s.grad_factor * mean[i] + (1.0f - s.grad_factor) * g[i];
    const float old_w = n[i] == 0.0f ? 0.0f : w[i];
    const float rho = (std::sqrt(n[i] + now * now) - std::sqrt(n[i])) / s.alpha;
    const float new_z = (s.kept * z[i] + now) - rho * old_w;
    const float new_n = s.kept * n[i] + now * now;
    const float clipped = std::max(-s.lambda1, std::min(new_z, s.lambda1));
    // The select keeps a coordinate that has never seen a gradient at 0 even where its divisor is 0 too.
    w[i] =
        std::fabs(new_z) > s.lambda1 ? (clipped - new_z) / ((s.beta + std::sqrt(new_n)) / s.alpha + s.lambda2) : 0.0f;
    z[i] = new_z;
    n[i] = new_n;
    mean[i] = now;
  }
}

void Apply(float* row, const float* gradient, int64_t dim, const float* hyper) {
  const Settings s = {hyper[0], hyper[1], hyper[2], hyper[3], 1.0f - hyper[4], hyper[5]};
  if (s.alpha == 0.0f) return;
  Update(row, row + dim, row + 2 * dim, row + 3 * dim, gradient, dim, s);
}

}  // namespace

Rule FtrlTRule() { return {"ftrl_t", {"alpha", "beta", "lambda1", "lambda2", "epsilon", "grad_factor"}, 3, Apply}; }

}  // namespace mxrec
