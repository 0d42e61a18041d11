// Initializer: the first value of a row, a pure function of (seed, table, key). The same key starts from the same
// numbers whatever the order of arrival, the number of threads or ranks, or a restart.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/status.h"

namespace mxrec {

struct InitializerSpec {
  // Values cross the C interface: never renumber.
  enum class Kind {
    kConstant = 0,         // a
    kUniform = 1,          // [a, b)
    kNormal = 2,           // mean a, standard deviation b
    kTruncatedNormal = 3,  // mean a, standard deviation b of the untruncated normal, cut at two deviations
    kPool = 4,             // row hash(key) mod pool rows of `pool`: any other initializer, sampled once
  };
  Kind kind = Kind::kConstant;
  float a = 0.0f;
  float b = 0.0f;
  float scale = 1.0f;  // create_table's init_param: multiplies the result
  uint64_t seed = 0;
  std::vector<float> pool;  // [rows, dim], kPool only
};

bool operator==(const InitializerSpec& x, const InitializerSpec& y);

class Initializer {
 public:
  // `table` is the table's name: two tables with one seed still start from different rows.
  Initializer(const InitializerSpec& spec, const std::string& table, int dim);

  // InvalidArgument if `spec` cannot serve rows of `dim` floats (an empty or ragged pool, a non-finite parameter).
  static Status Check(const InitializerSpec& spec, int dim);

  // Writes the `dim` initial floats of `key`'s row. Thread-safe.
  void Fill(int64_t key, float* row) const;

 private:
  InitializerSpec spec_;
  int dim_;
  uint64_t stream_;  // seed and table name, mixed
};

}  // namespace mxrec
