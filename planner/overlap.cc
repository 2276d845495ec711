#include "planner/overlap.h"

#include <algorithm>
#include <limits>
#include <map>

#include "base/check.h"
#include "planner/cost_model.h"

namespace meshwright::planner {
namespace {

constexpr double kWorthwhile = 0.5;

// The place in which a RUN last writes a slot before an instruction.
struct Writer {
  size_t instruction = 0;
  size_t output = 0;
};
std::optional<Writer> LastWriter(const ir::Program& program, size_t before, SlotId slot) {
  for (size_t i = before; i-- > 0;) {
    const ir::Instruction& instruction = program.instructions[i];
    const auto& outputs = instruction.outputs;
    const auto it = std::find(outputs.begin(), outputs.end(), slot);
    if (it != outputs.end()) return Writer{i, static_cast<size_t>(it - outputs.begin())};
    if (instruction.op == ir::Opcode::kRecv && instruction.slot == slot) return std::nullopt;
  }
  return std::nullopt;
}

// Until when what was walked so far needs the bytes of a workspace.
class UsedBytes {
 public:
  double FreeAt(int64_t begin, int64_t end) const {
    double free_s = 0;
    auto it = ranges_.upper_bound(begin);
    if (it != ranges_.begin()) --it;
    for (; it != ranges_.end() && it->first < end; ++it) {
      if (it->second.end > begin) free_s = std::max(free_s, it->second.until_s);
    }
    return free_s;
  }

  void Use(int64_t begin, int64_t end, double until_s) {
    if (begin >= end) return;
    until_s = std::max(until_s, FreeAt(begin, end));
    CutAt(begin);
    CutAt(end);
    ranges_.erase(ranges_.lower_bound(begin), ranges_.lower_bound(end));
    ranges_[begin] = {end, until_s};
  }

 private:
  struct Range {
    int64_t end = 0;
    double until_s = 0;
  };

  void CutAt(int64_t place) {
    auto it = ranges_.upper_bound(place);
    if (it == ranges_.begin()) return;
    --it;
    if (it->first == place || it->second.end <= place) return;
    const Range rest = it->second;
    it->second.end = place;
    ranges_[place] = rest;
  }

