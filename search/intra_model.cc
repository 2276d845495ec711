#include "search/intra_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <set>
#include <utility>

#include "search/short_model.h"

namespace meshwright::search {
namespace {

using ir::Graph;
using ir::Node;
using ir::Op;
using ir::Phase;
using mesh::Sharding;
using planner::kData;
using planner::kMicro;
using planner::NodeStrategy;
using planner::WithoutAxis;

NodeStrategy GroupedSum(const Node& node) {
  NodeStrategy strategy;
  strategy.operands.assign(node.inputs.size(), Sharding::Replicated(0));
  strategy.results = {Sharding::Replicated(0)};
  strategy.expansion = planner::Expansion::kGroupedSum;
  return strategy;
}

class ModelMaker {
 public:
  ModelMaker(const Graph& graph, const planner::StageAssignment& stages,
             const IntraOptions& options) {
    model_.graph = &graph;
    model_.stages = &stages;
    model_.options = options;
  }

  Result<IntraModel> Run() {
    MW_TRY(MakeMesh());
    MW_TRY(ChooseBase());
    model_.constant = planner::FindConstants(graph());
    MatchNodes();
    MW_TRY(CheckPins());
    model_.variable_of.assign(graph().nodes.size(), kNoVariable);
    for (size_t i = 0; i < graph().nodes.size(); ++i) {
      if (model_.first[i] != static_cast<int>(i)) continue;
      MW_TRY(AddVariable(i));
    }
    MW_TRY(ApplyPins());
    AddForms();
    return std::move(model_);
  }

 private:
  const Graph& graph() const { return *model_.graph; }

  bool IsBatchAxis(const std::string& axis) const {
    const auto& names = model_.options.pins.batch_axes;
    return std::find(names.begin(), names.end(), axis) != names.end();
  }

  Status MakeMesh() {
    if (model_.options.microbatches > 1) {
      model_.mesh.axes.push_back({kMicro, model_.options.microbatches});
    }
    std::set<std::string> known;
    for (const ir::MeshAxis& axis : model_.options.axes) {
      if (axis.name == kMicro || axis.size < 1 || !known.insert(axis.name).second) {
        return InvalidArgument(fmt::format(
            "mesh axis {}={} is \"micro\", empty or there twice; name other axes and sizes >= 1",
            axis.name, axis.size));
      }
      if (axis.size == 1) continue;
      model_.mesh.axes.push_back(axis);
      model_.space.axes.push_back(axis);
    }
    for (const std::string& name : model_.options.pins.batch_axes) {
      if (known.contains(name)) continue;
      return InvalidArgument(fmt::format("batch axis {} is no axis of the mesh", name));
    }
    return OkStatus();
  }

  Status ChooseBase() {
    std::vector<std::string> batch;
    planner::Layout layout;
    layout.pipeline = model_.stages->stage_count();
    layout.microbatches = model_.options.microbatches;
    layout.context_attention = model_.options.pins.context_attention;
    for (const ir::MeshAxis& axis : model_.space.axes) {
      if (!IsBatchAxis(axis.name)) continue;
      const planner::AxisRole role = planner::RoleOf(axis.name);
      if (role == planner::AxisRole::kRows) batch.push_back(axis.name);
      layout.degrees[planner::AxisOf(role)] *= axis.size;
      if (axis.name == planner::kContextHeads) layout.context_heads = axis.size;
    }
    MW_ASSIGN_OR_RETURN(model_.base,
                        planner::ChooseStrategies(graph(), *model_.stages, layout, {}, 1));
    const mesh::Mesh in_time{{{kMicro, model_.options.microbatches}}, {}};
    for (size_t i = 0; i < graph().nodes.size(); ++i) {
      NodeStrategy& strategy = model_.base.nodes[i];
      const bool ring = strategy.expansion == planner::Expansion::kRingAttention;
      if (!ring) strategy.expansion = planner::Expansion::kNone;
      const bool update = graph().nodes[i].phase == Phase::kUpdate;
      const auto settle = [&](Sharding& sharding) {
        if (update) sharding = planner::OnMesh(std::move(sharding), in_time);
        RenameAxis(kData, batch, sharding);
      };
      for (Sharding& operand : strategy.operands) settle(operand);
      for (Sharding& result : strategy.results) settle(result);
      if (IsGroupedSum(i)) strategy = GroupedSum(graph().nodes[i]);
    }
    return OkStatus();
  }

