#include "planner/expert_ways.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "base/check.h"
#include "ir/schema.h"
#include "planner/expert_groups.h"

namespace meshwright::planner {
namespace {

using ir::Graph;
using ir::Node;
using ir::Op;

constexpr std::array<int64_t, 4> kChunkDegrees = {1, 2, 4, 8};
constexpr double kNodesOfChunk = 12;  // kernels between a dispatch and its combine, about
constexpr int kDimsOfSlots = 4;
constexpr double kMovesOfLayer = 4;  // to experts and back, forward and backward

// The programs' devices that share experts with the first of them, of stage 0.
std::vector<int> RanksOf(const Layout& layout, const ProgramDevices& devices, int64_t first = 0) {
  const int64_t step = layout.context() * layout.tensor();
  std::vector<int> ranks;
  for (int64_t e = 0; e < layout.expert(); ++e) {
    ranks.push_back(devices.devices[static_cast<size_t>(first + e * step)]);
  }
  return ranks;
}

bool OnOneHost(const ProgramDevices& devices, int a, int b) {
  const mesh::LinkClass link = devices.costs.ClassOf(a, b);
  return link == mesh::LinkClass::kDevice || link == mesh::LinkClass::kHost;
}

// Neighbours among ranks that are on one host: of equally many on each of different hosts; 0: they
// lie unevenly.
int64_t NeighboursAmong(const std::vector<int>& ranks, const ProgramDevices& devices) {
  size_t lanes = 1;
  while (lanes < ranks.size() && OnOneHost(devices, ranks[0], ranks[lanes])) ++lanes;
  if (ranks.size() % lanes != 0) return 0;
  for (size_t i = 0; i < ranks.size(); ++i) {
    for (size_t first = 0; first < ranks.size(); first += lanes) {
      if (OnOneHost(devices, ranks[first], ranks[i]) != (i / lanes == first / lanes)) return 0;
    }
  }
  return static_cast<int64_t>(lanes);
}

// What a layer with experts moves and computes in a microbatch.
struct LayerOfExperts {
  SlotMove move;
  double compute_s = 0;    // what experts compute forward, on one device
  double token_bytes = 0;  // of a device
};

class ExpertLayers {
 public:
  ExpertLayers(const ir::JobRequest& job, const Layout& layout, const ProgramDevices& devices)
      : graph_(job.main().graph),
        layout_(layout),
        devices_(devices),
        element_bytes_(static_cast<double>(ir::DTypeBytes(ComputeType(job)))) {}

  // With `hosts` hosts, one per dispatch.
  std::vector<LayerOfExperts> Find(int64_t hosts) const {
    std::vector<LayerOfExperts> layers;
    for (const NodeId id : graph_.NodesOf(Op::kDispatch)) {
      const Node& node = graph_.node(id);
      const Node& slots = graph_.producer(node.inputs[1]);
      const int64_t width = graph_.type(node.inputs[0]).dims.back();
      if (slots.op != Op::kExpertSlots || width == 1) continue;
      const ExpertSlots own = SlotsOnRanks(graph_, slots, layout_.expert());
      const ir::Dims& choices = graph_.type(slots.inputs[0]).dims;
      LayerOfExperts layer;
      layer.move.rows = RowsOfGroup(choices[0]);
      layer.move.rank_slots = static_cast<double>(own.groups / layout_.expert() * own.capacity);
      layer.move.tokens = static_cast<double>(HostCapacity(own, hosts, choices[1]));
      layer.move.slot_bytes = static_cast<double>(width) * element_bytes_;
      layer.compute_s = ProductSeconds(node.layer) + PassSeconds(node.layer, layer.move);
      layer.token_bytes = layer.move.rows / static_cast<double>(layout_.expert()) *
                          static_cast<double>(choices[1]) * layer.move.slot_bytes;
      layers.push_back(layer);
    }
    return layers;
  }

 private:
  static ir::DType ComputeType(const ir::JobRequest& job) {
    const Graph& graph = job.main().graph;
    const std::vector<NodeId> nodes = graph.NodesOf(Op::kDispatch);
    const ir::DType own =
        nodes.empty() ? ir::DType::kF32 : graph.type(graph.node(nodes[0]).inputs[0]).dtype;
    return job.train.compute_dtype == ir::DType::kF32 ? own : job.train.compute_dtype;
  }

