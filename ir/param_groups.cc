#include "ir/param_groups.h"

#include <fmt/format.h>
#include <fnmatch.h>

#include <charconv>
#include <cmath>
#include <cstddef>

#include "base/text.h"

namespace meshwright::ir {
namespace {

constexpr double kMostFactor = 1e6;

Status InRange(const ParamGroup& group, const char* what, const std::optional<double>& value) {
  if (!value || (*value >= 0 && *value <= kMostFactor)) return OkStatus();
  return InvalidArgument(fmt::format("params '{}': {} is {}; it must be in [0, {}]", group.pattern,
                                     what, *value, kMostFactor));
}

Result<double> ParseNumber(const std::string& text, std::string_view word) {
  double value = 0;
  const char* const end = word.data() + word.size();
  const auto [at, error] = std::from_chars(word.data(), end, value);
  if (error == std::errc() && at == end && std::isfinite(value)) return value;
  return Fail(InvalidArgument(fmt::format("'{}': '{}' is no number", text, word)));
}

// Returns how many params took the group's settings.
size_t Apply(const ParamGroup& group, Graph& graph) {
  size_t fitting = 0;
  for (Node& node : graph.nodes) {
    if (node.op != Op::kParam || node.attrs.Int("state") != 0) continue;
    if (::fnmatch(group.pattern.c_str(), node.attrs.Str("name").c_str(), 0) != 0) continue;
    ++fitting;
    if (group.frozen) node.attrs.Set(kFrozenAttr, static_cast<int64_t>(*group.frozen));
    if (group.lr_factor) node.attrs.Set(kRateFactorAttr, *group.lr_factor);
    if (group.weight_decay) node.attrs.Set(kWeightDecayAttr, *group.weight_decay);
  }
  return fitting;
}

std::string SomeParam(const Graph& graph) {
  const std::vector<NodeId> params = graph.NodesOf(Op::kParam);
  if (params.empty()) return "the graph has no params";
  return fmt::format("the {} params have names such as '{}'", params.size(),
                     graph.node(params[params.size() / 2]).attrs.Str("name"));
}

}  // namespace

bool IsFrozen(const Node& param) { return param.attrs.Int(kFrozenAttr) != 0; }

Result<ParamGroup> ParseParamGroup(const std::string& text) {
  const size_t colon = text.find(':');
  ParamGroup group;
  group.pattern = std::string(Trim(std::string_view(text).substr(0, colon)));
  if (colon == std::string::npos || group.pattern.empty()) {
    return Fail(InvalidArgument(
        fmt::format("'{}' must be a pattern and settings: \"*.bias: weight_decay=0\"", text)));
  }
  for (const std::string& part : Split(text.substr(colon + 1), ',')) {
    const std::string_view setting = Trim(part);
    const size_t equals = setting.find('=');
    const std::string_view name = Trim(setting.substr(0, equals));
    const bool known = name == kRateFactorAttr || name == kWeightDecayAttr;
    if (equals == std::string_view::npos || !known) {
      return Fail(
          InvalidArgument(fmt::format("'{}': '{}' must be lr_factor=NUMBER or weight_decay=NUMBER",
                                      text, std::string(setting))));
    }
    MW_ASSIGN_OR_RETURN(const double value, ParseNumber(text, Trim(setting.substr(equals + 1))));
    (name == kRateFactorAttr ? group.lr_factor : group.weight_decay) = value;
  }
  return group;
}

Result<Graph> WithParamGroups(const Graph& graph, std::span<const ParamGroup> groups) {
  Graph result = graph;
  for (const ParamGroup& group : groups) {
    MW_TRY(InRange(group, kRateFactorAttr, group.lr_factor));
    MW_TRY(InRange(group, kWeightDecayAttr, group.weight_decay));
    if (Apply(group, result) > 0) continue;
    return Fail(InvalidArgument(
        fmt::format("no param of the model fits '{}': {}", group.pattern, SomeParam(graph))));
  }
  return result;
}

TrainedCount CountTrained(const Graph& graph) {
  TrainedCount count;
  for (const NodeId id : graph.NodesOf(Op::kParam)) {
    const Node& node = graph.node(id);
    const int64_t elements = graph.type(node.outputs[0]).elements();
    count.all += elements;
    if (!IsFrozen(node)) count.trained += elements;
  }
  return count;
}

}  // namespace meshwright::ir
