// What no plan of a job can do without, whatever its layout: every element of weights, optimizer
// state and gradients lies on some device, for at the end of the backward all gradients are there
// and nothing is updated yet. In closed form, so that a cluster that is far too small is refused
// before anything is searched.
//
// Thread rule: pure functions.
#pragma once

#include <cstdint>

#include "base/status.h"
#include "ir/job.h"
#include "mesh/topology.h"

namespace meshwright::search {

// Of all devices together; of a job that trains nothing the weights alone. Where replicas and ZeRO
// are pinned, with the copies that these ask for.
int64_t LeastStateBytes(const ir::JobRequest& job);

// A device of unknown memory has enough. Errors: kResourceExhausted with how many devices of this
// memory, or how much memory of each, the job needs at least.
Status CheckLeastMemory(const ir::JobRequest& job, const mesh::Topology& topology);

}  // namespace meshwright::search
