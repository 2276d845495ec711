#include "planner/forecast.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>

#include "base/check.h"
#include "ir/schema.h"
#include "planner/host_update.h"
#include "planner/layout.h"
#include "planner/overlap.h"
#include "planner/simulate_setup.h"

namespace meshwright::planner {
namespace {

using FlopsByType = std::array<double, mesh::kDTypeCount>;

// A collective of a graph, on whatever group a device is in.
struct GraphCollective {
  size_t node = 0;
  mesh::CollectiveKind kind = mesh::CollectiveKind::kAllReduce;
  mesh::AxisList axes;
  double local_bytes = 0;
  NodeWork packing;
};

// What one run of a graph asks for; devices of a stage share their graphs.
struct GraphWork {
  std::vector<NodeWork> nodes;  // per node; of collectives nothing
  std::vector<GraphCollective> collectives;
  FlopsByType product_flops = {};
};

GraphWork WorkOfGraph(const ir::Graph& graph) {
  GraphWork work;
  for (size_t n = 0; n < graph.nodes.size(); ++n) {
    const ir::Node& node = graph.nodes[n];
    if (IsCollective(node.op)) {
      work.nodes.emplace_back().is_free = true;
      GraphCollective& collective = work.collectives.emplace_back();
      collective.node = n;
      collective.kind = CollectiveKindOf(node.op);
      collective.axes = node.attrs.Strs("axes");
      for (ValueId id : node.inputs) {
        collective.local_bytes += static_cast<double>(graph.type(id).bytes());
      }
      collective.packing = PackingOf(graph, node);
      continue;
    }
    const NodeWork& own = work.nodes.emplace_back(WorkOf(graph, node));
    work.product_flops[static_cast<size_t>(own.dtype)] += own.product_flops();
  }
  return work;
}

// The group of one device in some axes.
struct DeviceGroup {
  mesh::GroupShape shape;
  mesh::LinkClass between = mesh::LinkClass::kHost;  // its slowest links
};

// What one run of an executable does on one device.
struct RunCost {
  double seconds = 0;
  double collective_s = 0;
  double hidden_s = 0;  // of these, behind what computes
  double before_s = 0;  // of these, behind earlier RUNs
  double early_s = 0;   // collectives that begin behind earlier RUNs
  std::map<std::string, Traffic> by_axes;
  std::array<double, mesh::kLinkClassCount> bytes_by_link = {};
};

// Of what devices of a host could do together, what its cores let them.
double CoreShare(const std::vector<CoreUse>& uses, int host, double threads) {
  for (const CoreUse& use : uses) {
    if (use.host == host) return std::min(1.0, static_cast<double>(use.cores) / threads);
  }
  return 1;
}

// `topology`: as the programs see it.
double PeakOfDevices(const Plan& plan, const mesh::Topology& topology, ir::DType dtype) {
  const std::vector<CoreUse> uses = CoreUses(topology);
  std::map<int, std::pair<double, double>> shared;  // by host: peak, threads
  double peak = 0;
  for (const ir::Program& program : plan.Main()) {
    const int first = program.device.value();
    const int end = first + static_cast<int>(plan.DevicesOf(program));
    for (int device = first; device < end; ++device) {
      MW_CHECK(static_cast<size_t>(device) < uses.size())
          << "device " << device << " of " << uses.size();
      const CoreUse& use = uses[static_cast<size_t>(device)];
      const mesh::SharedProfile& profile = topology.devices[static_cast<size_t>(device)].profile;
      const double own = (profile ? *profile : *mesh::DefaultDeviceProfile()).PeakOf(dtype);
      if (use.host < 0) {
        peak += own;
      } else {
        shared[use.host].first += own;
        shared[use.host].second += static_cast<double>(use.threads);
      }
    }
  }
  for (const auto& [host, sums] : shared) peak += sums.first * CoreShare(uses, host, sums.second);
  return peak;
}

// Seconds of each node of a graph.
std::vector<double> NodeTimes(const GraphWork& work, const std::vector<double>& collectives_s,
                              const CostModel& model, int device) {
  MW_CHECK(collectives_s.size() == work.collectives.size())
      << collectives_s.size() << " times of " << work.collectives.size() << " collectives";
  std::vector<double> times;
  for (const NodeWork& node : work.nodes) times.push_back(model.NodeSeconds(node, device));
  for (size_t i = 0; i < collectives_s.size(); ++i) {
    times[work.collectives[i].node] = collectives_s[i];
  }
  return times;
}

bool RunsOncePerStep(const ir::Program& program, const ir::Instruction& run) {
  const auto same = [&](const ir::Instruction& other) {
    return other.op == ir::Opcode::kRun && other.executable == run.executable;
  };
  return std::count_if(program.instructions.begin(), program.instructions.end(), same) == 1;
}

// What a RUN's collectives do behind its own kernels and behind the RUNs before it. node_s: per
// executable, per node.
void HideCollectives(const ir::Program& program, const std::vector<std::vector<double>>& node_s,
                     double share, std::vector<RunCost>& costs) {
  std::vector<LaneTimes> lanes;
  for (size_t e = 0; e < program.executables.size(); ++e) {
    lanes.push_back(WalkLanes(*program.executables[e].graph, node_s[e]));
    costs[e].hidden_s = share * std::max(0.0, costs[e].seconds - lanes[e].seconds);
  }
  for (size_t i = 0; i < program.instructions.size(); ++i) {
    const ir::Instruction& run = program.instructions[i];
    if (run.op != ir::Opcode::kRun || !RunsOncePerStep(program, run)) continue;
    RunCost& cost = costs[run.executable.index()];
    const EarlyCollectives early = FindEarly(program, i, node_s, lanes);
    cost.early_s = early.seconds;
    cost.before_s = share * early.hidden_s;
  }
  for (RunCost& cost : costs) {
    cost.hidden_s = std::min(cost.collective_s, cost.hidden_s + cost.before_s);
    cost.seconds -= cost.hidden_s;
  }
}

// Collectives that begin behind earlier RUNs, drawn from where they do.
void AddBeside(std::span<const ir::Program> programs,
               const std::map<int, std::vector<RunCost>>& run_costs, Simulation& simulation) {
  std::map<int, const ir::Program*> program_of;
  for (const ir::Program& program : programs) program_of[program.device.value()] = &program;
  for (const Span& span : simulation.spans) {
    const ir::Program& program = *program_of.at(span.device);
    const auto& run = program.instructions[static_cast<size_t>(span.instruction)];
    const RunCost& cost = run_costs.at(span.device)[run.executable.index()];
    if (cost.before_s <= 0) continue;
    const double begin_s = std::max(0.0, span.begin_s - cost.before_s);
    const double end_s = std::min(begin_s + cost.early_s, span.end_s);
    simulation.beside.push_back({span.device, span.instruction, begin_s, end_s});
  }
}

class Forecaster {
 public:
  Forecaster(const Plan& plan, const mesh::Topology& topology)
      : plan_(plan), topology_(TopologyOf(plan.layout, topology)), model_(topology_) {}

