#include "planner/zero.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "ir/factored.h"
#include "ir/param_groups.h"
#include "planner/zero_levels.h"

namespace meshwright::planner {
namespace {

using ir::Graph;
using ir::Node;
using ir::Op;
using ir::Phase;
using mesh::Sharding;

// Whose state may be split. Adafactor's is sums over all of a param, and small.
bool IsOptimizer(const Node& node) {
  return (node.op == Op::kAdamW && !ir::IsFactored(node.attrs)) || node.op == Op::kSgd;
}

// What a device has of it.
int64_t LocalBytes(const ir::TensorType& type, const Sharding& sharding, const mesh::Mesh& mesh) {
  return ir::TensorType{type.dtype, mesh::LocalDims(type.dims, sharding, mesh)}.bytes();
}

class ZeroPass {
 public:
  ZeroPass(const Graph& graph, const Layout& layout, Strategies& strategies, int64_t min_bytes)
      : graph_(graph),
        layout_(layout),
        mesh_(PlanningMesh(layout)),
        strategies_(strategies),
        min_bytes_(std::max(kZeroMinBytes, min_bytes)),
        users_(graph.Users()) {}

  void Run() {
    for (size_t i = 0; i < graph_.nodes.size(); ++i) {
      if (IsOptimizer(graph_.nodes[i])) SplitOptimizer(i);
    }
    if (layout_.zero == 3) SplitFrozen();
    for (size_t i = 0; i < graph_.nodes.size(); ++i) SumPartials(i);
    NoteWhole();
    ReadShardedParams(graph_, layout_, strategies_.params, strategies_);
  }

 private:
  // `sharding` with the axes of the optimizer's state behind those of the first dim that they
  // divide.
  std::optional<Sharding> SplitOverData(const ir::TensorType& type, Sharding sharding) const {
    if (LocalBytes(type, sharding, mesh_) < min_bytes_) return std::nullopt;
    const ir::Dims local = mesh::LocalDims(type.dims, sharding, mesh_);
    for (size_t d = 0; d < local.size(); ++d) {
      if (local[d] % ZeroDegree(layout_, ZeroKind::kOptimizer) != 0) continue;
      const mesh::AxisList axes = ZeroAxes(layout_, ZeroKind::kOptimizer);
      sharding.dims[d].insert(sharding.dims[d].end(), axes.begin(), axes.end());
      return sharding;
    }
    return std::nullopt;
  }

  // Whether microbatches read nothing of the weight but narrow copies of it.
  bool IsReadAsCopy(ValueId param) const {
    const std::vector<NodeId>& readers = users_[param];
    const auto copies = std::count_if(readers.begin(), readers.end(), [&](NodeId reader) {
      return IsWeightCast(graph_, graph_.node(reader));
    });
    const auto renewals = std::count_if(readers.begin(), readers.end(), [&](NodeId reader) {
      return graph_.node(reader).phase == Phase::kUpdate;
    });
    return copies > 0 && static_cast<size_t>(copies + renewals) == readers.size();
  }

  void SplitOptimizer(size_t index) {
    const Node& node = graph_.nodes[index];
    const ir::TensorType& type = graph_.type(node.inputs[0]);
    const std::string name = graph_.producer(node.inputs[0]).attrs.Str("name");
    const Sharding& sharding = strategies_.params.at(name);
    const std::optional<Sharding> split = SplitOverData(type, sharding);
    if (!split) {
      if (LocalBytes(type, sharding, mesh_) < min_bytes_) {
        ++small_;
      } else {
        whole_.push_back(name);
      }
      return;
    }
    splits_ = true;
    NodeStrategy& strategy = strategies_.nodes[index];
    const size_t scalars = 2;  // multiplier and rate
    for (size_t i = 0; i + scalars < node.inputs.size(); ++i) {
      strategy.operands[i] = *split;
      if (i >= 2) strategies_.params[graph_.producer(node.inputs[i]).attrs.Str("name")] = *split;
    }
    for (size_t r = 0; r < node.outputs.size(); ++r) {
      strategy.results[r] = *split;
      strategies_.values[node.outputs[r]] = *split;
    }
    strategies_.params[name] =
        IsReadAsCopy(node.inputs[0]) ? *split : AsOfKind(*split, layout_, ZeroKind::kWeights);
    SplitAverage(node.outputs[0], *split);
    SplitGradient(node.inputs[1], *split);
  }

  // The mean of the renewed param: the sum of two scaled values.
  void SplitAverage(ValueId renewed, const Sharding& split) {
    for (const NodeId reader : users_[renewed]) {
      if (graph_.node(reader).op != Op::kScale) continue;
      for (const NodeId sum : users_[graph_.node(reader).outputs[0]]) {
        for (const ValueId term : graph_.node(sum).inputs) {
          const NodeId scale = graph_.value(term).producer;
          SplitNode(scale, split);
          const Node& source = graph_.producer(graph_.node(scale).inputs[0]);
          if (source.op == Op::kParam) strategies_.params[source.attrs.Str("name")] = split;
        }
        SplitNode(sum, split);
      }
    }
  }

  void SplitNode(NodeId id, const Sharding& split) {
    const Node& node = graph_.node(id);
    NodeStrategy& strategy = strategies_.nodes[id.index()];
    strategy.operands.assign(node.inputs.size(), split);
    strategy.results = {split};
    strategies_.values[node.outputs[0]] = split;
  }

  // What is read only has no update: replicas hold blocks of it all the same.
  void SplitFrozen() {
    for (const NodeId id : graph_.NodesOf(Op::kParam)) {
      const Node& param = graph_.node(id);
      if (!ir::IsFrozen(param)) continue;
      Sharding& sharding = strategies_.params.at(param.attrs.Str("name"));
      const auto split = SplitOverData(graph_.type(param.outputs[0]), sharding);
      if (!split) continue;
      sharding = AsOfKind(*split, layout_, ZeroKind::kWeights);
      splits_ = true;
    }
  }