  // That ranks of one group have together, of a microbatch.
  double RowsOfGroup(int64_t rows) const {
    return static_cast<double>(rows) / static_cast<double>(layout_.microbatches) /
           static_cast<double>(layout_.degrees[Axis::kData]);
  }

  // Products of a layer's experts, without what a launch costs.
  double ProductSeconds(int layer) const {
    NodeWork work;
    work.lead = mesh::KernelClass::kProduct;
    for (const NodeId id : graph_.NodesOf(Op::kGroupedMatmul)) {
      const Node& node = graph_.node(id);
      if (node.layer != layer) continue;
      work.dtype = graph_.type(node.inputs[0]).dtype;
      work.flops[static_cast<size_t>(mesh::KernelClass::kProduct)] +=
          ir::CostOf(graph_, node).flops /
          static_cast<double>(layout_.microbatches * layout_.data() * layout_.tensor());
    }
    return devices_.costs.NodeSeconds(work, devices_.devices[0]);
  }

  // What passes over slots between the products of a layer.
  double PassSeconds(int layer, const SlotMove& move) const {
    std::vector<bool> of_experts(graph_.values.size(), false);
    const auto width = [&](ValueId value) {
      const ir::TensorType& type = graph_.type(value);
      return type.rank() == kDimsOfSlots ? static_cast<double>(type.dims.back()) : 0.0;
    };
    NodeWork work;
    for (const Node& node : graph_.nodes) {
      const bool product = node.op == Op::kGroupedMatmul;
      const bool passes = node.op != Op::kCombine && node.op != Op::kGroupedMatmulGrad &&
                          std::any_of(node.inputs.begin(), node.inputs.end(),
                                      [&](ValueId input) { return of_experts[input.index()]; });
      for (const ValueId output : node.outputs) of_experts[output.index()] = product || passes;
      if (product || !passes || node.layer != layer) continue;
      for (const ValueId input : node.inputs) work.bytes += width(input);
      for (const ValueId output : node.outputs) work.bytes += width(output);
    }
    work.bytes *= move.rows * move.rank_slots * element_bytes_;
    return devices_.costs.NodeSeconds(work, devices_.devices[0]);
  }

  const Graph& graph_;
  const Layout& layout_;
  const ProgramDevices& devices_;
  const double element_bytes_;
};

MoveCost Sum(const MoveCost& a, const MoveCost& b) {
  return {a.seconds + b.seconds, a.network_bytes + b.network_bytes, a.host_bytes + b.host_bytes};
}

MoveCost OfGroup(double local_bytes, const mesh::GroupShape& group) {
  if (group.members <= 1) return {};
  const mesh::CollectiveCost cost =
      mesh::CostOfCollective(mesh::CollectiveKind::kAllToAll, local_bytes, group);
  return {cost.seconds, cost.bytes_between, cost.bytes_within};
}

// Both ways of all layers, in both directions, of a microbatch.
struct Ways {
  MoveCost one, two;
};

class WayFinder {
 public:
  WayFinder(const ir::JobRequest& job, const Layout& layout, const ProgramDevices& devices)
      : job_(job),
        layout_(layout),
        devices_(devices),
        ranks_(RanksOf(layout, devices)),
        all_(devices.costs.ShapeOf(ranks_)) {}

  Ways CompareSteps(int64_t hosts) const {
    Ways ways;
    const ShapesOfSteps shapes = ShapesOf(hosts);
    for (const LayerOfExperts& layer : ExpertLayers(job_, layout_, devices_).Find(hosts)) {
      ways.one = Sum(ways.one, CostInOneStep(layer.move, all_));
      ways.two = Sum(ways.two, CostInTwoSteps(layer.move, shapes.between, shapes.within,
                                              CopySecondsPerByte()));
    }
    return {Times(kMovesOfLayer, ways.one), Times(kMovesOfLayer, ways.two)};
  }

