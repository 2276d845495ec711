// Candidates of the search for layouts in the order in which they are looked at.
//
// A family is degrees and rows of a microbatch: layouts that differ in schedule and ZeRO only. Its
// bound is all work spread evenly over its devices; families whose stages cannot wait for one
// another much, and whose devices have room for their weights, come first.
//
// Thread rule: pure functions.
#pragma once

#include <cstdint>
#include <vector>

#include "ir/job.h"
#include "search/layout_cost.h"
#include "search/open_choices.h"

namespace meshwright::search {

struct Family {
  planner::Layout layout;
  double least_s = 0;   // no member is faster
  double likely_s = 0;  // what is looked at first
};

// All degrees with the tensor group of `of_group`. `whole`: layers on the rows of a whole batch,
// which no smaller number of rows beats per row, nor do devices that share rows or experts.
void AddFamilies(const ir::JobRequest& job, const OpenChoices& choices, const Family& of_group,
                 const LayoutInput& whole, std::vector<Family>& families);

// The likely best first; ties prefer fewer devices, stages, and devices that share rows.
void SortFamilies(std::vector<Family>& families);

// Per family: the least bound of it and of all that come after it.
std::vector<double> LeastOfRest(const std::vector<Family>& families);

}  // namespace meshwright::search
