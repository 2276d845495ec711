// How a server logs, as the options of all commands say.
//
// Thread rule: main thread, first.
#pragma once

#include "base/result.h"
#include "cli/args.h"

namespace meshwright::cli {

// Errors: those of base/log.h.
Status StartLog(const GlobalArgs& global);

}  // namespace meshwright::cli