  Result<Forecast> Run() {
    for (const ir::Program& program : plan_.Main()) {
      if (program.device.value() < model_.device_count()) continue;
      return Fail(InvalidArgument(
          fmt::format("forecast: the plan has a program for device {}, the cluster {} devices",
                      program.device.value(), model_.device_count())));
    }
    for (const ir::Program& program : plan_.Main()) AddRunCosts(program);
    MW_ASSIGN_OR_RETURN(forecast_.simulation, Simulate(plan_.Main(), Costs()));
    forecast_.step_s = forecast_.simulation.makespan_s;
    AddBeside(plan_.Main(), run_costs_, forecast_.simulation);
    for (const ir::Program& program : plan_.Main()) AddTraffic(program);
    SetRates();
    return std::move(forecast_);
  }

 private:
  // Of the devices that the program stands for: the others wait for it.
  int SlowestOf(const ir::Program& program) const {
    const auto rate = [&](int device) {
      return model_.ProfileOf(device).RateOf(mesh::KernelClass::kProduct, ir::DType::kF32, 1e9);
    };
    int slowest = program.device.value();
    const auto end = slowest + static_cast<int>(plan_.DevicesOf(program));
    for (int device = slowest + 1; device < end; ++device) {
      const bool same = &model_.ProfileOf(device) == &model_.ProfileOf(slowest);
      if (!same && rate(device) < rate(slowest)) slowest = device;
    }
    return slowest;
  }

  double DevicesOf(const ir::Program& program) const {
    return static_cast<double>(plan_.DevicesOf(program));
  }

  const GraphWork& WorkOnce(const ir::Graph& graph) {
    const auto [at, fresh] = work_.try_emplace(&graph);
    if (fresh) at->second = WorkOfGraph(graph);
    return at->second;
  }

  // Without collectives; devices with one profile share the answer.
  double ComputeSeconds(const ir::Graph& graph, int device) {
    const auto [at, fresh] = compute_s_.try_emplace({&graph, &model_.ProfileOf(device)}, 0.0);
    if (fresh) {
      for (const NodeWork& node : WorkOnce(graph).nodes) {
        at->second += model_.NodeSeconds(node, device);
      }
    }
    return at->second;
  }

