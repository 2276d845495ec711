// What `meshwright up` says to do next.
//
// Thread rule: pure.
#pragma once

#include <string>

#include "cli/args.h"
#include "cli/run_dir.h"

namespace meshwright::cli {

// Commands to copy into the shell that `up` ran in: with a token, the line that gives it to all of
// them comes first.
std::string NextCommands(const UpArgs& args, const GlobalArgs& global, const ClusterState& state);

}  // namespace meshwright::cli
