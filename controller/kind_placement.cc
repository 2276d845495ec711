#include "controller/kind_placement.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "ir/job.h"

namespace meshwright::controller {
namespace {

std::vector<mesh::Device> FreeDevices(const ClusterView& cluster, const std::string& kind) {
  std::vector<mesh::Device> free = cluster.members.FreeDevices(kind);
  std::erase_if(free, [&](const mesh::Device& device) {
    return cluster.kept.contains({device.worker, device.local_index});
  });
  return free;
}

// why: the job takes this kind and no other; for messages.
Placement PlaceOn(const ClusterView& cluster, const std::string& kind,
                  const ir::ParallelSpec& parallel, const std::string& why) {
  const Membership& members = cluster.members;
  Placement placement = Place(parallel, FreeDevices(cluster, kind),
                              members.Returning(cluster.ending, kind), members.DeviceCount(kind));
  const std::string other = kind == "cuda" ? "cpu" : "cuda";
  if (placement.outcome == PlacementOutcome::kNoWorkers && members.DeviceCount(other) > 0) {
    placement.message = fmt::format(
        "waits for a worker with devices of the kind {} ({}): the cluster has only {}; start one "
        "with "
        "'meshwright worker --device {} --address HOST:PORT'",
        kind, why, other, kind);
  }
  return placement;
}

}  // namespace

Placement PlaceOnKind(const ClusterView& cluster, const ir::JobRequest& job, bool stable) {
  const ir::ParallelSpec& parallel = job.parallel;
  if (parallel.device != "auto") {
    return PlaceOn(cluster, parallel.device, parallel,
                   fmt::format("parallelism.device is \"{}\"", parallel.device));
  }
  const std::string why_not = ir::WhyNotOnGpus(job);
  if (cluster.members.DeviceCount("cuda") > 0 && why_not.empty()) {
    Placement placement = PlaceOn(cluster, "cuda", parallel, "");
    const bool others = stable && cluster.members.DeviceCount("cpu") > 0;
    if (placement.outcome != PlacementOutcome::kInfeasible || !others) return placement;
  }
  return PlaceOn(cluster, "cpu", parallel, why_not);
}

std::string SightOf(const ClusterView& cluster, bool stable) {
  const Membership& members = cluster.members;
  std::string sight = stable ? "stable" : "changing";
  for (const char* kind : {"cpu", "cuda"}) {
    const ReturningDevices returning = members.Returning(cluster.ending, kind);
    sight += fmt::format("; {}: {} of {} free, {} return from {}", kind,
                         FreeDevices(cluster, kind).size(), members.DeviceCount(kind),
                         returning.count, fmt::join(returning.jobs, " "));
  }
  return sight;
}

}  // namespace meshwright::controller
