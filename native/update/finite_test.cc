#include "update/finite.h"

#include <gtest/gtest.h>

#include <cfloat>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "update/rule.h"

namespace mxrec {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

TEST(FiniteTest, FindsOneBadValueAtAnyPlaceOfAnyLength) {
  for (int64_t n = 1; n < 70; ++n) {
    for (int64_t at = 0; at < n; ++at) {
      for (const float bad : {kNan, -kNan, kInf, -kInf, std::numeric_limits<float>::signaling_NaN()}) {
        std::vector<float> values(n, -FLT_MAX);
        ASSERT_TRUE(IsFinite(values.data(), n));
        values[at] = bad;
        ASSERT_FALSE(IsFinite(values.data(), n)) << bad << " at " << at << " of " << n;
      }
    }
  }
}

TEST(FiniteTest, CallsEveryFiniteValueFinite) {
  for (const float good : {0.0f, -0.0f, FLT_MAX, -FLT_MAX, FLT_MIN, FLT_TRUE_MIN, -FLT_TRUE_MIN, 1.0f}) {
    EXPECT_TRUE(IsFinite(&good, 1)) << good;
  }
  EXPECT_TRUE(IsFinite(nullptr, 0));
}

TEST(FiniteTest, SumsBelowTheSafeMagnitudeDoNotOverflow) {
  for (const int64_t terms : {1, 2, 3, 1000, 4096, 100001}) {
    const int32_t safe = SafeMagnitude(terms);
    float most;
    const int32_t below = safe - 1;
    std::memcpy(&most, &below, sizeof(most));
    float sum = 0;
    for (int64_t i = 0; i < terms; ++i) sum += most;
    EXPECT_TRUE(std::isfinite(sum)) << terms;
    EXPECT_GT(most, FLT_MAX / static_cast<float>(terms) / 10) << "refuses too much";
  }
}

TEST(FiniteTest, SaysWhatIsNotFiniteAndHowOften) {
  const float values[] = {1.0f, -kInf, kNan, 0.0f};
  EXPECT_EQ(DescribeNonfinite(values, 4), "-inf in 2 of 4 columns");
  EXPECT_EQ(DescribeNonfinite(values + 2, 2), "nan in 1 of 2 columns");
}

TEST(FiniteTest, EveryRuleRefusesNumbersThatAreNotFiniteAndNegativeRates) {
  for (const std::string& name : RuleNames()) {
    const Rule& rule = *FindRule(name);
    std::vector<float> hyper(rule.hyper.size(), 0.0f);
    EXPECT_TRUE(CheckHyper(rule, hyper.data()).ok()) << name;
    for (size_t i = 0; i < hyper.size(); ++i) {
      for (const float bad : {kNan, kInf, -kInf}) {
        hyper.assign(hyper.size(), 0.5f);
        hyper[i] = bad;
        const Status status = CheckHyper(rule, hyper.data());
        EXPECT_EQ(status.code(), Status::Code::kInvalidArgument);
        EXPECT_NE(status.message().find("'" + name + "': " + rule.hyper[i]), std::string::npos) << status.message();
      }
    }
    hyper.assign(hyper.size(), 0.5f);
    hyper[0] = -0.25f;
    EXPECT_NE(CheckHyper(rule, hyper.data()).message().find("got -0.25"), std::string::npos);
  }
}

}  // namespace
}  // namespace mxrec
