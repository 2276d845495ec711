// What plans depend on, as a short text that is equal when it is equal.
//
// Thread rule: pure functions.
#pragma once

#include <string>

#include "ir/job.h"
#include "mesh/topology.h"

namespace meshwright::search {

// Model, batch, sequence, types and optimizer: all of a job that the planner reads but
// JobRequest::parallel. 64 hexadecimal digits, as of all of these.
std::string JobFingerprint(const ir::JobRequest& job);

// What a job pins and leaves open.
std::string ParallelFingerprint(const ir::ParallelSpec& parallel);

// Devices with their memory, profiles and hosts, and the links. Names of workers and hosts do not
// count: which devices are together does.
std::string TopologyFingerprint(const mesh::Topology& topology);

}  // namespace meshwright::search
