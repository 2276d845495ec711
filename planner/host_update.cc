#include "planner/host_update.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>

#include "base/check.h"
#include "base/gpu_host_threads.h"
#include "base/text.h"
#include "ir/builder.h"
#include "ir/factored.h"
#include "planner/cost_model.h"
#include "planner/forecast.h"
#include "planner/overlap.h"
#include "planner/tiers.h"

namespace meshwright::planner {
namespace {

using ir::Instruction;
using ir::Op;
using ir::Opcode;
using ir::Space;

constexpr int64_t kAllPercent = 100;  // percent

// One weight's update as the job has it.
struct UpdateNode {
  ir::Graph graph;
  NodeId node;
  double weight_bytes = 0;
  double state_bytes = 0;
};

UpdateNode MakeUpdateNode(const ir::JobRequest& job, int64_t elements) {
  ir::Builder b("update");
  b.SetPhase(ir::Phase::kUpdate);
  const ir::TensorType weight{ir::DType::kF32, {elements}};
  const ir::TensorType moment{job.optimizer.moments_dtype, {elements}};
  const auto input = [&](const char* name, const ir::TensorType& type) {
    return b.AddOne(Op::kInput, {}, {{"name", std::string(name)}}, {type});
  };
  const bool adamw = job.optimizer.name == "adamw";
  std::vector<ValueId> operands = {input("w", weight), input("g", weight), input("m", moment)};
  if (adamw) operands.push_back(input("v", moment));
  operands.push_back(input("clip", {ir::DType::kF32, {}}));
  operands.push_back(input("lr", {ir::DType::kF32, {}}));
  ir::Attrs attrs{{"weight_decay", job.optimizer.weight_decay}};
  attrs.Set("beta1", job.optimizer.beta1);
  attrs.Set("beta2", job.optimizer.beta2);
  attrs.Set("eps", job.optimizer.eps);
  attrs.Set("momentum", job.optimizer.momentum);
  const auto results = b.Add(adamw ? Op::kAdamW : Op::kSgd, operands, attrs);
  b.SetOutput("w", results[0]);
  UpdateNode made;
  auto graph = b.Finish();
  MW_CHECK(graph.has_value()) << graph.error().message();
  made.graph = *std::move(graph);
  made.node = made.graph.value(made.graph.outputs[0].value).producer;
  made.weight_bytes = static_cast<double>(weight.bytes());
  made.state_bytes = static_cast<double>((adamw ? 2 : 1) * moment.bytes());
  return made;
}

bool RenewsWeight(const ir::Node& node) {
  return (node.op == Op::kAdamW || node.op == Op::kSgd) && !node.attrs.Has(ir::kMatrixDimsAttr);
}

// Which nodes of one piece of the update the host may run.
class HostNodeFinder {
 public:
  HostNodeFinder(const ir::ParallelSpec& wanted, const Piece& piece, const Partition& partition)
      : weights_on_disk_(SpaceOf(wanted, ir::MemoryKind::kWeights) == Space::kDisk),
        piece_(piece),
        graph_(*piece.graph),
        partition_(partition),
        users_(graph_.Users()) {
    const std::vector<NodeId> inputs = graph_.NodesOf(Op::kInput);
    for (size_t i = 0; i < inputs.size(); ++i) {
      input_[graph_.node(inputs[i]).outputs[0]] = piece.inputs[i];
    }
    for (size_t o = 0; o < graph_.outputs.size(); ++o) {
      outputs_[graph_.outputs[o].value].push_back(piece.outputs[o]);
    }
  }

  // The weight in the first operand is one that the node itself writes, or no param; its state is
  // in the host's memory and renewed in place; nothing else that it reads is a param.
  bool MayRun(const ir::Node& node) const {
    if (!RenewsWeight(node)) return false;
    const std::optional<TensorIndex> weight = ParamOf(node.inputs[0]);
    if (weight && (weights_on_disk_ || !Renews(node.outputs[0], *weight))) return false;
    if (!weight && WritesParam(node.outputs[0])) return false;
    for (size_t o = 1; o < node.outputs.size(); ++o) {
      const std::optional<TensorIndex> state = ParamOf(node.inputs[o + 1]);
      if (!state || partition_.tensors[*state].space != Space::kHost) return false;
      if (!Renews(node.outputs[o], *state)) return false;
    }
    for (const size_t i : OtherOperands(node)) {
      if (ParamOf(node.inputs[i])) return false;
    }
    return true;
  }

