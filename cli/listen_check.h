// Why a server of this command could not listen, in the words of its options.
#pragma once

#include <string>

#include "base/result.h"

namespace meshwright::cli {

// Tries --bind `host` with the port of `port_option` ("--data-port"); OK for a port below 0, which
// means none. Errors: kInvalidArgument when the host is not numeric; kFailedPrecondition when this
// machine does not have the address, or somebody listens there.
Status CheckListen(const std::string& host, int port, const std::string& port_option);

}  // namespace meshwright::cli
