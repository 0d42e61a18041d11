// MXREC_VECTORIZED: put before a function to have it compiled for AVX-512, AVX2 and the baseline of the build; the
// loader binds the best one the CPU can run, so one wheel serves every x86-64 machine at its own width.
//
// A file that uses it is compiled with
//
//   -O3                  loops are vectorised, tails too
//   -ffp-contract=off    AVX-512 comes with fused multiply-add; fusing in one version only would change the bits
//   -fno-math-errno      sqrt is one instruction instead of a call that may set errno
//   -fno-trapping-math   both sides of a select may be computed, so a select vectorises
//
// and nothing that relaxes arithmetic further. Then every version does the same IEEE operations in the same order, and
// a model does not depend on the machine that trained it. The loops must stay free of reductions and of libm calls
// (other than sqrt, which IEEE defines exactly) for this to hold. The preprocessor sees only -ffast-math; the other
// mistakes change the digests in rule_test.cc and initializer_test.cc.
//
// Give pointers as __restrict parameters: on local variables GCC 12 ignores the word, and every row would pay for a
// check at run time that its parts do not overlap.
#pragma once

#if defined(__FAST_MATH__) || (defined(__FLT_EVAL_METHOD__) && __FLT_EVAL_METHOD__ != 0)
#error "rows must have the same bits on every machine: compile without -ffast-math and with SSE arithmetic"
#endif

// Clang says __has_feature(x), GCC says __SANITIZE_X__.
#if defined(__has_feature)
#define MXREC_HAS_FEATURE(x) __has_feature(x)
#else
#define MXREC_HAS_FEATURE(x) 0
#endif

// The choice is made by an ifunc resolver. That needs glibc (musl has none), and resolvers run before a sanitizer's
// runtime is up, so an instrumented one crashes in the loader.
#if defined(__x86_64__) && defined(__gnu_linux__) && !defined(__SANITIZE_ADDRESS__) &&                                \
    !defined(__SANITIZE_THREAD__) && !MXREC_HAS_FEATURE(address_sanitizer) && !MXREC_HAS_FEATURE(thread_sanitizer) && \
    !MXREC_HAS_FEATURE(memory_sanitizer)
#define MXREC_VECTORIZED __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define MXREC_VECTORIZED
#endif