  // Of the weight that the node writes where it lies.
  std::optional<TensorIndex> WeightOf(const ir::Node& node) const {
    return ParamOf(node.inputs[0]);
  }

  int64_t StateBytes(const ir::Node& node) const {
    int64_t bytes = 0;
    for (size_t o = 1; o < node.outputs.size(); ++o) bytes += graph_.type(node.outputs[o]).bytes();
    return bytes;
  }

 private:
  std::optional<TensorIndex> ParamOf(ValueId value) const {
    const auto found = input_.find(value);
    if (found == input_.end()) return std::nullopt;
    if (partition_.tensors[found->second].role != TensorRole::kParam) return std::nullopt;
    return found->second;
  }
  bool Renews(ValueId value, TensorIndex param) const {
    const auto found = outputs_.find(value);
    return found != outputs_.end() && found->second == std::vector<TensorIndex>{param} &&
           users_[value].empty();
  }
  bool WritesParam(ValueId value) const {
    const auto found = outputs_.find(value);
    if (found == outputs_.end()) return false;
    return std::any_of(found->second.begin(), found->second.end(), [&](TensorIndex tensor) {
      return partition_.tensors[tensor].role == TensorRole::kParam;
    });
  }
  // The gradient, and what stands behind the state.
  static std::vector<size_t> OtherOperands(const ir::Node& node) {
    std::vector<size_t> others = {1};
    for (size_t i = node.outputs.size() + 1; i < node.inputs.size(); ++i) others.push_back(i);
    return others;
  }

  const bool weights_on_disk_;
  const Piece& piece_;
  const ir::Graph& graph_;
  const Partition& partition_;
  const IdVector<ValueId, std::vector<NodeId>> users_;
  std::map<ValueId, TensorIndex> input_;
  std::map<ValueId, std::vector<TensorIndex>> outputs_;
};

// Deals out chunks, so that of all that was dealt the host has its share.
class Dealer {
 public:
  Dealer(int64_t percent, int64_t chunk_bytes) : percent_(percent), chunk_bytes_(chunk_bytes) {}

  bool GoesToHost(int64_t bytes) {
    if (left_bytes_ < bytes) {
      left_bytes_ = chunk_bytes_;
      all_bytes_ += static_cast<double>(chunk_bytes_);
      const double wanted = all_bytes_ * static_cast<double>(percent_) / double{kAllPercent};
      to_host_ = wanted - host_bytes_ >= static_cast<double>(chunk_bytes_) / 2;
      if (to_host_) host_bytes_ += static_cast<double>(chunk_bytes_);
    }
    left_bytes_ -= std::min(left_bytes_, bytes);
    return to_host_;
  }

 private:
  const int64_t percent_;
  const int64_t chunk_bytes_;
  double all_bytes_ = 0;
  double host_bytes_ = 0;
  int64_t left_bytes_ = 0;
  bool to_host_ = false;
};

// The copies of what RUNs of the host share with the device.
class HostCopyAdder {
 public:
  HostCopyAdder(const std::vector<bool>& on_host, ir::Program& program)
      : on_host_(on_host),
        program_(program),
        behind_(program.instructions.size()),
        before_(program.instructions.size()) {}

  void Run() {
    for (size_t i = 0; i < program_.instructions.size(); ++i) {
      if (IsOnHost(program_.instructions[i])) MoveOperands(i);
    }
    std::vector<Instruction> with_copies;
    for (size_t i = 0; i < program_.instructions.size(); ++i) {
      Append(before_[i], with_copies);
      with_copies.push_back(std::move(program_.instructions[i]));
      Append(behind_[i], with_copies);
    }
    program_.instructions = std::move(with_copies);
  }

