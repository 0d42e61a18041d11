// Rule: an optimizer's arithmetic on one row. Pure: it sees the row and the summed gradient, nothing else; learning
// rates and other per-step numbers arrive as `hyper`.
//
// The loops are plain C++ that the compiler vectorises several times over (vectorize.h); the CPU picks one at load
// time. Contraction to fused multiply-add is off, so every version gives the same bits.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "store/row_layout.h"

namespace mxrec {

struct Rule {
  const char* name;  // "lazy_adam"
  // Names of the per-step numbers, in the order Apply expects. The first is the factor of the whole step: the learning
  // rate, or what was made of it.
  std::vector<const char*> hyper;
  int slots;  // how many slots it keeps in a row
  // Updates one row in place: row = [w | slot 0 | slot 1 ...], each `dim` floats.
  void (*apply)(float* row, const float* gradient, int64_t dim, const float* hyper);
};

// nullptr if there is none of that name. The list is fixed at compile time.
const Rule* FindRule(const std::string& name);

// InvalidArgument naming the rule, the number and its value, unless all per-step numbers are finite and the first is
// not negative: what Python refuses in a float, and can only be seen in the step if it is a tensor.
Status CheckHyper(const Rule& rule, const float* hyper);

// All names, for error messages.
std::vector<std::string> RuleNames();

}  // namespace mxrec
