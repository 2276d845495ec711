// Tiers: what of a job's state is in the memory of the host, and when it comes to the device.
//
// Pieces that touch such state are cut into chunks, which hold whole params in the order of their
// use; what a chunk needs comes while the one before runs, and goes back, if it was written, while
// the next one does. So the device holds three chunks at most, and a link that is as fast as what
// runs costs nothing but the first chunk's way in and the last one's way out. The optimizer's state
// is touched once a step, by the update; weights by each forward and backward of a microbatch, too.
// What is needed again soonest stays meanwhile, as far as there is room (planner/residency.h).
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
// ahead of the one that reads it, given back behind the one that writes it. Copies take room_bytes
// at most, or what two RUNs running need. For lists without FREE.
void AddTierCopies(int64_t room_bytes, ir::Program& program);

}  // namespace meshwright::planner
