#include "report/snapshot_figures.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <utility>

#include "base/text.h"
#include "mesh/device_profile.h"
#include "planner/layout.h"

namespace meshwright::report {
namespace {

// As controllers choose (docs/recovery.md).
constexpr double kSnapshotShare = 0.02;

// What a worker's devices hold, each box once: at most this is kept on it.
struct HeldByWorker {
  std::set<std::pair<std::string, std::pair<ir::Dims, ir::Dims>>> boxes;
  int64_t bytes = 0;
  int64_t devices = 0;
  double bytes_per_s = 0;  // of a device
};

}  // namespace

SnapshotFigures SnapshotsOf(const planner::Plan& plan, const mesh::Topology& topology,
                            const ir::JobRequest& job, double step_s) {
  SnapshotFigures figures;
  const ir::FaultToleranceSpec& spec = job.fault_tolerance;
  const bool trains = job.driver.kind == ir::DriverKind::kTrain;
  const auto main = plan.programs.find(plan.main);
  if (!trains || !spec.enable || spec.snapshot_every == 0 || main == plan.programs.end()) {
    return figures;
  }
  const mesh::Topology seen = planner::TopologyOf(plan.layout, topology);
  std::map<std::string, HeldByWorker> workers;
  for (size_t rank = 0; rank < main->second.size() && rank < seen.devices.size(); ++rank) {
    const mesh::Device& device = seen.devices[rank];
    HeldByWorker& worker = workers[device.host + "/" + device.worker];
    ++worker.devices;
    const mesh::SharedProfile& profile =
        device.profile == nullptr ? mesh::DefaultDeviceProfile() : device.profile;
    worker.bytes_per_s = profile->Rates(mesh::KernelClass::kElementwise).bytes_per_s;
    for (const ir::Slot& slot : main->second[rank].slots) {
      if (!slot.persistent) continue;
      const bool added = worker.boxes.insert({slot.name, {slot.box.offset, slot.box.size}}).second;
      if (added) worker.bytes += slot.part().bytes();
    }
  }
  for (const auto& [name, worker] : workers) {
    figures.bytes = std::max(figures.bytes, worker.bytes);
    if (worker.bytes_per_s <= 0) continue;
    // Every byte is read and written, and devices copy beside one another.
    const double of_device =
        static_cast<double>(worker.bytes) / static_cast<double>(worker.devices);
    figures.seconds = std::max(figures.seconds, 2 * of_device / worker.bytes_per_s);
  }
  const double by_cost = step_s > 0 ? std::ceil(figures.seconds / (kSnapshotShare * step_s)) : 1;
  figures.every = spec.snapshot_every > 0 ? spec.snapshot_every
                                          : static_cast<int64_t>(std::clamp(by_cost, 1.0, 1e6));
  return figures;
}

std::string FormatSnapshots(const SnapshotFigures& figures, double step_s) {
  if (figures.every == 0) return "snapshots  none\n";
  std::string text =
      fmt::format("snapshots  2 x {} of host memory a worker", FormatBytes(figures.bytes));
  if (figures.seconds > 0 && step_s > 0) {
    const double share = figures.seconds / (static_cast<double>(figures.every) * step_s);
    text += fmt::format(", {} every {}, {:.1f} % of the time", FormatDuration(figures.seconds),
                        figures.every == 1 ? "step" : fmt::format("{} steps", figures.every),
                        100 * share);
  }
  return text + "\n";
}

}  // namespace meshwright::report