  // Sums of scalars of the update take what they add in any form (planner/strategy.h).
  bool IsGroupedSum(size_t index) const {
    const Node& node = graph().nodes[index];
    if (node.op != Op::kSum || node.phase != Phase::kUpdate) return false;
    if (graph().type(node.outputs[0]).rank() != 0) return false;
    const std::vector<int>& own = model_.stages->node_stages[index];
    return std::all_of(node.inputs.begin(), node.inputs.end(), [&](ValueId input) {
      const std::vector<int>& made = model_.stages->node_stages[model_.ProducerOf(input)];
      return std::includes(made.begin(), made.end(), own.begin(), own.end());
    });
  }

  // Equal nodes that microbatches treat alike.
  void MatchNodes() {
    model_.first = RepeatedNodes(graph());
    for (size_t i = 0; i < model_.first.size(); ++i) {
      const NodeStrategy& own = model_.base.nodes[i];
      const NodeStrategy& other = model_.base.nodes[static_cast<size_t>(model_.first[i])];
      const bool alike = own.operands == other.operands && own.results == other.results &&
                         own.expansion == other.expansion && ArePinnedAlike(i);
      if (!alike) model_.first[i] = static_cast<int>(i);
    }
  }

  // Params that were decided for other graphs need not be stored alike in equal layers.
  bool ArePinnedAlike(size_t index) const {
    if (graph().nodes[index].op != Op::kParam) return true;
    const Sharding* own = PinOf(index);
    const Sharding* other = PinOf(static_cast<size_t>(model_.first[index]));
    return own == nullptr || other == nullptr ? own == other : *own == *other;
  }

  StrategySpace SpaceOf(const Node& node) const {
    StrategySpace space{model_.mesh, {}};
    const bool fixed = node.phase != Phase::kUpdate && node.op != Op::kParam &&
                       !planner::IsWeightCast(graph(), node);
    for (const ir::MeshAxis& axis : model_.space.axes) {
      if (!fixed || !IsBatchAxis(axis.name)) space.axes.push_back(axis.name);
    }
    return space;
  }

  Status AddVariable(size_t index) {
    const Node& node = graph().nodes[index];
    if (model_.constant[index] || model_.IsState(index)) return OkStatus();
    Variable variable;
    variable.node = static_cast<int>(index);
    if (node.op == Op::kParam) {
      variable.kind = VariableKind::kParam;
      variable.shardings = StorageShardings(graph().type(node.outputs[0]), SpaceOf(node));
    } else {
      variable.strategies = NodeStrategies(graph(), node, model_.base.nodes[index], SpaceOf(node));
      // A base that does not even allow itself has a dim that microbatches do not divide.
      if (variable.strategies.empty()) {
        return InvalidArgument(fmt::format("node {} {}: {} microbatches do not divide its rows",
                                           index, ir::OpName(node.op),
                                           model_.options.microbatches));
      }
    }
    model_.variable_of[index] = static_cast<int>(model_.variables.size());
    model_.variables.push_back(std::move(variable));
    return OkStatus();
  }

  // ---- pins ----

  Status CheckPins() const {
    std::set<std::string> params;
    for (NodeId id : graph().NodesOf(Op::kParam)) params.insert(graph().node(id).attrs.Str("name"));
    for (const auto& [name, sharding] : model_.options.pins.params) {
      if (params.contains(name)) continue;
      return InvalidArgument(fmt::format("pinned param {} is not in the graph", name));
    }
    return OkStatus();
  }

  Status ApplyPins() {
    for (size_t i = 0; i < graph().nodes.size(); ++i) {
      const Node& node = graph().nodes[i];
      if (node.op == Op::kParam && !model_.IsState(i)) MW_TRY(PinParam(i));
      if (model_.IsOptimizer(i)) MW_TRY(PinState(i));
    }
    return OkStatus();
  }

  const Sharding* PinOf(size_t param) const {
    const auto& pins = model_.options.pins.params;
    const auto it = pins.find(graph().nodes[param].attrs.Str("name"));
    return it == pins.end() ? nullptr : &it->second;
  }

  Status Unfulfilled(const std::string& name, ValueId value, const Sharding& pin) const {
    return InvalidArgument(
        fmt::format("{} cannot be {} as pinned: its op, its sizes or another pin of an equal layer "
                    "do not allow "
                    "it; pin another sharding, or none",
                    name, mesh::FormatSharding(graph().type(value), pin)));
  }

