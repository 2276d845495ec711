#include "ir/averages.h"

#include <fmt/format.h>

#include "ir/param_groups.h"

namespace meshwright::ir {

Result<Graph> WithAverages(const Graph& graph, double decay) {
  if (!(decay > 0 && decay < 1)) {
    return Fail(InvalidArgument(
        fmt::format("the decay of means of weights is {}; it must be in (0, 1)", decay)));
  }
  Graph result = graph;
  for (Node& node : result.nodes) {
    if (node.op == Op::kParam && !IsFrozen(node)) node.attrs.Set(kAverageAttr, decay);
  }
  return result;
}

std::string AveragedParam(const std::string& name) {
  constexpr std::string_view kPrefix = kAveragePrefix;
  return name.starts_with(kPrefix) ? name.substr(kPrefix.size()) : "";
}

}  // namespace meshwright::ir
