#include "planner/reduce_in_place.h"

#include <algorithm>
#include <map>
#include <set>

#include "base/check.h"

namespace meshwright::planner {
namespace {

using ir::Op;

class PieceDonor {
 public:
  PieceDonor(const Partition& partition, const std::map<TensorIndex, int>& uses,
             const std::set<TensorIndex>& crossing, std::map<TensorIndex, TensorIndex>& renamed)
      : partition_(partition), uses_(uses), crossing_(crossing), renamed_(renamed) {}

  void Run(Piece& piece) const {
    ir::Graph graph = *piece.graph;
    const IdVector<ValueId, std::vector<NodeId>> users = graph.Users();
    const std::vector<NodeId> inputs = graph.NodesOf(Op::kInput);
    MW_CHECK(inputs.size() == piece.inputs.size())
        << graph.name << " reads " << inputs.size() << " values of " << piece.inputs.size();
    std::map<ValueId, TensorIndex> tensors;  // of the values that may be overwritten
    for (size_t i = 0; i < inputs.size(); ++i) {
      const ValueId value = graph.node(inputs[i]).outputs[0];
      const bool read_once = users[value].size() == 1;
      if (read_once && MayOverwrite(piece, piece.inputs[i])) tensors[value] = piece.inputs[i];
    }
    for (const ir::NamedValue& output : graph.outputs) tensors.erase(output.value);
    for (NodeId id : graph.NodesOf(Op::kAllReduce)) {
      const ir::Node& node = graph.node(id);
      for (size_t i = 0; i < node.inputs.size(); ++i) {
        const auto it = tensors.find(node.inputs[i]);
        if (it == tensors.end()) continue;
        if (IsOutput(graph, node.outputs[i])) {
          Rename(piece, graph, node.outputs[i], it->second);
          continue;
        }
        graph.outputs.push_back({NameOf(it->second), node.outputs[i]});
        piece.outputs.push_back(it->second);
        tensors.erase(it);
      }
    }
    piece.graph = std::make_shared<const ir::Graph>(std::move(graph));
  }

 private:
  const std::string& NameOf(TensorIndex tensor) const { return partition_.tensors[tensor].name; }

  // A later piece of the stage reads what was reduced: it finds it where it was summed up. What
  // crosses to another stage keeps its own form.
  void Rename(Piece& piece, ir::Graph& graph, ValueId reduced, TensorIndex summed) const {
    MW_CHECK(graph.outputs.size() == piece.outputs.size())
        << graph.name << " makes " << graph.outputs.size() << " values of " << piece.outputs.size();
    for (size_t o = 0; o < graph.outputs.size(); ++o) {
      const TensorIndex known = piece.outputs[o];
      const bool own =
          graph.outputs[o].value == reduced && TensorOf(known).role == TensorRole::kStep;
      if (!own || crossing_.contains(known)) continue;
      renamed_[known] = summed;
      graph.outputs[o].name = NameOf(summed);
      piece.outputs[o] = summed;
      return;
    }
  }

  const StageTensor& TensorOf(TensorIndex tensor) const { return partition_.tensors[tensor]; }

  // Nothing but this piece reads the tensor, and it does not keep it.
  bool MayOverwrite(const Piece& piece, TensorIndex tensor) const {
    const TensorRole role = partition_.tensors[tensor].role;
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
  const std::set<TensorIndex>& crossing_;  // sent, received or reported
  std::map<TensorIndex, TensorIndex>& renamed_;
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
  std::set<TensorIndex> crossing;
  for (const Import& import : partition.imports) {
    crossing.insert({import.source, import.destination});
  }
  for (const Report& report : partition.reports) crossing.insert(report.tensor);
  for (const Report& output : partition.outputs) crossing.insert(output.tensor);
  for (const TensorIndex tensor : crossing) uses[tensor] += 1;
  std::map<TensorIndex, TensorIndex> renamed;  // what was reduced: where
  for (Piece& piece : partition.pieces) {
    if (piece.key.phase != ir::Phase::kUpdate) continue;
    for (TensorIndex& input : piece.inputs) {
      if (const auto it = renamed.find(input); it != renamed.end()) input = it->second;
    }
    PieceDonor(partition, uses, crossing, renamed).Run(piece);
  }
}

}  // namespace meshwright::planner
