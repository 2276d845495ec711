// Where what a job leaves to the search is: near memories with which it fits, by what a step takes.
//
// A choice says for each kind of memory use in which memory it is. Choices are as far as the kinds
// that they move, a disk counting twice: first nothing is moved, then one kind to the host's
// memory, and so on. Of the choices of the first distance at which one fits the one with the
// shortest step is taken, unless room costs time there: where devices without a limit had a shorter
// step (for there the layout is free, and nothing is computed again), the next distance is priced,
// too, and taken if it is faster.
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
// with_disk: what is open may be on one.
std::vector<std::vector<ir::ParallelSpec>> MemoryChoices(const ir::ParallelSpec& parallel,
                                                         bool with_disk = true);

// "optimizer in the memory of the host, weights on the disk"; of the kinds that `asked` leaves
// open.
std::string MemoryText(const ir::ParallelSpec& asked, const ir::ParallelSpec& chosen);

using FindOnDevices = std::function<Result<FoundPlan>(const ir::JobRequest&, const mesh::Topology&,
                                                      const SearchTime&)>;

// The plan of `find` for the job with its memories decided, with a note that says what was wrong
// with nearer ones. All choices have `time` together: those of one distance half of what is left,
// each its part of that. Errors: as `find`; where nothing fits, that of the farthest choice, which
// says so if the time was over before. kResourceExhausted where the job says that something is on
// a disk and no device may use one; what is open does not go there then.
Result<FoundPlan> FindInMemories(const ir::JobRequest& job, const mesh::Topology& topology,
                                 const SearchTime& time, const FindOnDevices& find);

}  // namespace meshwright::search
