// The mesh of threads that `meshwright verify` runs a job on (rehearsal/virtual_cluster.h), under
// the names of these tests.
#pragma once

#include "rehearsal/virtual_cluster.h"

namespace meshwright::testing {

using rehearsal::LargestDifference;
using rehearsal::LogicalTensor;
using rehearsal::SyntheticTokens;
using rehearsal::VirtualCluster;

}  // namespace meshwright::testing
