#include "ir/schema.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/check.h"
#include "ir/schema_table.h"

namespace meshwright::ir {
namespace {

const SchemaTable& Table() {
  static const SchemaTable table = [] {
    SchemaTable rows;
    AddSourceSchemas(rows);
    AddElementwiseSchemas(rows);
    AddStructureSchemas(rows);
    AddContractionSchemas(rows);
    AddNormSchemas(rows);
    AddSoftmaxSchemas(rows);
    AddChoiceSchemas(rows);
    AddExpertSchemas(rows);
    AddImageSchemas(rows);
    AddAttentionSchemas(rows);
    AddPagedSchemas(rows);
    AddEmbeddingSchemas(rows);
    AddLossSchemas(rows);
    AddOptimizerSchemas(rows);
    AddCollectiveSchemas(rows);
    AddFusedSchemas(rows);
    return rows;
  }();
  return table;
}

const OpSchema& SchemaOf(Op op) { return Table()[static_cast<size_t>(op)]; }

NodeTypes TypesOf(const Graph& graph, const Node& node) {
  NodeTypes types{node.op, node.attrs, {}, {}};
  for (ValueId id : node.inputs) types.operands.push_back(graph.type(id));
  for (ValueId id : node.outputs) types.results.push_back(graph.type(id));
  return types;
}

}  // namespace

size_t ResultCount(Op op, const Attrs& attrs, size_t operand_count) {
  const int results = SchemaOf(op).results;
  if (results == kFromAttrs) return attrs.Ints("results").size();
  return results == kOnePerOperand ? operand_count : static_cast<size_t>(results);
}

std::optional<size_t> InPlaceOperand(Op op, size_t result) {
  const OpSchema& schema = SchemaOf(op);
  if (schema.results != kOnePerOperand && result >= static_cast<size_t>(schema.results)) {
    return std::nullopt;
  }
  switch (schema.in_place) {
    case InPlace::kNever:
      break;
    case InPlace::kFirst:
    case InPlace::kEach:
      return result;
    case InPlace::kOptimizer:
      return result == 0 ? 0 : result + 1;
    case InPlace::kPages:
      if (result == 2) return 3;
      break;
  }
  if (!schema.accumulator || schema.accumulator->result != result) return std::nullopt;
  return schema.accumulator->operand;
}

std::vector<Renewed> RenewedOf(Op op) {
  const OpSchema& schema = SchemaOf(op);
  if (schema.in_place != InPlace::kOptimizer && schema.in_place != InPlace::kPages) return {};
  std::vector<Renewed> renewed;
  for (size_t result = 0; result < static_cast<size_t>(schema.results); ++result) {
    const std::optional<size_t> operand = InPlaceOperand(op, result);
    if (operand) renewed.push_back({result, *operand});
  }
  return renewed;
}

bool IsOptimizer(Op op) { return SchemaOf(op).in_place == InPlace::kOptimizer; }

std::optional<Accumulator> AccumulatorOf(Op op) { return SchemaOf(op).accumulator; }

std::optional<Positioned> PositionsOf(const Node& node) {
  const OpSchema& schema = SchemaOf(node.op);
  if (schema.position_needs != nullptr && !node.attrs.Has(schema.position_needs)) {
    if (!schema.position->dim) return std::nullopt;
    return schema.position;
  }
  if (!schema.position) return std::nullopt;
  return Positioned{schema.position->is_result, schema.position->index};
}

Result<std::vector<TensorType>> InferTypes(Op op, const Attrs& attrs,
                                           std::span<const TensorType> operands,
                                           std::span<const TensorType> declared) {
  if (static_cast<int>(op) >= kOpCount) return Fail(InvalidArgument("op number out of range"));
  const OpCall call{op, attrs, operands, declared};
  for (const TensorType& type : operands) MW_TRY(CheckType(type));
  MW_ASSIGN_OR_RETURN(std::vector<TensorType> types, SchemaOf(op).infer(call));
  for (const TensorType& type : types) MW_TRY(CheckType(type));
  MW_CHECK(types.size() == ResultCount(op, attrs, operands.size()))
      << "schema row of " << OpName(op);
  if (!declared.empty() &&
      !std::equal(types.begin(), types.end(), declared.begin(), declared.end())) {
    return Fail(call.Error(
        fmt::format("results are {}, declared are {}", FormatTypes(types), FormatTypes(declared))));
  }
  return types;
}

Result<FactorRule> RuleOf(const Graph& graph, const Node& node) {
  const OpSchema& schema = SchemaOf(node.op);
  if (!schema.rule) {
    return Fail(InvalidArgument(
        fmt::format("{} has no factor rule: collectives and fused nodes are made after the split",
                    OpName(node.op))));
  }
  return schema.rule(TypesOf(graph, node));
}

OpCost CostOf(const Graph& graph, const Node& node) {
  const OpSchema& schema = SchemaOf(node.op);
  const NodeTypes types = TypesOf(graph, node);
  OpCost cost;
  if (schema.flops) {
    cost.flops = schema.flops(types);
  } else if (!types.results.empty()) {
    cost.flops = static_cast<double>(types.results[0].elements());
  }
  MW_CHECK(cost.flops >= 0) << OpName(node.op) << " costs " << cost.flops << " FLOPs";
  if (schema.bytes) {
    cost.bytes = schema.bytes(types);
  } else {
    for (const TensorType& type : types.operands) cost.bytes += static_cast<double>(type.bytes());
    for (const TensorType& type : types.results) cost.bytes += static_cast<double>(type.bytes());
  }
  return cost;
}

bool HasGradient(Op op) { return SchemaOf(op).gradient != nullptr; }
bool StopsGradient(Op op) { return SchemaOf(op).stops_gradient; }

Result<std::vector<ValueId>> GradientOf(Builder& builder, const Node& node,
                                        std::span<const ValueId> result_grads,
                                        const std::vector<bool>& wanted) {
  const OpSchema& schema = SchemaOf(node.op);
  if (!schema.gradient) {
    return Fail(Unimplemented(fmt::format("op {} has no gradient", OpName(node.op))));
  }
  if (result_grads.size() != node.outputs.size()) {
    return Fail(
        InvalidArgument(fmt::format("gradient of {}: {} result gradients for {} results",
                                    OpName(node.op), result_grads.size(), node.outputs.size())));
  }
  MW_CHECK(wanted.empty() || wanted.size() == node.inputs.size())
      << wanted.size() << " gradients are wanted of " << node.inputs.size() << " operands";
  GradCall call{builder, node, {result_grads.begin(), result_grads.end()}, wanted};
  MW_ASSIGN_OR_RETURN(std::vector<ValueId> grads, schema.gradient(call));
  MW_CHECK(!builder.status().ok() || grads.size() == node.inputs.size())
      << OpName(node.op) << " has " << grads.size() << " gradients for " << node.inputs.size();
  MW_TRY(builder.status());
  return grads;
}

}  // namespace meshwright::ir
