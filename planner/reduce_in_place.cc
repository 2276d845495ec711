// All-reduces of the update write over what they reduce.
//
// A gradient that the backward left in a slot is not needed once it is reduced over the replicas.
// The reduced one becomes an output of the piece in the same slot, which the executor then computes
// in place; as a temporary it would need the memory of all gradients a second time.
#include <algorithm>
#include <map>

#include "planner/pieces.h"

namespace meshwright::planner {
namespace {

using ir::Op;

class PieceDonor {
 public:
  PieceDonor(const Partition& partition, const std::map<TensorIndex, int>& uses)
      : partition_(partition), uses_(uses) {}

  void Run(Piece& piece) const {
    ir::Graph graph = *piece.graph;
    const std::vector<std::vector<NodeId>> users = graph.Users();
    const std::vector<NodeId> inputs = graph.NodesOf(Op::kInput);
    std::map<ValueId, TensorIndex> tensors;  // of the values that may be overwritten
    for (size_t i = 0; i < inputs.size(); ++i) {
      const ValueId value = graph.node(inputs[i]).outputs[0];
      const bool read_once = users[static_cast<size_t>(value.value())].size() == 1;
      if (read_once && MayOverwrite(piece, piece.inputs[i])) tensors[value] = piece.inputs[i];
    }
    for (const ir::NamedValue& output : graph.outputs) tensors.erase(output.value);
    for (NodeId id : graph.NodesOf(Op::kAllReduce)) {
      const ir::Node& node = graph.node(id);
      for (size_t i = 0; i < node.inputs.size(); ++i) {
        const auto it = tensors.find(node.inputs[i]);
        if (it == tensors.end() || IsOutput(graph, node.outputs[i])) continue;
        graph.outputs.push_back({NameOf(it->second), node.outputs[i]});
        piece.outputs.push_back(it->second);
        tensors.erase(it);
      }
    }
    piece.graph = std::make_shared<const ir::Graph>(std::move(graph));
  }

 private:
  const std::string& NameOf(TensorIndex tensor) const {
    return partition_.tensors[static_cast<size_t>(tensor)].name;
  }

  // Nothing but this piece reads the tensor, and it does not keep it.
  bool MayOverwrite(const Piece& piece, TensorIndex tensor) const {
    const TensorRole role = partition_.tensors[static_cast<size_t>(tensor)].role;
    const bool written =
        std::find(piece.outputs.begin(), piece.outputs.end(), tensor) != piece.outputs.end();
    return role != TensorRole::kParam && !written && uses_.at(tensor) == 1;
  }

  static bool IsOutput(const ir::Graph& graph, ValueId value) {
    return std::any_of(graph.outputs.begin(), graph.outputs.end(),
                       [&](const ir::NamedValue& output) { return output.value == value; });
  }

  const Partition& partition_;
  const std::map<TensorIndex, int>& uses_;
};

}  // namespace

void ReduceInPlace(Partition& partition) {
  std::map<TensorIndex, int> uses;  // readers beside the pieces that accumulate into the tensor
  for (const Piece& piece : partition.pieces) {
    for (TensorIndex tensor : piece.inputs) {
      const bool accumulates =
          std::find(piece.outputs.begin(), piece.outputs.end(), tensor) != piece.outputs.end();
      uses[tensor] += accumulates ? 0 : 1;
    }
  }
  for (const Import& import : partition.imports) {
    uses[import.source] += 1;
    uses[import.destination] += 1;  // what was received keeps its name
  }
  for (const Report& report : partition.reports) uses[report.tensor] += 1;
  for (Piece& piece : partition.pieces) {
    if (piece.key.phase == ir::Phase::kUpdate) PieceDonor(partition, uses).Run(piece);
  }
}

}  // namespace meshwright::planner
