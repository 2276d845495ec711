#include "search/layer_probe.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <map>
#include <set>
#include <string>
#include <utility>

#include "planner/step_pieces.h"
#include "planner/zero.h"

namespace meshwright::search {
namespace {

using ir::Graph;
using ir::Node;
using ir::Op;
using ir::Phase;
using planner::Partition;
using planner::Piece;
using planner::StageTensor;

class Prober {
 public:
  Prober(const planner::StagedStep& step, const Partition& partition,
         const planner::CostModel& costs, std::span<const int> devices, int layers)
      : step_(step),
        partition_(partition),
        costs_(costs),
        devices_(devices),
        probes_(static_cast<size_t>(layers)) {}

  std::vector<LayerProbe> Run() {
    FindParamLayers();
    for (const Piece& piece : partition_.pieces) {
      AddSeconds(piece);
      if (piece.key.phase != Phase::kUpdate) AddTransients(*piece.graph);
    }
    AddTensors();
    AddShared();
    AddKept();
    AddBoundaries();
    return std::move(probes_);
  }

 private:
  LayerProbe& At(int layer) { return probes_[static_cast<size_t>(std::max(layer, 0))]; }

  // What a value is, or is a copy of in another type.
  const Node& ReadBy(ValueId value) const {
    const Node* node = &step_.graph.producer(value);
    while (node->op == Op::kCast) node = &step_.graph.producer(node->inputs[0]);
    return *node;
  }

  // A param belongs to the first layer that reads it, its optimizer state to it.
  void FindParamLayers() {
    const Graph& graph = step_.graph;
    for (const Node& node : graph.nodes) {
      for (const ValueId input : node.inputs) {
        const Node& param = ReadBy(input);
        if (param.op != Op::kParam) continue;
        const std::string name = param.attrs.Str("name");
        if (node.phase == Phase::kForward && node.layer >= 0) {
          param_layers_.try_emplace(name, node.layer);
        }
      }
      if (node.op != Op::kAdamW && node.op != Op::kSgd) continue;
      const int layer = param_layers_[graph.producer(node.inputs[0]).attrs.Str("name")];
      for (const ValueId input : node.inputs) {
        const Node& state = graph.producer(input);
        if (state.op == Op::kParam) param_layers_.try_emplace(state.attrs.Str("name"), layer);
      }
    }
  }

  // Of the update and of what runs once per step: the layer of the params that a node reads.
  int LayerByParams(const Graph& graph, const Node& node) const {
    for (const ValueId input : node.inputs) {
      const Node& source = graph.producer(input);
      if (source.op != Op::kInput) continue;
      const auto it = param_layers_.find(source.attrs.Str("name"));
      if (it != param_layers_.end()) return it->second;
    }
    return 0;
  }

  double SecondsOf(const Graph& graph, const Node& node) const {
    if (!planner::IsCollective(node.op)) {
      return costs_.NodeSeconds(graph, node, devices_.front());
    }
    double bytes = 0;
    for (const ValueId input : node.inputs) bytes += static_cast<double>(graph.type(input).bytes());
    return costs_.CollectiveSeconds(planner::CollectiveKindOf(node.op), bytes, devices_) +
           costs_.NodeSeconds(planner::PackingOf(graph, node), devices_.front());
  }

  void AddSeconds(const Piece& piece) {
    const Graph& graph = *piece.graph;
    const bool once = piece.key.phase == Phase::kUpdate || piece.key.round == planner::kOncePerStep;
    for (const Node& node : graph.nodes) {
      const double seconds = SecondsOf(graph, node);
      if (once) {
        At(LayerByParams(graph, node)).update_s += seconds;
        continue;
      }
      LayerProbe& probe = At(node.layer);
      (piece.key.phase == Phase::kForward ? probe.forward_s : probe.backward_s) += seconds;
      if (piece.key.weights) probe.weight_s += seconds;
      if (!planner::IsCollective(node.op)) {
        probe.flops += planner::WorkOf(graph, node).product_flops();
      }
    }
  }

