// Why a plan is as it is: what the search chose it from, for people, and how far the search is
// while it runs.
//
// Thread rule: pure functions; SearchProgress on one thread.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "base/clock.h"
#include "report/plan_figures.h"
#include "search/find_layout.h"

namespace meshwright::report {

// The plan and its alternatives, at most 8, with seconds of a step, their ratio to the first row
// and the memory of the fullest device; then how much was priced and the gap. The row of the plan
// has the plan's own figures. The search estimates the others, and where it estimated the plan's
// step to be shorter or longer than its forecast, theirs are corrected in proportion. Rows that
// were planned have their own forecasts, and are marked, or the head is, where all were. Last, how
// often each solver and rule decided.
// "" where the job left nothing to the search.
std::string FormatSearch(const search::FoundLayout& found, const PlanFigures& plan);

// "microbatches 4: with these degrees 2 is 3.1 % slower, 8 does not fit": of the next fewer and the
// next more what the search knows; by which rule where there was none. "" where the job pins them,
// and where no other number was looked at.
std::string MicrobatchesLine(const search::FoundLayout& found, const planner::Layout& layout,
                             const ir::JobRequest& job);

// "decided by equal stages 1, forecasts 1"; "" where nothing was searched.
std::string DecidersLine(const search::DeciderCounts& deciders);

// One line, rewritten in place, that appears when a search takes long and goes when it ends.
class SearchProgress {
 public:
  // `write`: to a terminal, in pieces that end no line.
  SearchProgress(const Clock& clock, std::function<void(const std::string&)> write);
  ~SearchProgress();
  SearchProgress(const SearchProgress&) = delete;
  SearchProgress& operator=(const SearchProgress&) = delete;

  void Show(const search::FindProgress& progress);

 private:
  const Clock& clock_;
  const std::function<void(const std::string&)> write_;
  const int64_t start_ms_;
  int64_t shown_ms_ = -1;  // when the line was last written; -1: never
};

}  // namespace meshwright::report
