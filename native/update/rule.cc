#include "update/rule.h"

namespace mxrec {

// One per optimizer file. The list below is their only reader, so they have no header; they are functions and not
// constants because the order of initialization between files is undefined.
Rule AdagradRule();
Rule FtrlRule();
Rule GradientDescentRule();
Rule LazyAdamRule();
Rule MomentumRule();

namespace {

const std::vector<Rule>& AllRules() {
  // Never destroyed: callers keep pointers into it, and a TensorFlow thread may still update at exit.
  static const auto* rules = new std::vector<Rule>{
      AdagradRule(), FtrlRule(), GradientDescentRule(), LazyAdamRule(), MomentumRule(),
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

std::vector<std::string> RuleNames() {
  std::vector<std::string> names;
  for (const Rule& rule : AllRules()) names.emplace_back(rule.name);
  return names;
}

}  // namespace mxrec
