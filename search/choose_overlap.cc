#include "search/choose_overlap.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

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

// Of a plan whose collectives run beside what computes: whether a step is shorter for it. A note
// says by how much.
bool IsWorthOverlap(const planner::Forecast& forecast, planner::Plan& plan) {
  MW_CHECK(forecast.step_s > 0) << "a step of " << forecast.step_s << " s";
  if (forecast.hidden_s < kLeastHidden * forecast.step_s) return false;
  plan.notes.push_back(fmt::format("collectives run beside what computes: {} of {} are hidden",
                                   FormatDuration(forecast.hidden_s),
                                   FormatDuration(forecast.collective_s)));
  return true;
}

// Why what the job asks for hides nothing.
std::string IdleOverlapNote(const planner::Forecast& forecast, const planner::Plan& plan,
                            const mesh::Topology& topology, const ir::ParallelSpec& asked) {
  if (forecast.collective_s <= 0) {
    return "parallelism.overlap = true changes nothing: no devices meet in a collective";
  }
  const mesh::Topology seen = planner::TopologyOf(plan.layout, topology);
  double most = 0;
  for (const ir::Program& program : plan.Main()) {
    most = std::max(most, planner::ShareOf(program, seen, plan.layout.device_count()));
  }
  const char* why = "what computes needs each of them at once";
  if (most == 0 && planner::CopiesTakeTurns(asked, seen)) {
    why = "copies between memories have the threads for that; leave it out";
  } else if (most == 0) {
    why =
        "no core is free for them; leave it out, or give hosts more cores than the threads of "
        "their devices (--threads-per-device)";
  }
  const std::string hidden = forecast.hidden_s > 0 ? FormatDuration(forecast.hidden_s) +
                                                         ", less than a thousandth of the step,"
                                                   : "none";
  return fmt::format(
      "parallelism.overlap = true: collectives run beside what computes, but {} of their {} is "
      "hidden: {}",
      hidden, FormatDuration(forecast.collective_s), why);
}

// A plan in which what the job pins is on, with a note of what comes of it.
Result<FoundPlan> WithOverlapNote(FoundPlan found, const mesh::Topology& topology,
                                  const ir::ParallelSpec& asked) {
  MW_ASSIGN_OR_RETURN(const planner::Forecast forecast,
                      planner::ForecastStep(found.plan, topology));
  if (!IsWorthOverlap(forecast, found.plan)) {
    found.plan.notes.push_back(IdleOverlapNote(forecast, found.plan, topology, asked));
  }
  return found;
}

// Notes of a plan that was made again: those of the search, and those of how it is made now.
std::vector<std::string> NotesMadeAgain(const planner::Plan& before, const planner::Plan& now) {
  std::vector<std::string> notes;
  for (const std::string& note : before.notes) {
    const auto& made = before.made_notes;
    if (std::find(made.begin(), made.end(), note) == made.end()) notes.push_back(note);
  }
  notes.insert(notes.end(), now.notes.begin(), now.notes.end());
  return notes;
}

}  // namespace

Result<FoundPlan> FindWithOverlap(const ir::JobRequest& job, const mesh::Topology& topology,
                                  const SearchTime& time, const FindOnDevices& find) {
  Result<FoundPlan> found = find(job, topology, time);
  if (job.parallel.overlap == false || job.trained() == nullptr) return found;
  ir::JobRequest in_turn = job;
  in_turn.parallel.overlap = false;
  if (job.parallel.overlap == true) {
    if (found.has_value()) return WithOverlapNote(*std::move(found), topology, job.parallel);
    return found;
  }
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
  MW_ASSIGN_OR_RETURN(const planner::Forecast forecast,
                      planner::ForecastStep(found->plan, topology));
  if (IsWorthOverlap(forecast, found->plan)) return found;
  Result<planner::Plan> plan = planner::MakePlanOf(in_turn, topology, found->plan.layout,
                                                   found->plan.scope, MakePinnedRules(job));
  if (!plan.has_value()) return found;
  plan->notes = NotesMadeAgain(found->plan, *plan);
  plan->notes.push_back(
      "collectives run in their turn: beside what computes next to none is hidden");
  found->plan = *std::move(plan);
  return found;
}

Result<FoundPlan> OfferTurns(Result<FoundPlan> found, const ir::JobRequest& job,
                             const mesh::Topology& topology, const SearchTime& time,
                             const FindOnDevices& find) {
  const bool misfit = !found.has_value() && found.error().code() == StatusCode::kResourceExhausted;
  if (!misfit || job.parallel.overlap != true || time.IsOver(false)) return found;
  ir::JobRequest in_turn = job;
  in_turn.parallel.overlap = false;
  if (!find(in_turn, topology, time).has_value()) return found;
  return Fail(
      found.error().WithContext("it fits with parallelism.overlap = false, and not with true"));
}

}  // namespace meshwright::search
