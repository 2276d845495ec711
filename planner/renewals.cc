#include "planner/renewals.h"

#include <string>
#include <string_view>

#include "base/check.h"
#include "ir/averages.h"
#include "ir/schema.h"

namespace meshwright::planner {

namespace {

std::map<std::string, ValueId> ParamsByName(const ir::Graph& graph) {
  std::map<std::string, ValueId> params;
  for (const NodeId id : graph.NodesOf(ir::Op::kParam)) {
    params[graph.node(id).attrs.Str("name")] = graph.node(id).outputs[0];
  }
  return params;
}

}  // namespace

std::map<ValueId, ValueId> RenewedParams(const ir::Graph& step_graph) {
  constexpr std::string_view kPrefix = "update/";
  const std::map<std::string, ValueId> params = ParamsByName(step_graph);
  std::map<ValueId, ValueId> renewed;
  for (const ir::Node& node : step_graph.nodes) {
    for (const auto& [result, operand] : ir::RenewedOf(node.op)) {
      MW_CHECK(result < node.outputs.size() && operand < node.inputs.size())
          << ir::OpName(node.op) << " renews what it does not have";
      renewed[node.outputs[result]] = node.inputs[operand];
    }
  }
  for (const ir::NamedValue& output : step_graph.outputs) {
    if (!output.name.starts_with(kPrefix)) continue;
    const auto param = params.find(output.name.substr(kPrefix.size()));
    MW_CHECK(param != params.end()) << output.name << " renews nothing";
    renewed[output.value] = param->second;
  }
  return renewed;
}

std::vector<Mean> MeansOf(const ir::Graph& step_graph) {
  const std::map<std::string, ValueId> params = ParamsByName(step_graph);
  std::vector<Mean> means;
  for (const NodeId id : step_graph.NodesOf(ir::Op::kParam)) {
    const ir::Node& node = step_graph.node(id);
    if (!node.attrs.Has(ir::kAverageOfAttr)) continue;
    const std::string name = node.attrs.Str("name");
    const ValueId renewed = step_graph.Output("update/" + name);
    const auto of = params.find(node.attrs.Str(ir::kAverageOfAttr));
    MW_CHECK(renewed.valid() && of != params.end()) << "nothing renews " << name;
    means.push_back({name, of->first, of->second, node.outputs[0], renewed});
  }
  return means;
}

}  // namespace meshwright::planner
