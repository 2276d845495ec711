// Common subexpressions: a node that computes what an earlier one did is replaced by it.
#include <algorithm>

#include "compile/compile.h"
#include "ir/rewrite.h"

namespace meshwright::compile {
namespace {

// Inputs are told apart by their names; collectives are part of an order that all ranks keep.
bool MayMerge(ir::Op op) {
  switch (op) {
    case ir::Op::kParam:
    case ir::Op::kInput:
    case ir::Op::kAllReduce:
    case ir::Op::kAllGather:
    case ir::Op::kReduceScatter:
    case ir::Op::kAllToAll:
    case ir::Op::kRingShift:
      return false;
    default:
      return true;
  }
}

bool Computes(const ir::Node& made, const ir::Node& node, const std::vector<ValueId>& inputs) {
  return made.op == node.op && made.inputs == inputs && made.phase == node.phase &&
         made.attrs == node.attrs && made.outputs.size() == node.outputs.size();
}

// Where to look for an equal node: the users of its first operand, or all nodes without operands.
std::vector<size_t> Candidates(const ir::Graph& graph, const std::vector<ValueId>& inputs,
                               const std::vector<std::vector<size_t>>& users,
                               const std::vector<size_t>& sources) {
  if (inputs.empty()) return sources;
  const auto value = inputs[0].index();
  return value < users.size() && value < graph.values.size() ? users[value] : std::vector<size_t>();
}

bool SameTypes(const ir::Graph& graph, const ir::Node& made,
               const std::vector<ir::TensorType>& types) {
  for (size_t i = 0; i < types.size(); ++i) {
    if (graph.type(made.outputs[i]) != types[i]) return false;
  }
  return true;
}

}  // namespace

Result<ir::Graph> MergeEqualNodes(const ir::Graph& graph) {
  std::vector<std::vector<size_t>> users;  // of the new graph's values
  std::vector<size_t> sources;
  return ir::RewriteGraph(
      graph, [&](ir::Builder& builder, const ir::Node& node, const std::vector<ValueId>& inputs,
                 const std::vector<ir::TensorType>& types) {
        if (MayMerge(node.op)) {
          for (size_t index : Candidates(builder.graph(), inputs, users, sources)) {
            const ir::Node& made = builder.graph().nodes[index];
            if (Computes(made, node, inputs) && SameTypes(builder.graph(), made, types)) {
              return made.outputs;
            }
          }
        }
        const size_t index = builder.graph().nodes.size();
        std::vector<ValueId> outputs = builder.Add(node.op, inputs, node.attrs, types);
        users.resize(builder.graph().values.size());
        if (inputs.empty()) {
          sources.push_back(index);
        } else if (builder.status().ok()) {
          users[inputs[0].index()].push_back(index);
        }
        return outputs;
      });
}

}  // namespace meshwright::compile
