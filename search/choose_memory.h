// Where what a job leaves to the search is: the nearest memories with which it fits.
//
// A choice says for each kind of memory use in which memory it is. Choices are as far as the kinds
// that they move, a disk counting twice: first nothing is moved, then one kind to the host's
// memory, and so on. The first distance at which some choice fits ends the search, and of its
// choices the one with the shortest step is taken: what is farther moves more.
//
// Thread rule: pure functions.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "base/result.h"
#include "ir/job.h"
#include "mesh/topology.h"
#include "search/find_layout.h"

namespace meshwright::search {

bool LeavesMemoryOpen(const ir::ParallelSpec& parallel);

// By distance the specs with every "auto" decided. One, the spec itself, where nothing is open.
std::vector<std::vector<ir::ParallelSpec>> MemoryChoices(const ir::ParallelSpec& parallel);

// "optimizer in the memory of the host, weights on the disk"; of the kinds that `asked` leaves
// open.
std::string MemoryText(const ir::ParallelSpec& asked, const ir::ParallelSpec& chosen);

// The plan of `find` for the job with its memories decided, with a note that says what was wrong
// with nearer ones. Errors: as `find`; where nothing fits, that of the farthest choice.
Result<FoundPlan> FindInMemories(
    const ir::JobRequest& job, const mesh::Topology& topology,
    const std::function<Result<FoundPlan>(const ir::JobRequest&)>& find);

}  // namespace meshwright::search
