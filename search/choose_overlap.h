// Whether collectives run beside what computes, where the job leaves it open.
//
// planner/overlap.h says for which devices it may be worth it. It costs memory (buckets have bytes
// of their own), so it is left where the job does not fit with it, and where a step is not forecast
// to be shorter for it.
//
// Thread rule: pure functions.
#pragma once

#include "base/result.h"
#include "ir/job.h"
#include "mesh/topology.h"
#include "search/choose_memory.h"
#include "search/find_layout.h"

namespace meshwright::search {

// The plan of `find` for the job with its overlap decided; a note says why, and what comes of one
// that the job pins. Errors: as `find`.
Result<FoundPlan> FindWithOverlap(const ir::JobRequest& job, const mesh::Topology& topology,
                                  const SearchTime& time, const FindOnDevices& find);

// `found`, which is the answer of `find`. Of what does not fit with an overlap that the job pins it
// says where it does without.
Result<FoundPlan> OfferTurns(Result<FoundPlan> found, const ir::JobRequest& job,
                             const mesh::Topology& topology, const SearchTime& time,
                             const FindOnDevices& find);

}  // namespace meshwright::search
