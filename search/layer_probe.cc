#include "search/layer_probe.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <utility>

#include "base/check.h"
#include "ir/averages.h"
#include "planner/job_on_axes.h"
#include "planner/lower.h"
#include "planner/node_prices.h"
#include "planner/padding.h"
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

// Of a sum over devices that hold the same weights: closed forms have it, with those of the data
// axis (search/stage_state.h).
bool SumsOverReplicas(const Node& node) {
  if (!planner::IsCollective(node.op)) return false;
  const std::vector<std::string> axes = node.attrs.Strs("axes");
  return std::any_of(axes.begin(), axes.end(), [](const std::string& axis) {
    return planner::RoleOf(axis) != planner::AxisRole::kModel;
  });
}

class Prober {
 public:
  Prober(const planner::StagedStep& step, const Partition& partition, planner::NodePrices& prices,
         int64_t devices, int layers)
      : step_(step),
        partition_(partition),
        prices_(prices),
        devices_(devices),
        probes_(static_cast<size_t>(layers)) {}

  std::vector<LayerProbe> Run() {
    FindParamLayers();
    for (const Piece& piece : partition_.pieces) {
      AddSeconds(piece);
      if (piece.key.phase == Phase::kUpdate) continue;
      AddTransients(*piece.graph);
      AddPacking(*piece.graph);
    }
    FindReaders();
    FindCopies();
    AddTensors();
    AddShared();
    AddKept();
    AddBoundaries();
    const auto waits = [](const StageTensor& tensor) {
      return tensor.kind == ir::MemoryKind::kGradients && tensor.space != ir::Space::kDevice;
    };
    const bool gradients_wait =
        std::any_of(partition_.tensors.begin(), partition_.tensors.end(), waits);
    for (LayerProbe& probe : probes_) probe.gradients_stay = !gradients_wait;
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

  // A param belongs to the first layer that reads it, its optimizer state to it. A head that is one
  // node with its loss is read by the backward alone, which comes behind the forward.
  void FindParamLayers() {
    const Graph& graph = step_.graph;
    for (const Node& node : graph.nodes) {
      for (const ValueId input : node.inputs) {
        const Node& param = ReadBy(input);
        if (param.op != Op::kParam) continue;
        const std::string name = param.attrs.Str("name");
        if (node.phase != Phase::kUpdate && node.layer >= 0) {
          param_layers_.try_emplace(name, node.layer);
        }
      }
      if (node.op == Op::kParam && node.attrs.Has(ir::kAverageOfAttr)) {
        const auto of = param_layers_.find(node.attrs.Str(ir::kAverageOfAttr));
        const int layer = of == param_layers_.end() ? 0 : of->second;
        param_layers_.try_emplace(node.attrs.Str("name"), layer);
      }
      if (node.op != Op::kAdamW && node.op != Op::kSgd) continue;
      const std::string of = graph.producer(node.inputs[0]).attrs.Str("name");
      gradient_dtypes_[of] = graph.type(node.inputs[1]).dtype;
      const int layer = param_layers_[of];
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

  void AddSeconds(const Piece& piece) {
    const Graph& graph = *piece.graph;
    const bool once = piece.key.phase == Phase::kUpdate || piece.key.round == planner::kOncePerStep;
    const std::vector<double> node_s = prices_.SecondsOfNodes(graph);
    for (size_t n = 0; n < graph.nodes.size(); ++n) {
      const Node& node = graph.nodes[n];
      if (once && SumsOverReplicas(node)) continue;
      const double seconds = node_s[n];
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

  // What is alive at the nodes of each layer, as ir::PlanWorkspace has it: neither inputs nor what
  // is computed straight into an output.
  void AddTransients(const Graph& graph) {
    const ir::InPlaceChains chains = ir::FindInPlaceChains(graph);
    const std::vector<int> last_touches = ir::LastTouches(graph);
    std::vector<bool> bound(graph.values.size(), false);
    for (const ir::NamedValue& output : graph.outputs) bound[output.value.index()] = true;
    std::vector<int64_t> change(graph.nodes.size() + 1, 0);
    for (size_t v = 0; v < graph.values.size(); ++v) {
      const ValueId id(static_cast<int32_t>(v));
      if (bound[v] || graph.producer(id).op == Op::kInput || chains.last[v] != id) continue;
      const auto made = static_cast<size_t>(graph.value(id).producer.index());
      const size_t last = std::max(made, static_cast<size_t>(std::max(last_touches[v], 0)));
      change[graph.value(chains.first[v]).producer.index()] += graph.type(id).bytes();
      change[last + 1] -= graph.type(id).bytes();
    }
    int64_t live = 0;
    for (size_t i = 0; i < graph.nodes.size(); ++i) {
      live += change[i];
      LayerProbe& probe = At(graph.nodes[i].layer);
      probe.transient_bytes = std::max(probe.transient_bytes, live);
      probe.makes_loss_gradient =
          probe.makes_loss_gradient || graph.nodes[i].op == Op::kHeadLossGrad;
    }
  }

  void AddPacking(const Graph& graph) {
    if (devices_ == 1) return;
    for (const Node& node : graph.nodes) {
      if (!planner::IsCollective(node.op)) continue;
      int64_t& most = At(node.layer).packed_bytes;
      most = std::max(most, planner::PackedBytes(graph, node));
    }
  }

  // Layers whose microbatches read a tensor, by the phase of the pieces that do.
  void FindReaders() {
    for (const Piece& piece : partition_.pieces) {
      if (piece.key.phase == Phase::kUpdate) continue;
      const IdVector<ValueId, std::vector<NodeId>> users = piece.graph->Users();
      const std::vector<NodeId> inputs = piece.graph->NodesOf(Op::kInput);
      for (size_t i = 0; i < inputs.size(); ++i) {
        const ValueId value = piece.graph->node(inputs[i]).outputs[0];
        for (const NodeId user : users[value]) {
          const int layer = std::max(piece.graph->node(user).layer, 0);
          if (piece.key.round != planner::kOncePerStep) read_.insert(piece.inputs[i]);
          Readers& readers = readers_[piece.inputs[i]];
          readers.all.insert(layer);
          if (piece.key.phase != Phase::kBackward) continue;
          (piece.key.weights ? readers.weights : readers.backward).insert(layer);
        }
      }
    }
  }

  // What runs once per step makes copies of weights in the type of the microbatches.
  void FindCopies() {
    for (const Piece& piece : partition_.pieces) {
      if (piece.key.phase != Phase::kForward) continue;
      for (size_t i = 0; i < piece.outputs.size(); ++i) {
        const StageTensor& tensor = partition_.tensors[piece.outputs[i]];
        if (tensor.role != planner::TensorRole::kStep) continue;
        const Node& maker = piece.graph->producer(piece.graph->outputs[i].value);
        for (const ValueId input : maker.inputs) {
          const Node& source = piece.graph->producer(input);
          if (source.op != Op::kInput) continue;
          copies_[source.attrs.Str("name")] = {tensor.local_type.bytes(),
                                               readers_[piece.outputs[i]].all};
        }
      }
    }
  }

  // What a layer holds of the copy of a weight; shared: an earlier layer reads it, too.
  void AddCopy(const std::string& name, int layer, ProbedWeight& weight) {
    const auto copy = copies_.find(name);
    if (copy == copies_.end() || !copy->second.readers.contains(layer)) return;
    weight.copy_bytes = copy->second.bytes;
    weight.is_master = !IsRead(name);
    weight.copy_is_shared = *copy->second.readers.begin() < layer;
    LayerProbe& probe = At(layer);
    (weight.copy_is_shared ? probe.shared : probe.own).copy_bytes += weight.copy_bytes;
  }

  // Whether microbatches read the weight itself.
  bool IsRead(const std::string& param) const {
    return std::any_of(read_.begin(), read_.end(), [&](planner::TensorIndex tensor) {
      const StageTensor& info = partition_.tensors[tensor];
      return info.role == planner::TensorRole::kParam && info.name == param;
    });
  }

  void AddTensors() {
    for (const StageTensor& tensor : partition_.tensors) {
      const auto it = param_layers_.find(tensor.name);
      const int64_t bytes = tensor.local_type.bytes();
      if (tensor.role != planner::TensorRole::kParam || it == param_layers_.end()) continue;
      LayerProbe& probe = At(it->second);
      if (tensor.kind == ir::MemoryKind::kOptimizer) {
        if (tensor.space == ir::Space::kDevice) probe.own.optimizer_bytes += bytes;
        continue;
      }
      if (tensor.space == ir::Space::kDevice) probe.own.bytes += bytes;
      const ProbedWeight& weight = AddWeight(tensor, it->second, false);
      probe.own.gradient_bytes += weight.gradient_bytes;
      if (weight.by_expert) probe.of_experts.gradient_bytes += weight.gradient_bytes;
    }
  }

  // Of a layer that reads it; shared: an earlier one does, too.
  const ProbedWeight& AddWeight(const StageTensor& param, int layer, bool shared) {
    const auto it = gradient_dtypes_.find(param.name);
    const ir::DType dtype = it == gradient_dtypes_.end() ? param.local_type.dtype : it->second;
    ProbedWeight& weight = At(layer).weights.emplace_back();
    weight.dims = param.local_type.dims;
    weight.bytes = param.local_type.bytes();
    weight.optimizer_bytes = OptimizerBytesOf(param.name);
    weight.gradient_bytes = param.local_type.elements() * ir::DTypeBytes(dtype);
    weight.shared = shared;
    weight.by_expert = !shared && param.sharding.UsesAxis(planner::kExpert);
    AddCopy(param.name, layer, weight);
    return weight;
  }

  // On the device: what comes of a farther memory at a time is little.
  int64_t OptimizerBytesOf(const std::string& param) const {
    int64_t bytes = 0;
    for (const StageTensor& tensor : partition_.tensors) {
      const bool state = tensor.role == planner::TensorRole::kParam &&
                         tensor.space == ir::Space::kDevice && tensor.name.starts_with("opt.") &&
                         tensor.name.ends_with("/" + param);
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
        const ProbedWeight& weight = AddWeight(*tensor, node.layer, true);
        const int owner = param_layers_.at(name);
        if (probe.shared_layer < 0 || owner < probe.shared_layer) probe.shared_layer = owner;
        probe.shared.Add(weight);
        const bool whole = devices_ > 1 && tensor->local_type == tensor->global_type;
        probe.shared_whole_bytes += whole ? weight.bytes : 0;
      }
    }
  }

  // Values that forward pieces leave for backward pieces, and B for W.
  void AddKept() {
    for (const Piece& piece : partition_.pieces) {
      const bool forward = piece.key.phase == Phase::kForward;
      if (!forward && (piece.key.phase != Phase::kBackward || piece.key.weights)) continue;
      for (const planner::TensorIndex index : piece.outputs) {
        const StageTensor& tensor = partition_.tensors[index];
        const auto found = readers_.find(index);
        if (tensor.role != planner::TensorRole::kMicrobatch || found == readers_.end()) continue;
        if (tensor.space != ir::Space::kDevice) continue;
        const Readers& readers = found->second;
        const int64_t bytes = tensor.local_type.bytes();
        if (!forward && !readers.weights.empty()) {
          LayerProbe& probe = At(*readers.weights.begin());
          probe.made_for_weights_bytes += bytes;
          probe.largest_made_bytes = std::max(probe.largest_made_bytes, bytes);
        }
        if (!forward) continue;
        if (!readers.weights.empty()) {
          At(*readers.weights.begin()).kept_for_weights_bytes += bytes;
        }
        std::set<int> backward = readers.backward;
        backward.insert(readers.weights.begin(), readers.weights.end());
        if (!backward.empty()) At(*backward.begin()).kept_bytes += bytes;
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

  struct Readers {
    std::set<int> all, backward, weights;  // layers
  };
  struct Copy {
    int64_t bytes = 0;
    std::set<int> readers;  // layers
  };

  const planner::StagedStep& step_;
  const Partition& partition_;
  planner::NodePrices& prices_;
  const int64_t devices_;
  std::vector<LayerProbe> probes_;
  std::map<std::string, int> param_layers_;
  std::map<std::string, ir::DType> gradient_dtypes_;  // by param
  std::map<planner::TensorIndex, Readers> readers_;
  std::set<planner::TensorIndex> read_;  // by microbatches
  std::map<std::string, Copy> copies_;   // by param
};

}  // namespace

void StateBytes::Add(const ProbedWeight& weight) {
  ++weights;
  bytes += weight.bytes;
  gradient_bytes += weight.gradient_bytes;
  optimizer_bytes += weight.optimizer_bytes;
  if (weight.is_master) master_bytes += weight.bytes;
  renewed_bytes += weight.is_master ? weight.copy_bytes : weight.bytes;
}

ZeroSplit SplitOver(const LayerProbe& probe, int64_t replicas, int64_t min_bytes) {
  min_bytes = std::max(planner::kZeroMinBytes, min_bytes);
  ZeroSplit split;
  for (const ProbedWeight& weight : probe.weights) {
    const auto dim = std::find_if(weight.dims.begin(), weight.dims.end(),
                                  [&](int64_t size) { return size % replicas == 0; });
    if (dim == weight.dims.end() || weight.bytes < min_bytes) continue;
    (weight.shared ? split.shared : split.own).Add(weight);
    (weight.copy_is_shared ? split.shared : split.own).copy_bytes += weight.copy_bytes;
    if (weight.by_expert) split.of_experts.Add(weight);
    if (!weight.is_master) {
      split.largest_renewed_bytes = std::max(split.largest_renewed_bytes, weight.bytes);
    }
    split.largest_bytes = std::max(split.largest_bytes, weight.gradient_bytes);
    split.largest_gathered_bytes = std::max(
        split.largest_gathered_bytes, weight.copy_bytes > 0 ? weight.copy_bytes : weight.bytes);
    const ir::TensorType type{ir::DType::kF32, weight.dims};
    if (planner::BytesOfBlocks(type, dim - weight.dims.begin()) == 0) continue;
    split.packed_bytes = std::max(split.packed_bytes, weight.bytes);
  }
  return split;
}

// Layers that share a weight are parts of their own: each sums up its gradients over a step.
Status SumGradientsOfLayersInUpdate(planner::StagedStep& step, int layers) {
  const IdVector<ValueId, std::vector<NodeId>> users = step.graph.Users();
  for (Node& node : step.graph.nodes) {
    if (node.op != Op::kSum || node.phase != Phase::kBackward) continue;
    std::set<int> makers;
    for (const ValueId input : node.inputs) makers.insert(step.graph.producer(input).layer);
    const std::vector<NodeId>& readers = users[node.outputs[0]];
    const bool is_gradient = std::all_of(readers.begin(), readers.end(), [&](NodeId reader) {
      return step.graph.node(reader).phase == Phase::kUpdate;
    });
    if (makers.size() > 1 && is_gradient) node.phase = Phase::kUpdate;
  }
  const std::vector<int> one_part(static_cast<size_t>(layers), 0);
  MW_ASSIGN_OR_RETURN(step.stages, planner::AssignStages(step.graph, one_part, {}));
  return OkStatus();
}

Result<ProbeStep> MakeProbeStep(const ir::JobRequest& job, const ShortModel& model) {
  ProbeStep step{job, {}};
  step.job.programs.clear();
  step.job.SetLoss(model.loss);
  MW_ASSIGN_OR_RETURN(step.graph, planner::MakeStepGraph(step.job));
  return step;
}

namespace {

struct Placed {
  ir::Graph graph;
  planner::Layout layout;
};

// The step as the axes of the layout compute it.
Result<Placed> Place(const ProbeStep& step, const planner::Layout& layout,
                     const planner::ProgramDevices& devices) {
  const bool plain = layout.expert() == 1 && layout.context() == 1;
  planner::JobOnAxes on_axes;
  if (!plain) {
    MW_ASSIGN_OR_RETURN(on_axes, planner::PlaceOnAxes(step.job, layout, devices));
  }
  const ir::JobRequest& job = plain ? step.job : on_axes.job;
  const planner::Layout& placed = plain ? layout : on_axes.layout;
  MW_ASSIGN_OR_RETURN(const std::optional<planner::PaddedJob> padded, planner::PadJob(job, placed));
  if (plain && !padded) return Placed{step.graph, layout};
  MW_ASSIGN_OR_RETURN(ir::Graph graph, planner::MakeStepGraph(padded ? padded->job : job));
  return Placed{std::move(graph), placed};
}

}  // namespace

Result<std::vector<LayerProbe>> ProbeLayers(const ProbeStep& step, const ProbeOptions& options,
                                            const planner::CostModel& costs,
                                            const ProbeDevices& devices) {
  const planner::Degrees& degrees = options.degrees;
  MW_CHECK(degrees[planner::Axis::kData] == 1 &&
           degrees.device_count() == static_cast<int64_t>(devices.group.size()))
      << devices.group.size() << " devices for a probe of " << degrees.device_count();
  const int64_t batch = step.job.train.global_batch;
  const int64_t rows = options.rows * degrees.data();  // of a microbatch on all ranks
  if (options.rows < 1 || batch % rows != 0) {
    return Fail(InvalidArgument(
        fmt::format("microbatches of {} rows do not divide a batch of {}", rows, batch)));
  }
  const int layers = std::max(planner::LayerCount(step.job.main().graph), 1);
  planner::Layout layout;
  layout.degrees = degrees;
  layout.context_attention = options.context_attention;
  layout.microbatches = batch / rows;
  layout.sequence_parallel = options.sequence_parallel && layout.tensor() > 1;
  layout.schedule = "zb-h1";
  layout.recompute.assign(static_cast<size_t>(layers), options.recompute);
  MW_ASSIGN_OR_RETURN(const Placed placed, Place(step, layout, {costs, devices.group}));
  MW_ASSIGN_OR_RETURN(planner::StagedStep staged,
                      planner::StageStep(step.job, placed.graph, placed.layout));
  MW_TRY(SumGradientsOfLayersInUpdate(staged, layers));
  MW_ASSIGN_OR_RETURN(
      planner::Strategies strategies,
      planner::ChooseStrategies(staged.graph, staged.stages, placed.layout, {}, layout.tensor()));
  mesh::Mesh mesh = planner::StageMesh(placed.layout, 0);
  for (DeviceIndex& device : mesh.devices) {
    device = DeviceIndex(devices.group[device.index()]);
  }
  planner::NodePrices prices(std::move(mesh), costs, devices.slowest);
  MW_ASSIGN_OR_RETURN(const Partition partition,
                      planner::MakeStepPartition(step.job, staged, placed.layout, strategies));
  std::vector<LayerProbe> probes =
      Prober(staged, partition, prices, options.degrees.device_count(), layers).Run();
  // Boundaries were counted for the whole batch; the group holds each element once.
  for (LayerProbe& probe : probes) {
    probe.boundary_bytes = probe.boundary_bytes / layout.microbatches / degrees.device_count();
    probe.recomputes = options.recompute != planner::Recompute::kNone;
  }
  return probes;
}

}  // namespace meshwright::search
