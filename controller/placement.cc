#include "controller/placement.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <map>
#include <tuple>
#include <utility>

#include "planner/layout.h"

namespace meshwright::controller {
namespace {

bool IsDigit(char c) { return std::isdigit(static_cast<unsigned char>(c)) != 0; }

// The run of digits at `at` without leading zeros; moves `at` behind it.
std::string_view DigitRun(const std::string& text, size_t& at) {
  while (at + 1 < text.size() && text[at] == '0' && IsDigit(text[at + 1])) ++at;
  const size_t begin = at;
  while (at < text.size() && IsDigit(text[at])) ++at;
  return std::string_view(text).substr(begin, at - begin);
}

struct Need {
  int64_t least = 1;    // devices that the job cannot do without
  int64_t granule = 1;  // it takes multiples of this
  bool open_ended = false;
};

// Devices of a replica; degrees that are open (0) need no more than one.
int64_t ReplicaOf(const ir::ParallelSpec& parallel) {
  int64_t tensor = std::max<int64_t>(parallel.tensor, 1);
  const auto axes = planner::ParseTensorAxes(parallel.tensor_axes);
  if (parallel.tensor == 0 && axes.has_value()) {
    for (const int64_t size : *axes) tensor *= size;
  }
  return tensor * std::max<int64_t>(parallel.pipeline, 1);
}

// Of meshes of different sizes; a text that says none is the planner's to refuse.
int64_t DevicesOfStages(const std::string& stage_meshes) {
  const auto degrees = planner::ParseStageDegrees(stage_meshes);
  if (!degrees.has_value()) return 1;
  int64_t devices = 0;
  for (const planner::StageDegrees& stage : *degrees) devices += stage.device_count();
  return devices;
}

Need NeedOf(const ir::ParallelSpec& parallel) {
  if (!parallel.stage_meshes.empty()) {
    const int64_t devices = DevicesOfStages(parallel.stage_meshes);
    return Need{devices, devices, false};
  }
  const int64_t least = ReplicaOf(parallel) * std::max<int64_t>(parallel.data, 1);
  const bool open = parallel.data == 0 || (parallel.tensor == 0 && parallel.tensor_axes.empty()) ||
                    parallel.pipeline == 0;
  return Need{least, least, open};
}

std::string DegreesText(const ir::ParallelSpec& parallel) {
  const auto text = [](int64_t degree) {
    return degree == 0 ? std::string("auto") : std::to_string(degree);
  };
  if (!parallel.stage_meshes.empty()) return fmt::format("meshes={}", parallel.stage_meshes);
  return fmt::format("data={} tensor={} pipeline={}", text(parallel.data), text(parallel.tensor),
                     text(parallel.pipeline));
}

void SortForPlacement(std::vector<mesh::Device>& devices) {
  std::map<std::string, int64_t> per_host;
  for (const mesh::Device& device : devices) ++per_host[device.host];
  std::sort(devices.begin(), devices.end(), [&](const mesh::Device& a, const mesh::Device& b) {
    if (a.host != b.host) {
      return std::pair(-per_host[a.host], a.host) < std::pair(-per_host[b.host], b.host);
    }
    if (a.worker != b.worker) return NaturalLess(a.worker, b.worker);
    return a.local_index < b.local_index;
  });
}

std::string InfeasibleText(const ir::ParallelSpec& parallel, const Need& need, int64_t has) {
  const int64_t replica = ReplicaOf(parallel);
  std::string fix = "add workers";
  if (!parallel.stage_meshes.empty()) {
    fix += ", or choose smaller meshes";
  } else if (replica <= has) {
    fix += fmt::format(", or set data <= {} (tensor x pipeline = {})", has / replica, replica);
  } else {
    fix += fmt::format(", or lower tensor x pipeline (= {}) to at most {}", replica, has);
  }
  return fmt::format("{} needs {} devices, the cluster has {}; {}", DegreesText(parallel),
                     need.least, has, fix);
}

}  // namespace

bool NaturalLess(const std::string& a, const std::string& b) {
  size_t i = 0;
  size_t j = 0;
  while (i < a.size() && j < b.size()) {
    if (IsDigit(a[i]) && IsDigit(b[j])) {
      const std::string_view x = DigitRun(a, i);
      const std::string_view y = DigitRun(b, j);
      if (x != y) return x.size() != y.size() ? x.size() < y.size() : x < y;
    } else if (a[i] != b[j]) {
      return a[i] < b[j];
    } else {
      ++i;
      ++j;
    }
  }
  const bool a_ended = i == a.size();
  const bool b_ended = j == b.size();
  // Equal up to leading zeros: the plain order decides, so that the order is total.
  if (a_ended && b_ended) return a < b;
  return a_ended;
}

Placement Place(const ir::ParallelSpec& parallel, std::vector<mesh::Device> free,
                int64_t returning_devices, int64_t cluster_devices) {
  const Need need = NeedOf(parallel);
  const auto available = static_cast<int64_t>(free.size());
  Placement placement;
  if (cluster_devices == 0) {
    placement.outcome = PlacementOutcome::kNoWorkers;
    placement.message = fmt::format(
        "{} needs {} devices and no worker has joined; start one with "
        "'meshwright worker --address HOST:PORT'",
        DegreesText(parallel), need.least);
    return placement;
  }
  if (need.least > cluster_devices) {
    placement.outcome = PlacementOutcome::kInfeasible;
    placement.message = InfeasibleText(parallel, need, cluster_devices);
    return placement;
  }
  if (need.least > available) {
    placement.outcome = PlacementOutcome::kNoCapacity;
    placement.message = fmt::format("{} needs {} devices; {} of {} are free", DegreesText(parallel),
                                    need.least, available, cluster_devices);
    return placement;
  }
  if (need.open_ended && returning_devices > 0) {
    placement.outcome = PlacementOutcome::kNoCapacity;
    placement.message = fmt::format("{} takes every device: waits for {} that an ended job holds",
                                    DegreesText(parallel), returning_devices);
    return placement;
  }
  const int64_t taken = need.open_ended ? available / need.granule * need.granule : need.least;
  SortForPlacement(free);
  free.resize(static_cast<size_t>(taken));
  placement.outcome = PlacementOutcome::kPlaced;
  placement.devices = std::move(free);
  return placement;
}

}  // namespace meshwright::controller
