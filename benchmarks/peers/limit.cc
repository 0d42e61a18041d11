// The memory limit: what a step over these rows costs if finding them cost nothing.
//
// Rows are [w | m | v] in one array of 2 MiB pages, row numbers are known, the batch's distinct rows are known, and
// each thread prefetches the rows it will need. No embedding system can be faster; how near one comes is what is
// compared.

#include <sys/mman.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <thread>
#include <vector>

namespace {

constexpr int kAhead = 16;  // rows prefetched ahead of a gather; 8 to 32 make no difference
constexpr int kAheadUpdate = 8;
constexpr size_t kHugePage = size_t{2} << 20;

template <typename Body>
void Parallel(int64_t n, const Body& body) {
  const int threads = std::max(1u, std::thread::hardware_concurrency());
#pragma omp parallel for num_threads(threads) schedule(static, 1)
  for (int t = 0; t < threads; ++t) body(n * t / threads, n * (t + 1) / threads);
}

template <int kWrite>
void Prefetch(const float* row, int floats) {
  for (int i = 0; i < floats; i += 16) __builtin_prefetch(row + i, kWrite, 3);
}

template <int D>
void GatherBags(const float* table, const int32_t* rows, int64_t bags, int bag, float* out) {
  Parallel(bags, [=](int64_t begin, int64_t end) {
    const int64_t last = end * bag;
    for (int64_t i = begin * bag; i < std::min(last, begin * bag + kAhead); ++i)
      Prefetch<0>(table + int64_t{rows[i]} * 3 * D, D);
    for (int64_t b = begin; b < end; ++b) {
      float sum[D] = {};
      for (int64_t i = b * bag; i < (b + 1) * bag; ++i) {
        if (i + kAhead < last) Prefetch<0>(table + int64_t{rows[i + kAhead]} * 3 * D, D);
        const float* row = table + int64_t{rows[i]} * 3 * D;
        for (int k = 0; k < D; ++k) sum[k] += row[k];
      }
      std::copy(sum, sum + D, out + b * D);
    }
  });
}

template <int D>
void UpdateRows(float* table, const int32_t* rows, int64_t n, const float* gradients, int64_t n_gradients) {
  constexpr float kBeta1 = 0.9f, kBeta2 = 0.999f, kRate = 1e-3f, kEpsilon = 1e-8f;
  Parallel(n, [=](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < std::min(end, begin + kAheadUpdate); ++i)
      Prefetch<1>(table + int64_t{rows[i]} * 3 * D, 3 * D);
    for (int64_t i = begin; i < end; ++i) {
      if (i + kAheadUpdate < end) Prefetch<1>(table + int64_t{rows[i + kAheadUpdate]} * 3 * D, 3 * D);
      float* __restrict w = table + int64_t{rows[i]} * 3 * D;
      float* __restrict m = w + D;
      float* __restrict v = m + D;
      const float* __restrict g = gradients + (i % n_gradients) * D;
      for (int k = 0; k < D; ++k) {
        m[k] = kBeta1 * m[k] + (1 - kBeta1) * g[k];
        v[k] = kBeta2 * v[k] + (1 - kBeta2) * g[k] * g[k];
        w[k] -= kRate * m[k] / (std::sqrt(v[k]) + kEpsilon);
      }
    }
  });
}

}  // namespace

extern "C" {

// A table of `rows` rows of [w | m | v]; lives until the process ends. Null if there is no memory.
float* limit_table(int64_t rows, int dim) {
  const size_t floats = size_t(rows) * 3 * dim;
  const size_t bytes = (floats * sizeof(float) / kHugePage + 2) * kHugePage;
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) return nullptr;
  float* table =
      reinterpret_cast<float*>((reinterpret_cast<uintptr_t>(memory) + kHugePage - 1) / kHugePage * kHugePage);
  madvise(table, bytes - kHugePage, MADV_HUGEPAGE);
  Parallel(int64_t(floats), [=](int64_t begin, int64_t end) { std::fill(table + begin, table + end, 0.01f); });
  return table;
}

// out[b] = sum of the w of rows[b * bag .. (b + 1) * bag). Returns whether the dim is supported.
bool limit_gather(const float* table, int dim, const int32_t* rows, int64_t bags, int bag, float* out) {
  if (dim == 16) GatherBags<16>(table, rows, bags, bag, out);
  if (dim == 32) GatherBags<32>(table, rows, bags, bag, out);
  if (dim == 64) GatherBags<64>(table, rows, bags, bag, out);
  return dim == 16 || dim == 32 || dim == 64;
}

// One Adam update of each of `n` distinct rows, with gradients taken round-robin.
bool limit_update(float* table, int dim, const int32_t* rows, int64_t n, const float* gradients, int64_t n_gradients) {
  if (dim == 16) UpdateRows<16>(table, rows, n, gradients, n_gradients);
  if (dim == 32) UpdateRows<32>(table, rows, n, gradients, n_gradients);
  if (dim == 64) UpdateRows<64>(table, rows, n, gradients, n_gradients);
  return dim == 16 || dim == 32 || dim == 64;
}

}  // extern "C"