  void SplitGradient(ValueId gradient, const Sharding& split) {
    SplitTerms(gradient, split);
    SumByLevels(gradient, split);
    for (NodeId user : users_[gradient]) {
      const auto index = user.index();
      const Node& node = graph_.nodes[index];
      if (node.op != Op::kSumSquares || node.phase != Phase::kUpdate) continue;
      strategies_.nodes[index].operands = {split};
      Sharding result = Sharding::Replicated(0);
      for (const mesh::AxisList& axes : split.dims) {
        for (const std::string& axis : axes) result.partial[axis] = ir::PartialKind::kSum;
      }
      strategies_.nodes[index].results = {result};
      strategies_.values[node.outputs[0]] = result;
    }
  }

  // Summed up in blocks; sums over what is between groups are made in the update, of blocks as
  // small as they get, since that is where links are slow.
  void SumByLevels(ValueId gradient, const Sharding& split) {
    const auto within_group = [&](Sharding sharding) {
      for (const auto& [axis, kind] : strategies_.values[gradient].partial) {
        const bool between = axis.starts_with(kData) && !sharding.UsesAxis(axis);
        if (between) sharding.partial[axis] = kind;
      }
      return sharding;
    };
    strategies_.forms[{gradient, Phase::kUpdate}] = within_group(split);
    if (layout_.zero < 2) return;
    strategies_.kept_as[gradient] = within_group(AsOfKind(split, layout_, ZeroKind::kGradients));
  }

  // The gradient of a weight that several stages read is summed up in the update: blocks are.
  void SplitTerms(ValueId gradient, const Sharding& split) {
    const auto index = graph_.value(gradient).producer.index();
    const Node& node = graph_.nodes[index];
    if (node.op != Op::kSum || node.phase != Phase::kUpdate) return;
    strategies_.nodes[index].operands.assign(node.inputs.size(), split);
    strategies_.nodes[index].results = {split};
    strategies_.values[gradient] = split;
    for (const ValueId term : node.inputs) SumByLevels(term, split);
  }

  // A scalar sum of what is partial now reduces it.
  void SumPartials(size_t index) {
    const Node& node = graph_.nodes[index];
    const bool sum_of_squares = node.op == Op::kSum && node.phase == Phase::kUpdate &&
                                graph_.type(node.outputs[0]).rank() == 0;
    if (!sum_of_squares) return;
    NodeStrategy& strategy = strategies_.nodes[index];
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      if (graph_.producer(node.inputs[i]).op != Op::kSumSquares) continue;
      const Sharding& produced = strategies_.values[node.inputs[i]];
      if (produced != strategy.operands[i]) strategy.expansion = Expansion::kGroupedSum;
      strategy.operands[i] = produced;
    }
    if (strategy.expansion == Expansion::kGroupedSum) strategy.results = {Sharding::Replicated(0)};
  }

  void NoteWhole() {
    if (!splits_ && small_ > 0 && whole_.empty()) {
      strategies_.notes.push_back(
          fmt::format("ZeRO {} splits nothing: of each of the {} trained weights a device has less "
                      "than {} bytes (zero_min_weight_bytes)",
                      layout_.zero, small_, min_bytes_));
    }
    if (whole_.empty()) return;
    strategies_.notes.push_back(fmt::format(
        "{}{} whole over data={}: no dim divides", whole_.front(),
        whole_.size() == 1 ? " stays" : fmt::format(" and {} more stay", whole_.size() - 1),
        ZeroDegree(layout_, ZeroKind::kOptimizer)));
  }

  const Graph& graph_;
  const Layout& layout_;
  const mesh::Mesh mesh_;
  Strategies& strategies_;
  const int64_t min_bytes_;
  const IdVector<ValueId, std::vector<NodeId>> users_;
  std::vector<std::string> whole_;
  int64_t small_ = 0;    // trained weights that are too small
  bool splits_ = false;  // any weight
};

}  // namespace

void ApplyZero(const Graph& step_graph, const Layout& layout, Strategies& strategies,
               int64_t min_bytes) {
  if (layout.zero == 0 || layout.degrees[Axis::kData] == 1) return;
  ZeroPass(step_graph, layout, strategies, min_bytes).Run();
}

void ReadShardedParams(const Graph& graph, const Layout& layout,
                       const std::map<std::string, Sharding>& params, Strategies& strategies) {
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    const Node& node = graph.nodes[i];
    if (node.op == Op::kParam) {
      const std::string name = node.attrs.Str("name");
      const auto it = params.find(name);
      if (it != params.end()) strategies.params[name] = it->second;
    }
    if (!IsWeightCast(graph, node)) continue;
    // Cast while it is split: what is gathered is the narrow copy.
    const auto it = params.find(graph.producer(node.inputs[0]).attrs.Str("name"));
    if (it == params.end()) continue;
    strategies.nodes[i].operands = {it->second};
    strategies.nodes[i].results = {it->second};
    strategies.values[node.outputs[0]] = it->second;
    const Sharding read = AsOfKind(it->second, layout, ZeroKind::kWeights);
    if (read != it->second) strategies.kept_as[node.outputs[0]] = read;
  }
}

std::map<std::string, Sharding> WholeOverData(const Layout& layout,
                                              std::map<std::string, Sharding> params) {
  for (const ir::MeshAxis& axis : DataAxes(layout, layout.degrees[Axis::kData])) {
    for (auto& [name, sharding] : params) sharding = WithoutAxis(std::move(sharding), axis.name);
  }
  return params;
}

}  // namespace meshwright::planner
