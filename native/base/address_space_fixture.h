// For tests of running out of memory, in a child process and without sanitizers, which need the address space for
// themselves.
#pragma once

#include <sys/resource.h>

#include <cstdio>
#include <cstdlib>

namespace mxrec {

// Lets the process take `extra` bytes more than it has; RLIM_INFINITY lifts the limit again.
inline void LimitAddressSpace(rlim_t extra) {
  long pages = 0;
  std::FILE* statm = std::fopen("/proc/self/statm", "r");
  if (statm == nullptr || std::fscanf(statm, "%ld", &pages) != 1) std::abort();
  std::fclose(statm);
  rlimit limit;
  getrlimit(RLIMIT_AS, &limit);
  limit.rlim_cur = extra == RLIM_INFINITY ? limit.rlim_max : static_cast<rlim_t>(pages) * 4096 + extra;
  setrlimit(RLIMIT_AS, &limit);
}

}  // namespace mxrec
