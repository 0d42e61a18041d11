// MpiTransport: carries messages by MPI, whichever has started the process. All calls of MPI are made by one thread,
// which also delivers.
#pragma once

#include <memory>
#include <string>

#include "base/status.h"
#include "exchange/transport.h"

namespace mxrec {

// Loads the MPI library at `path`, a name that the dynamic linker finds or a file, and joins the ranks that were
// started together; where another library of the process has initialised MPI, joins those. NotFound if there is no such
// library, FailedPrecondition if it is none of the known ones.
Status JoinMpi(const std::string& path, std::unique_ptr<Transport>* transport);

}  // namespace mxrec
