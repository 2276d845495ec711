// plan, visualize, config: nothing runs, pure functions of files and arguments.
#include <fmt/format.h>

#include <cstdio>
#include <optional>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/file.h"
#include "base/text.h"
#include "cli/commands.h"
#include "cli/output.h"
#include "cli/plan_file.h"
#include "cli/prepare_training.h"
#include "config/foreign_keys.h"
#include "config/job_config.h"
#include "config/saved_plan.h"
#include "ir/text.h"
#include "planner/plan_text.h"
#include "report/forecast_trace.h"
#include "report/plan_axes.h"
#include "report/plan_diff.h"
#include "report/plan_explain.h"
#include "report/plan_job.h"
#include "report/plan_json.h"
#include "report/plan_report.h"
#include "report/plan_search_report.h"
#include "report/plan_svg.h"
#include "report/plan_what_if.h"
#include "report/snapshot_figures.h"
#include "report/visualize.h"

namespace meshwright::cli {
namespace {

int PrintOrFail(const Result<std::string>& text, const std::string& file = "") {
  return text ? PrintResult(*text, file) : ReportError(text.error());
}

// Programs are only made for all devices where they are asked for or soon made.
planner::PlanScope ScopeFor(const PlanArgs& args) {
  const bool programs = args.programs || args.stop_after == "programs";
  return programs ? planner::PlanScope::kAllDevices : planner::PlanScope::kFewPrograms;
}

ScopeOf ScopesOf(const PlanArgs& args) {
  return [scope = ScopeFor(args)](const mesh::Topology&) { return scope; };
}

std::string FormatPlannedJob(const PlanArgs& args, const report::PlannedJob& planned,
                             const mesh::Topology& topology) {
  const planner::Plan& plan = planned.plan();
  std::string text =
      fmt::format("job        {}\nmodel      {}\ndevices    {}\n", planned.prepared.request.name,
                  planned.prepared.model.summary, report::DescribeDevices(topology));
  std::string reasons = report::FormatSearch(planned.found.found, report::FiguresOf(planned));
  reasons += report::MicrobatchesLine(planned.found.found, plan.layout, planned.prepared.request);
  if (planned.found.from_cache) reasons += "found in the cache (--no-plan-cache searches anew)\n";
  const double step_s = planned.forecast.step_s;
  text += report::FormatForecast(planned.forecast);
  text += report::FormatSnapshots(
      report::SnapshotsOf(plan, topology, planned.prepared.request, step_s), step_s);
  if (args.full) return text + planner::FormatWholePlan(plan, args.programs, reasons);
  return text + planner::FormatPlan(plan, args.programs, reasons);
}

Result<std::string> SavedPlanText(const PlanArgs& args, const report::NamedPlan& plan,
                                  const mesh::Topology& topology) {
  config::PlanOrigin origin;
  origin.job = args.file;
  origin.overrides = args.overrides;
  origin.cluster = args.cluster;
  origin.devices_per_worker = args.devices_per_worker;
  const report::PlannedJob& planned = plan.planned;
  return config::FormatSavedPlan(std::move(origin),
                                 {plan.config, planned.prepared, planned.found, planned.forecast},
                                 topology);
}

// The files that go with a plan; a line for each.
Result<std::string> WritePlanFiles(const PlanArgs& args, const report::NamedPlan& plan,
                                   const mesh::Topology& topology) {
  const planner::Forecast& forecast = plan.planned.forecast;
  std::string lines;
  if (!args.timeline.empty()) {
    MW_TRY(WriteFileAtomic(args.timeline, report::ForecastTrace(plan.planned.plan(), forecast)));
    lines += fmt::format("timeline   {} (open in https://ui.perfetto.dev)\n", args.timeline);
  }
  if (!args.svg.empty()) {
    MW_TRY(WriteFileAtomic(args.svg, report::PlanSvg(plan.planned.plan(), forecast, topology)));
    lines += fmt::format("picture    {}\n", args.svg);
  }
  if (!args.save.empty()) {
    MW_ASSIGN_OR_RETURN(const std::string text, SavedPlanText(args, plan, topology));
    MW_TRY(WriteFileAtomic(args.save, text));
    std::string job = args.file;
    for (const std::string& setting : args.overrides) job += fmt::format(" --set '{}'", setting);
    lines +=
        fmt::format("saved      {} (meshwright plan {} --plan {})\n", args.save, job, args.save);
  }
  return lines;
}

// Errors of keys call a value by --set, as it is read; here it is that of --what-if.
Status OfWhatIf(const Status& error, const PlanArgs& args) {
  const std::string& message = error.message();
  for (const std::string& text : args.what_if) {
    const std::string set = "--set " + text + ": ";
    if (!message.starts_with(set)) continue;
    return Status(error.code(), message.substr(set.size())).WithContext("--what-if " + text);
  }
  return error.WithContext("--what-if " + Join(args.what_if, ", "));
}

// The job with the values of --what-if, all of them together. Errors name the option.
Result<config::JobConfig> WhatIfConfig(const PlanArgs& args) {
  std::vector<std::string> overrides = args.overrides;
  overrides.insert(overrides.end(), args.what_if.begin(), args.what_if.end());
  Result<config::JobConfig> config = LoadPlannedJob({args.file, overrides, args.decisions});
  Status status = config.has_value() ? OkStatus() : config.error();
  if (status.ok()) {
    const auto prepared = PrepareTraining(*config);
    if (!prepared.has_value())
      status = NamingOtherJob(prepared.error(), {args.file, overrides, args.decisions});
  }
  if (status.ok()) return config;
  return Fail(OfWhatIf(status, args));
}

// Errors: those of the second plan.
Result<report::NamedFigures> WhatIf(const PlanArgs& args, const config::JobConfig& config,
                                    const mesh::Topology& topology) {
  const std::string name = Join(args.what_if, ", ");
  MW_ASSIGN_OR_RETURN(config::PreparedJob prepared, config::PrepareJob(config));
  const auto after = PlanWithProgress(args, std::move(prepared), topology, ScopeFor(args));
  if (!after) {
    return Fail(OfWhatIf(config::AtKey(after.error(), config), args));
  }
  std::vector<std::string> notes = config.notes;
  notes.insert(notes.end(), after->plan().notes.begin(), after->plan().notes.end());
  return report::NamedFigures{name, report::FiguresOf(*after), std::move(notes)};
}

// What the planner starts from: no devices are asked for.
Result<std::string> GraphText(const PlanArgs& args) {
  const PlannedJobFile source = {args.file, args.overrides, args.decisions};
  MW_ASSIGN_OR_RETURN(config::JobConfig config, LoadPlannedJob(source));
  const Result<config::PreparedJob> prepared = PrepareTraining(config);
  if (!prepared.has_value()) return Fail(NamingOtherJob(prepared.error(), source));
  PrintNotes(config);
  if (args.stop_after == "graph") return ir::FormatGraph(prepared->request.main().graph);
  MW_ASSIGN_OR_RETURN(const ir::Graph step, planner::MakeStepGraph(prepared->request));
  return ir::FormatGraph(step);
}

Result<std::string> ShowText(const PlanArgs& args, const GlobalArgs& global,
                             std::optional<Misfit>& misfit) {
  if (args.stop_after == "graph" || args.stop_after == "step-graph") return GraphText(args);
  std::optional<config::JobConfig> what_if_config;
  if (!args.what_if.empty()) {
    MW_ASSIGN_OR_RETURN(what_if_config, WhatIfConfig(args));
  }
  MW_ASSIGN_OR_RETURN(const PlannedFile file, PlanFile(args, global, ScopesOf(args), misfit));
  const report::PlannedJob& planned = file.plan.planned;
  if (args.stop_after == "programs") return planner::FormatPlan(planned.plan(), true);
  if (args.stop_after == "executable")
    return report::FormatExecutables(planned.plan(), file.topology);
  MW_ASSIGN_OR_RETURN(const std::string written, WritePlanFiles(args, file.plan, file.topology));
  std::optional<report::NamedFigures> what_if;
  if (what_if_config) {
    auto comparison = WhatIf(args, *what_if_config, file.topology);
    if (!comparison && report::IsMisfit(comparison.error()))
      misfit = Misfit{file.plan.config, {}, {}};
    MW_TRY(comparison);
    what_if = *std::move(comparison);
  }
  if (global.json) return report::PlanJson(planned, file.topology, what_if);
  const std::string text = FormatPlannedJob(args, planned, file.topology) + written;
  if (!what_if) return text;
  return text + "\n" +
         report::FormatWhatIf(what_if->name, report::FiguresOf(planned), what_if->figures,
                              what_if->notes);
}

// A job file as it is; of a saved plan, the job that it was made for, with its decisions.
Result<PlanArgs> ArgsOfPlanFile(const PlanArgs& args, const std::string& path) {
  PlanArgs own = args;
  own.file = path;
  MW_ASSIGN_OR_RETURN(const std::string text, ReadFile(path));
  if (!config::IsSavedPlan(text)) return own;
  MW_ASSIGN_OR_RETURN(const config::PlanOrigin origin, config::ParsePlanOrigin(text, path));
  if (origin.job.empty()) {
    return Fail(InvalidArgument(
        fmt::format("{}: [plan] does not say which job it is for: add job = \"FILE\"", path)));
  }
  own.file = origin.job;
  own.decisions = path;
  own.overrides = origin.overrides;
  own.overrides.insert(own.overrides.end(), args.overrides.begin(), args.overrides.end());
  return own;
}

Result<std::string> DiffText(const PlanArgs& args, const GlobalArgs& global,
                             std::optional<Misfit>& misfit) {
  MW_ASSIGN_OR_RETURN(const PlanArgs first, ArgsOfPlanFile(args, args.file));
  MW_ASSIGN_OR_RETURN(const PlanArgs second, ArgsOfPlanFile(args, args.other));
  const auto a = PlanFile(first, global, ScopesOf(first), misfit);
  if (!a) return Fail(a.error().WithContext(args.file));
  const auto b = PlanFile(second, global, ScopesOf(second), misfit);
  if (!b) return Fail(b.error().WithContext(args.other));
  const report::PlanDiff diff = report::DiffPlans(a->plan, b->plan);
  return global.json ? report::PlanDiffJson(a->plan, b->plan, diff)
                     : report::FormatPlanDiff(a->plan, b->plan, diff);
}

Result<std::string> ExplainText(const PlanArgs& args, const GlobalArgs& global,
                                std::optional<Misfit>& misfit) {
  MW_ASSIGN_OR_RETURN(const PlannedFile file, PlanFile(args, global, ScopesOf(args), misfit));
  if (args.subject.empty()) {
    // Each of the axes' searches has a part of the time.
    return report::ExplainPlanAxes(file.plan.planned, file.topology, global.json,
                                   static_cast<int64_t>(args.plan_timeout_s.value_or(10) * 200),
                                   SystemClock());
  }
  return report::ExplainPlan(file.plan.planned, file.topology, args.subject, global.json,
                             SystemClock());
}

Result<std::string> PlanText(const PlanArgs& args, const GlobalArgs& global,
                             std::optional<Misfit>& misfit) {
  switch (args.action) {
    case PlanAction::kShow:
      return ShowText(args, global, misfit);
    case PlanAction::kExplain:
      return ExplainText(args, global, misfit);
    case PlanAction::kDiff:
      return DiffText(args, global, misfit);
  }
  return Fail(Internal("no such action of plan"));
}

Result<std::string> Picture(const VisualizeArgs& args, bool color) {
  MW_ASSIGN_OR_RETURN(const mesh::TypedSharding sharding, mesh::ParseSharding(args.sharding));
  MW_ASSIGN_OR_RETURN(const mesh::Mesh mesh, report::ParseMesh(args.mesh));
  if (!args.svg.empty()) return report::RenderSvg(sharding.type, sharding.sharding, mesh);
  report::GridOptions options;
  options.color = color;
  return report::RenderGrid(sharding.type, sharding.sharding, mesh, options);
}

Result<std::string> ConfigText(const ConfigArgs& args) {
  if (args.action == "schema") return config::ConfigSchemaJson();
  if (args.action == "docs") return config::ConfigReferenceMarkdown();
  if (args.action == "coming-from") {
    std::string text;
    for (const config::Origin origin : config::kOrigins) {
      text += fmt::format("<!-- keys of {} -->\n\n{}\n", config::OriginName(origin),
                          config::ForeignKeyTable(origin));
    }
    return text;
  }
  if (args.file.empty()) {
    return Fail(InvalidArgument(fmt::format("config {} needs a job file", args.action)));
  }
  MW_ASSIGN_OR_RETURN(config::JobConfig config, config::LoadJobConfig(args.file, args.overrides));
  if (args.action == "show") {
    PrintNotes(config);
    return config::FormatJobConfig(config);
  }
  MW_ASSIGN_OR_RETURN(const config::PreparedJob prepared, PrepareTraining(config));
  PrintNotes(config);
  return fmt::format("{} is valid: {}\n", args.file, prepared.model.summary);
}

}  // namespace

int RunPlan(const PlanArgs& args, const GlobalArgs& global) {
  std::optional<Misfit> misfit;
  const Result<std::string> text = PlanText(args, global, misfit);
  if (text) return PrintResult(*text, args.out);
  return ReportPlanError(text.error(), args, global, misfit);
}

int RunVisualize(const VisualizeArgs& args, const GlobalArgs& global) {
  return PrintOrFail(Picture(args, UseColor(global.color)), args.svg);
}

int RunConfig(const ConfigArgs& args) { return PrintOrFail(ConfigText(args)); }

}  // namespace meshwright::cli
