// Tiers: what of a job is in a farther memory than the device's, the host's or a disk, and when it
// comes to the device.
//
// Pieces that touch it are cut into chunks, which hold whole tensors in the order of their use;
// what a chunk needs comes while the one before runs, and goes back, if it was written, while the
// next one does. So the device holds three chunks, and a link that is as fast as what runs costs
// nothing but the first chunk's way in and the last one's way out. Where the device has room for
// more, chunks come earlier: what a slow link carries in is then there when the update begins.
//
// The optimizer's state is touched once a step, by the update; weights by each forward and backward
// of a microbatch, too. Both have a place of their own in the far memory. Activations and gradients
// are made in the step: what the forward leaves for the backward, and what the backward leaves for
// the update. They go to the host's memory only where there is no room until they are read again,
// and have a place there only as long. What is needed again soonest stays, of all kinds together
// (planner/residency.h).
//
// Sums, products and their order are those of the uncut step: results are equal bit for bit.
//
// Source: Rajbhandari et al., ZeRO-Infinity, SC 2021, section 5; Ren et al., ZeRO-Offload, ATC
// 2021; Fang et al., PatrickStar, IEEE TPDS 2023. Thread rule: pure functions.
#pragma once

#include <cstdint>

#include "base/result.h"
#include "ir/job.h"
#include "ir/program.h"
#include "planner/host_update.h"
#include "planner/pieces.h"

namespace meshwright::planner {

// The memory that the job wants a kind in; what it leaves open is on the device.
ir::Space SpaceOf(const ir::ParallelSpec& wanted, ir::MemoryKind kind);

// Marks the tensors that the job wants elsewhere, and cuts the pieces that touch them. What a
// message or a report names stays. Of the update, the host runs what it renews where it lies
// (planner/host_update.h); known: weights that it renews in another program. Errors: kInternal: as
// CutPiece.
Status PlaceState(const ir::ParallelSpec& wanted, Partition& partition,
                  const HostWeights& known = {});

// Gives every RUN that names a far slot a copy of it instead: fetched at least one RUN ahead of the
// one that reads it, given back behind the one that writes it; what is not persistent, behind the
// RUN that follows, beside which it goes. Copies take room_bytes at most, or what two RUNs running
// need. With ahead_bytes more, more stays from one RUN to a later one, and what comes does so as
// early as there is room.
// on_host: per executable, the host runs it, on what is in its memory. For lists without FREE.
void AddTierCopies(int64_t room_bytes, int64_t ahead_bytes, const std::vector<bool>& on_host,
                   ir::Program& program);

}  // namespace meshwright::planner
