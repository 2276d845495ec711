// What the workers of each host have there together, of all hosts at once: clusters have as many
// hosts as workers, and going over the workers once for each host is their square.
//
// Thread rule: pure.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "controller/membership.h"

namespace meshwright::controller {

struct HostMeans {
  int cores = 0;             // as HostCores() says
  int64_t memory_bytes = 0;  // as HostMemoryBytes() says
};

// By host, those with a connected worker.
std::map<std::string, HostMeans> MeansOfHosts(const Membership& members);

}  // namespace meshwright::controller
