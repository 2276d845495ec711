// plan, visualize, config: nothing runs, pure functions of files and arguments.
#include <fmt/format.h>

#include <cstdio>

#include "base/clock.h"
#include "base/file.h"
#include "base/text.h"
#include "cli/cluster_file.h"
#include "cli/commands.h"
#include "cli/connect.h"
#include "cli/job_config.h"
#include "cli/output.h"
#include "cli/plan_report.h"
#include "ir/text.h"
#include "mesh/visualize.h"
#include "planner/plan.h"
#include "search/find_layout.h"

namespace meshwright::cli {
namespace {

constexpr size_t kMostProgrammedDevices = 64;

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

Result<mesh::Topology> ClusterTopology(const GlobalArgs& global) {
  MW_ASSIGN_OR_RETURN(const std::unique_ptr<client::Client> client, Connect(global));
  MW_ASSIGN_OR_RETURN(const std::vector<client::WorkerInfo> workers, client->Workers());
  return TopologyOf(workers);
}

Result<mesh::Topology> PlanTopology(const PlanArgs& args, const GlobalArgs& global,
                                    const ir::ParallelSpec& parallel) {
  if (!args.cluster.empty()) {
    MW_ASSIGN_OR_RETURN(const mesh::Cluster cluster, LoadClusterFile(args.cluster));
    return mesh::TopologyOfCluster(cluster);
  }
  if (args.devices > 0) return DryRunTopology(args.devices, args.devices_per_worker);
  if (!global.address.empty()) return ClusterTopology(global);
  if (parallel.data == 0 || parallel.tensor == 0 || parallel.pipeline == 0) {
    return Fail(
        InvalidArgument("a degree in [parallelism] is auto: give --devices N, "
                        "--cluster FILE, or --address for a running cluster"));
  }
  return DryRunTopology(parallel.data * parallel.tensor * parallel.pipeline,
                        args.devices_per_worker);
}

// `misfit` is set when the job is sound but does not fit the devices.
Result<std::string> PlanText(const PlanArgs& args, const GlobalArgs& global, bool& misfit) {
  MW_ASSIGN_OR_RETURN(const JobConfig config, LoadJobConfig(args.file, args.overrides));
  MW_ASSIGN_OR_RETURN(const PreparedJob prepared, PrepareJob(config));
  PrintNotes(config);
  if (args.stop_after == "graph") return ir::FormatGraph(prepared.request.loss);
  if (args.stop_after == "step-graph") {
    MW_ASSIGN_OR_RETURN(const ir::Graph step, planner::MakeStepGraph(prepared.request));
    return ir::FormatGraph(step);
  }
  const auto topology = PlanTopology(args, global, prepared.request.parallel);
  misfit = !topology && topology.error().code() == StatusCode::kResourceExhausted;
  MW_TRY(topology);
  // Programs are only made for all devices where they are asked for or soon made.
  const bool all = topology->devices.size() <= kMostProgrammedDevices || args.programs ||
                   args.stop_after == "programs";
  const auto plan =
      search::FindPlan(prepared.request, *topology, {}, SystemClock(),
                       all ? planner::PlanScope::kAllDevices : planner::PlanScope::kOnePerStage);
  misfit = !plan && IsMisfit(plan.error());
  MW_TRY(plan);
  if (args.stop_after == "programs") return planner::FormatPlan(*plan, true);
  if (args.stop_after == "executable") return FormatExecutables(*plan, *topology);
  std::string text =
      fmt::format("job        {}\nmodel      {}\n", prepared.request.name, prepared.model.summary);
  text += planner::FormatPlan(*plan, args.programs);
  MW_ASSIGN_OR_RETURN(const ir::Graph step_graph, planner::MakeStepGraph(prepared.request));
  planner::ForecastInput input;
  input.tokens_per_step = static_cast<double>(prepared.request.train.global_batch) *
                          static_cast<double>(prepared.request.train.sequence);
  input.model_flops = planner::ModelFlops(step_graph);
  MW_ASSIGN_OR_RETURN(const planner::Forecast forecast,
                      planner::ForecastStep(*plan, *topology, input));
  text += FormatForecast(forecast);
  if (!args.timeline.empty()) {
    MW_TRY(WriteFileAtomic(args.timeline, planner::ForecastTrace(*plan, forecast)));
    text += fmt::format("timeline   {} (open in https://ui.perfetto.dev)\n", args.timeline);
  }
  return text;
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
  bool misfit = false;
  const Result<std::string> text = PlanText(args, global, misfit);
  if (text) return Print(*text, args.out);
  const int code = ReportError(text.error());
  return misfit ? kExitDoesNotFit : code;
}

int RunVisualize(const VisualizeArgs& args, const GlobalArgs& global) {
  return PrintOrFail(Picture(args, UseColor(global.color)), args.svg);
}

int RunConfig(const ConfigArgs& args) { return PrintOrFail(ConfigText(args)); }

}  // namespace meshwright::cli