  std::map<int64_t, Range> ranges_;  // by where they begin; none overlap
};

}  // namespace

bool IsGpu(const mesh::DeviceProfile& profile) { return profile.kind == mesh::DeviceKind::kGpu; }

std::optional<double> SpareShare(const mesh::Topology& topology, int device, int64_t devices) {
  MW_CHECK(device >= 0 && static_cast<size_t>(device) < topology.devices.size())
      << "device " << device << " of " << topology.devices.size();
  const mesh::Device& own = topology.devices[static_cast<size_t>(device)];
  if (IsGpu(topology.ProfileOf(static_cast<size_t>(device)))) return 1.0;
  const auto host = topology.hosts.find(own.host);
  if (host == topology.hosts.end() || host->second.cores == 0) return std::nullopt;
  int threads = 0;
  int neighbours = 0;
  for (size_t i = 0; i < topology.devices.size() && static_cast<int64_t>(i) < devices; ++i) {
    if (topology.devices[i].host != own.host) continue;
    threads += std::max(1, topology.devices[i].threads);
    ++neighbours;
  }
  const double spare = static_cast<double>(host->second.cores - threads);
  return std::clamp(spare / std::max(1, neighbours), 0.0, 1.0);
}

ir::OverlapMode ResolveOverlap(const std::optional<bool>& pinned, const Layout& layout,
                               const mesh::Topology& topology) {
  if (pinned) return *pinned ? ir::OverlapMode::kOn : ir::OverlapMode::kOff;
  const int64_t devices = layout.device_count();
  double least = 1;
  for (int64_t i = 0; i < devices && i < static_cast<int64_t>(topology.devices.size()); ++i) {
    const bool gpu = IsGpu(topology.ProfileOf(static_cast<size_t>(i)));
    const std::optional<double> share = SpareShare(topology, static_cast<int>(i), devices);
    if (gpu || !share) return ir::OverlapMode::kByDevice;
    least = std::min(least, *share);
  }
  return least >= kWorthwhile && devices > 1 ? ir::OverlapMode::kOn : ir::OverlapMode::kByDevice;
}

bool CopiesTakeTurns(const ir::ParallelSpec& parallel, const mesh::Topology& topology) {
  if (topology.devices.empty() || IsGpu(topology.ProfileOf(0))) return false;
  const std::string* const memories[] = {&parallel.optimizer_memory, &parallel.weights_memory,
                                         &parallel.gradients_memory, &parallel.activations_memory};
  return std::any_of(std::begin(memories), std::end(memories),
                     [](const std::string* memory) { return *memory != "device"; });
}

double ShareBeside(const ir::ParallelSpec& parallel, const Layout& layout,
                   const mesh::Topology& topology) {
  // As ShareOf.
  if (CopiesTakeTurns(parallel, topology)) return 0;
  if (ResolveOverlap(parallel.overlap, layout, topology) != ir::OverlapMode::kOn) return 0;
  const int64_t devices = layout.device_count();
  double least = 1;
  for (int64_t i = 0; i < devices && i < static_cast<int64_t>(topology.devices.size()); ++i) {
    least = std::min(least, SpareShare(topology, static_cast<int>(i), devices).value_or(0));
  }
  return least;
}

double ShareOf(const ir::Program& program, const mesh::Topology& topology, int64_t devices) {
  if (program.overlap != ir::OverlapMode::kOn) return 0;
  const bool copies = std::any_of(program.instructions.begin(), program.instructions.end(),
                                  [](const auto& each) { return ir::IsTierCopy(each.op); });
  if (copies && !IsGpu(topology.ProfileOf(program.device.index()))) return 0;
  return SpareShare(topology, program.device.value(), devices).value_or(0);
}

LaneTimes WalkLanes(const ir::Graph& graph, std::span<const double> node_s) {
  MW_CHECK(node_s.size() == graph.nodes.size())
      << node_s.size() << " times of the " << graph.nodes.size() << " nodes of " << graph.name;
  LaneTimes times;
  times.made_s.assign(graph.values.size(), 0);
  times.begin_s.assign(graph.nodes.size(), 0);
  const ir::WorkspacePlan places = ir::PlanWorkspace(graph);
  // visit(begin, end) of values that are in the workspace.
  const auto for_each_place = [&](const std::vector<ValueId>& values, const auto& visit) {
    for (const ValueId value : values) {
      const int64_t begin = places.offset_bytes[value.index()];
      if (begin >= 0) visit(begin, begin + graph.type(value).bytes());
    }
  };
  UsedBytes used;
  double free_s[2] = {0, 0};
  for (size_t n = 0; n < graph.nodes.size(); ++n) {
    const ir::Node& node = graph.nodes[n];
    if (node.op == ir::Op::kInput) continue;
    // A reshape names a value: nobody waits for it but who reads it.
    const bool runs = node.op != ir::Op::kReshape;
    double& lane_s = free_s[IsCollective(node.op) ? 1 : 0];
    double begin_s = runs ? lane_s : 0;
    for (const ValueId input : node.inputs) {
      begin_s = std::max(begin_s, times.made_s[input.index()]);
    }
    if (runs) {
      for_each_place(node.outputs, [&](int64_t begin, int64_t end) {
        begin_s = std::max(begin_s, used.FreeAt(begin, end));
      });
    }
    times.begin_s[n] = begin_s;
    const double end_s = begin_s + node_s[n];
    if (runs) {
      lane_s = end_s;
      const auto use = [&](int64_t begin, int64_t end) { used.Use(begin, end, end_s); };
      for_each_place(node.inputs, use);
      for_each_place(node.outputs, use);
    }
    for (const ValueId output : node.outputs) times.made_s[output.index()] = end_s;
  }
  times.seconds = std::max(free_s[0], free_s[1]);
  return times;
}

EarlyCollectives FindEarly(const ir::Program& program, size_t run,
                           std::span<const std::vector<double>> node_s,
                           std::span<const LaneTimes> lanes) {
  MW_CHECK(run < program.instructions.size() && program.instructions[run].op == ir::Opcode::kRun)
      << "instruction " << run << " is no RUN";
  const ir::Instruction& instruction = program.instructions[run];
  const size_t e = instruction.executable.index();
  const ir::Graph& graph = *program.executables[e].graph;
  std::map<ValueId, SlotId> slot_of;  // of the graph's inputs
  size_t inputs = 0;
  // Times before the RUN begins are negative.
  EarlyCollectives early;
  const ir::WorkspacePlan places = ir::PlanWorkspace(graph);
  double lane_s = -std::numeric_limits<double>::infinity();
  for (size_t n = 0; n < graph.nodes.size(); ++n) {
    const ir::Node& node = graph.nodes[n];
    if (node.op == ir::Op::kInput) {
      slot_of[node.outputs[0]] = instruction.inputs[inputs++];
      continue;
    }
    if (!IsCollective(node.op)) break;
    // Earlier RUNs use the workspace, too.
    const bool in_slot = places.offset_bytes[node.outputs[0].index()] < 0;
    double made_s = in_slot ? lane_s : std::max(lane_s, 0.0);
    for (const ValueId input : node.inputs) {
      const auto slot = slot_of.find(input);
      const auto writer =
          slot == slot_of.end() ? std::nullopt : LastWriter(program, run, slot->second);
      double input_s = 0;
      if (writer) {
        const size_t by = program.instructions[writer->instruction].executable.index();
        const ir::Graph& made_by = *program.executables[by].graph;
        input_s =
            lanes[by].made_s[made_by.outputs[writer->output].value.index()] - lanes[by].seconds;
        for (size_t i = writer->instruction + 1; i < run; ++i) {
          const ir::Instruction& between = program.instructions[i];
          if (between.op == ir::Opcode::kRun) {
            input_s -= lanes[between.executable.index()].seconds;
          }
        }
      }
      made_s = std::max(made_s, input_s);
    }
    lane_s = made_s + node_s[e][n];
    early.seconds += node_s[e][n];
  }
  early.hidden_s = std::clamp(early.seconds - std::max(0.0, lane_s), 0.0, early.seconds);
  return early;
}

}  // namespace meshwright::planner