  Status PinParam(size_t index) {
    const Sharding* pin = PinOf(index);
    if (!pin) return OkStatus();
    Variable& variable = VariableAt(model_.VariableOf(index));
    std::erase_if(variable.shardings, [&](const Sharding& s) { return s != *pin; });
    if (!variable.shardings.empty()) return OkStatus();
    return Unfulfilled("param " + graph().nodes[index].attrs.Str("name"),
                       graph().nodes[index].outputs[0], *pin);
  }

  Status PinState(size_t optimizer) {
    const Node& node = graph().nodes[optimizer];
    for (size_t o = 0; o < node.inputs.size(); ++o) {
      const size_t producer = model_.ProducerOf(node.inputs[o]);
      const Sharding* pin = model_.IsState(producer) ? PinOf(producer) : nullptr;
      if (!pin) continue;
      auto& strategies = VariableAt(model_.VariableOf(optimizer)).strategies;
      std::erase_if(strategies, [&](const NodeStrategy& s) { return s.operands[o] != *pin; });
      if (!strategies.empty()) continue;
      return Unfulfilled("param " + graph().nodes[producer].attrs.Str("name"), node.inputs[o],
                         *pin);
    }
    return OkStatus();
  }

  Variable& VariableAt(int index) { return model_.variables[static_cast<size_t>(index)]; }

  // ---- forms ----

  struct Reads {
    std::set<std::pair<int, size_t>> readers;  // variable and operand
    std::set<Sharding> shardings;
    bool accumulates = false;
  };

  // A value has a form of its own where several read it, or where it is summed before it is read.
  void AddForms() {
    std::map<FormKey, Reads> reads;
    for (size_t i = 0; i < graph().nodes.size(); ++i) {
      if (model_.VariableOf(i) == kNoVariable) continue;
      const Node& node = graph().nodes[i];
      for (size_t o = 0; o < node.inputs.size(); ++o) AddRead(i, o, reads);
    }
    for (auto& [key, read] : reads) {
      if (read.readers.size() < 2 && !read.accumulates) continue;
      AddProduced(key, read);
      Variable variable;
      variable.kind = VariableKind::kForm;
      variable.node = std::get<0>(key);
      variable.result = std::get<1>(key);
      variable.shardings.assign(read.shardings.begin(), read.shardings.end());
      model_.forms[key] = static_cast<int>(model_.variables.size());
      model_.variables.push_back(std::move(variable));
    }
    SortVariables();
  }

  // In the order of the graph, which solvers follow.
  void SortVariables() {
    std::vector<size_t> order(model_.variables.size());
    std::iota(order.begin(), order.end(), size_t{0});
    const auto place = [&](size_t v) {
      const Variable& variable = model_.variables[v];
      return std::tuple(variable.node, variable.kind == VariableKind::kForm, variable.result, v);
    };
    std::sort(order.begin(), order.end(), [&](size_t a, size_t b) { return place(a) < place(b); });
    std::vector<int> moved(order.size());
    std::vector<Variable> sorted;
    for (size_t v : order) {
      moved[v] = static_cast<int>(sorted.size());
      sorted.push_back(std::move(model_.variables[v]));
    }
    model_.variables = std::move(sorted);
    for (int& variable : model_.variable_of) {
      if (variable != kNoVariable) variable = moved[static_cast<size_t>(variable)];
    }
    for (auto& [key, variable] : model_.forms) variable = moved[static_cast<size_t>(variable)];
  }

  void AddRead(size_t reader, size_t operand, std::map<FormKey, Reads>& reads) {
    const ValueId value = graph().nodes[reader].inputs[operand];
    const size_t producer = model_.ProducerOf(value);
    if (model_.VariableOf(producer) == kNoVariable || graph().type(value).rank() == 0) return;
    const Audience audience = model_.AudienceOf(value, reader);
    const bool param = graph().nodes[producer].op == Op::kParam;
    if (param && audience == Audience::kUpdate) return;
    Reads& read = reads[{model_.first[producer], model_.ResultIndex(value), audience}];
    const int variable = model_.VariableOf(reader);
    for (const NodeStrategy& strategy : VariableAt(variable).strategies) {
      read.shardings.insert(WithoutAxis(strategy.operands[operand], kMicro));
    }
    read.readers.emplace(variable, operand);
    read.accumulates = read.accumulates || (audience == Audience::kUpdate &&
                                            graph().nodes[producer].phase == Phase::kBackward &&
                                            model_.options.microbatches > 1);
  }

