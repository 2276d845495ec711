#include "search/stage_layouts.h"

#include <algorithm>
#include <bit>
#include <map>
#include <numeric>
#include <set>
#include <string>
#include <utility>

#include "planner/layout.h"
#include "search/stage_search.h"
#include "search/stage_state.h"

namespace meshwright::search {
namespace {

using planner::Degrees;
using planner::Recompute;

size_t At(int64_t index) { return static_cast<size_t>(index); }

// Up to so many devices of a class every submesh is an option.
constexpr int kAllShapesUpTo = 64;

// Devices of one class by host, in the cluster's order.
using ClassHosts = std::vector<std::vector<int>>;

// Stages with about as many devices that have tokens of their own exchange their messages alike.
int PortOf(int64_t parts) {
  int port = 0;
  while (parts >> (port + 1) > 0) ++port;
  return port;
}

class StageLayoutFinder {
 public:
  StageLayoutFinder(const StageLayoutProblem& problem, const Clock& clock)
      : problem_(problem),
        clock_(clock),
        rows_(problem.job->train.global_batch / problem.microbatches) {}

  std::optional<planner::Layout> Run() {
    for (size_t c = 0; c < problem_.classes.size(); ++c) AddClass(c);
    for (size_t c = 0; c < problem_.classes.size(); ++c) AddOptions(static_cast<int>(c));
    if (stages_.options.empty()) return std::nullopt;
    Fill();
    const auto answer = SearchStages(stages_, {.timeout_ms = problem_.timeout_ms}, clock_);
    if (!answer) return std::nullopt;
    return LayoutOf(*answer);
  }

 private:
  void AddClass(size_t index) {
    StageDeviceClass& own = stages_.classes.emplace_back();
    std::map<std::string, size_t> hosts;
    ClassHosts& devices = hosts_.emplace_back();
    for (const int device : problem_.classes[index]) {
      const mesh::Device& info = problem_.topology->devices[At(device)];
      const auto [at, fresh] = hosts.emplace(info.host, devices.size());
      if (fresh) devices.emplace_back();
      devices[at->second].push_back(device);
      const int64_t bytes = info.memory_bytes;
      if (bytes > 0 && (own.memory_bytes == 0 || bytes < own.memory_bytes)) {
        own.memory_bytes = bytes;
      }
    }
    for (const std::vector<int>& host : devices) {
      own.host_devices.push_back(static_cast<int>(host.size()));
    }
  }

  std::vector<SubmeshShape> ShapesOf(int device_class) const {
    const std::vector<int>& hosts = stages_.classes[At(device_class)].host_devices;
    const bool all = std::accumulate(hosts.begin(), hosts.end(), 0) <= kAllShapesUpTo;
    std::map<int, int> hosts_of_size;
    for (const int devices : hosts) ++hosts_of_size[devices];
    std::set<SubmeshShape> shapes;
    for (const auto& [devices, count] : hosts_of_size) {
      for (int k = 1; k <= devices; ++k) shapes.insert({1, k});
      for (int h = 2; h <= count; ++h) {
        const bool round = std::has_single_bit(static_cast<unsigned>(h)) || count % h == 0;
        if (all || round) shapes.insert({h, devices});
      }
    }
    return {shapes.begin(), shapes.end()};
  }

  void AddOptions(int device_class) {
    for (const SubmeshShape& shape : ShapesOf(device_class)) {
      for (const int64_t tensor : problem_.tensor_degrees) {
        const int64_t data = shape.devices() / (tensor * problem_.context);
        const bool divides =
            data > 0 && data * problem_.context * tensor == shape.devices() && rows_ % data == 0;
        // A tensor group stays on one host.
        if (!divides || tensor > shape.devices_per_host) continue;
        Degrees degrees(data, tensor);
        degrees[planner::Axis::kContext] = problem_.context;
        planner::ShareExperts(problem_.expert, degrees);
        const LayerTable* const layers = problem_.layers_of(degrees);
        if (layers == nullptr) continue;
        for (const Recompute mode : problem_.modes) {
          AddOption(device_class, shape, degrees, mode, (*layers)[At(device_class)]);
        }
      }
    }
  }

  void AddOption(int device_class, const SubmeshShape& shape, const Degrees& degrees,
                 Recompute mode, const std::vector<const LayerModes*>& layers) {
    StageOption option;
    option.device_class = device_class;
    option.shape = shape;
    option.port = PortOf(degrees.data() * degrees.context());
    const Replicas replicas =
        ReplicasOf(*problem_.costs, degrees, {}, SomeDevices(device_class, shape));
    for (const LayerModes* layer : layers) {
      option.layers.push_back(CostOf(layer->at(mode), layer->zero, degrees, replicas));
    }
    stages_.options.push_back(std::move(option));
    degrees_.push_back(degrees);
  }

