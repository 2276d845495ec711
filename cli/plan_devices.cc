#include "cli/plan_devices.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <vector>

#include "cli/connect.h"
#include "config/cluster_file.h"
#include "config/environment.h"
#include "ir/gpu_support.h"
#include "planner/layout.h"
#include "report/plan_report.h"

namespace meshwright::cli {
namespace {

// The devices that the job would get if it could have all of its kind.
Result<mesh::Topology> ClusterTopology(const GlobalArgs& global, const ir::JobRequest& job) {
  MW_ASSIGN_OR_RETURN(const std::unique_ptr<client::Client> client, Connect(global));
  MW_ASSIGN_OR_RETURN(const std::vector<client::WorkerInfo> workers, client->Workers());
  const ir::ParallelSpec& parallel = job.parallel;
  const std::string kind =
      parallel.device == "auto" && !ir::WhyNotOnGpus(job).empty() ? "cpu" : parallel.device;
  const auto degree = [](int64_t given) { return std::max<int64_t>(1, given); };
  return report::TopologyOf(
      workers, kind, degree(parallel.data) * degree(parallel.tensor) * degree(parallel.pipeline));
}

// A plan for other devices than those that were named would look like one for them.
Result<mesh::Topology> TopologyAtVariable(const GlobalArgs& global, const ir::JobRequest& job) {
  Result<mesh::Topology> running = ClusterTopology(global, job);
  if (running.has_value() || running.error().code() != StatusCode::kUnavailable) return running;
  return Fail(Unavailable(
      running.error().message() +
      "; $MESHWRIGHT_ADDRESS asks for a plan for the devices there: unset it, or plan for others "
      "with --devices N or --cluster FILE"));
}

}  // namespace

Result<mesh::Topology> PlanTopology(const PlanArgs& args, const GlobalArgs& global,
                                    const ir::JobRequest& job) {
  const ir::ParallelSpec& parallel = job.parallel;
  if (!global.address.empty() && (!args.cluster.empty() || args.devices > 0)) {
    return Fail(InvalidArgument(
        fmt::format("--address {} plans for the devices of a running cluster, {} for others; give "
                    "one of them",
                    global.address, args.devices > 0 ? "--devices" : "--cluster")));
  }
  if (!args.cluster.empty()) {
    MW_ASSIGN_OR_RETURN(const mesh::Cluster cluster, config::LoadClusterFile(args.cluster));
    return mesh::TopologyOfCluster(cluster);
  }
  if (args.devices > 0) return report::DryRunTopology(args.devices, args.devices_per_worker);
  if (!global.address.empty()) return ClusterTopology(global, job);
  const auto address = config::ProcessEnvironment("MESHWRIGHT_ADDRESS");
  if (address && !address->empty()) return TopologyAtVariable(global, job);
  const bool open = parallel.stage_meshes.empty() &&
                    (parallel.data == 0 || parallel.tensor == 0 || parallel.pipeline == 0);
  if (!parallel.stage_meshes.empty()) {
    planner::Layout layout;
    MW_ASSIGN_OR_RETURN(const auto degrees, planner::ParseStageDegrees(parallel.stage_meshes));
    layout.pipeline = static_cast<int64_t>(degrees.size());
    layout.stage_degrees = degrees;
    return report::DryRunTopology(layout.device_count(), args.devices_per_worker);
  }
  if (open) {
    // Decided degrees are devices enough, whatever the user's config file says of a cluster.
    MW_ASSIGN_OR_RETURN(const bool in_file, SaysAddress(config::ProcessEnvironment));
    if (in_file) return ClusterTopology(global, job);
    return Fail(
        InvalidArgument("a degree of [parallelism] is auto (data_parallel_replicate_degree, "
                        "tensor_parallel_degree, pipeline_parallel_degree): give --devices N, "
                        "--cluster FILE, or --address (or $MESHWRIGHT_ADDRESS, or address in the "
                        "user's config.toml) for a running "
                        "cluster"));
  }
  return report::DryRunTopology(parallel.data * parallel.tensor * parallel.pipeline,
                                args.devices_per_worker);
}

}  // namespace meshwright::cli
