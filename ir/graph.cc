#include "ir/graph.h"

#include <fmt/format.h>

#include <algorithm>

namespace meshwright::ir {

std::string TensorType::ToString() const {
  return fmt::format("{}[{}]", DTypeName(dtype), fmt::join(dims, ","));
}

ValueId Graph::Output(std::string_view output_name) const {
  for (const NamedValue& output : outputs) {
    if (output.name == output_name) return output.value;
  }
  return ValueId();
}

std::vector<NodeId> Graph::NodesOf(Op op) const {
  std::vector<NodeId> result;
  for (size_t i = 0; i < nodes.size(); ++i) {
    if (nodes[i].op == op) result.push_back(NodeId(static_cast<int32_t>(i)));
  }
  return result;
}

IdVector<ValueId, std::vector<NodeId>> Graph::Users() const {
  IdVector<ValueId, std::vector<NodeId>> users(values.size());
  for (size_t i = 0; i < nodes.size(); ++i) {
    const NodeId id(static_cast<int32_t>(i));
    for (ValueId input : nodes[i].inputs) {
      auto& list = users[input];
      if (list.empty() || list.back() != id) list.push_back(id);
    }
  }
  return users;
}

ShardedDims ShardedDims::FromAttrs(const Attrs& attrs) {
  ShardedDims result;
  result.global_dims = attrs.Ints("global_dims");
  result.padded_dims = attrs.Ints("padded_dims");
  for (const std::string& axes : attrs.Strs("dim_axes")) {
    std::vector<std::string> list;
    size_t begin = 0;
    while (begin < axes.size()) {
      const size_t comma = std::min(axes.find(',', begin), axes.size());
      list.push_back(axes.substr(begin, comma - begin));
      begin = comma + 1;
    }
    result.dim_axes.push_back(std::move(list));
  }
  return result;
}

void ShardedDims::ToAttrs(Attrs& attrs) const {
  if (whole()) return;
  std::vector<std::string> axes;
  for (const auto& list : dim_axes) axes.push_back(fmt::format("{}", fmt::join(list, ",")));
  attrs.Set("global_dims", global_dims);
  attrs.Set("dim_axes", axes);
  if (!padded_dims.empty()) attrs.Set("padded_dims", padded_dims);
}

}  // namespace meshwright::ir