  void AddRunCosts(const ir::Program& program) {
    std::map<mesh::AxisList, DeviceGroup> groups;
    std::vector<RunCost>& costs = run_costs_[program.device.value()];
    std::vector<std::vector<double>> collectives_s;  // per executable, in order
    for (const ir::Executable& executable : program.executables) {
      RunCost& cost = costs.emplace_back();
      std::vector<double>& each_s = collectives_s.emplace_back();
      for (const GraphCollective& collective : WorkOnce(*executable.graph).collectives) {
        const auto [at, fresh] = groups.try_emplace(collective.axes);
        if (fresh) at->second = GroupOf(program, collective.axes);
        each_s.push_back(AddCollective(collective, at->second, SlowestOf(program), cost));
      }
      cost.seconds = cost.collective_s + ComputeSeconds(*executable.graph, SlowestOf(program));
    }
    const double share = ShareOf(program, topology_, plan_.layout.device_count());
    if (share <= 0) return;
    std::vector<std::vector<double>> node_s;
    for (size_t e = 0; e < program.executables.size(); ++e) {
      const GraphWork& work = WorkOnce(*program.executables[e].graph);
      node_s.push_back(NodeTimes(work, collectives_s[e], model_, SlowestOf(program)));
    }
    HideCollectives(program, node_s, share, costs);
  }

  DeviceGroup GroupOf(const ir::Program& program, const mesh::AxisList& axes) const {
    const std::vector<int> members = GroupMembers(program, axes);
    return {model_.ShapeOf(members), model_.ClassOf(members)};
  }

  // Its seconds.
  double AddCollective(const GraphCollective& collective, const DeviceGroup& group, int device,
                       RunCost& cost) const {
    if (group.shape.members == 1) return 0;
    const mesh::CollectiveCost own =
        mesh::CostOfCollective(collective.kind, collective.local_bytes, group.shape);
    const double seconds = own.seconds + model_.NodeSeconds(collective.packing, device);
    cost.collective_s += seconds;
    Traffic& traffic = cost.by_axes[fmt::format("{}", fmt::join(collective.axes, ","))];
    traffic.seconds += seconds;
    traffic.bytes += own.bytes_within + own.bytes_between;
    cost.bytes_by_link[static_cast<size_t>(mesh::LinkClass::kHost)] += own.bytes_within;
    cost.bytes_by_link[static_cast<size_t>(group.between)] += own.bytes_between;
    return seconds;
  }

  SimulationCosts Costs() {
    SimulationCosts costs;
    costs.run_s = [this](const ir::Program& program, const ir::Executable& executable) {
      const auto index = &executable - program.executables.data();
      MW_CHECK(index >= 0 && static_cast<size_t>(index) < program.executables.size())
          << "an executable of another program than that of device " << program.device;
      return run_costs_.at(program.device.value())[static_cast<size_t>(index)].seconds;
    };
    costs.host_run_s = [this](const ir::Program& program, const ir::Executable& executable) {
      return HostRunSeconds(topology_, program.device.value(), *executable.graph);
    };
    costs.steps_follow = topology_.devices.empty() || !IsGpu(topology_.ProfileOf(0));
    costs.stand_for_others = plan_.scope == PlanScope::kOnePerStage;
    costs.link = [this](int from, int to) { return model_.LinkOf(from, to); };
    costs.tier = [this](int device, ir::Space far) {
      return TierLinkOf(model_.ProfileOf(device), far);
    };
    core_uses_ = CoreUses(topology_);
    costs.cores = [this](int device) { return core_uses_[static_cast<size_t>(device)]; };
    return costs;
  }

  void AddTraffic(const ir::Program& program) {
    const double devices = DevicesOf(program);
    const double share = devices / static_cast<double>(plan_.layout.device_count());
    const std::vector<RunCost>& costs = run_costs_.at(program.device.value());
    for (const ir::Instruction& instruction : program.instructions) {
      if (instruction.op == ir::Opcode::kRecv) AddMessage(program, instruction);
      if (instruction.op != ir::Opcode::kRun) continue;
      MW_CHECK(instruction.executable.index() < costs.size())
          << "executable " << instruction.executable;
      const auto e = instruction.executable.index();
      forecast_.collective_s += share * costs[e].collective_s;
      forecast_.hidden_s += share * costs[e].hidden_s;
      for (const auto& [axes, traffic] : costs[e].by_axes) {
        forecast_.by_axes[axes].bytes += devices * traffic.bytes;
        forecast_.by_axes[axes].seconds += share * traffic.seconds;
      }
      for (size_t link = 0; link < mesh::kLinkClassCount; ++link) {
        forecast_.bytes_by_link[link] += devices * costs[e].bytes_by_link[link];
      }
      const FlopsByType& flops = work_.at(program.executables[e].graph.get()).product_flops;
      for (size_t d = 0; d < flops.size(); ++d) product_flops_[d] += devices * flops[d];
    }
  }

