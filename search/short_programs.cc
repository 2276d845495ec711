#include "search/short_programs.h"

#include <algorithm>

#include "search/nearest_choice.h"

namespace meshwright::search {

using planner::Layout;

bool IsNear(const LayoutCost& cost, const LayoutCost& fastest) {
  constexpr double kNear = 1.01;
  constexpr double kNearOfOneStage = 1.05;
  const bool one_stage = cost.layout.shape().parts() == 1 && fastest.layout.shape().parts() == 1 &&
                         cost.layout.degrees == fastest.layout.degrees;
  return cost.step_s <= (one_stage ? kNearOfOneStage : kNear) * fastest.step_s;
}

size_t ShortestOfNearest(const std::vector<LayoutCost>& best) {
  const auto runs = [](const Layout& layout) {
    return layout.shape().parts() * layout.microbatches * (layout.SplitsBackward() ? 3 : 2);
  };
  size_t chosen = 0;
  for (size_t i = 1; i < best.size(); ++i) {
    const bool shorter = 2 * runs(best[i].layout) <= runs(best[chosen].layout);
    if (shorter && IsNear(best[i], best[0])) chosen = i;
  }
  return chosen;
}

bool AddFewerMicrobatches(const ir::JobRequest& job, const mesh::Topology& topology,
                          const FindOptions& options, const SearchTime& time,
                          const LeftOut& left_out, std::vector<LayoutCost>& best) {
  if (options.any_that_fits) return false;
  const SearchTime better = time.ForBetter();
  FindOptions quiet = options;
  quiet.progress = nullptr;  // of the search that is over
  const LayoutCost fastest = best.front();
  const std::vector<ir::JobRequest> jobs = JobsWithFewerMicrobatches(job, fastest.layout);
  std::vector<ir::JobRequest> tried;  // the fewest, and one that is the likelier to fit
  if (!jobs.empty()) tried.push_back(jobs.front());
  if (jobs.size() > 1) tried.push_back(jobs.back());
  for (const ir::JobRequest& fewer : tried) {
    if (better.IsOver(true)) return true;
    const auto found = FindLayout(fewer, topology, quiet, better, left_out);
    if (!found.has_value() || !IsNear(found->best.front(), fastest)) continue;
    const LayoutCost& cost = found->best.front();
    const auto at = std::upper_bound(
        best.begin(), best.end(), cost,
        [](const LayoutCost& a, const LayoutCost& b) { return a.step_s < b.step_s; });
    const auto added = best.insert(at, cost);
    const bool too_many = best.size() > static_cast<size_t>(std::max(2, options.alternatives));
    if (too_many && added + 1 != best.end()) best.pop_back();
    break;
  }
  return false;
}

}  // namespace meshwright::search
