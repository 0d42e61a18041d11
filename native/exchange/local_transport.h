// LocalTransport: ranks that are threads of one process, for tests of what ranks do together.
#pragma once

#include <memory>
#include <vector>

#include "exchange/transport.h"

namespace mxrec {

// The transports of `size` ranks that are connected to each other. Each delivers in a thread of its own.
std::vector<std::unique_ptr<Transport>> LocalTransports(int size);

}  // namespace mxrec
