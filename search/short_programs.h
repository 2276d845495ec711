// Layouts that are hardly slower than the fastest by their estimates, and whose programs are far
// shorter. Programs are made, sent and kept; and of one stage more microbatches save memory, not
// time: each reads the weights and adds to the gradients anew, and its products have fewer rows
// than their rates were measured with.
//
// Thread rule: as FindLayout.
#pragma once

#include <cstddef>
#include <vector>

#include "search/find_layout.h"

namespace meshwright::search {

// Whether estimates cannot tell the two apart: 1 %, of different numbers of microbatches of one
// stage 5 %.
bool IsNear(const LayoutCost& cost, const LayoutCost& fastest);

// Which of `best`, from the fastest, should be the plan: the first, unless the programs of one that
// is near it have together at most half as many steps. REQUIRES: not empty.
size_t ShortestOfNearest(const std::vector<LayoutCost>& best);

// The search keeps the fastest of equal degrees. Adds to its answer, in its place, the fastest with
// fewer microbatches that is near it, where it has one stage: the fewest, or else half as many.
// Arguments as of the search; what it found last leaves where there are too many. Whether the time
// was over.
bool AddFewerMicrobatches(const ir::JobRequest& job, const mesh::Topology& topology,
                          const FindOptions& options, const SearchTime& time,
                          const LeftOut& left_out, std::vector<LayoutCost>& best);

}  // namespace meshwright::search
