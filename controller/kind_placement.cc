#include "controller/kind_placement.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <map>
#include <string>
#include <utility>

#include "controller/host_means.h"
#include "ir/job.h"
#include "mesh/device_order.h"

namespace meshwright::controller {

std::vector<mesh::Device> FreeDevices(const ClusterView& cluster, const std::string& kind) {
  std::vector<mesh::Device> free = cluster.members.FreeDevices(kind);
  std::erase_if(free, [&](const mesh::Device& device) {
    return cluster.kept.contains({device.worker, device.local_index});
  });
  const auto most = cluster.most.find(kind);
  if (most == cluster.most.end() || static_cast<int64_t>(free.size()) <= most->second) return free;
  mesh::SortForPlacement(free);
  free.resize(static_cast<size_t>(most->second));
  return free;
}

namespace {

// Devices of the kind whose workers take no work at present.
int64_t ClosedDevices(const Membership& members, const std::string& kind) {
  int64_t closed = 0;
  for (const auto& [name, worker] : members.all()) {
    const bool there = worker.session.value() != 0 && worker.state != WorkerState::kDraining;
    if (!there || KindOf(worker.info) != kind || members.standings().IsOpen(name)) continue;
    closed += worker.info.devices;
  }
  return closed;
}

// why: the job takes this kind and no other; for messages.
Placement PlaceOn(const ClusterView& cluster, const std::string& kind,
                  const ir::ParallelSpec& parallel, const std::string& why) {
  const Membership& members = cluster.members;
  Placement placement = Place(parallel, FreeDevices(cluster, kind),
                              members.Returning(cluster.ending, kind), DeviceCount(members, kind));
  placement.kind = kind;
  const int64_t closed = ClosedDevices(members, kind);
  if (placement.outcome == PlacementOutcome::kNoCapacity && closed > 0) {
    placement.message += fmt::format(
        "; {} are on workers that take no jobs (see 'meshwright "
        "status')",
        closed);
  }
  const std::string other = kind == "cuda" ? "cpu" : "cuda";
  if (placement.outcome == PlacementOutcome::kNoWorkers && DeviceCount(members, other) > 0) {
    placement.message = fmt::format(
        "waits for a worker with devices of the kind {} ({}): the cluster has only {}; start one "
        "with "
        "'meshwright worker --device {} --address HOST:PORT'",
        kind, why, other, kind);
  }
  return placement;
}

}  // namespace

mesh::Topology TopologyOf(std::vector<mesh::Device> devices, const Membership& members) {
  mesh::Topology topology;
  topology.devices = std::move(devices);
  std::map<std::string, HostMeans> hosts = MeansOfHosts(members);
  for (const mesh::Device& device : topology.devices) {
    const HostMeans& means = hosts[device.host];
    topology.hosts[device.host].cores = means.cores;
    topology.hosts[device.host].memory_bytes = means.memory_bytes;
  }
  mesh::TakeMeasuredLinks(topology);
  mesh::ShareHost(topology);
  return topology;
}

Placement PlaceOnKind(const ClusterView& cluster, const ir::JobRequest& job, bool stable) {
  const ir::ParallelSpec& parallel = job.parallel;
  if (parallel.device != "auto") {
    return PlaceOn(cluster, parallel.device, parallel,
                   fmt::format("parallelism.device is \"{}\"", parallel.device));
  }
  const std::string why_not = ir::WhyNotOnGpus(job);
  if (DeviceCount(cluster.members, "cuda") > 0 && why_not.empty()) {
    Placement placement = PlaceOn(cluster, "cuda", parallel, "");
    const bool others = stable && DeviceCount(cluster.members, "cpu") > 0;
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
                         FreeDevices(cluster, kind).size(), DeviceCount(members, kind),
                         returning.count, fmt::join(returning.jobs, " "));
  }
  return sight;
}

}  // namespace meshwright::controller
