#include "cli/plan_file.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <memory>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/file.h"
#include "cli/cache_dir.h"
#include "cli/commands.h"
#include "cli/input_files.h"
#include "cli/plan_devices.h"
#include "cli/prepare_training.h"
#include "config/saved_plan.h"
#include "report/plan_changes.h"
#include "report/plan_json.h"
#include "report/plan_report.h"
#include "report/plan_search_report.h"

namespace meshwright::cli {
namespace {

// Within --plan-timeout: a third is for the search for layouts, one for what is made of its answer
// and one for what would make the job fit.
search::FindOptions TimeOptions(const PlanArgs& args) {
  search::FindOptions options;
  if (!args.plan_timeout_s) return options;
  options.timeout_ms = static_cast<int64_t>(*args.plan_timeout_s * 1000) / 3;
  options.patience_ms = 2 * options.timeout_ms;
  return options;
}

// Of a plan, and of what is said where there is none.
int64_t AllMs(const PlanArgs& args) {
  const search::FindOptions options = TimeOptions(args);
  return args.plan_timeout_s ? 3 * options.timeout_ms : 2 * options.patience_ms;
}

// Shows how far the search is where stderr is a terminal.
search::FindOptions SearchOptions(const PlanArgs& args, report::SearchProgress& progress) {
  search::FindOptions options = TimeOptions(args);
  if (::isatty(STDERR_FILENO) == 1) {
    options.progress = [&progress](const search::FindProgress& now) {
      progress.Show(now);
      return true;
    };
  }
  return options;
}

// What would make the job fit.
report::FittingChanges ChangesOf(const Misfit& misfit) {
  if (!misfit.time) return {};
  return report::FindFittingChanges(misfit.config, misfit.topology, *misfit.time);
}

// The devices of a saved plan where the options name none.
Result<PlanArgs> WithDevicesOfDecisions(PlanArgs args, const GlobalArgs& global) {
  const bool named = !args.cluster.empty() || args.devices > 0 || !global.address.empty();
  if (args.decisions.empty() || named) return args;
  MW_ASSIGN_OR_RETURN(const std::string text, ReadFile(args.decisions));
  if (!config::IsSavedPlan(text)) return args;
  MW_ASSIGN_OR_RETURN(const config::PlanOrigin origin,
                      config::ParsePlanOrigin(text, args.decisions));
  args.cluster = origin.cluster;
  if (origin.cluster.empty()) args.devices = static_cast<int>(origin.devices);
  if (origin.cluster.empty() && origin.devices > 0) {
    args.devices_per_worker = static_cast<int>(origin.devices_per_worker);
  }
  return args;
}

}  // namespace

int PrintResult(const std::string& text, const std::string& file) {
  if (file.empty()) {
    std::fwrite(text.data(), 1, text.size(), stdout);
    return kExitOk;
  }
  const Status written = WriteFileAtomic(file, text);
  if (!written.ok()) return ReportError(written);
  fmt::print(stderr, "wrote {}\n", file);
  return kExitOk;
}

Result<report::PlannedJob> PlanWithProgress(const PlanArgs& args, config::PreparedJob prepared,
                                            const mesh::Topology& topology,
                                            planner::PlanScope scope) {
  report::SearchProgress progress(SystemClock(), [](const std::string& text) {
    std::fwrite(text.data(), 1, text.size(), stderr);
  });
  const std::shared_ptr<const search::PlanCache> cache = OpenPlanCache(args.plan_cache);
  search::FindOptions options = SearchOptions(args, progress);
  options.cache = cache.get();
  return report::PlanJob(std::move(prepared), topology, options, SystemClock(), scope);
}

Result<PlannedFile> PlanFile(const PlanArgs& given, const GlobalArgs& global, const ScopeOf& scope,
                             std::optional<Misfit>& misfit) {
  MW_ASSIGN_OR_RETURN(const PlanArgs args, WithDevicesOfDecisions(given, global));
  const PlannedJobFile source{args.file, args.overrides, args.decisions};
  PlannedFile file;
  file.plan.name = args.decisions.empty() ? args.file : args.decisions;
  MW_ASSIGN_OR_RETURN(file.plan.config, LoadPlannedJob(source));
  config::JobConfig& config = file.plan.config;
  Result<config::PreparedJob> prepared_job = PrepareTraining(config);
  if (!prepared_job) return Fail(NamingOtherJob(prepared_job.error(), source));
  config::PreparedJob prepared = *std::move(prepared_job);
  MW_TRY(CheckInputDataIfAny(config, prepared.model));
  PrintNotes(config);
  const auto topology = PlanTopology(args, global, prepared.request);
  if (!topology && topology.error().code() == StatusCode::kResourceExhausted) {
    misfit = Misfit{config, {}, {}};
  }
  MW_TRY(topology);
  MW_TRY(PrintForeignPlan(args.decisions, prepared.request, &*topology));
  const search::SearchTime whole(AllMs(args), AllMs(args), SystemClock());
  auto planned = PlanWithProgress(args, std::move(prepared), *topology, scope(*topology));
  if (!planned && report::IsMisfit(planned.error())) misfit = Misfit{config, *topology, whole};
  if (!planned) return Fail(config::AtKey(planned.error(), config));
  file.plan.planned = *std::move(planned);
  file.topology = *topology;
  return file;
}

int ReportPlanError(const Status& error, const PlanArgs& args, const GlobalArgs& global,
                    const std::optional<Misfit>& misfit) {
  const int code = ReportError(error);
  if (!misfit) return code;
  const report::FittingChanges changes = ChangesOf(*misfit);
  if (misfit->time) fmt::print(stderr, "{}", report::FormatChanges(changes));
  if (global.json) {
    const int printed =
        PrintResult(report::MisfitJson(misfit->config.name, error, changes), args.out);
    if (printed != kExitOk) return printed;
  }
  return kExitDoesNotFit;
}

}  // namespace meshwright::cli