  void AddProduced(const FormKey& key, Reads& read) {
    const Variable& producer =
        VariableAt(model_.variable_of[static_cast<size_t>(std::get<0>(key))]);
    const auto result = static_cast<size_t>(std::get<1>(key));
    read.shardings.insert(producer.shardings.begin(), producer.shardings.end());
    for (const NodeStrategy& strategy : producer.strategies) {
      read.shardings.insert(WithoutAxis(strategy.results[result], kMicro));
    }
  }

  IntraModel model_;
};

}  // namespace

void RenameAxis(const std::string& axis, const mesh::AxisList& names, Sharding& sharding) {
  for (mesh::AxisList& dim : sharding.dims) {
    const auto it = std::find(dim.begin(), dim.end(), axis);
    if (it == dim.end()) continue;
    const auto at = dim.erase(it);
    dim.insert(at, names.begin(), names.end());
  }
  const auto it = sharding.partial.find(axis);
  if (it == sharding.partial.end()) return;
  const ir::PartialKind kind = it->second;
  sharding.partial.erase(it);
  for (const std::string& name : names) sharding.partial[name] = kind;
}

bool SumsOverDevices(const Sharding& sharding) {
  return std::any_of(sharding.partial.begin(), sharding.partial.end(),
                     [](const auto& entry) { return entry.first != kMicro; });
}

int IntraModel::ResultIndex(ValueId value) const {
  const std::vector<ValueId>& outputs = graph->producer(value).outputs;
  return static_cast<int>(std::find(outputs.begin(), outputs.end(), value) - outputs.begin());
}

bool IntraModel::IsState(size_t node) const {
  return graph->nodes[node].op == Op::kParam && graph->nodes[node].attrs.Int("state") != 0;
}

bool IntraModel::IsOptimizer(size_t node) const {
  return graph->nodes[node].op == Op::kAdamW || graph->nodes[node].op == Op::kSgd;
}

int64_t IntraModel::Executions(size_t node) const {
  const Node& n = graph->nodes[node];
  const bool once = n.phase == Phase::kUpdate || planner::IsWeightCast(*graph, n);
  return once ? 1 : options.microbatches;
}

Audience IntraModel::AudienceOf(ValueId value, size_t reader) const {
  const Node& node = graph->nodes[reader];
  if (node.phase == Phase::kUpdate) return Audience::kUpdate;
  // What a step makes once or keeps is brought to forward and backward apart.
  const bool weight = graph->producer(value).op == Op::kParam ||
                      planner::IsWeightCast(*graph, graph->producer(value));
  if (!weight) return Audience::kForward;
  if (planner::IsWeightCast(*graph, node)) return Audience::kOnce;
  return node.phase == Phase::kBackward ? Audience::kBackward : Audience::kForward;
}

int IntraModel::FormOf(ValueId value, size_t reader) const {
  const auto it =
      forms.find({first[ProducerOf(value)], ResultIndex(value), AudienceOf(value, reader)});
  return it == forms.end() ? kNoVariable : it->second;
}

ir::TensorType IntraModel::TypeWithin(ValueId value, const Sharding& sharding) const {
  ir::TensorType type = graph->type(value);
  for (size_t d = 0; d < type.dims.size(); ++d) {
    const mesh::AxisList& axes = sharding.dims[d];
    if (std::find(axes.begin(), axes.end(), kMicro) != axes.end()) {
      type.dims[d] /= options.microbatches;
    }
  }
  return type;
}

int64_t IntraModel::LocalBytes(const ir::TensorType& type, const Sharding& sharding) const {
  return ir::TensorType{type.dtype, mesh::LocalDims(type.dims, sharding, mesh)}.bytes();
}

Result<IntraModel> MakeIntraModel(const Graph& graph, const planner::StageAssignment& stages,
                                  const IntraOptions& options, const IntraCosts& costs) {
  MW_ASSIGN_OR_RETURN(IntraModel model, ModelMaker(graph, stages, options).Run());
  AddIntraCosts(costs, model);
  AddIntraMemory(model);
  return model;
}

}  // namespace meshwright::search
