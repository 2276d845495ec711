// fused: what it is follows from its body.
#include "ir/fused.h"
#include "ir/schema_table.h"

namespace meshwright::ir {
namespace {

TypesOr InferFused(const OpCall& call) {
  const Result<Graph> body = ExpandFused(call.attrs, call.operands);
  if (!body) return Fail(call.Error(body.error().message()));
  std::vector<TensorType> types;
  for (const NamedValue& output : body->outputs) types.push_back(body->type(output.value));
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
