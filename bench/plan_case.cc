#include "bench/plan_case.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <ctime>

#include "base/clock.h"
#include "cli/plan_devices.h"
#include "config/cluster_file.h"
#include "config/job_config.h"
#include "mesh/cluster.h"
#include "planner/cost_model.h"
#include "planner/forecast.h"
#include "search/find_layout.h"

namespace meshwright::bench {
namespace {

using KernelSeconds = std::array<double, mesh::kKernelClassCount>;
using WallClock = std::chrono::steady_clock;

double SecondsSince(WallClock::time_point start) {
  return std::chrono::duration<double>(WallClock::now() - start).count();
}

Result<mesh::Topology> TopologyOf(const PlanCaseOptions& options) {
  if (!options.address.empty()) {
    cli::GlobalArgs global;
    global.address = options.address;
    return cli::PlanTopology({}, global, {});
  }
  MW_ASSIGN_OR_RETURN(mesh::Cluster cluster, config::LoadClusterFile(options.cluster_file));
  if (options.hosts > 0) cluster.hosts.front().count = options.hosts;
  if (!options.profile.empty()) cluster.hosts.front().profile = options.profile;
  return mesh::TopologyOfCluster(cluster);
}

// Of a cluster file, programs of one device per stage, also where every degree is pinned.
Result<planner::Plan> PlanOf(const ir::JobRequest& job, const mesh::Topology& topology,
                             int64_t limit_ms, bool is_running) {
  search::FindOptions options;
  options.timeout_ms = limit_ms;
  constexpr auto kScope = planner::PlanScope::kOnePerStage;
  if (is_running || search::LeavesOpen(job)) {
    const auto scope = is_running ? planner::PlanScope::kAllDevices : kScope;
    MW_ASSIGN_OR_RETURN(search::FoundPlan found,
                        search::FindPlan(job, topology, options, SystemClock(), scope));
    return std::move(found.plan);
  }
  MW_ASSIGN_OR_RETURN(const search::FoundLayout found,
                      search::FindLayout(job, topology, options, SystemClock()));
  return planner::MakePlanOf(job, topology, found.best.front().layout, kScope);
}

KernelSeconds SecondsOfGraph(const ir::Graph& graph, const planner::CostModel& costs, int device) {
  KernelSeconds seconds = {};
  for (const ir::Node& node : graph.nodes) {
    if (planner::IsCollective(node.op)) continue;
    const planner::NodeWork work = planner::WorkOf(graph, node);
    if (work.is_free) continue;
    seconds[static_cast<size_t>(work.lead)] += costs.NodeSeconds(work, device);
  }
  return seconds;
}

KernelSeconds SecondsOfStep(const planner::Plan& plan, const mesh::Topology& topology) {
  const planner::CostModel costs(topology);
  KernelSeconds mean = {};
  const double share = 1 / static_cast<double>(plan.Main().size());
  for (const ir::Program& program : plan.Main()) {
    std::vector<double> runs(program.executables.size(), 0);
    for (const ir::Instruction& instruction : program.instructions) {
      if (instruction.op != ir::Opcode::kRun) continue;
      runs[instruction.executable.index()] += share;
    }
    for (size_t e = 0; e < runs.size(); ++e) {
      if (runs[e] == 0) continue;
      const KernelSeconds once =
          SecondsOfGraph(*program.executables[e].graph, costs, program.device.value());
      for (size_t k = 0; k < once.size(); ++k) mean[k] += runs[e] * once[k];
    }
  }
  return mean;
}

Status AddForecast(const planner::Plan& plan, const mesh::Topology& topology, PlanCase& result) {
  MW_ASSIGN_OR_RETURN(const planner::Forecast forecast, planner::ForecastStep(plan, topology));
  result.step_s = forecast.step_s;
  result.tokens_per_s = forecast.tokens_per_s;
  result.model_flops_utilization = forecast.model_flops_utilization;
  result.hardware_flops_utilization = forecast.hardware_flops_utilization;
  for (const auto& [axes, traffic] : forecast.by_axes) {
    if (traffic.seconds > 0) result.collective_s[axes] = traffic.seconds;
  }
  result.waiting_s = forecast.idle_of_total * forecast.step_s;
  return OkStatus();
}

}  // namespace

Result<PlanCase> RunPlanCase(const PlanCaseOptions& options) {
  MW_ASSIGN_OR_RETURN(const config::JobConfig config,
                      config::LoadJobConfig(options.job_file, options.overrides));
  MW_ASSIGN_OR_RETURN(const config::PreparedJob prepared, config::PrepareJob(config));
  MW_ASSIGN_OR_RETURN(const mesh::Topology topology, TopologyOf(options));
  PlanCase result;
  result.devices = static_cast<int64_t>(topology.devices.size());
  const WallClock::time_point plan_start = WallClock::now();
  const std::clock_t cpu_start = std::clock();
  MW_ASSIGN_OR_RETURN(const planner::Plan plan, PlanOf(prepared.request, topology, options.limit_ms,
                                                       !options.address.empty()));
  result.plan_s = SecondsSince(plan_start);
  result.plan_cpu_s = static_cast<double>(std::clock() - cpu_start) / CLOCKS_PER_SEC;
  result.layout = plan.layout;
  for (const planner::DeviceMemory& memory : plan.memory) {
    const auto bytes = static_cast<double>(memory.total_bytes);
    result.most_bytes = std::max(result.most_bytes, bytes);
    result.all_bytes += bytes;
  }
  const WallClock::time_point forecast_start = WallClock::now();
  MW_TRY(AddForecast(plan, topology, result));
  result.forecast_s = SecondsSince(forecast_start);
  result.kernel_s = SecondsOfStep(plan, topology);
  return result;
}

std::string FormatPlanCase(const PlanCase& result) {
  std::vector<std::string> parts;
  for (size_t k = 0; k < result.kernel_s.size(); ++k) {
    const auto kernel = static_cast<mesh::KernelClass>(k);
    parts.push_back(
        fmt::format(R"("{}":{:.6g})", mesh::KernelClassName(kernel), result.kernel_s[k]));
  }
  for (const auto& [axes, seconds] : result.collective_s) {
    parts.push_back(fmt::format(R"("collectives {}":{:.6g})", axes, seconds));
  }
  parts.push_back(fmt::format(R"("waiting":{:.6g})", result.waiting_s));
  const planner::Layout& layout = result.layout;
  const auto layers_of = [&](planner::Recompute mode) {
    return std::count(layout.recompute.begin(), layout.recompute.end(), mode);
  };
  return fmt::format(
      R"({{"plan_s":{:.4g},"plan_cpu_s":{:.4g},"forecast_s":{:.4g},"devices":{},"layout":"{}",)"
      R"("devices_used":{},)"
      R"("sequence_parallel":{},"layers_full":{},"layers_selective":{},"step_s":{:.6g},)"
      R"("tokens_per_s":{:.6g},"mfu":{:.4f},"hfu":{:.4f},"most_gib":{:.2f},"all_bytes":{:.0f},)"
      R"("step_parts_s":{{{}}}}})",
      result.plan_s, result.plan_cpu_s, result.forecast_s, result.devices, layout.ToString(),
      layout.device_count(), layout.sequence_parallel, layers_of(planner::Recompute::kFull),
      layers_of(planner::Recompute::kSelective), result.step_s, result.tokens_per_s,
      result.model_flops_utilization, result.hardware_flops_utilization,
      result.most_bytes / 1073741824.0, result.all_bytes, fmt::join(parts, ","));
}

}  // namespace meshwright::bench