 private:
  bool IsOnHost(const Instruction& instruction) const {
    return instruction.op == Opcode::kRun && on_host_[instruction.executable.index()];
  }
  bool IsNear(SlotId id) const { return program_.slot(id).space == Space::kDevice; }

  void MoveOperands(size_t run) {
    for (size_t i = 0; i < program_.instructions[run].inputs.size(); ++i) {
      const SlotId id = program_.instructions[run].inputs[i];
      if (IsNear(id)) program_.instructions[run].inputs[i] = GoneOut(id, run);
    }
    for (size_t o = 0; o < program_.instructions[run].outputs.size(); ++o) {
      const SlotId id = program_.instructions[run].outputs[o];
      if (!IsNear(id)) continue;
      MW_CHECK(!program_.slot(id).persistent) << "the host writes s" << id << " of the device";
      const SlotId made = AddHostSlot(id);
      program_.instructions[run].outputs[o] = made;
      before_[FirstReader(id, run)].push_back(Copy(Opcode::kPrefetch, made, id));
    }
  }

  // Once for all RUNs that read the same.
  SlotId GoneOut(SlotId id, size_t run) {
    const size_t writer = LastWriter(id, run);
    const auto [at, fresh] = gone_.try_emplace({id, writer});
    if (fresh) {
      at->second = AddHostSlot(id);
      behind_[writer].push_back(Copy(Opcode::kOffload, id, at->second));
    }
    return at->second;
  }

  static bool Has(const std::vector<SlotId>& ids, SlotId id) {
    return std::find(ids.begin(), ids.end(), id) != ids.end();
  }
  size_t LastWriter(SlotId id, size_t before) const {
    for (size_t i = before; i-- > 0;) {
      const Instruction& each = program_.instructions[i];
      const bool received = each.op == Opcode::kRecv && each.slot == id;
      if (received || (each.op == Opcode::kRun && Has(each.outputs, id))) return i;
    }
    MW_CHECK(false) << "the host reads s" << id << ", which nothing makes";
    return 0;
  }
  size_t FirstReader(SlotId id, size_t behind) const {
    for (size_t i = behind + 1; i < program_.instructions.size(); ++i) {
      const Instruction& each = program_.instructions[i];
      if (Has(each.inputs, id) || each.slot == id) return i;
    }
    MW_CHECK(false) << "nothing reads s" << id << ", which the host makes";
    return 0;
  }

  SlotId AddHostSlot(SlotId of) {
    const SlotId id(static_cast<int32_t>(program_.slots.size()));
    ir::Slot slot;
    slot.type = program_.slot(of).type;
    slot.kind = program_.slot(of).kind;
    slot.space = Space::kHost;
    slot.name = "host/" + program_.slot(of).name;
    program_.slots.push_back(std::move(slot));
    return id;
  }

  static Instruction Copy(Opcode op, SlotId from, SlotId to) {
    Instruction copy;
    copy.op = op;
    copy.inputs = {from};
    copy.outputs = {to};
    return copy;
  }
  static void Append(std::vector<Instruction>& from, std::vector<Instruction>& to) {
    for (Instruction& each : from) to.push_back(std::move(each));
  }

