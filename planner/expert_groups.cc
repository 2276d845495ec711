#include "planner/expert_groups.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <vector>

#include "base/check.h"
#include "ir/builder.h"
#include "ir/rewrite.h"
#include "planner/resolve_layout.h"

namespace meshwright::planner {
namespace {

using ir::Builder;
using ir::Graph;
using ir::Node;
using ir::Op;

// Of a product that a person would round down.
constexpr double kOfRounding = 1e-9;

// Slots of an expert_slots, in groups that `degree` divides.
struct Groups {
  int64_t groups = 1;
  int64_t capacity = 1;
};

Groups GroupsOf(const Graph& graph, const Node& node, int64_t degree) {
  const int64_t groups = node.attrs.Int("groups");
  MW_CHECK(degree > 1 && node.attrs.Int("experts") % degree == 0)
      << degree << " ranks for " << node.attrs.Int("experts") << " experts";
  if (groups % degree == 0) return {groups, node.attrs.Int("capacity")};
  const ir::Dims& choices = graph.type(node.inputs[0]).dims;
  // A token chooses an expert once.
  const int64_t of_group = node.attrs.Int("experts") / degree;
  const int64_t most = choices[1] * std::min(choices[2], of_group);
  const double factor = node.attrs.Real("slots_factor");
  if (factor <= 0) return {degree, most};
  const double mean = static_cast<double>(choices[1] * choices[2]) / static_cast<double>(degree);
  return {degree, std::clamp<int64_t>(static_cast<int64_t>(std::ceil(factor * mean - kOfRounding)),
                                      1, most)};
}

class Regroup {
 public:
  Regroup(const Graph& graph, int64_t degree)
      : graph_(graph), degree_(degree), groups_(graph.values.size()) {}

  Result<Graph> Run() {
    return ir::RewriteGraph(
        graph_, [this](Builder& builder, const Node& node, const std::vector<ValueId>& inputs,
                       const std::vector<ir::TensorType>& types) {
          return Emit(builder, node, inputs, types);
        });
  }

 private:
  // Of the slots that a value names, or has.
  std::optional<Groups> Find(const Node& node) const {
    for (const ValueId input : node.inputs) {
      if (groups_[input.index()]) return groups_[input.index()];
    }
    return std::nullopt;
  }

  std::vector<ValueId> Emit(Builder& builder, const Node& node, const std::vector<ValueId>& inputs,
                            const std::vector<ir::TensorType>& types) {
    ir::Attrs attrs = node.attrs;
    const std::optional<Groups> own =
        node.op == Op::kExpertSlots ? GroupsOf(graph_, node, degree_) : Find(node);
    if (!own) return builder.Add(node.op, inputs, attrs, types);
    const bool names = node.op == Op::kExpertSlots || node.op == Op::kDispatch;
    const bool products = node.op == Op::kGroupedMatmul || node.op == Op::kGroupedMatmulGrad;
    if (names || products) attrs.Set("groups", own->groups);
    if (names) attrs.Set("capacity", own->capacity);
    const bool leaves = node.op == Op::kCombine || node.op == Op::kCombineGradWeights ||
                        node.op == Op::kGroupedMatmulGrad;
    // Counts have no groups; what else comes of slots has their shape.
    const size_t with_groups = leaves ? 0 : node.op == Op::kExpertSlots ? 1 : node.outputs.size();
    for (size_t r = 0; r < with_groups; ++r) groups_[node.outputs[r].index()] = own;
    std::vector<ir::TensorType> declared = types;
    for (size_t r = 0; r < with_groups; ++r) {
      if (declared[r].rank() < 4) continue;
      declared[r].dims[1] = own->groups;
      declared[r].dims[2] = own->capacity;
    }
    std::vector<ValueId> operands = inputs;
    if (node.op == Op::kCombine) operands[0] = Moved(builder, operands[0], kByRows);
    std::vector<ValueId> results = builder.Add(node.op, operands, attrs, declared);
    if (node.op == Op::kDispatch && inputs.size() == 2) {
      results[0] = Moved(builder, results[0], kByExperts);
    }
    return results;
  }

  static ValueId Moved(Builder& builder, ValueId slots, int64_t split) {
    if (!slots.valid()) return slots;
    return builder.AddOne(Op::kReshape, {slots}, {{kSplitAttr, split}}, {builder.type(slots)});
  }

  const Graph& graph_;
  const int64_t degree_;
  std::vector<std::optional<Groups>> groups_;
};

// Experts of the graph's layers; 0: it has none. Errors: as many as the degree does not divide.
Result<int64_t> ExpertsOf(const Graph& graph, int64_t degree) {
  int64_t most = 0;
  for (const NodeId id : graph.NodesOf(Op::kExpertSlots)) {
    const int64_t experts = graph.node(id).attrs.Int("experts");
    if (experts % degree != 0) {
      return Fail(InvalidField("parallel.expert",
                               fmt::format("is {}, which does not divide {} experts; choose one of "
                                           "{{{}}}",
                                           degree, experts, DivisorList(experts, experts))));
    }
    most = std::max(most, experts);
  }
  return most;
}

}  // namespace

Result<ir::JobRequest> WithExpertGroups(const ir::JobRequest& job, const Layout& layout) {
  ir::JobRequest grouped = job;
  int64_t most = 0;
  for (ir::JobProgram& program : grouped.programs) {
    MW_ASSIGN_OR_RETURN(const int64_t experts, ExpertsOf(program.graph, layout.expert()));
    most = std::max(most, experts);
    if (experts == 0) continue;
    MW_ASSIGN_OR_RETURN(program.graph, Regroup(program.graph, layout.expert()).Run());
  }
  if (most > 0) return grouped;
  return Fail(InvalidField(
      "parallel.expert", fmt::format("is {}, but the model has no experts; leave it out, or use a "
                                     "model that has some (model.name = \"mixtral\")",
                                     layout.expert())));
}

}  // namespace meshwright::planner