  // A submesh of the shape: wherever else it is, groups of its devices have the same shapes.
  std::vector<int> SomeDevices(int device_class, const SubmeshShape& shape) const {
    std::vector<int> devices;
    int hosts = 0;
    for (const std::vector<int>& host : hosts_[At(device_class)]) {
      const auto size = static_cast<int>(host.size());
      const bool serves =
          shape.hosts == 1 ? size >= shape.devices_per_host : size == shape.devices_per_host;
      if (!serves || hosts == shape.hosts) continue;
      ++hosts;
      devices.insert(devices.end(), host.begin(), host.begin() + shape.devices_per_host);
    }
    return devices;
  }

  // As a stage of one layer. Weights of earlier layers are taken for another stage's.
  LayerCost CostOf(const LayerProbe& probe, const ZeroSplit& split, const Degrees& degrees,
                   const Replicas& replicas) const {
    StateSetting setting;
    setting.data = degrees[planner::Axis::kData];
    setting.tensor = degrees.tensor();
    setting.zero = problem_.zero;
    setting.bucket_bytes = problem_.job->parallel.bucket_bytes;
    setting.replicas = replicas;
    StageState state(setting);
    const bool is_tied = probe.shared_layer >= 0;
    state.Add(probe, split, is_tied ? SharedOwner::kOtherStage : SharedOwner::kSamePart, 1);
    const StageCost held = state.Finish();
    return {probe.forward_s + probe.backward_s, held.update_s + held.sync_s, held.state_bytes,
            probe.kept_bytes, held.transient_bytes};
  }

  // What is not of one option: boundaries, schedule, pins.
  void Fill() {
    stages_.layers = static_cast<int>(stages_.options[0].layers.size());
    stages_.microbatches = static_cast<int>(problem_.microbatches);
    stages_.holds_all = problem_.job->parallel.schedule == "gpipe";
    const LayerTable* const whole = problem_.layers_of({1, 1});
    for (int layer = 0; layer + 1 < stages_.layers; ++layer) {
      const int64_t bytes =
          whole == nullptr ? 0 : (*whole)[0][At(layer)]->at(problem_.modes.front()).boundary_bytes;
      stages_.boundary_bytes.push_back(bytes);
    }
    const auto [from, to] = Neighbours();
    const planner::CostModel& costs = *problem_.costs;
    stages_.transfer_s = [&costs, from = from, to = to](int from_port, int to_port, int64_t bytes) {
      const int senders = std::min(from_port, to_port);
      return 2 * costs.MessageSeconds(bytes >> senders, from, to);
    };
    stages_.stages = static_cast<int>(problem_.job->parallel.pipeline);
  }

  // Two devices with the slowest link from the first one.
  std::pair<int, int> Neighbours() const {
    const auto& devices = problem_.topology->devices;
    constexpr int64_t kBytes = 1 << 20;
    int farthest = 0;
    for (size_t i = 1; i < devices.size(); ++i) {
      const auto to = static_cast<int>(i);
      if (devices[i].host == devices[i - 1].host && i > 1) continue;
      const double seconds = problem_.costs->MessageSeconds(kBytes, 0, to);
      if (farthest == 0 || seconds > problem_.costs->MessageSeconds(kBytes, 0, farthest)) {
        farthest = to;
      }
    }
    return {0, farthest};
  }

  planner::Layout LayoutOf(const StageAnswer& answer) const {
    planner::Layout layout;
    std::vector<Degrees> degrees;
    for (size_t stage = 0; stage < answer.stages.size(); ++stage) {
      const StageChoice& choice = answer.stages[stage];
      const StageOption& option = stages_.options[At(choice.option)];
      degrees.push_back(degrees_[At(choice.option)]);
      layout.part_layers.push_back(choice.end_layer - choice.first_layer);
      const SubmeshPlace& place = answer.places[stage];
      for (const int host : place.hosts) {
        const auto& devices = hosts_[At(option.device_class)][At(host)];
        const auto first = devices.begin() + place.first_device;
        layout.devices.insert(layout.devices.end(), first, first + option.shape.devices_per_host);
      }
    }
    planner::SetStageDegrees(degrees, layout);
    if (layout.pipeline == 1) layout.part_layers.clear();
    std::vector<int> in_order(layout.devices.size());
    std::iota(in_order.begin(), in_order.end(), 0);
    if (layout.devices == in_order) layout.devices.clear();
    layout.microbatches = problem_.microbatches;
    return layout;
  }

  const StageLayoutProblem& problem_;
  const Clock& clock_;
  const int64_t rows_;  // of a microbatch, on all replicas
  StageProblem stages_;
  std::vector<ClassHosts> hosts_;  // per class
  std::vector<Degrees> degrees_;   // per option
};

}  // namespace

std::optional<planner::Layout> FindStageLayout(const StageLayoutProblem& problem,
                                               const Clock& clock) {
  return StageLayoutFinder(problem, clock).Run();
}

}  // namespace meshwright::search
