// How a Status leaves through the C interface.
#pragma once

#include "base/status.h"

namespace mxrec {

// Remembers the message for mxrec_last_error() and returns the code.
int Report(const Status& status);

}  // namespace mxrec
