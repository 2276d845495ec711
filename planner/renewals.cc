#include "planner/renewals.h"

#include <string>
#include <string_view>

#include "base/check.h"

namespace meshwright::planner {

std::map<ValueId, ValueId> RenewedParams(const ir::Graph& step_graph) {
  constexpr std::string_view kPrefix = "update/";
  std::map<std::string, ValueId> params;
  for (const NodeId id : step_graph.NodesOf(ir::Op::kParam)) {
    params[step_graph.node(id).attrs.Str("name")] = step_graph.node(id).outputs[0];
  }
  std::map<ValueId, ValueId> renewed;
  for (const ir::NamedValue& output : step_graph.outputs) {
    if (!output.name.starts_with(kPrefix)) continue;
    const auto param = params.find(output.name.substr(kPrefix.size()));
    MW_CHECK(param != params.end()) << output.name << " renews nothing";
    renewed[output.value] = param->second;
  }
  return renewed;
}

}  // namespace meshwright::planner