  // What is alive between the nodes of each layer, but inputs and outputs of the piece.
  void AddTransients(const Graph& graph) {
    std::vector<int64_t> change(graph.nodes.size() + 1, 0);
    std::set<ValueId> lasting;
    for (const ir::NamedValue& output : graph.outputs) lasting.insert(output.value);
    std::vector<int> last(graph.values.size(), -1);
    for (size_t i = 0; i < graph.nodes.size(); ++i) {
      for (const ValueId input : graph.nodes[i].inputs) {
        last[static_cast<size_t>(input.value())] = static_cast<int>(i);
      }
    }
    for (size_t v = 0; v < graph.values.size(); ++v) {
      const ValueId id(static_cast<int32_t>(v));
      if (graph.producer(id).op == Op::kInput || lasting.contains(id)) continue;
      const auto first = static_cast<size_t>(graph.value(id).producer.value());
      change[first] += graph.type(id).bytes();
      change[std::max(first, static_cast<size_t>(std::max(last[v], 0))) + 1] -=
          graph.type(id).bytes();
    }
    int64_t live = 0;
    for (size_t i = 0; i < graph.nodes.size(); ++i) {
      live += change[i];
      int64_t& most = At(graph.nodes[i].layer).transient_bytes;
      most = std::max(most, live);
    }
  }

  void AddTensors() {
    for (const StageTensor& tensor : partition_.tensors) {
      const auto it = param_layers_.find(tensor.name);
      const int64_t bytes = tensor.local_type.bytes();
      if (tensor.role != planner::TensorRole::kParam || it == param_layers_.end()) continue;
      LayerProbe& probe = At(it->second);
      if (tensor.kind == ir::MemoryKind::kOptimizer) {
        probe.optimizer_bytes += bytes;
        continue;
      }
      probe.weight_bytes += bytes;
      probe.gradient_bytes += bytes;
      probe.weights.push_back(
          {tensor.local_type.dims, bytes, OptimizerBytesOf(tensor.name), /*shared=*/false});
    }
  }

  int64_t OptimizerBytesOf(const std::string& param) const {
    int64_t bytes = 0;
    for (const StageTensor& tensor : partition_.tensors) {
      const bool state = tensor.role == planner::TensorRole::kParam &&
                         tensor.name.starts_with("opt.") && tensor.name.ends_with("/" + param);
      if (state) bytes += tensor.local_type.bytes();
    }
    return bytes;
  }

  // The head can be one node with its loss and their gradients, of the backward.
  void AddShared() {
    std::set<std::pair<std::string, int>> counted;
    for (const Node& node : step_.graph.nodes) {
      if (node.phase == Phase::kUpdate || node.layer < 0) continue;
      for (const ValueId input : node.inputs) {
        const Node& param = ReadBy(input);
        if (param.op != Op::kParam) continue;
        const std::string name = param.attrs.Str("name");
        if (param_layers_.at(name) == node.layer || !counted.insert({name, node.layer}).second) {
          continue;
        }
        const auto tensor = std::find_if(
            partition_.tensors.begin(), partition_.tensors.end(), [&](const StageTensor& other) {
              return other.role == planner::TensorRole::kParam && other.name == name;
            });
        if (tensor == partition_.tensors.end()) continue;
        LayerProbe& probe = At(node.layer);
        const ProbedWeight weight = {tensor->local_type.dims, tensor->local_type.bytes(),
                                     OptimizerBytesOf(name), /*shared=*/true};
        const int owner = param_layers_.at(name);
        if (probe.shared_layer < 0 || owner < probe.shared_layer) probe.shared_layer = owner;
        probe.shared_weight_bytes += weight.bytes;
        probe.shared_optimizer_bytes += weight.optimizer_bytes;
        probe.weights.push_back(weight);
      }
    }
  }

  // Values that forward pieces leave for backward pieces, those leave for W, and copies of weights.
  void AddKept() {
    std::set<planner::TensorIndex> read, read_by_weights;
    for (const Piece& piece : partition_.pieces) {
      if (piece.key.phase != Phase::kBackward) continue;
      read.insert(piece.inputs.begin(), piece.inputs.end());
      if (piece.key.weights) read_by_weights.insert(piece.inputs.begin(), piece.inputs.end());
    }
    for (const Piece& piece : partition_.pieces) {
      const bool forward = piece.key.phase == Phase::kForward;
      if (!forward && (piece.key.phase != Phase::kBackward || piece.key.weights)) continue;
      for (size_t i = 0; i < piece.outputs.size(); ++i) {
        const planner::TensorIndex index = piece.outputs[i];
        const StageTensor& tensor = partition_.tensors[static_cast<size_t>(index)];
        const Node& maker = piece.graph->producer(piece.graph->outputs[i].value);
        const int64_t bytes = tensor.local_type.bytes();
        if (tensor.role == planner::TensorRole::kStep && forward) {
          At(LayerByParams(*piece.graph, maker)).copy_bytes += bytes;
        }
        if (tensor.role != planner::TensorRole::kMicrobatch) continue;
        LayerProbe& probe = At(maker.layer);
        const int64_t for_weights_bytes = read_by_weights.contains(index) ? bytes : 0;
        if (!forward) {
          probe.made_for_weights_bytes += for_weights_bytes;
        } else if (read.contains(index)) {
          probe.kept_bytes += bytes;
          probe.kept_for_weights_bytes += for_weights_bytes;
        }
      }
    }
  }

