#include "table/initializer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <set>
#include <thread>

#include "base/hash.h"

namespace mxrec {
namespace {

using Kind = InitializerSpec::Kind;
using Row = std::vector<float>;

constexpr float kInfinity = std::numeric_limits<float>::infinity();

InitializerSpec Spec(Kind kind, float a, float b, float scale = 1.0f, uint64_t seed = 7) {
  InitializerSpec spec;
  spec.kind = kind;
  spec.a = a;
  spec.b = b;
  spec.scale = scale;
  spec.seed = seed;
  return spec;
}

InitializerSpec Pool(std::vector<float> pool) {
  InitializerSpec spec = Spec(Kind::kPool, 0, 0);
  spec.pool = std::move(pool);
  return spec;
}

Row RowOf(const Initializer& initializer, int64_t key, int dim) {
  Row row(dim, NAN);
  initializer.Fill(key, row.data());
  return row;
}

std::vector<InitializerSpec> RandomSpecs() {
  return {Spec(Kind::kUniform, -1, 1), Spec(Kind::kNormal, 0, 1), Spec(Kind::kTruncatedNormal, 0, 1)};
}

// `rows` rows of `dim`, for keys 0, stride, 2 * stride ...
std::vector<float> Sample(const InitializerSpec& spec, int64_t rows, int dim, int64_t stride = 1,
                          const std::string& table = "table") {
  const Initializer initializer(spec, table, dim);
  std::vector<float> sample(rows * dim);
  for (int64_t i = 0; i < rows; ++i) initializer.Fill(i * stride, &sample[i * dim]);
  return sample;
}

double Mean(const std::vector<float>& sample) {
  double sum = 0;
  for (float x : sample) sum += x;
  return sum / sample.size();
}

double Deviation(const std::vector<float>& sample) {
  const double mean = Mean(sample);
  double sum = 0;
  for (float x : sample) sum += (x - mean) * (x - mean);
  return std::sqrt(sum / sample.size());
}

double NormalCdf(double z) { return 0.5 * std::erfc(-z / std::sqrt(2.0)); }

double TruncatedCdf(double z) { return (NormalCdf(z) - NormalCdf(-2)) / (NormalCdf(2) - NormalCdf(-2)); }

// The Kolmogorov-Smirnov statistic times sqrt(n): above 1.95 once in a thousand truly random samples.
double Distance(std::vector<float> sample, const std::function<double(double)>& cdf) {
  std::sort(sample.begin(), sample.end());
  const double n = sample.size();
  double distance = 0;
  for (size_t i = 0; i < sample.size(); ++i) {
    const double p = cdf(sample[i]);
    distance = std::max({distance, p - i / n, (i + 1) / n - p});
  }
  return distance * std::sqrt(n);
}

// Correlation times sqrt(n) of sample[i * step + x] with sample[i * step + y]: a standard normal number if there is
// none.
double Correlation(const std::vector<float>& sample, int64_t step, int64_t x, int64_t y) {
  double sx = 0, sy = 0, sxx = 0, syy = 0, sxy = 0, n = 0;
  for (int64_t i = 0; i + std::max(x, y) < static_cast<int64_t>(sample.size()); i += step) {
    const double u = sample[i + x], v = sample[i + y];
    sx += u, sy += v, sxx += u * u, syy += v * v, sxy += u * v, n += 1;
  }
  return (sxy - sx * sy / n) / std::sqrt((sxx - sx * sx / n) * (syy - sy * sy / n)) * std::sqrt(n);
}

TEST(Initializer, GivesAKeyTheSameRowInAnyOrder) {
  const int dim = 19, keys = 500;
  for (const InitializerSpec& spec : RandomSpecs()) {
    const Initializer first(spec, "user", dim);
    std::vector<Row> rows;
    for (int64_t key = 0; key < keys; ++key) rows.push_back(RowOf(first, key, dim));
    const Initializer second(spec, "user", dim);
    for (int64_t key = keys - 1; key >= 0; --key) {
      EXPECT_EQ(RowOf(second, key, dim), rows[key]);
      EXPECT_EQ(RowOf(first, key, dim), rows[key]);
    }
  }
}

TEST(Initializer, GivesAKeyTheSameRowInEveryThread) {
  const int dim = 33, keys = 2000;
  const Initializer initializer(Spec(Kind::kNormal, 0, 1), "user", dim);
  std::vector<std::vector<Row>> seen(4, std::vector<Row>(keys));
  std::vector<std::thread> threads;
  for (auto& rows : seen) {
    threads.emplace_back([&] {
      for (int64_t key = 0; key < keys; ++key) rows[key] = RowOf(initializer, key, dim);
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const auto& rows : seen) EXPECT_EQ(rows, seen[0]);
}

TEST(Initializer, GivesDifferentRowsToKeysTablesAndSeeds) {
  const int dim = 4;
  for (const InitializerSpec& spec : RandomSpecs()) {
    InitializerSpec reseeded = spec;
    reseeded.seed += 1;
    std::set<Row> rows;
    for (const std::string table : {"", "user", "usex", "useruser", "item"}) {
      for (const InitializerSpec& s : {spec, reseeded}) {
        const Initializer initializer(s, table, dim);
        for (int64_t key = -100; key < 100; ++key) rows.insert(RowOf(initializer, key, dim));
      }
    }
    EXPECT_EQ(rows.size(), 5u * 2u * 200u);
  }
}

TEST(Initializer, ServesTheExtremesOfInt64) {
  const int64_t keys[] = {std::numeric_limits<int64_t>::min(), std::numeric_limits<int64_t>::min() + 1, -1, 0, 1,
                          std::numeric_limits<int64_t>::max()};
  for (const InitializerSpec& spec : RandomSpecs()) {
    const Initializer initializer(spec, "user", 8);
    std::set<Row> rows;
    for (int64_t key : keys) {
      const Row row = RowOf(initializer, key, 8);
      for (float x : row) EXPECT_TRUE(std::isfinite(x));
      rows.insert(row);
    }
    EXPECT_EQ(rows.size(), std::size(keys));
  }
}

TEST(Initializer, GivesANarrowRowTheBeginningOfAWideOne) {
  const float kMark = -12345.0f;
  for (const InitializerSpec& spec : RandomSpecs()) {
    const Row wide = RowOf(Initializer(spec, "user", 8192), 42, 8192);
    for (int dim : {1, 2, 3, 7, 8, 15, 16, 17, 64, 100, 255, 256, 257, 513, 8191}) {
      Row row(dim + 16, kMark);
      Initializer(spec, "user", dim).Fill(42, row.data());
      ASSERT_TRUE(std::equal(row.begin(), row.begin() + dim, wide.begin())) << dim;
      ASSERT_EQ(std::count(row.begin() + dim, row.end(), kMark), 16) << dim;
    }
  }
}

// A hash over the bits of many numbers: it must be the same for every instruction set, compiler and release, or a
// restarted job would start new keys elsewhere. Change the expectations only with the intent to break that.
TEST(Initializer, NeverChangesItsNumbers) {
  const auto digest = [](const InitializerSpec& spec) {
    uint64_t hash = 0;
    for (float x : Sample(spec, 20000, 17, 1LL << 20)) {
      uint32_t bits;
      std::memcpy(&bits, &x, sizeof(bits));
      hash = Mix64(hash ^ bits);
    }
    return hash;
  };
  EXPECT_EQ(digest(Spec(Kind::kUniform, -0.3f, 0.7f, 0.5f)), 0x555e052e1491f88aULL);
  EXPECT_EQ(digest(Spec(Kind::kNormal, 0.1f, 0.05f, 3.0f)), 0xa9a7b1daf1a5510aULL);
  EXPECT_EQ(digest(Spec(Kind::kTruncatedNormal, 0.0f, 0.05f)), 0x8af5a8eca39caeaeULL);
}

TEST(Initializer, FillsAConstantRow) {
  const Initializer initializer(Spec(Kind::kConstant, 0.25f, 0, 2.0f), "user", 5);
  EXPECT_EQ(RowOf(initializer, 3, 5), Row(5, 0.5f));
  EXPECT_EQ(RowOf(initializer, -3, 5), Row(5, 0.5f));
}

TEST(Initializer, DrawsUniformNumbersEvenlyFromTheirRange) {
  const std::vector<float> sample = Sample(Spec(Kind::kUniform, -1, 3), 62500, 16);
  EXPECT_NEAR(Mean(sample), 1, 4 * 4 / std::sqrt(12e6));
  EXPECT_NEAR(Deviation(sample), 4 / std::sqrt(12.0), 0.003);
  EXPECT_LT(Distance(sample, [](double x) { return (x + 1) / 4; }), 1.95);
  const auto [low, high] = std::minmax_element(sample.begin(), sample.end());
  EXPECT_GE(*low, -1.0f);
  EXPECT_LT(*low, -0.9999f);
  EXPECT_LT(*high, 3.0f);
  EXPECT_GT(*high, 2.9999f);
}

TEST(Initializer, NeverDrawsTheOpenEndOfAUniformRange) {
  // So few floats lie in these ranges that rounding alone would reach the end.
  const float ulp = std::numeric_limits<float>::epsilon();
  for (const auto& [a, b] : {std::pair(1.0f, 1.0f + 3 * ulp), std::pair(-1.0f - ulp, -1.0f), std::pair(1e8f, 1e8f + 8),
                             std::pair(-1.0f, 1e-30f), std::pair(0.0f, 1e-44f)}) {
    ASSERT_LT(a, b);
    for (float x : Sample(Spec(Kind::kUniform, a, b), 1000, 16)) {
      ASSERT_GE(x, a);
      ASSERT_LT(x, b);
    }
  }
}

TEST(Initializer, GivesTheOnlyPointOfAnEmptyUniformRange) {
  EXPECT_EQ(Sample(Spec(Kind::kUniform, 0.5f, 0.5f), 1, 9), Row(9, 0.5f));
}

TEST(Initializer, DrawsNormalNumbers) {
  const std::vector<float> sample = Sample(Spec(Kind::kNormal, 0, 1), 62500, 16);
  EXPECT_NEAR(Mean(sample), 0, 0.004);
  EXPECT_NEAR(Deviation(sample), 1, 0.003);
  EXPECT_LT(Distance(sample, NormalCdf), 1.95);
  // A million normal numbers reach 4.2 at least and 6.0 at most, but for one sample in a hundred thousand or so.
  const auto [low, high] = std::minmax_element(sample.begin(), sample.end());
  EXPECT_LT(*low, -4.2f);
  EXPECT_GT(*low, -6.0f);
  EXPECT_GT(*high, 4.2f);
  EXPECT_LT(*high, 6.0f);
}

TEST(Initializer, DrawsTheRightShareOfNormalNumbersFromTheTails) {
  const int64_t n = 4000000;
  const std::vector<float> sample = Sample(Spec(Kind::kNormal, 0, 1), n / 16, 16, 3);
  for (double z : {2.0, 2.5, 3.0, 3.5, 4.0, 4.5}) {
    for (int sign : {-1, 1}) {
      const double expected = n * NormalCdf(-z);
      const double seen = std::count_if(sample.begin(), sample.end(), [&](float x) { return sign * x > z; });
      EXPECT_NEAR(seen, expected, 4 * std::sqrt(expected)) << sign * z;
    }
  }
}

TEST(Initializer, CutsTruncatedNormalNumbersAtTwoDeviations) {
  const std::vector<float> sample = Sample(Spec(Kind::kTruncatedNormal, 0, 1), 62500, 16);
  EXPECT_NEAR(Mean(sample), 0, 0.004);
  EXPECT_NEAR(Deviation(sample), 0.8796, 0.002);
  EXPECT_LT(Distance(sample, TruncatedCdf), 1.95);
  const auto [low, high] = std::minmax_element(sample.begin(), sample.end());
  EXPECT_GE(*low, -2.0f);
  EXPECT_LT(*low, -1.9999f);
  EXPECT_LE(*high, 2.0f);
  EXPECT_GT(*high, 1.9999f);
}

TEST(Initializer, AppliesMeanDeviationAndScale) {
  for (Kind kind : {Kind::kNormal, Kind::kTruncatedNormal}) {
    const std::vector<float> standard = Sample(Spec(kind, 0, 1), 100, 16);
    const std::vector<float> moved = Sample(Spec(kind, 0.5f, 0.1f, 3.0f), 100, 16);
    for (size_t i = 0; i < standard.size(); ++i) EXPECT_NEAR(moved[i], (0.5 + 0.1 * standard[i]) * 3, 1e-6);
  }
  const std::vector<float> standard = Sample(Spec(Kind::kUniform, -1, 1), 100, 16);
  const std::vector<float> scaled = Sample(Spec(Kind::kUniform, -1, 1, -0.25f), 100, 16);
  for (size_t i = 0; i < standard.size(); ++i) EXPECT_EQ(scaled[i], standard[i] * -0.25f);
}

TEST(Initializer, LeavesNeighbouringKeysAndColumnsUncorrelated) {
  const int dim = 16;
  for (const InitializerSpec& spec : RandomSpecs()) {
    for (int64_t stride : {int64_t{1}, int64_t{1} << 20, int64_t{1} << 40}) {
      const std::vector<float> sample = Sample(spec, 60000, dim, stride);
      for (int column = 0; column < dim; ++column) {
        // 4.5 deviations: 1 in 150,000, for some 600 comparisons.
        EXPECT_LT(std::fabs(Correlation(sample, dim, column, dim + column)), 4.5) << "next key, stride " << stride;
        EXPECT_LT(std::fabs(Correlation(sample, dim, column, 2 * dim + column)), 4.5) << "next but one " << stride;
        EXPECT_LT(std::fabs(Correlation(sample, dim, column, column + 1)), 4.5) << "next column, stride " << stride;
        EXPECT_LT(std::fabs(Correlation(sample, dim, column, column + dim / 2)), 4.5) << "half a row on " << stride;
      }
    }
  }
}

TEST(Initializer, LeavesTablesAndSeedsUncorrelated) {
  const int dim = 16, rows = 60000;
  const std::vector<float> one = Sample(Spec(Kind::kNormal, 0, 1, 1, 0), rows, dim, 1, "user");
  for (const std::vector<float>& two : {Sample(Spec(Kind::kNormal, 0, 1, 1, 1), rows, dim, 1, "user"),
                                        Sample(Spec(Kind::kNormal, 0, 1, 1, 0), rows, dim, 1, "item")}) {
    std::vector<float> pairs;
    for (size_t i = 0; i < one.size(); ++i) pairs.insert(pairs.end(), {one[i], two[i]});
    EXPECT_LT(std::fabs(Correlation(pairs, 2, 0, 1)), 4);
  }
}

TEST(Initializer, TakesRowsFromThePoolAboutEquallyOften) {
  const int dim = 3, pool_rows = 100, keys = 100000;
  std::vector<float> pool;
  for (int i = 0; i < pool_rows * dim; ++i) pool.push_back(static_cast<float>(i));
  const Initializer initializer(Pool(pool), "user", dim);
  std::vector<int> taken(pool_rows);
  for (int64_t key = 0; key < keys; ++key) {
    const Row row = RowOf(initializer, key << 20, dim);
    const int index = static_cast<int>(row[0]) / dim;
    ASSERT_EQ(row, Row(pool.begin() + index * dim, pool.begin() + (index + 1) * dim));
    ASSERT_EQ(static_cast<uint64_t>(index), HashKey(key << 20) % pool_rows);
    ++taken[index];
  }
  for (int count : taken) EXPECT_NEAR(count, 1000, 5 * std::sqrt(1000.0));
}

TEST(Initializer, ScalesThePool) {
  InitializerSpec spec = Pool({1, 2, 3});
  spec.scale = 0.5f;
  EXPECT_EQ(RowOf(Initializer(spec, "user", 3), 99, 3), (Row{0.5f, 1.0f, 1.5f}));
}

TEST(Initializer, AcceptsWhatItCanServe) {
  for (const InitializerSpec& spec :
       {Spec(Kind::kConstant, -1, 0), Spec(Kind::kUniform, -1, -1), Spec(Kind::kUniform, -1, 1, 0),
        Spec(Kind::kNormal, 5, 0), Spec(Kind::kTruncatedNormal, -5, 1, -2), Pool({1, 2, 3, 4})}) {
    EXPECT_EQ(Initializer::Check(spec, 2).message(), "");
  }
}

TEST(Initializer, RefusesWhatItCannotServeAndSaysWhy) {
  const struct {
    InitializerSpec spec;
    int dim;
    const char* message;
  } cases[] = {
      {Spec(Kind::kConstant, 0, 0), 0, "initializer: `dim` must be positive, got 0"},
      {Spec(Kind::kConstant, NAN, 0), 8, "initializer: `a` must be finite, got nan"},
      {Spec(Kind::kNormal, 0, kInfinity), 8, "initializer: `b` must be finite, got inf"},
      {Spec(Kind::kUniform, 0, 1, -kInfinity), 8, "initializer: `scale` must be finite, got -inf"},
      {Spec(Kind::kUniform, 1, -1), 8, "initializer: a uniform range needs minimum <= maximum, got [1, -1)"},
      {Spec(Kind::kUniform, -3e38f, 3e38f), 8, "initializer: values up to 6e+38 times scale 1 overflow a float"},
      {Spec(Kind::kNormal, 0, -0.5f), 8, "initializer: a standard deviation must not be negative, got -0.5"},
      {Spec(Kind::kTruncatedNormal, 0, -1), 8, "initializer: a standard deviation must not be negative, got -1"},
      {Spec(Kind::kConstant, 1e30f, 0, 1e30f), 8, "initializer: values up to 1e+30 times scale 1e+30 overflow a float"},
      {Pool({}), 8, "initializer: the pool is empty; sample at least one row"},
      {Pool({1, 2, 3}), 2, "initializer: the pool must hold whole rows of 2 floats, got 3 floats"},
      {Pool({1, NAN}), 2, "initializer: `pool` must be finite, got nan"},
      {Spec(static_cast<Kind>(9), 0, 0), 8, "initializer: unknown kind 9"},
  };
  for (const auto& c : cases) {
    const Status status = Initializer::Check(c.spec, c.dim);
    EXPECT_EQ(status.code(), Status::Code::kInvalidArgument);
    EXPECT_EQ(status.message(), c.message);
  }
}

TEST(InitializerSpec, EqualsOnlyItsLike) {
  const InitializerSpec spec = Spec(Kind::kNormal, 1, 2, 3, 4);
  EXPECT_TRUE(spec == Spec(Kind::kNormal, 1, 2, 3, 4));
  for (const InitializerSpec& other :
       {Spec(Kind::kTruncatedNormal, 1, 2, 3, 4), Spec(Kind::kNormal, 0, 2, 3, 4), Spec(Kind::kNormal, 1, 0, 3, 4),
        Spec(Kind::kNormal, 1, 2, 0, 4), Spec(Kind::kNormal, 1, 2, 3, 0)}) {
    EXPECT_FALSE(spec == other);
  }
  EXPECT_TRUE(Pool({1, 2}) == Pool({1, 2}));
  EXPECT_FALSE(Pool({1, 2}) == Pool({1, 3}));
}

}  // namespace
}  // namespace mxrec
