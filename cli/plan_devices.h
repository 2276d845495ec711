// The devices that a dry run plans for, as the command line names them.
//
// Thread rule: one thread; reads files, the environment and, with --address, a controller.
#pragma once

#include "base/result.h"
#include "cli/args.h"
#include "ir/job.h"
#include "mesh/topology.h"

namespace meshwright::cli {

// The devices that the options name: a cluster file, a number, the controller at --address, else
// those of the controller at $MESHWRIGHT_ADDRESS, else as many as the degrees' product. Errors:
// kInvalidArgument: none of these says how many, or two do; kUnavailable: nothing answers at an
// address that was given; those of LoadClusterFile, Connect and TopologyOf.
Result<mesh::Topology> PlanTopology(const PlanArgs& args, const GlobalArgs& global,
                                    const ir::JobRequest& job);

}  // namespace meshwright::cli
