#include "planner/local_node.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>

#include "base/check.h"
#include "ir/averages.h"
#include "ir/schema.h"
#include "ir/stage_block.h"
#include "mesh/reshard.h"
#include "planner/choosing.h"
#include "planner/expert_groups.h"

namespace meshwright::planner {
namespace {

using ir::Attrs;
using ir::Graph;
using ir::Node;
using ir::Op;
using mesh::Sharding;

ir::TensorType LocalType(const ir::TensorType& global, const Sharding& sharding,
                         const mesh::Mesh& mesh) {
  return {global.dtype, mesh::LocalDims(global.dims, sharding, mesh)};
}

std::string KindText(ir::PartialKind kind) {
  constexpr std::array<const char*, 3> kNames = {"sum", "max", "lse"};
  return kNames[static_cast<size_t>(kind)];
}

// What marks where slots are moved is, once they are, no node: the move writes to where the value
// is kept, and nobody waits for a copy.
bool IsMoved(const ir::Builder& builder, const Node& node, const std::vector<ValueId>& inputs) {
  if (!node.attrs.Has(kSplitAttr) || !builder.status().ok()) return false;
  MW_CHECK(node.op == Op::kReshape && inputs.size() == 1) << ir::OpName(node.op);
  return builder.graph().producer(inputs[0]).op == Op::kAllToAll;
}

// 1 on the first device along the axes, 0 on the others: the own block of a one and zeros.
ValueId EmitIsFirst(ir::Builder& builder, ir::DType dtype, const mesh::AxisList& axes,
                    const mesh::Mesh& mesh) {
  const ValueId one =
      builder.AddOne(Op::kConstant, {}, {{"value", 1.0}}, {ir::TensorType{dtype, {1}}});
  const ValueId ones = builder.AddOne(
      Op::kPad, {one},
      {{"dim", int64_t{0}}, {"before", int64_t{0}}, {"after", mesh.SizeOf(axes) - 1}});
  const ValueId own = builder.AddOne(Op::kShardSlice, {ones}, {{"axes", axes}, {"dim", int64_t{0}}},
                                     {ir::TensorType{dtype, {1}}});
  return builder.AddOne(Op::kReshape, {own}, {}, {ir::TensorType{dtype, {}}});
}

ValueId EmitStep(ir::Builder& builder, ValueId local, const mesh::ReshardStep& step,
                 const ir::TensorType& type, const mesh::Mesh& mesh) {
  if (step.kind == mesh::StepKind::kMakePartial) {
    return builder.AddOne(Op::kMulScalar,
                          {local, EmitIsFirst(builder, type.dtype, step.axes, mesh)});
  }
  Attrs attrs{{"axes", step.axes}};
  Op op = Op::kAllReduce;
  switch (step.kind) {
    case mesh::StepKind::kShardSlice:
      op = Op::kShardSlice;
      attrs.Set("dim", int64_t{step.dim});
      break;
    case mesh::StepKind::kAllGather:
      op = Op::kAllGather;
      attrs.Set("dim", int64_t{step.dim});
      break;
    case mesh::StepKind::kReduceScatter:
      op = Op::kReduceScatter;
      attrs.Set("dim", int64_t{step.dim});
      attrs.Set("kind", KindText(step.partial));
      break;
    case mesh::StepKind::kAllReduce:
      attrs.Set("kind", KindText(step.partial));
      break;
    case mesh::StepKind::kAllToAll:
      op = Op::kAllToAll;
      attrs.Set("split_dim", int64_t{step.dim});
      attrs.Set("concat_dim", int64_t{step.from_dim});
      break;
    case mesh::StepKind::kMakePartial:
      break;
  }
  return builder.AddOne(op, {local}, attrs, {type});
}

}  // namespace

void SetOffsets(Attrs& attrs, const ir::TensorType& global, const Sharding& sharding) {
  const bool split = std::any_of(sharding.dims.begin(), sharding.dims.end(),
                                 [](const auto& d) { return !d.empty(); });
  if (!split) return;
  // Of what is padded the attributes say already where it ends.
  ir::ShardedDims dims = ir::ShardedDims::FromAttrs(attrs);
  if (dims.whole()) dims.global_dims = global.dims;
  dims.dim_axes = sharding.dims;
  dims.ToAttrs(attrs);
}

Attrs LocalAttrs(const Graph& graph, const Node& node, const NodeStrategy& strategy,
                 const mesh::Mesh& mesh) {
  Attrs attrs = node.attrs;
  if (const std::optional<ir::Positioned> placed = ir::PositionsOf(node)) {
    const ValueId value =
        placed->is_result ? node.outputs[placed->index] : node.inputs[placed->index];
    const std::vector<Sharding>& shardings =
        placed->is_result ? strategy.results : strategy.operands;
    const Sharding& sharding = shardings[placed->index];
    if (!placed->dim || !sharding.dims[static_cast<size_t>(*placed->dim)].empty()) {
      SetOffsets(attrs, graph.type(value), sharding);
    }
  }
  if (node.op == Op::kEmbeddingGrad) {
    const ir::TensorType& table = graph.type(node.outputs[0]);
    attrs.Set("rows", mesh::LocalDims(table.dims, strategy.results[0], mesh)[0]);
  }
  return attrs;
}

std::vector<ValueId> EmitLocalNode(ir::Builder& builder, const Graph& graph, const Node& node,
                                   const NodeStrategy& strategy, const std::vector<ValueId>& inputs,
                                   const mesh::Mesh& mesh) {
  if (strategy.expansion != Expansion::kNone) {
    return Expand({builder, graph, node, strategy, inputs, mesh});
  }
  MW_CHECK(strategy.results.size() >= node.outputs.size()) << ir::OpName(node.op);
  std::vector<ir::TensorType> declared;
  for (size_t r = 0; r < node.outputs.size(); ++r) {
    declared.push_back(LocalType(graph.type(node.outputs[r]), strategy.results[r], mesh));
  }
  if (IsMoved(builder, node, inputs)) return inputs;
  return builder.Add(node.op, inputs, LocalAttrs(graph, node, strategy, mesh), declared);
}

std::optional<NodeStrategy> BlockStrategy(const Graph& graph, ValueId value, const Sharding& wanted,
                                          const mesh::Mesh& mesh) {
  if (!wanted.partial.empty()) return std::nullopt;
  const Node& node = graph.producer(value);
  if (node.inputs.empty()) return NodeStrategy{.operands = {}, .results = {wanted}};
  const Result<ir::FactorRule> rule = ir::RuleOf(graph, node);
  if (!rule.has_value()) return std::nullopt;
  const auto made = std::find(node.outputs.begin(), node.outputs.end(), value);
  MW_CHECK(made != node.outputs.end()) << "%" << value << " is not made by its producer";
  const ir::TensorFactors& factors =
      rule->results[static_cast<size_t>(made - node.outputs.begin())];
  std::map<ir::FactorIndex, mesh::AxisList> axes;
  for (size_t d = 0; d < wanted.dims.size(); ++d) {
    if (wanted.dims[d].empty()) continue;
    if (factors[d].empty()) return std::nullopt;
    const ir::Factor& factor = rule->factors[static_cast<size_t>(factors[d][0])];
    const bool divides = factor.size % mesh.SizeOf(wanted.dims[d]) == 0;
    if (ir::NeededWhole(factor.kind) || !divides) return std::nullopt;
    axes[factors[d][0]] = wanted.dims[d];
  }
  // A block of a minor factor lies in pieces all over its dim: no sharding says that.
  const bool minor = std::any_of(axes.begin(), axes.end(),
                                 [&](const auto& split) { return IsMinor(*rule, split.first); });
  if (minor) return std::nullopt;
  const auto split = [&](const ir::TensorFactors& tensor) {
    Sharding sharding = Sharding::Replicated(static_cast<int>(tensor.size()));
    for (size_t d = 0; d < tensor.size(); ++d) {
      const auto it = tensor[d].empty() ? axes.end() : axes.find(tensor[d][0]);
      if (it != axes.end()) sharding.dims[d] = it->second;
    }
    return sharding;
  };
  NodeStrategy strategy;
  for (const ir::TensorFactors& operand : rule->operands)
    strategy.operands.push_back(split(operand));
  for (const ir::TensorFactors& result : rule->results) strategy.results.push_back(split(result));
  return strategy;
}

Result<ValueId> EmitReshard(ir::Builder& builder, const ir::TensorType& global_type, ValueId local,
                            const Sharding& from, const Sharding& to, const mesh::Mesh& mesh) {
  // The microbatch axis is time: seen from inside one microbatch, its tensor is the global one.
  MW_CHECK(from.dims.size() == to.dims.size()) << mesh::FormatSharding(global_type, from);
  mesh::Mesh space;
  for (const ir::MeshAxis& axis : mesh.axes) {
    if (axis.name != kMicro) space.axes.push_back(axis);
  }
  ir::TensorType type = global_type;
  for (size_t d = 0; d < from.dims.size(); ++d) {
    const bool split = !from.dims[d].empty() && from.dims[d][0] == kMicro;
    const bool split_after = !to.dims[d].empty() && to.dims[d][0] == kMicro;
    if (split != split_after) {
      return Fail(InvalidArgument(fmt::format(
          "{} -> {}: a value that is whole in every microbatch is combined with rows of "
          "one microbatch; compute it per row, or use microbatches=1",
          mesh::FormatSharding(global_type, from), mesh::FormatSharding(global_type, to))));
    }
    if (split) type.dims[d] /= mesh.AxisSize(kMicro);
  }
  if (from.partial.contains(kMicro) != to.partial.contains(kMicro)) {
    return Fail(Internal("a sum over microbatches is only known in the update"));
  }
  MW_ASSIGN_OR_RETURN(
      const mesh::ReshardPath path,
      mesh::FindReshardPath(type, WithoutAxis(from, kMicro), WithoutAxis(to, kMicro), space));
  for (const mesh::ReshardStep& step : path.steps) {
    local = EmitStep(builder, local, step, LocalType(type, step.result, space), space);
  }
  MW_TRY(builder.status());
  return local;
}

ValueId EmitInitialValue(ir::Builder& builder, const Node& param, const ir::TensorType& global_type,
                         const Sharding& sharding, const ir::TensorType& local_type) {
  const std::string init = param.attrs.Str("init", "zeros");
  if (init != "normal" && init != "uniform") {
    return builder.AddOne(Op::kConstant, {}, {{"value", init == "ones" ? 1.0 : 0.0}}, {local_type});
  }
  // Blocks of stages are those of the one stream of the whole.
  const std::string own = param.attrs.Str("block_of", param.attrs.Str("name"));
  Attrs attrs{{"name", param.attrs.Str(ir::kDrawnAsAttr, own)}};
  const ir::ShardedDims logical = ir::ShardedDims::FromAttrs(param.attrs);
  logical.ToAttrs(attrs);
  SetOffsets(attrs, global_type, sharding);
  if (const auto block = ir::StageBlock::FromAttrs(param.attrs)) block->ToAttrs(attrs);
  const double mean = param.attrs.Real("mean", 0);
  const double deviation = param.attrs.Real("std", 1);
  if (init == "uniform") {
    // Noise is in [0, 1), whose deviation is 1/sqrt(12).
    const double width = std::sqrt(12.0) * deviation;
    attrs.Set("kind", std::string("uniform"));
    const ValueId shape = builder.AddOne(Op::kConstant, {}, {{"value", 0.0}}, {local_type});
    const ValueId unit = builder.AddOne(Op::kNoise, {shape}, attrs);
    const ValueId wide = builder.AddOne(Op::kScale, {unit}, {{"factor", width}});
    const ValueId drawn = builder.AddOne(Op::kShift, {wide}, {{"value", mean - width / 2}});
    if (logical.whole()) return drawn;
    // Ones, and zeros where there is padding.
    attrs.Set("mean", 1.0);
    attrs.Set("std", 0.0);
    const ValueId inside = builder.AddOne(Op::kRandomNormal, {}, attrs, {local_type});
    return builder.AddOne(Op::kMul, {drawn, inside});
  }
  attrs.Set("mean", mean);
  attrs.Set("std", deviation);
  return builder.AddOne(Op::kRandomNormal, {}, attrs, {local_type});
}

}  // namespace meshwright::planner
