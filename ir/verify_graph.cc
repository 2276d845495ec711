#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "ir/schema.h"
#include "ir/verify.h"

namespace meshwright::ir {
namespace {

class GraphVerifier {
 public:
  explicit GraphVerifier(const Graph& graph) : graph_(graph) {}

  Status Run() {
    for (size_t i = 0; i < graph_.nodes.size(); ++i) {
      const Node& node = graph_.nodes[i];
      if (Status status = CheckNode(node, i); !status.ok()) {
        return status.WithContext(fmt::format("graph \"{}\", node {}", graph_.name, i));
      }
    }
    if (defined_ != graph_.values.size()) {
      return Error(fmt::format("{} values, but the nodes make {}", graph_.values.size(), defined_));
    }
    return CheckOutputs();
  }

 private:
  Status Error(const std::string& message) const {
    return InvalidArgument(fmt::format("graph \"{}\": {}", graph_.name, message));
  }

  Status CheckNode(const Node& node, size_t index) {
    if (static_cast<int>(node.op) >= kOpCount) return InvalidArgument("op number out of range");
    if (node.layer < -1 || node.layer >= kMaxLayers) {
      return InvalidArgument(fmt::format("layer {} is not in [-1, {}]: number the blocks 0..n-1",
                                         node.layer, kMaxLayers - 1));
    }
    std::vector<TensorType> operands;
    for (ValueId id : node.inputs) {
      if (id.index() >= defined_) {
        return InvalidArgument(
            fmt::format("{} reads %{} before it is defined", OpName(node.op), id.value()));
      }
      operands.push_back(graph_.type(id));
    }
    std::vector<TensorType> stored;
    for (ValueId id : node.outputs) {
      const bool next = id.index() == defined_;
      if (!next || defined_ >= graph_.values.size()) {
        return InvalidArgument(
            fmt::format("{} makes %{}, expected %{}: results are numbered in order",
                        OpName(node.op), id.value(), defined_));
      }
      if (graph_.value(id).producer.value() != static_cast<int64_t>(index)) {
        return InvalidArgument(fmt::format("%{} names node {} as its producer", id.value(),
                                           graph_.value(id).producer.value()));
      }
      stored.push_back(graph_.type(id));
      ++defined_;
    }
    if (stored.empty()) return InvalidArgument(fmt::format("{} has no results", OpName(node.op)));
    MW_TRY(InferTypes(node.op, node.attrs, operands, stored));
    return CheckBoundName(node);
  }

  // Names by which callers bind memory must tell nodes apart.
  Status CheckBoundName(const Node& node) {
    if (node.op != Op::kParam && node.op != Op::kInput) return OkStatus();
    const std::string name = node.attrs.Str("name");
    if (names_.emplace(node.op, name).second) return OkStatus();
    return InvalidArgument(fmt::format("a second {} named \"{}\"", OpName(node.op), name));
  }

  Status CheckOutputs() const {
    std::set<std::string_view> names;
    for (const NamedValue& output : graph_.outputs) {
      if (!names.insert(output.name).second) {
        return Error(fmt::format("a second output named \"{}\"", output.name));
      }
      if (output.value.index() >= defined_) {
        return Error(fmt::format("output \"{}\" is %{}, which is not a value", output.name,
                                 output.value.value()));
      }
    }
    return OkStatus();
  }

  const Graph& graph_;
  size_t defined_ = 0;
  std::set<std::pair<Op, std::string>> names_;
};

}  // namespace

Status VerifyGraph(const Graph& graph) { return GraphVerifier(graph).Run(); }

}  // namespace meshwright::ir
