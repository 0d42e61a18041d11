#include "update/rule.h"

#include <sstream>

#include "update/finite.h"

namespace mxrec {

// One per optimizer file. The list below is their only reader, so they have no header; they are functions and not
// constants because the order of initialization between files is undefined.
Rule AdagradRule();
Rule FtrlRule();
Rule FtrlTRule();
Rule GradientDescentRule();
Rule LazyAdamRule();
Rule MomentumRule();

namespace {

const std::vector<Rule>& AllRules() {
  // Never destroyed: callers keep pointers into it, and a TensorFlow thread may still update at exit.
  static const auto* rules = new std::vector<Rule>{
      AdagradRule(), FtrlRule(), FtrlTRule(), GradientDescentRule(), LazyAdamRule(), MomentumRule(),
  };
  return *rules;
}

}  // namespace

const Rule* FindRule(const std::string& name) {
  for (const Rule& rule : AllRules()) {
    if (name == rule.name) return &rule;
  }
  return nullptr;
}

Status CheckHyper(const Rule& rule, const float* hyper) {
  for (size_t i = 0; i < rule.hyper.size(); ++i) {
    const bool is_negative = i == 0 && hyper[i] < 0.0f;
    if (IsFinite(hyper + i, 1) && !is_negative) continue;
    std::ostringstream message;
    message << "optimizer '" << rule.name << "': " << rule.hyper[i] << " must be finite"
            << (i == 0 ? " and not negative" : "") << ", got " << hyper[i] << "; no row was updated"
            << (i == 0 ? ". Look at the tensor that was given as its learning rate" : "");
    return Status::InvalidArgument(message.str());
  }
  return Status();
}

std::vector<std::string> RuleNames() {
  std::vector<std::string> names;
  for (const Rule& rule : AllRules()) names.emplace_back(rule.name);
  return names;
}

}  // namespace mxrec