  // Seconds of forward and backward of all layers with each degree of `degrees`.
  std::vector<double> CompareChunks(int64_t hosts, std::span<const int64_t> degrees) const {
    std::vector<double> seconds(degrees.size(), 0);
    for (const LayerOfExperts& layer : ExpertLayers(job_, layout_, devices_).Find(hosts)) {
      SlotMove nothing = layer.move;
      nothing.slot_bytes = 0;
      const double message_s = SecondsOfMove(nothing, hosts);
      ChunkedWork work;
      work.message_s = message_s;
      work.send_s = work.back_s = SecondsOfMove(layer.move, hosts) - message_s;
      work.pass_s = layer.token_bytes * CopySecondsPerByte();
      work.launch_s = devices_.costs.ProfileOf(devices_.devices[0]).launch_s;
      // Backward computes about twice as much. What its products say to slots is summed up behind
      // the last of them (ir/autodiff.h), and goes back then.
      for (const double times : {1.0, 2.0}) {
        work.compute_s = times * layer.compute_s;
        work.back_waits = times > 1;
        for (size_t i = 0; i < degrees.size(); ++i) {
          seconds[i] += SecondsInChunks(work, degrees[i], devices_.beside);
        }
      }
    }
    return seconds;
  }

 private:
  struct ShapesOfSteps {
    mesh::GroupShape between, within;
  };

  static MoveCost Times(double count, const MoveCost& cost) {
    return {count * cost.seconds, count * cost.network_bytes, count * cost.host_bytes};
  }

  ShapesOfSteps ShapesOf(int64_t hosts) const {
    const size_t lanes = ranks_.size() / static_cast<size_t>(hosts);
    std::vector<int> of_hosts;
    for (size_t i = 0; i < ranks_.size(); i += lanes) of_hosts.push_back(ranks_[i]);
    const std::vector<int> within(ranks_.begin(), ranks_.begin() + static_cast<ptrdiff_t>(lanes));
    return {devices_.costs.ShapeOf(of_hosts), devices_.costs.ShapeOf(within)};
  }

  double SecondsOfMove(const SlotMove& move, int64_t hosts) const {
    if (hosts == 1) return CostInOneStep(move, all_).seconds;
    const ShapesOfSteps shapes = ShapesOf(hosts);
    return CostInTwoSteps(move, shapes.between, shapes.within, CopySecondsPerByte()).seconds;
  }

  double CopySecondsPerByte() const {
    const mesh::DeviceProfile& profile = devices_.costs.ProfileOf(devices_.devices[0]);
    return 1 / profile.Rates(mesh::KernelClass::kGather).bytes_per_s;
  }

