// plan, visualize, config: nothing runs, pure functions of files and arguments.
#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>
#include <optional>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/file.h"
#include "base/text.h"
#include "cli/commands.h"
#include "cli/job_config.h"
#include "cli/output.h"
#include "cli/plan_changes.h"
#include "cli/plan_job.h"
#include "cli/plan_report.h"
#include "cli/plan_search_report.h"
#include "cli/plan_what_if.h"
#include "ir/text.h"
#include "mesh/visualize.h"
#include "planner/plan.h"

namespace meshwright::cli {
namespace {

int Print(const std::string& text, const std::string& file) {
  if (file.empty()) {
    std::fwrite(text.data(), 1, text.size(), stdout);
    return kExitOk;
  }
  const Status written = WriteFileAtomic(file, text);
  if (!written.ok()) return ReportError(written);
  fmt::print(stderr, "wrote {}\n", file);
  return kExitOk;
}

int PrintOrFail(const Result<std::string>& text, const std::string& file = "") {
  return text ? Print(*text, file) : ReportError(text.error());
}

Result<std::string> FormatPlannedJob(const PlanArgs& args, const PlannedJob& planned) {
  const planner::Plan& plan = planned.plan();
  std::string text = fmt::format("job        {}\nmodel      {}\n", planned.prepared.request.name,
                                 planned.prepared.model.summary);
  text += planner::FormatPlan(plan, args.programs, FormatSearch(planned.found.found));
  text += FormatForecast(planned.forecast);
  if (!args.timeline.empty()) {
    MW_TRY(WriteFileAtomic(args.timeline, planner::ForecastTrace(plan, planned.forecast)));
    text += fmt::format("timeline   {} (open in https://ui.perfetto.dev)\n", args.timeline);
  }
  return text;
}

// Asks for a search within --plan-timeout that shows how far it is where stderr is a terminal.
search::FindOptions SearchOptions(const PlanArgs& args, SearchProgress& progress) {
  search::FindOptions options;
  options.timeout_ms = static_cast<int64_t>(args.plan_timeout_s * 1000);
  if (::isatty(STDERR_FILENO) == 1) {
    options.progress = [&progress](const search::FindProgress& now) {
      progress.Show(now);
      return true;
    };
  }
  return options;
}

Result<PlannedJob> PlanWithProgress(const PlanArgs& args, PreparedJob prepared,
                                    const mesh::Topology& topology) {
  SearchProgress progress(SystemClock(), [](const std::string& text) {
    std::fwrite(text.data(), 1, text.size(), stderr);
  });
  // Programs are only made for all devices where they are asked for or soon made.
  const bool programs = args.programs || args.stop_after == "programs";
  return PlanJob(std::move(prepared), topology, SearchOptions(args, progress), SystemClock(),
                 PlanScopeOf(topology, programs));
}

// The difference to a plan with the values of --what-if, all of them together. Errors: those of the
// second plan.
Result<std::string> WhatIfText(const PlanArgs& args, const mesh::Topology& topology,
                               const PlannedJob& before) {
  std::vector<std::string> overrides = args.overrides;
  overrides.insert(overrides.end(), args.what_if.begin(), args.what_if.end());
  const std::string name = Join(args.what_if, ", ");
  MW_ASSIGN_OR_RETURN(const JobConfig config, LoadJobConfig(args.file, std::move(overrides)));
  MW_ASSIGN_OR_RETURN(PreparedJob prepared, PrepareJob(config));
  const auto after = PlanWithProgress(args, std::move(prepared), topology);
  if (!after) return Fail(after.error().WithContext("--what-if " + name));
  return FormatWhatIf(name, FiguresOf(before), FiguresOf(*after));
}

// What would make the job fit, on stderr behind the error.
void PrintChanges(const PlanArgs& args, const JobConfig& config, const mesh::Topology& topology) {
  search::FindOptions options;
  // A handful of searches follow one another; each has a part of the time.
  options.timeout_ms = static_cast<int64_t>(args.plan_timeout_s * 200);
  const auto changes = FindFittingChanges(config, topology, options, SystemClock());
  fmt::print(stderr, "{}", FormatChanges(changes));
}

struct Misfit {
  JobConfig config;
  mesh::Topology topology;  // empty: there are no devices at all
};

// `misfit` is set when the job is sound but does not fit the devices.
Result<std::string> PlanText(const PlanArgs& args, const GlobalArgs& global,
                             std::optional<Misfit>& misfit) {
  MW_ASSIGN_OR_RETURN(const JobConfig config, LoadJobConfig(args.file, args.overrides));
  MW_ASSIGN_OR_RETURN(PreparedJob prepared, PrepareJob(config));
  PrintNotes(config);
  if (args.stop_after == "graph") return ir::FormatGraph(prepared.request.loss);
  if (args.stop_after == "step-graph") {
    MW_ASSIGN_OR_RETURN(const ir::Graph step, planner::MakeStepGraph(prepared.request));
    return ir::FormatGraph(step);
  }
  const auto topology = PlanTopology(args, global, prepared.request.parallel);
  if (!topology && topology.error().code() == StatusCode::kResourceExhausted) {
    misfit = Misfit{config, {}};
  }
  MW_TRY(topology);
  const auto planned = PlanWithProgress(args, std::move(prepared), *topology);
  if (!planned && IsMisfit(planned.error())) misfit = Misfit{config, *topology};
  MW_TRY(planned);
  const planner::Plan& plan = planned->plan();
  if (args.stop_after == "programs") return planner::FormatPlan(plan, true);
  if (args.stop_after == "executable") return FormatExecutables(plan, *topology);
  MW_ASSIGN_OR_RETURN(std::string text, FormatPlannedJob(args, *planned));
  if (args.what_if.empty()) return text;
  const auto comparison = WhatIfText(args, *topology, *planned);
  if (!comparison && IsMisfit(comparison.error())) misfit = Misfit{config, {}};
  MW_TRY(comparison);
  return text + "\n" + *comparison;
}

Result<std::string> Picture(const VisualizeArgs& args, bool color) {
  MW_ASSIGN_OR_RETURN(const mesh::TypedSharding sharding, mesh::ParseSharding(args.sharding));
  MW_ASSIGN_OR_RETURN(const mesh::Mesh mesh, ParseMesh(args.mesh));
  if (!args.svg.empty()) return mesh::RenderSvg(sharding.type, sharding.sharding, mesh);
  mesh::GridOptions options;
  options.color = color;
  return mesh::RenderGrid(sharding.type, sharding.sharding, mesh, options);
}

Result<std::string> ConfigText(const ConfigArgs& args) {
  if (args.action == "schema") return ConfigSchemaJson();
  if (args.action == "docs") return ConfigReferenceMarkdown();
  if (args.file.empty()) {
    return Fail(InvalidArgument(fmt::format("config {} needs a job file", args.action)));
  }
  MW_ASSIGN_OR_RETURN(const JobConfig config, LoadJobConfig(args.file, args.overrides));
  if (args.action == "show") {
    PrintNotes(config);
    return FormatJobConfig(config);
  }
  MW_ASSIGN_OR_RETURN(const PreparedJob prepared, PrepareJob(config));
  PrintNotes(config);
  return fmt::format("{} is valid: {}\n", args.file, prepared.model.summary);
}

}  // namespace

int RunPlan(const PlanArgs& args, const GlobalArgs& global) {
  std::optional<Misfit> misfit;
  const Result<std::string> text = PlanText(args, global, misfit);
  if (text) return Print(*text, args.out);
  const int code = ReportError(text.error());
  if (!misfit) return code;
  if (!misfit->topology.devices.empty()) PrintChanges(args, misfit->config, misfit->topology);
  return kExitDoesNotFit;
}

int RunVisualize(const VisualizeArgs& args, const GlobalArgs& global) {
  return PrintOrFail(Picture(args, UseColor(global.color)), args.svg);
}

int RunConfig(const ConfigArgs& args) { return PrintOrFail(ConfigText(args)); }

}  // namespace meshwright::cli
