#include "search/short_model.h"

#include <algorithm>
#include <map>
#include <utility>

#include "ir/builder.h"
#include "planner/stages.h"
#include "search/repeated_layers.h"

namespace meshwright::search {
namespace {

using ir::Graph;
using ir::Node;

// Nodes of each layer, in order.
std::vector<std::vector<int>> NodesByLayer(const Graph& graph, int layers) {
  std::vector<std::vector<int>> nodes(static_cast<size_t>(layers));
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    const int layer = graph.nodes[i].layer;
    if (layer >= 0) nodes[static_cast<size_t>(layer)].push_back(static_cast<int>(i));
  }
  return nodes;
}

bool AreEqual(const std::vector<int>& a, const std::vector<int>& b, const std::vector<int>& first) {
  if (a.size() != b.size() || a.empty()) return false;
  for (size_t i = 0; i < a.size(); ++i) {
    if (first[static_cast<size_t>(a[i])] != first[static_cast<size_t>(b[i])]) return false;
  }
  return true;
}

class Shortener {
 public:
  explicit Shortener(const Graph& loss)
      : loss_(loss),
        nodes_(NodesByLayer(loss, planner::LayerCount(loss))),
        first_(RepeatedNodes(loss)),
        builder_(loss.name),
        map_(loss.values.size()) {}

  Result<ShortModel> Run() {
    ShortModel result;
    for (size_t layer = 0; layer < nodes_.size(); ++layer) {
      const bool again =
          layer > 0 && AreEqual(nodes_[layer], nodes_[Representative(layer - 1)], first_);
      represents_.push_back(again ? Representative(layer - 1) : layer);
      const int last = result.short_layer.empty() ? -1 : result.short_layer.back();
      result.short_layer.push_back(again ? last : last + 1);
    }
    DropParams();
    for (size_t i = 0; i < loss_.nodes.size(); ++i) Visit(i, result.short_layer);
    for (const ir::NamedValue& output : loss_.outputs) {
      builder_.SetOutput(output.name, map_[output.value]);
    }
    MW_ASSIGN_OR_RETURN(result.loss, builder_.Finish());
    return result;
  }

 private:
  size_t Representative(size_t layer) const { return represents_[layer]; }

  bool IsGone(const Node& node) const {
    return node.layer >= 0 &&
           Representative(static_cast<size_t>(node.layer)) != static_cast<size_t>(node.layer);
  }

  // Params that only layers read that are gone.
  void DropParams() {
    dropped_.assign(loss_.nodes.size(), false);
    const IdVector<ValueId, std::vector<NodeId>> users = loss_.Users();
    for (const NodeId id : loss_.NodesOf(ir::Op::kParam)) {
      const std::vector<NodeId>& readers = users[loss_.node(id).outputs[0]];
      dropped_[id.index()] = !readers.empty() &&
                             std::all_of(readers.begin(), readers.end(),
                                         [&](NodeId reader) { return IsGone(loss_.node(reader)); });
    }
  }

  void Visit(size_t index, const std::vector<int>& short_layer) {
    const Node& node = loss_.nodes[index];
    if (node.op == ir::Op::kParam ? dropped_[index] : IsGone(node)) {
      if (node.op != ir::Op::kParam) StandFor(index);
      return;
    }
    std::vector<ValueId> inputs;
    std::vector<ir::TensorType> types;
    for (const ValueId input : node.inputs) inputs.push_back(map_[input]);
    for (const ValueId output : node.outputs) types.push_back(loss_.type(output));
    builder_.SetLayer(node.layer < 0 ? node.layer : short_layer[static_cast<size_t>(node.layer)]);
    builder_.SetPhase(node.phase);
    const std::vector<ValueId> outputs =
        builder_.Add(node.op, std::move(inputs), node.attrs, std::move(types));
    for (size_t i = 0; i < outputs.size(); ++i) map_[node.outputs[i]] = outputs[i];
  }

  // Readers get the results of the node at the same place of the layer that stays.
  void StandFor(size_t index) {
    const Node& node = loss_.nodes[index];
    const auto layer = static_cast<size_t>(node.layer);
    const std::vector<int>& mine = nodes_[layer];
    const auto place = std::find(mine.begin(), mine.end(), static_cast<int>(index)) - mine.begin();
    const Node& kept =
        loss_.nodes[static_cast<size_t>(nodes_[Representative(layer)][static_cast<size_t>(place)])];
    for (size_t i = 0; i < node.outputs.size(); ++i) {
      map_[node.outputs[i]] = map_[kept.outputs[i]];
    }
  }

  const Graph& loss_;
  const std::vector<std::vector<int>> nodes_;
  const std::vector<int> first_;
  std::vector<size_t> represents_;  // per layer, the layer that stays for it
  std::vector<bool> dropped_;       // per node
  ir::Builder builder_;
  IdVector<ValueId, ValueId> map_;
};

}  // namespace

Result<ShortModel> ShortenModel(const Graph& loss) { return Shortener(loss).Run(); }

}  // namespace meshwright::search