  const std::vector<bool>& on_host_;
  ir::Program& program_;
  std::map<std::pair<SlotId, size_t>, SlotId> gone_;  // by slot and what wrote it
  std::vector<std::vector<Instruction>> behind_;      // each instruction
  std::vector<std::vector<Instruction>> before_;
};

}  // namespace

double SecondsOfUpdate(const UpdateTimes& times, int64_t percent) {
  const double host = static_cast<double>(percent) / double{kAllPercent};
  const double device = 1 - host;
  return std::max({device * times.device_s, host * times.host_s,
                   device * times.link_device_s + host * times.link_host_s});
}

int64_t BestHostShare(const UpdateTimes& times) {
  int64_t best = kAllPercent;
  for (int64_t percent = kAllPercent; percent >= 0; --percent) {
    if (SecondsOfUpdate(times, percent) < SecondsOfUpdate(times, best)) best = percent;
  }
  return best;
}

UpdateTimes TimesOfUpdate(const ir::JobRequest& job, const mesh::Topology& topology,
                          double elements) {
  MW_CHECK(!topology.devices.empty() && elements > 0) << "an update of " << elements << " weights";
  constexpr int64_t kSample = 1 << 20;  // weights of one call
  const UpdateNode update = MakeUpdateNode(job, kSample);
  const double calls = elements / static_cast<double>(kSample);
  const CostModel model(topology);
  UpdateTimes times;
  times.device_s = calls * model.NodeSeconds(update.graph, update.graph.node(update.node), 0);
  times.host_s = calls * HostRunSeconds(topology, 0, update.graph);
  const double per_byte = TierLinkOf(model.ProfileOf(0), Space::kHost).seconds_per_byte;
  // A weight in the host's memory comes for the update and goes back, too.
  const bool far = job.parallel.weights_memory == "host";
  const double moved = update.state_bytes + (far ? update.weight_bytes : 0);
  times.link_device_s = calls * per_byte * 2 * moved;
  // A gradient goes out, a weight comes back; a weight that is far comes anyhow.
  times.link_host_s = calls * per_byte * update.weight_bytes * (far ? 1 : 2);
  return times;
}

Result<int64_t> ResolveHostUpdate(const ir::JobRequest& job, const mesh::Topology& topology) {
  constexpr double kElements = 1e9;
  const ir::ParallelSpec& parallel = job.parallel;
  const bool open = parallel.host_update < 0;
  if (parallel.host_update == 0 || job.trained() == nullptr) return 0;
  const auto refused = [&](std::string why) -> Result<int64_t> {
    if (open) return 0;
    return Fail(InvalidField("parallel.host_update", std::move(why)));
  };
  if (parallel.optimizer_memory != "host") {
    return refused(
        fmt::format("is {}, and the host renews what is in its memory only; "
                    "parallelism.optimizer_memory is \"{}\"",
                    parallel.host_update, parallel.optimizer_memory));
  }
  if (parallel.weights_memory == "disk") {
    return refused(fmt::format("is {}, and the host renews no weights that are on a disk",
                               parallel.host_update));
  }
  if (job.optimizer.name == "adafactor") {
    return refused(
        fmt::format("is {}, and the host renews no state of adafactor", parallel.host_update));
  }
  if (!open || topology.devices.empty()) return std::max<int64_t>(parallel.host_update, 0);
  return BestHostShare(TimesOfUpdate(job, topology, kElements));
}

std::string HostUpdateNote(const ir::JobRequest& job, const mesh::Topology& topology) {
  constexpr double kElements = 1e6;
  const int64_t percent = job.parallel.host_update;
  const UpdateTimes times = TimesOfUpdate(job, topology, kElements);
  return fmt::format(
      "the host renews {} % of the state where it lies, the device the rest: of a million weights "
      "this takes {}, all by the device {}, all by the host {}",
      percent, FormatDuration(SecondsOfUpdate(times, percent)),
      FormatDuration(SecondsOfUpdate(times, 0)),
      FormatDuration(SecondsOfUpdate(times, kAllPercent)));
}

double HostRunSeconds(const mesh::Topology& topology, int device, const ir::Graph& graph) {
  MW_CHECK(device >= 0 && static_cast<size_t>(device) < topology.devices.size())
      << "device " << device << " of " << topology.devices.size();
  const mesh::Device& own = topology.devices[static_cast<size_t>(device)];
  const bool gpu = IsGpu(topology.ProfileOf(static_cast<size_t>(device)));
  mesh::Topology host_of = mesh::Topology::Local(1);
  if (!gpu) host_of.devices[0].profile = own.profile;
  const CostModel model(host_of);
  // What a CPU device does with all of its threads, the host does with one of these.
  double parts = 1.0 / std::max(1, own.threads);
  if (gpu) {
    const auto host = topology.hosts.find(own.host);
    const auto neighbours =
        std::count_if(topology.devices.begin(), topology.devices.end(),
                      [&](const mesh::Device& each) { return each.host == own.host; });
    parts = GpuHostThreads(host == topology.hosts.end() ? 0 : host->second.cores,
                           static_cast<int>(neighbours));
  }
  double seconds = 0;
  for (const ir::Node& node : graph.nodes) {
    if (!IsCollective(node.op)) seconds += model.NodeSeconds(graph, node, 0);
  }
  return seconds / parts;
}

HostNodes ChooseHostNodes(const ir::ParallelSpec& wanted, Partition& partition) {
  MW_CHECK(wanted.host_update <= kAllPercent) << wanted.host_update << " % of the state";
  if (wanted.host_update <= 0 || SpaceOf(wanted, ir::MemoryKind::kOptimizer) != Space::kHost) {
    return {};
  }
  HostNodes chosen;
  std::map<int, Dealer> dealers;  // by stage
  std::vector<TensorIndex> weights;
  for (const Piece& piece : partition.pieces) {
    std::vector<bool>& of_piece = chosen.emplace_back(piece.graph->nodes.size(), false);
    if (piece.key.phase != ir::Phase::kUpdate) continue;
    const HostNodeFinder finder(wanted, piece, partition);
    Dealer& dealer =
        dealers.try_emplace(piece.key.stage, wanted.host_update, wanted.offload_chunk_bytes)
            .first->second;
    for (size_t n = 0; n < of_piece.size(); ++n) {
      const ir::Node& node = piece.graph->nodes[n];
      of_piece[n] = finder.MayRun(node) && dealer.GoesToHost(finder.StateBytes(node));
      const auto weight = of_piece[n] ? finder.WeightOf(node) : std::nullopt;
      if (weight) weights.push_back(*weight);
    }
  }
  for (const TensorIndex weight : weights) partition.tensors[weight].space = Space::kHost;
  return chosen;
}

HostWeights HostWeightsOf(const Partition& partition) {
  HostWeights weights;
  for (const StageTensor& tensor : partition.tensors) {
    const bool weight =
        tensor.role == TensorRole::kParam && tensor.kind == ir::MemoryKind::kWeights;
    if (weight && tensor.space == Space::kHost) weights.emplace(tensor.stage, tensor.name);
  }
  return weights;
}

void MarkHostWeights(const HostWeights& weights, Partition& partition) {
  for (StageTensor& tensor : partition.tensors) {
    const bool param = tensor.role == TensorRole::kParam;
    if (param && weights.contains({tensor.stage, tensor.name})) tensor.space = Space::kHost;
  }
}

std::vector<UpdateGroup> UpdateGroupsOf(const ir::Program& program) {
  std::map<SlotId, SlotId> home_of;  // of copies
  std::vector<UpdateGroup> groups;
  for (size_t i = 0; i < program.instructions.size(); ++i) {
    const Instruction& each = program.instructions[i];
    if (each.op == Opcode::kPrefetch) home_of[each.outputs[0]] = each.inputs[0];
    if (each.op != Opcode::kRun) continue;
    UpdateGroup group;
    group.instruction = i;
    group.on_host = ir::RunsOnHost(program, each);
    std::set<std::string> weights;
    for (const SlotId id : each.outputs) {
      const auto home = home_of.find(id);
      const ir::Slot& slot = program.slot(home == home_of.end() ? id : home->second);
      const bool state = slot.persistent && slot.kind == ir::MemoryKind::kOptimizer;
      if (!state || slot.space != Space::kHost) continue;
      group.state_bytes += slot.type.bytes();
      weights.insert(slot.name.substr(slot.name.find('/') + 1));  // "opt.m/wte"
    }
    group.weights.assign(weights.begin(), weights.end());
    if (group.state_bytes > 0) groups.push_back(std::move(group));
  }
  return groups;
}

void AddHostCopies(const std::vector<bool>& on_host, ir::Program& program) {
  MW_CHECK(on_host.size() == program.executables.size())
      << on_host.size() << " of " << program.executables.size() << " executables are placed";
  HostCopyAdder(on_host, program).Run();
}

}  // namespace meshwright::planner
