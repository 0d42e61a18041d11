// Every optimizer passes one suite: against its formula in double precision, and for the same bits wherever a number
// lies in its row. The references below restate the formulas element by element and share no code with the rules.
#include "update/rule.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <random>

#include "base/hash.h"

namespace mxrec {
namespace {

// One coordinate of a row: w and up to two slots.
using Cell = std::vector<double>;
using Reference = void (*)(Cell& cell, double g, const std::vector<double>& hyper);

void GradientDescent(Cell& c, double g, const std::vector<double>& h) { c[0] = c[0] - h[0] * g - h[0] * h[1] * c[0]; }

void Adagrad(Cell& c, double g, const std::vector<double>& h) {
  c[1] += g * g;
  c[0] -= h[0] * g * std::pow(c[1] + h[1], -0.5);
}

void LazyAdam(Cell& c, double g, const std::vector<double>& h) {
  c[1] += (1 - h[1]) * (g - c[1]);
  c[2] += (1 - h[2]) * (g * g - c[2]);
  c[0] -= h[0] * c[1] / (h[3] + std::sqrt(c[2]));
}

void Ftrl(Cell& c, double g, const std::vector<double>& h) {
  const double lr = h[0], power = h[1], l1 = h[2], l2 = h[3], shrinkage = h[4];
  const double accum = c[1] + g * g;
  c[2] += g + 2 * shrinkage * c[0] - (std::pow(accum, -power) - std::pow(c[1], -power)) / lr * c[0];
  c[1] = accum;
  const double quadratic = std::pow(accum, -power) / lr + 2 * l2;
  if (c[2] > l1) {
    c[0] = (l1 - c[2]) / quadratic;
  } else if (c[2] < -l1) {
    c[0] = (-l1 - c[2]) / quadratic;
  } else {
    c[0] = 0;
  }
}

void FtrlT(Cell& c, double g, const std::vector<double>& h) {
  const double alpha = h[0], beta = h[1], lambda1 = h[2], lambda2 = h[3], epsilon = h[4], factor = h[5];
  const double w = c[2] == 0 ? 0 : c[0];
  c[3] = factor * c[3] + (1 - factor) * g;
  c[1] = (1 - epsilon) * c[1] + c[3] - (std::sqrt(c[2] + c[3] * c[3]) - std::sqrt(c[2])) / alpha * w;
  c[2] = (1 - epsilon) * c[2] + c[3] * c[3];
  const double divisor = (beta + std::sqrt(c[2])) / alpha + lambda2;
  c[0] = c[1] > lambda1 ? (lambda1 - c[1]) / divisor : c[1] < -lambda1 ? (-lambda1 - c[1]) / divisor : 0;
}

void Momentum(Cell& c, double g, const std::vector<double>& h) {
  c[1] = c[1] * h[1] + g;
  c[0] -= h[2] != 0 ? h[0] * (g + h[1] * c[1]) : h[0] * c[1];
}

struct Case {
  std::string label;
  std::string rule;
  std::vector<float> hyper;
  std::vector<float> slots;  // initial values
  Reference reference;
};

void PrintTo(const Case& c, std::ostream* os) { *os << c.label; }

std::vector<Case> Cases() {
  return {
      {"Sgd", "gradient_descent", {0.1f, 0.0f}, {}, GradientDescent},
      {"SgdDecayed", "gradient_descent", {0.5f, 0.01f}, {}, GradientDescent},
      {"SgdAtRateZero", "gradient_descent", {0.0f, 0.01f}, {}, GradientDescent},
      {"Adagrad", "adagrad", {0.1f, 0.0f}, {0.9f}, Adagrad},
      {"AdagradByAddress", "adagrad", {0.001f, 1e-7f}, {0.1f}, Adagrad},
      {"AdagradFromZero", "adagrad", {0.1f, 1e-7f}, {0.0f}, Adagrad},
      {"LazyAdam", "lazy_adam", {0.001f, 0.9f, 0.999f, 1e-8f}, {0.0f, 0.0f}, LazyAdam},
      {"LazyAdamWideEpsilon", "lazy_adam", {0.05f, 0.5f, 0.9f, 0.1f}, {0.0f, 0.0f}, LazyAdam},
      {"Ftrl", "ftrl", {0.05f, -0.5f, 0.0f, 0.0f, 0.0f}, {0.1f, 0.0f}, Ftrl},
      {"FtrlL1", "ftrl", {0.1f, -0.5f, 0.5f, 0.0f, 0.0f}, {0.1f, 0.0f}, Ftrl},
      {"FtrlL1L2Shrunk", "ftrl", {1.0f, -0.5f, 0.1f, 0.2f, 0.05f}, {1.0f, 0.0f}, Ftrl},
      {"FtrlPower", "ftrl", {0.05f, -0.3f, 0.1f, 0.2f, 0.05f}, {0.1f, 0.0f}, Ftrl},
      {"FtrlPowerOne", "ftrl", {0.5f, -1.0f, 0.01f, 0.0f, 0.0f}, {0.1f, 0.0f}, Ftrl},
      {"FtrlPowerZero", "ftrl", {0.5f, 0.0f, 0.01f, 0.1f, 0.0f}, {0.1f, 0.0f}, Ftrl},
      {"FtrlT", "ftrl_t", {0.06f, 1.0f, 0.0f, 0.0f, 0.0f, 0.0f}, {0.0f, 0.0f, 0.0f}, FtrlT},
      {"FtrlTDecayed", "ftrl_t", {0.5f, 0.5f, 0.1f, 0.2f, 0.01f, 0.3f}, {0.0f, 0.0f, 0.0f}, FtrlT},
      {"Momentum", "momentum", {0.1f, 0.9f, 0.0f}, {0.0f}, Momentum},
      {"MomentumNesterov", "momentum", {0.1f, 0.9f, 1.0f}, {0.0f}, Momentum},
  };
}

// Vector widths, one less, one more, their multiples, and the largest dim a table may have.
const int kDims[] = {1, 2, 3, 7, 8, 15, 16, 17, 64, 100, 8192};

class RuleTest : public testing::TestWithParam<Case> {
 protected:
  const Case& c() const { return GetParam(); }
  const Rule& rule() const { return *FindRule(c().rule); }

