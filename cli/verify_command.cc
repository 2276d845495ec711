// verify: a job's plan is checked, and its layout held against one device, before anything runs.
#include <optional>

#include "base/clock.h"
#include "cli/commands.h"
#include "cli/plan_file.h"
#include "rehearsal/rehearse.h"

namespace meshwright::cli {

static_assert(kMostVerifiedRanks == rehearsal::kMostRanks);

int RunVerify(const VerifyArgs& args, const GlobalArgs& global) {
  // Programs of all ranks, unless there are far more than could be rehearsed.
  const ScopeOf scope = [](const mesh::Topology& topology) {
    return topology.devices.size() <= static_cast<size_t>(kMostVerifiedRanks)
               ? planner::PlanScope::kAllDevices
               : planner::PlanScope::kFewPrograms;
  };
  std::optional<Misfit> misfit;
  const Result<PlannedFile> file = PlanFile(args.plan, global, scope, misfit);
  if (!file) return ReportPlanError(file.error(), args.plan, global, misfit);
  rehearsal::RehearsalOptions options;
  options.seed = args.seed;
  options.max_ranks = args.max_ranks;
  const report::PlannedJob& planned = file->plan.planned;
  const auto rehearsal = rehearsal::Rehearse(file->plan.config, planned.prepared, planned.found,
                                             options, SystemClock());
  if (!rehearsal) return ReportError(config::AtKey(rehearsal.error(), file->plan.config));
  const std::string& name = planned.prepared.request.name;
  const int printed = PrintResult(global.json ? rehearsal::RehearsalJson(name, *rehearsal)
                                              : rehearsal::FormatRehearsal(name, *rehearsal));
  if (printed != kExitOk) return printed;
  return rehearsal->equal() ? kExitOk : kExitJobFailed;
}

}  // namespace meshwright::cli
