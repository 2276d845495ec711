// Tiers: what of a job's state is in the memory of the host, and when it comes to the device.
//
// State of the optimizer is touched once a step, by the update. Where it is kept on the host, the
// update is cut into chunks, which hold whole parameters in the order of their use; the copies of a
// chunk come while the one before is updated, and go back while the next one is. So the device
// holds three chunks of it at most, and a link that is as fast as the update costs nothing but the
// first chunk's way in and the last one's way out.
//
// Sums, products and their order are those of the uncut update: results are equal bit for bit.
//
// Source: Rajbhandari et al., ZeRO-Infinity, SC 2021, section 5; Ren et al., ZeRO-Offload, ATC
// 2021. Thread rule: pure functions.
#pragma once

#include <cstdint>

#include "base/result.h"
#include "ir/job.h"
#include "ir/program.h"
#include "planner/pieces.h"

namespace meshwright::planner {

// Marks the params that the job wants on the host, and cuts the pieces that touch them. Errors:
// kInternal: as CutPiece.
Status PlaceState(const ir::ParallelSpec& wanted, Partition& partition);

// Gives every RUN that names a slot of the host's memory a copy of it instead: fetched one RUN
// ahead of the one that reads it, given back behind the one that writes it. For lists without FREE.
void AddTierCopies(ir::Program& program);

}  // namespace meshwright::planner
