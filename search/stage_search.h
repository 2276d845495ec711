// The inter-operator search: which stages of a model run on which submeshes.
//
// From the last stage to the first, each way to have layers [first, layers) on some of the devices
// is a label: its sum and maximum of periods, its largest tail, and what is left of the hosts. A
// label that another one of the same layers, hosts and depth is no worse than in any respect goes;
// of the others a number goes on that are likely best by a bound: the least that the layers before
// can add, and the period that the devices that are left must keep. The search is a beam, therefore
// not exact where many labels are alike: it is made narrow first, for a bound that the wide one
// keeps.
//
// Costs that differ by less than a hundred-millionth count as equal; then the fewest stages win,
// then the fewest devices.
//
// Thread rule: SearchStages from any threads at once; the problem's callables run on the caller's.
// Source: Alpa (Zheng et al., OSDI'22) section 5 for the problem.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "base/clock.h"
#include "search/stage_problem.h"

namespace meshwright::search {

struct StageAnswer {
  std::vector<StageChoice> stages;
  std::vector<SubmeshPlace> places;  // of each stage, on hosts of its option's class
};

struct StageSearchOptions {
  int64_t timeout_ms = 10'000;
  int width = 256;  // labels that go on, per layer
};

// The best stages found in time; equal problems give equal answers when time does not end the
// search. Nothing: no stages fit, or none was found in time. REQUIRES: options have costs >= 0 of
// every layer, and boundaries lie between all of them.
std::optional<StageAnswer> SearchStages(const StageProblem& problem,
                                        const StageSearchOptions& options, const Clock& clock);

}  // namespace meshwright::search