  void Apply(float* row, const std::vector<float>& gradient) const {
    rule().apply(row, gradient.data(), static_cast<int64_t>(gradient.size()), c().hyper.data());
  }

  std::vector<float> RandomFloats(int n, float deviation) {
    std::normal_distribution<float> normal(0.0f, deviation);
    std::vector<float> values(n);
    for (float& value : values) value = normal(random_);
    return values;
  }

  // A row as a table creates it.
  std::vector<float> NewRow(int dim) {
    std::vector<float> row = RandomFloats(dim, 0.3f);
    for (float initial : c().slots) row.insert(row.end(), dim, initial);
    return row;
  }

  std::mt19937 random_{20240601};
};

INSTANTIATE_TEST_SUITE_P(All, RuleTest, testing::ValuesIn(Cases()),
                         [](const testing::TestParamInfo<Case>& info) { return info.param.label; });

TEST_P(RuleTest, CountsItsSlotsAndNamesItsHypers) {
  EXPECT_EQ(rule().name, c().rule);
  EXPECT_EQ(rule().slots, static_cast<int>(c().slots.size()));
  EXPECT_EQ(rule().hyper.size(), c().hyper.size());
}

TEST_P(RuleTest, FollowsItsFormulaOverManySteps) {
  const std::vector<double> hyper(c().hyper.begin(), c().hyper.end());
  for (int dim : kDims) {
    std::vector<float> row = NewRow(dim);
    std::vector<Cell> cells(dim);
    for (int i = 0; i < dim; ++i) {
      for (int part = 0; part <= rule().slots; ++part) cells[i].push_back(row[part * dim + i]);
    }
    for (int step = 0; step < 10; ++step) {
      const std::vector<float> gradient = RandomFloats(dim, step % 3 == 2 ? 5.0f : 0.5f);
      Apply(row.data(), gradient);
      for (int i = 0; i < dim; ++i) {
        c().reference(cells[i], gradient[i], hyper);
        for (int part = 0; part <= rule().slots; ++part) {
          // Parts cancel (FTRL's linear term most), so the error is relative to the largest number of the cell.
          double size = 1;
          for (double value : cells[i]) size = std::max(size, std::fabs(value));
          ASSERT_NEAR(row[part * dim + i], cells[i][part], 4e-6 * size)
              << "dim " << dim << ", step " << step << ", part " << part << ", column " << i;
        }
      }
    }
  }
}

TEST_P(RuleTest, GivesANumberTheSameBitsAnywhereInARow) {
  for (int dim : kDims) {
    std::vector<float> row = NewRow(dim);
    for (int step = 0; step < 3; ++step) {
      const std::vector<float> gradient = RandomFloats(dim, 0.5f);
      const std::vector<float> before = row;
      Apply(row.data(), gradient);
      for (int i = 0; i < dim; ++i) {
        std::vector<float> alone;
        for (int part = 0; part <= rule().slots; ++part) alone.push_back(before[part * dim + i]);
        Apply(alone.data(), {gradient[i]});
        for (int part = 0; part <= rule().slots; ++part) {
          ASSERT_EQ(std::memcmp(&alone[part], &row[part * dim + i], sizeof(float)), 0)
              << "dim " << dim << ", part " << part << ", column " << i << ": " << alone[part] << " alone, "
              << row[part * dim + i] << " in the row";
        }
      }
    }
  }
}

TEST_P(RuleTest, GivesTheSameBitsAtAnyAlignmentAndTouchesNoNeighbour) {
  const float kMark = -12345.0f;
  for (int dim : kDims) {
    const std::vector<float> before = NewRow(dim);
    const std::vector<float> gradient = RandomFloats(dim, 0.5f);
    std::vector<float> expected = before;
    Apply(expected.data(), gradient);
    for (int shift = 1; shift <= 16; ++shift) {
      std::vector<float> memory(shift + before.size() + 16, kMark);
      std::copy(before.begin(), before.end(), memory.begin() + shift);
      Apply(memory.data() + shift, gradient);
      ASSERT_EQ(std::memcmp(memory.data() + shift, expected.data(), expected.size() * sizeof(float)), 0)
          << "dim " << dim << ", shift " << shift;
      ASSERT_EQ(std::count(memory.begin(), memory.begin() + shift, kMark), shift);
      ASSERT_EQ(std::count(memory.end() - 16, memory.end(), kMark), 16);
    }
  }
}

// A hash over the bits of updated rows: the same for every instruction set and compiler, or the ranks of a mixed
// cluster would train different models. It differs, for instance, where multiplications and additions get fused.
TEST(Rule, GivesTheSameBitsOnEveryMachine) {
  const int dim = 61, steps = 20;
  std::map<std::string, uint64_t> digests;
  for (const Case& c : Cases()) {
    if (c.rule == "ftrl" && c.hyper[1] != -0.5f) continue;  // pow: as exact as the C library
    uint64_t counter = 0;
    const auto next = [&counter] {
      return static_cast<float>(static_cast<int32_t>(Mix64(++counter) >> 40)) * 0x1p-23f - 1;
    };
    std::vector<float> row;
    for (int i = 0; i < dim; ++i) row.push_back(next());
    for (float initial : c.slots) row.insert(row.end(), dim, initial);
    for (int step = 0; step < steps; ++step) {
      std::vector<float> gradient;
      for (int i = 0; i < dim; ++i) gradient.push_back(next());
      FindRule(c.rule)->apply(row.data(), gradient.data(), dim, c.hyper.data());
    }
    uint64_t& digest = digests[c.rule];
    for (float x : row) {
      uint32_t bits;
      std::memcpy(&bits, &x, sizeof(bits));
      digest = Mix64(digest ^ bits);
    }
  }
  EXPECT_EQ(digests["adagrad"], 0x659730bf28d86d86ULL);
  EXPECT_EQ(digests["ftrl"], 0x87df8b4371ec69d9ULL);
  EXPECT_EQ(digests["ftrl_t"], 0x0ULL);
  EXPECT_EQ(digests["gradient_descent"], 0x0d7509651b1e0208ULL);
  EXPECT_EQ(digests["lazy_adam"], 0x858fa2607c16b08dULL);
  EXPECT_EQ(digests["momentum"], 0x63cf27cfd103eda4ULL);
}

TEST(Rule, IsNotFoundUnderAnUnknownName) {
  EXPECT_EQ(FindRule("adam"), nullptr);
  EXPECT_EQ(FindRule("Adagrad"), nullptr);
  EXPECT_EQ(FindRule(""), nullptr);
}

TEST(Rule, IsFoundUnderEveryListedName) {
  EXPECT_EQ(RuleNames(),
            (std::vector<std::string>{"adagrad", "ftrl", "ftrl_t", "gradient_descent", "lazy_adam", "momentum"}));
  for (const std::string& name : RuleNames()) {
    ASSERT_NE(FindRule(name), nullptr);
    EXPECT_EQ(FindRule(name)->name, name);
    EXPECT_EQ(FindRule(name), FindRule(name));
  }
}

TEST(Rule, NamesItsHypersInTheOrderCallersPassThem) {
  const auto hypers = [](const char* name) {
    const Rule* rule = FindRule(name);
    return std::vector<std::string>(rule->hyper.begin(), rule->hyper.end());
  };
  using Names = std::vector<std::string>;
  EXPECT_EQ(hypers("gradient_descent"), (Names{"learning_rate", "weight_decay"}));
  EXPECT_EQ(hypers("adagrad"), (Names{"learning_rate", "epsilon"}));
  EXPECT_EQ(hypers("lazy_adam"), (Names{"step_size", "beta1", "beta2", "epsilon"}));
  EXPECT_EQ(hypers("ftrl"), (Names{"learning_rate", "learning_rate_power", "l1", "l2", "l2_shrinkage"}));
  EXPECT_EQ(hypers("ftrl_t"), (Names{"alpha", "beta", "lambda1", "lambda2", "epsilon", "grad_factor"}));
  EXPECT_EQ(hypers("momentum"), (Names{"learning_rate", "momentum", "use_nesterov"}));
}

TEST(LazyAdam, FirstMovesByTheLearningRateWhateverTheGradientsSize) {
  const double learning_rate = 0.01, beta1 = 0.9, beta2 = 0.999;
  const float hyper[] = {static_cast<float>(learning_rate * std::sqrt(1 - beta2) / (1 - beta1)),
                         static_cast<float>(beta1), static_cast<float>(beta2), 1e-8f};
  for (float g : {0.1f, 1.0f, -1e3f}) {
    float row[3] = {0.0f, 0.0f, 0.0f};
    FindRule("lazy_adam")->apply(row, &g, 1, hyper);
    EXPECT_NEAR(row[0], g > 0 ? -0.01f : 0.01f, 1e-6f);
  }
}

TEST(Ftrl, HoldsAWeightAtZeroWhileItsLinearTermIsWithinL1) {
  const float hyper[] = {0.1f, -0.5f, 1.0f, 0.0f, 0.0f};
  float row[3] = {0.0f, 0.1f, 0.0f};
  const float g = 0.4f;
  FindRule("ftrl")->apply(row, &g, 1, hyper);
  FindRule("ftrl")->apply(row, &g, 1, hyper);
  EXPECT_EQ(row[0], 0.0f);
  FindRule("ftrl")->apply(row, &g, 1, hyper);  // linear is 1.2 now
  EXPECT_LT(row[0], 0.0f);
}

TEST(Ftrl, TakesTheSquareRootPathToTheSameValuesAsThePowerPath) {
  const float by_root[] = {0.05f, -0.5f, 0.01f, 0.1f, 0.01f};
  const float by_power[] = {0.05f, std::nextafter(-0.5f, -1.0f), 0.01f, 0.1f, 0.01f};
  float x[3] = {0.2f, 0.1f, 0.0f};
  float y[3] = {0.2f, 0.1f, 0.0f};
  for (float g : {0.5f, -0.3f, 2.0f, 0.0f}) {
    FindRule("ftrl")->apply(x, &g, 1, by_root);
    FindRule("ftrl")->apply(y, &g, 1, by_power);
    for (int i = 0; i < 3; ++i) EXPECT_NEAR(x[i], y[i], 1e-5f);
  }
}

TEST(Ftrl, LeavesARowAloneAtLearningRateZero) {
  const float hyper[] = {0.0f, -0.5f, 0.1f, 0.1f, 0.1f};
  float row[3] = {0.5f, 0.1f, -3.0f};
  const float g = 1.0f;
  FindRule("ftrl")->apply(row, &g, 1, hyper);
  EXPECT_EQ(row[0], 0.5f);
  EXPECT_EQ(row[1], 0.1f);
  EXPECT_EQ(row[2], -3.0f);
}

TEST(Ftrl, KeepsAColumnWithoutAnyGradientAtZeroEvenFromAnEmptyAccumulator) {
  const float hyper[] = {0.1f, -0.5f, 0.0f, 0.0f, 0.0f};
  float row[3] = {0.0f, 0.0f, 0.0f};
  const float g = 0.0f;
  FindRule("ftrl")->apply(row, &g, 1, hyper);
  EXPECT_EQ(row[0], 0.0f);
}

}  // namespace
}  // namespace mxrec