  void AddMessage(const ir::Program& program, const ir::Instruction& instruction) {
    const ir::ChannelEnd& end = program.channels[instruction.channel.index()];
    const double bytes =
        DevicesOf(program) * static_cast<double>(MessageBytes(program, instruction));
    forecast_.by_axes["pipeline"].bytes += bytes;
    const mesh::LinkClass link = model_.ClassOf(end.peer.value(), program.device.value());
    forecast_.bytes_by_link[static_cast<size_t>(link)] += bytes;
  }

  void SetRates() {
    double busy_s = 0, idle_s = 0, copies_s = 0;
    for (const double s : forecast_.simulation.busy_s) busy_s += s;
    for (const double s : forecast_.simulation.idle_s) idle_s += s;
    for (const double s : forecast_.simulation.copy_wait_s) copies_s += s;
    if (busy_s > 0) forecast_.idle_of_busy = idle_s / busy_s;
    if (busy_s > 0) forecast_.idle_of_total = idle_s / (busy_s + idle_s);
    if (busy_s > 0) forecast_.copies_of_total = copies_s / (busy_s + idle_s);
    for (const double flops : product_flops_) forecast_.hardware_flops += flops;
    const auto most = std::max_element(product_flops_.begin(), product_flops_.end());
    const auto dtype = static_cast<ir::DType>(most - product_flops_.begin());
    forecast_.peak_flops_per_s = PeakOfDevices(plan_, topology_, dtype);
    const double possible = forecast_.step_s * forecast_.peak_flops_per_s;
    if (possible <= 0) return;
    forecast_.tokens_per_s = plan_.tokens_per_step / forecast_.step_s;
    forecast_.model_flops_utilization = plan_.model_flops / possible;
    forecast_.hardware_flops_utilization = forecast_.hardware_flops / possible;
  }

  const Plan& plan_;
  const mesh::Topology topology_;  // as the programs see it
  CostModel model_;
  std::map<const ir::Graph*, GraphWork> work_;
  std::map<std::pair<const ir::Graph*, const mesh::DeviceProfile*>, double> compute_s_;
  std::map<int, std::vector<RunCost>> run_costs_;  // [device][executable]
  std::vector<CoreUse> core_uses_;                 // per device of the topology
  FlopsByType product_flops_ = {};                 // executed, all devices
  Forecast forecast_;
};

}  // namespace

std::vector<int> GroupMembers(const ir::Program& program, const mesh::AxisList& axes) {
  const mesh::Mesh mesh{program.axes, program.mesh_devices};
  MW_CHECK(program.coords.size() == program.axes.size())
      << "coordinates of device " << program.device;
  int64_t position = 0;
  for (size_t a = 0; a < program.axes.size(); ++a) {
    position = position * program.axes[a].size + program.coords[a];
  }
  std::vector<int> members;
  for (const DeviceIndex device : mesh.GroupOf(position, axes)) members.push_back(device.value());
  return members;
}

mesh::LinkCost TierLinkOf(const mesh::DeviceProfile& profile, ir::Space far) {
  constexpr mesh::LinkCost kCopied = {2e-6, 2e-10};
  constexpr mesh::LinkCost kDisk = {1e-4, 5e-10};
  if (far == ir::Space::kDisk) return profile.links.disk.value_or(kDisk);
  return profile.links.memory.value_or(kCopied);
}

std::vector<CoreUse> CoreUses(const mesh::Topology& topology) {
  std::vector<CoreUse> uses;
  std::map<std::string, int> hosts;
  for (const mesh::Device& device : topology.devices) {
    const auto host = topology.hosts.find(device.host);
    const int cores = host == topology.hosts.end() ? 0 : host->second.cores;
    const auto at = hosts.emplace(device.host, static_cast<int>(hosts.size())).first;
    uses.push_back({cores > 0 ? at->second : -1, cores, device.threads});
  }
  return uses;
}

double PeakFlopsPerS(const Plan& plan, const mesh::Topology& topology, ir::DType dtype) {
  return PeakOfDevices(plan, TopologyOf(plan.layout, topology), dtype);
}

Result<Forecast> ForecastStep(const Plan& plan, const mesh::Topology& topology) {
  return Forecaster(plan, topology).Run();
}

}  // namespace meshwright::planner
