// fused: what it is follows from its body.
#include <algorithm>

#include "ir/fused.h"
#include "ir/schema_table.h"

namespace meshwright::ir {
namespace {

TypesOr InferFused(const OpCall& call) {
  const Result<Graph> body = ExpandFused(call.attrs, call.operands);
  if (!body) return Fail(call.Error(body.error().message()));
  std::vector<TensorType> types;
  for (const NamedValue& output : body->outputs) types.push_back(body->type(output.value));
  // What lives inside of a node is not in the memory plan: it must not be larger than what is.
  int64_t planned_elements = 0;
  for (const TensorType& type : call.operands)
    planned_elements = std::max(planned_elements, type.elements());
  for (const TensorType& type : types)
    planned_elements = std::max(planned_elements, type.elements());
  for (const Value& value : body->values) {
    if (value.type.elements() <= planned_elements) continue;
    return Fail(call.Error("a step makes " + value.type.ToString() +
                           ", larger than every operand and result"));
  }
  return types;
}

double FusedFlops(const NodeTypes& node) {
  const Result<Graph> body = ExpandFused(node.attrs, node.operands);
  double flops = 0;
  if (!body) return flops;
  for (const Node& step : body->nodes) {
    if (step.op != Op::kInput) flops += CostOf(*body, step).flops;
  }
  return flops;
}

}  // namespace

void AddFusedSchemas(SchemaTable& table) {
  Row(table, Op::kFused) = {InferFused, nullptr, FusedFlops, nullptr, nullptr, kFromAttrs};
}

}  // namespace meshwright::ir
