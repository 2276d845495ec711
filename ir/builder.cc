#include "ir/builder.h"

#include <fmt/format.h>

#include <algorithm>

#include "ir/schema.h"

namespace meshwright::ir {

Builder::Builder(std::string name) { graph_.name = std::move(name); }
Builder::Builder(Graph graph) : graph_(std::move(graph)) {
  for (size_t i = 0; i < graph_.outputs.size(); ++i) output_at_[graph_.outputs[i].name] = i;
}

void Builder::Fail(Status status) {
  if (status_.ok()) status_ = std::move(status);
}

std::vector<ValueId> Builder::Add(Op op, std::vector<ValueId> inputs, Attrs attrs,
                                  std::vector<TensorType> declared) {
  const std::vector<ValueId> none(ResultCount(op, attrs, inputs.size()));
  if (!status_.ok()) return none;
  std::vector<TensorType> operands;
  for (ValueId id : inputs) {
    if (id.index() >= graph_.values.size()) {
      Fail(InvalidArgument(fmt::format("{}: operand {} is not a value of graph \"{}\"", OpName(op),
                                       id.value(), graph_.name)));
      return none;
    }
    operands.push_back(type(id));
  }
  auto types = InferTypes(op, attrs, operands, declared);
  if (!types) {
    Fail(types.error().WithContext(
        fmt::format("graph \"{}\", node {}", graph_.name, graph_.nodes.size())));
    return none;
  }
  const NodeId node_id(static_cast<int32_t>(graph_.nodes.size()));
  Node node{op, std::move(inputs), {}, std::move(attrs), layer_, phase_};
  for (TensorType& type : *types) {
    node.outputs.emplace_back(static_cast<int32_t>(graph_.values.size()));
    graph_.values.push_back(Value{std::move(type), node_id});
  }
  graph_.nodes.push_back(std::move(node));
  return graph_.nodes.back().outputs;
}

ValueId Builder::AddOne(Op op, std::vector<ValueId> inputs, Attrs attrs,
                        std::vector<TensorType> declared) {
  const std::vector<ValueId> results =
      Add(op, std::move(inputs), std::move(attrs), std::move(declared));
  return results.empty() ? ValueId() : results[0];
}

void Builder::SetOutput(std::string name, ValueId value, Reduction reduction) {
  if (!status_.ok()) return;
  if (value.index() >= graph_.values.size()) {
    Fail(InvalidArgument(fmt::format("output \"{}\": {} is not a value of graph \"{}\"", name,
                                     value.value(), graph_.name)));
    return;
  }
  const auto [it, fresh] = output_at_.emplace(name, graph_.outputs.size());
  if (fresh) {
    graph_.outputs.push_back(NamedValue{std::move(name), value, reduction});
  } else {
    graph_.outputs[it->second].value = value;
    graph_.outputs[it->second].reduction = reduction;
  }
}

Result<Graph> Builder::Finish() {
  if (!status_.ok()) return tl::unexpected(status_);
  return std::move(graph_);
}

}  // namespace meshwright::ir