  // Logical values that the forward of the next layers reads, as the stage would send them.
  void AddBoundaries() {
    const Graph& graph = step_.graph;
    std::set<ValueId> counted;
    for (const Node& node : graph.nodes) {
      if (node.phase != Phase::kForward || node.layer < 0) continue;
      for (const ValueId input : node.inputs) {
        const Node& maker = graph.producer(input);
        const bool crosses = maker.op != Op::kParam && !maker.inputs.empty() && maker.layer >= 0 &&
                             maker.layer < node.layer;
        if (!crosses || !counted.insert(input).second) continue;
        At(maker.layer).boundary_bytes += graph.type(input).bytes();
      }
    }
  }

  const planner::StagedStep& step_;
  const Partition& partition_;
  const planner::CostModel& costs_;
  const std::span<const int> devices_;
  std::vector<LayerProbe> probes_;
  std::map<std::string, int> param_layers_;
};

}  // namespace

ZeroSplit SplitOver(const LayerProbe& probe, int64_t replicas) {
  ZeroSplit split;
  for (const ProbedWeight& weight : probe.weights) {
    const bool divides = std::any_of(weight.dims.begin(), weight.dims.end(),
                                     [&](int64_t size) { return size % replicas == 0; });
    if (!divides || weight.bytes < planner::kZeroMinBytes) continue;
    (weight.shared ? split.shared_bytes : split.bytes) += weight.bytes;
    (weight.shared ? split.shared_optimizer_bytes : split.optimizer_bytes) +=
        weight.optimizer_bytes;
    if (!weight.shared) ++split.weights;
  }
  return split;
}

Result<ProbeStep> MakeProbeStep(const ir::JobRequest& job, const ShortModel& model) {
  ProbeStep step{job, {}};
  step.job.loss = model.loss;
  MW_ASSIGN_OR_RETURN(step.graph, planner::MakeStepGraph(step.job));
  return step;
}

Result<std::vector<LayerProbe>> ProbeLayers(const ProbeStep& step, const ProbeOptions& options,
                                            const planner::CostModel& costs,
                                            std::span<const int> devices) {
  const int64_t batch = step.job.train.global_batch;
  if (options.rows < 1 || batch % options.rows != 0) {
    return Fail(InvalidArgument(
        fmt::format("microbatches of {} rows do not divide a batch of {}", options.rows, batch)));
  }
  const int layers = std::max(planner::LayerCount(step.job.loss), 1);
  planner::Layout layout;
  layout.tensor = options.tensor;
  layout.microbatches = batch / options.rows;
  layout.sequence_parallel = options.sequence_parallel && options.tensor > 1;
  layout.schedule = "zb-h1";
  layout.recompute.assign(static_cast<size_t>(layers), options.recompute);
  MW_ASSIGN_OR_RETURN(const planner::StagedStep staged,
                      planner::StageStep(step.job, step.graph, layout));
  MW_ASSIGN_OR_RETURN(
      planner::Strategies strategies,
      planner::ChooseStrategies(staged.graph, staged.stages, layout, {}, options.tensor));
  MW_ASSIGN_OR_RETURN(const Partition partition,
                      planner::MakeStepPartition(step.job, staged, layout, strategies));
  std::vector<LayerProbe> probes = Prober(staged, partition, costs, devices, layers).Run();
  // Boundaries were counted for the whole batch; the group holds each element once.
  for (LayerProbe& probe : probes) {
    probe.boundary_bytes = probe.boundary_bytes / layout.microbatches / options.tensor;
  }
  return probes;
}

}  // namespace meshwright::search