  const ir::JobRequest& job_;
  const Layout& layout_;
  const ProgramDevices& devices_;
  const std::vector<int> ranks_;
  const mesh::GroupShape all_;
};

bool MovesPlainly(const ir::JobRequest& job) {
  return std::all_of(job.programs.begin(), job.programs.end(), [](const ir::JobProgram& program) {
    return planner::MovesPlainly(program.graph);
  });
}

std::string TextOf(const MoveCost& cost) {
  return fmt::format("{:.3g} MB over the network, {:.3g} MB within hosts, {:.3g} ms",
                     cost.network_bytes / 1e6, cost.host_bytes / 1e6, cost.seconds * 1e3);
}

// Why tokens cannot go in two steps; empty: they can.
std::string WhyInOneStep(const ir::JobRequest& job, const Layout& layout,
                         const ProgramDevices& devices, int64_t hosts) {
  if (devices.searched) return "searched shardings know one step alone";
  if (!layout.stage_degrees.empty()) return "stages of different meshes know one step alone";
  if (hosts == 1) {
    return fmt::format("the {} ranks that share experts lie on one host, or unevenly on several",
                       layout.expert());
  }
  if (!MovesPlainly(job)) return "a program of the job has gradients of its own within experts";
  return "";
}

Status ResolveSteps(const ir::JobRequest& job, const ProgramDevices& devices, Layout& layout,
                    std::vector<std::string>& notes) {
  const std::string& wanted = job.parallel.expert_dispatch;
  if (wanted != "auto" && wanted != "flat" && wanted != "two-level") {
    return InvalidField("parallel.expert_dispatch",
                        fmt::format("is '{}'; known: auto, flat, two-level", wanted));
  }
  const int64_t hosts = HostsOfExperts(layout, devices);
  const std::string why = WhyInOneStep(job, layout, devices, hosts);
  if (wanted == "two-level" && !why.empty()) {
    return InvalidField("parallel.expert_dispatch",
                        fmt::format("is \"two-level\", but {}; use \"flat\" or \"auto\"", why));
  }
  layout.expert_hosts = 1;
  if (hosts == 1 || !why.empty()) return OkStatus();
  const Ways ways = WayFinder(job, layout, devices).CompareSteps(hosts);
  const bool two =
      wanted == "two-level" || (wanted == "auto" && ways.two.seconds < ways.one.seconds);
  if (two) layout.expert_hosts = hosts;
  notes.push_back(
      fmt::format("{}tokens reach those of {} ranks on {} hosts in {} ({}; a device sends for a "
                  "microbatch: in one step {}; in two, once to each host: {})",
                  kExpertNote, layout.expert(), hosts, two ? "two steps" : "one step",
                  wanted == "auto" ? "by cost" : "parallelism.expert_parallel_dispatch",
                  TextOf(ways.one), TextOf(ways.two)));
  return OkStatus();
}

// Of a device, in a microbatch of the main program; 0: it has no experts.
int64_t RowsOfDevice(const ir::JobRequest& job, const Layout& layout) {
  const Graph& graph = job.main().graph;
  const std::vector<NodeId> slots = graph.NodesOf(Op::kExpertSlots);
  if (slots.empty()) return 0;
  const int64_t rows = graph.type(graph.node(slots[0]).inputs[0]).dims[0];
  return rows / (layout.microbatches * layout.data());
}

Status ResolveChunks(const ir::JobRequest& job, const ProgramDevices& devices, Layout& layout,
                     std::vector<std::string>& notes) {
  const int64_t wanted = job.parallel.expert_chunks;
  const int64_t rows = RowsOfDevice(job, layout);
  layout.expert_chunks = 1;
  const bool may = !devices.searched && MovesPlainly(job);
  if (wanted > 1 && (!may || rows % wanted != 0)) {
    return InvalidField(
        "parallel.expert_chunks",
        may ? fmt::format("is {}, which does not divide the {} rows that a device has of a "
                          "microbatch; use a divisor of {}, or fewer microbatches",
                          wanted, rows, rows)
            : fmt::format("is {}, but searched shardings, and gradients that a model computes "
                          "itself within experts, know one chunk alone; leave it out",
                          wanted));
  }
  if (wanted > 0) {
    layout.expert_chunks = wanted;
    return OkStatus();
  }
  if (!may || devices.beside <= 0 || rows < 2) return OkStatus();
  std::vector<int64_t> degrees;
  for (const int64_t degree : kChunkDegrees) {
    if (rows % degree == 0) degrees.push_back(degree);
  }
  const std::vector<double> seconds =
      WayFinder(job, layout, devices).CompareChunks(layout.expert_hosts, degrees);
  const auto best = std::min_element(seconds.begin(), seconds.end());
  layout.expert_chunks = degrees[static_cast<size_t>(best - seconds.begin())];
  std::string all;
  for (size_t i = 0; i < degrees.size(); ++i) {
    all += fmt::format("{}{}: {:.3g} ms", i == 0 ? "" : ", ", degrees[i], seconds[i] * 1e3);
  }
  notes.push_back(
      fmt::format("{}rows go there and back in {} chunk{}, so that some are on their way while "
                  "others are computed (layers with experts in a microbatch, by chunks: {})",
                  kExpertNote, layout.expert_chunks, layout.expert_chunks == 1 ? "" : "s", all));
  return OkStatus();
}

}  // namespace

int64_t HostsOfExperts(const Layout& layout, const ProgramDevices& devices) {
  if (layout.expert() == 1 || !layout.stage_degrees.empty()) return 1;
  const int64_t step = layout.context() * layout.tensor();
  const int64_t group = step * layout.expert();
  const auto count = static_cast<int64_t>(devices.devices.size());
  MW_CHECK(count >= group) << count << " devices for groups of " << group;
  int64_t lanes = 0;
  for (int64_t first = 0; first + group <= count; first += group) {
    for (int64_t other = 0; other < step; ++other) {
      const int64_t own = NeighboursAmong(RanksOf(layout, devices, first + other), devices);
      if (own == 0 || (lanes != 0 && own != lanes)) return 1;
      lanes = own;
    }
  }
  return layout.expert() / lanes;
}

MoveCost CostInOneStep(const SlotMove& move, const mesh::GroupShape& all) {
  return OfGroup(move.rows * move.rank_slots * move.slot_bytes, all);
}

MoveCost CostInTwoSteps(const SlotMove& move, const mesh::GroupShape& between,
                        const mesh::GroupShape& within, double copy_s_per_byte) {
  const auto hosts = static_cast<double>(between.members);
  const auto lanes = static_cast<double>(within.members);
  const double places = move.rows / lanes * move.tokens * move.slot_bytes;
  MoveCost cost =
      Sum(OfGroup(places, between), OfGroup(move.rows * move.rank_slots * move.slot_bytes, within));
  MW_CHECK(hosts >= 1) << hosts << " hosts";
  // Tokens are copied to their places, and from there.
  cost.seconds += 2 * places * copy_s_per_byte;
  return cost;
}

double SecondsInChunks(const ChunkedWork& work, int64_t chunks, double beside) {
  MW_CHECK(chunks >= 1 && beside >= 0 && beside <= 1) << chunks << " chunks, " << beside;
  const auto n = static_cast<double>(chunks);
  double mover_s = 0;
  std::vector<double> sent_s;
  for (int64_t i = 0; i < chunks; ++i) {
    mover_s += work.send_s / n + work.message_s;
    sent_s.push_back(mover_s);
  }
  double computer_s = 0;
  for (int64_t i = 0; i < chunks; ++i) {
    computer_s = std::max(computer_s, sent_s[static_cast<size_t>(i)]) + work.compute_s / n;
    // Sent back behind all that is sent: a group's calls keep their order.
    if (!work.back_waits)
      mover_s = std::max(mover_s, computer_s) + work.back_s / n + work.message_s;
  }
  if (work.back_waits) mover_s = std::max(mover_s, computer_s) + work.back_s + n * work.message_s;
  const double in_turn_s = work.send_s + work.compute_s + work.back_s + 2 * n * work.message_s;
  // Rows are cut apart once and joined once in each direction; a sum of gradients reads and writes
  // all rows once for each chunk.
  const double cuts_s =
      chunks == 1 ? 0 : (4 + n) * work.pass_s + kNodesOfChunk * (n - 1) * work.launch_s;
  return in_turn_s - beside * (in_turn_s - mover_s) + cuts_s;
}

Result<Layout> ResolveExpertWays(const ir::JobRequest& job, const Layout& layout,
                                 const ProgramDevices& devices, std::vector<std::string>& notes) {
  MW_CHECK(layout.expert() > 1) << layout.ToString();
  Layout resolved = layout;
  resolved.expert_hosts = 1;
  resolved.expert_chunks = 1;
  const bool has_experts = !job.main().graph.NodesOf(Op::kExpertSlots).empty();
  // That is refused where slots are shared out.
  for (const NodeId id : job.main().graph.NodesOf(Op::kExpertSlots)) {
    if (job.main().graph.node(id).attrs.Int("experts") % layout.expert() != 0) return resolved;
  }
  if (!has_experts) return resolved;
  MW_TRY(ResolveSteps(job, devices, resolved, notes));
  MW_TRY(ResolveChunks(job, devices, resolved, notes));
  return resolved;
}

std::optional<ir::JobRequest> PlainWays(const ir::JobRequest& job, const Layout& resolved) {
  const bool steps = job.parallel.expert_dispatch == "auto" && resolved.expert_hosts > 1;
  const bool chunks = job.parallel.expert_chunks == 0 && resolved.expert_chunks > 1;
  if (!steps && !chunks) return std::nullopt;
  ir::JobRequest plain = job;
  if (steps) plain.parallel.expert_dispatch = "flat";
  if (chunks) plain.parallel.expert_chunks = 1;
  return plain;
}

}  // namespace meshwright::planner
