#include "search/choose_overlap.h"

#include <fmt/format.h>

#include <utility>

#include "base/check.h"
#include "base/text.h"
#include "planner/forecast.h"
#include "planner/overlap.h"
#include "search/sharding_pins.h"

namespace meshwright::search {
namespace {

// Faster by less is not faster.
constexpr double kLeastHidden = 1e-3;

// Whether collectives of a layout on all devices run beside what computes.
bool HasSpareCores(const mesh::Topology& topology) {
  planner::Layout all;
  all.degrees[planner::Axis::kData] = static_cast<int64_t>(topology.devices.size());
  return planner::ResolveOverlap({}, all, topology) == ir::OverlapMode::kOn;
}

// Of a plan whose collectives run beside what computes, as planner/overlap.h decides where a core
// is free: whether a step is shorter for it. A note says by how much.
Result<bool> IsWorthOverlap(planner::Plan& plan, const mesh::Topology& topology) {
  MW_ASSIGN_OR_RETURN(const planner::Forecast forecast, planner::ForecastStep(plan, topology));
  MW_CHECK(forecast.step_s > 0) << "a step of " << forecast.step_s << " s";
  if (forecast.hidden_s < kLeastHidden * forecast.step_s) return false;
  plan.notes.push_back(fmt::format("collectives run beside what computes: {} of {} are hidden",
                                   FormatDuration(forecast.hidden_s),
                                   FormatDuration(forecast.collective_s)));
  return true;
}

}  // namespace

Result<FoundPlan> FindWithOverlap(const ir::JobRequest& job, const mesh::Topology& topology,
                                  const SearchTime& time, const FindOnDevices& find) {
  Result<FoundPlan> found = find(job, topology, time);
  if (job.parallel.overlap || job.trained() == nullptr) return found;
  ir::JobRequest in_turn = job;
  in_turn.parallel.overlap = false;
  if (!found.has_value()) {
    const bool misfit = found.error().code() == StatusCode::kResourceExhausted;
    if (!misfit || !HasSpareCores(topology) || time.IsOver(false)) return found;
    Result<FoundPlan> fitting = find(in_turn, topology, time);
    if (!fitting.has_value()) return found;
    fitting->plan.notes.push_back(
        fmt::format("collectives run in their turn: beside what computes the job does not fit ({})",
                    found.error().message()));
    return fitting;
  }
  if (found->by_search || found->plan.decided.overlap != true) return found;
  MW_ASSIGN_OR_RETURN(const bool worth, IsWorthOverlap(found->plan, topology));
  if (worth) return found;
  Result<planner::Plan> plan = planner::MakePlanOf(in_turn, topology, found->plan.layout,
                                                   found->plan.scope, MakePinnedRules(job));
  if (!plan.has_value()) return found;
  plan->notes = std::move(found->plan.notes);
  plan->notes.push_back("collectives run in their turn: beside what computes none is hidden");
  found->plan = *std::move(plan);
  return found;
}

}  // namespace meshwright::search
