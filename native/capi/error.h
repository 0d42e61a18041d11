// How a Status leaves through the C interface.
#pragma once

#include <new>

#include "base/status.h"

namespace mxrec {

// Remembers the message for mxrec_last_error() and returns the code.
int Report(const Status& status);

// Reports the Status that fn() gives, and a lack of memory inside of it. Every function that may allocate goes through
// here: no caller of the C interface can catch an exception.
template <typename Fn>
int Guarded(Fn fn) {
  try {
    return Report(fn());
  } catch (const std::bad_alloc&) {
    return Report(Status::ResourceExhausted("out of memory"));  // short enough to need none
  }
}

}  // namespace mxrec
