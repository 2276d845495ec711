#include "planner/early_gathers.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <optional>
#include <tuple>
#include <utility>
#include <vector>

#include "base/check.h"
#include "ir/builder.h"
#include "ir/rewrite.h"

namespace meshwright::planner {
namespace {

using ir::Graph;
using ir::Node;
using ir::Op;

// What brings a weight into another form, and needs nothing else.
bool Rearranges(Op op) {
  return op == Op::kAllGather || op == Op::kReshape || op == Op::kCast || op == Op::kShardSlice;
}

// What is gathered for one node.
struct GatheredFor {
  size_t reader = 0;
  std::vector<size_t> gathers;
  int64_t bytes = 0;
};

// The order of a piece's nodes with its gathers of weights a layer earlier.
class GatherMover {
 public:
  GatherMover(const Piece& piece, const Partition& partition) : graph_(*piece.graph) {
    FindWeightNodes(piece, partition);
    FindReaders();
  }

  // Empty: no gather moves.
  std::optional<std::vector<size_t>> Order() const {
    std::vector<size_t> place(graph_.nodes.size());
    std::iota(place.begin(), place.end(), 0);
    bool moves = false;
    const int64_t layer_bytes = LayerBytes();
    for (size_t j = 0; j < readers_.size(); ++j) {
      const size_t earliest = PlaceOf(j, layer_bytes);
      for (const size_t gather : readers_[j].gathers) {
        moves = moves || earliest < gather;
        place[gather] = std::min(place[gather], earliest);
      }
    }
    if (!moves) return std::nullopt;
    BringOperands(place);
    std::vector<size_t> order(graph_.nodes.size());
    std::iota(order.begin(), order.end(), 0);
    // Inputs come first in their order; what moves to the place of a node comes before it.
    const auto key = [&](size_t n) {
      return std::tuple(graph_.nodes[n].op != Op::kInput, place[n], place[n] == n);
    };
    std::stable_sort(order.begin(), order.end(),
                     [&](size_t a, size_t b) { return key(a) < key(b); });
    return order;
  }

 private:
  void FindWeightNodes(const Piece& piece, const Partition& partition) {
    std::vector<bool> weight(graph_.values.size(), false);
    of_weights_.assign(graph_.nodes.size(), false);
    size_t inputs = 0;
    for (size_t n = 0; n < graph_.nodes.size(); ++n) {
      const Node& node = graph_.nodes[n];
      if (node.op == Op::kInput) {
        MW_CHECK(inputs < piece.inputs.size()) << graph_.name << " has more inputs than slots";
        const StageTensor& tensor = partition.tensors[piece.inputs[inputs++]];
        weight[node.outputs[0].index()] = tensor.kind == ir::MemoryKind::kWeights;
        continue;
      }
      of_weights_[n] =
          Rearranges(node.op) && std::all_of(node.inputs.begin(), node.inputs.end(),
                                             [&](ValueId input) { return weight[input.index()]; });
      for (const ValueId output : node.outputs) weight[output.index()] = of_weights_[n];
    }
  }

  // What an output is has a slot, whose life is another matter.
  void FindReaders() {
    std::vector<bool> output(graph_.values.size(), false);
    for (const ir::NamedValue& named : graph_.outputs) output[named.value.index()] = true;
    const size_t none = graph_.nodes.size();
    std::vector<size_t> first(graph_.values.size(), none);  // per value: who computes with it
    std::map<size_t, GatheredFor> by_reader;
    for (size_t n = graph_.nodes.size(); n-- > 0;) {
      const Node& node = graph_.nodes[n];
      const size_t reader =
          of_weights_[n] || node.op == Op::kReshape ? first[node.outputs[0].index()] : n;
      for (const ValueId input : node.inputs) {
        first[input.index()] = std::min(first[input.index()], reader);
      }
      if (node.op != Op::kAllGather || !of_weights_[n] || reader == none) continue;
      if (output[node.outputs[0].index()]) continue;
      GatheredFor& gathered = by_reader[reader];
      gathered.reader = reader;
      gathered.gathers.push_back(n);
      gathered.bytes += graph_.type(node.outputs[0]).bytes();
    }
    for (auto& [reader, gathered] : by_reader) readers_.push_back(std::move(gathered));
  }

  // That one layer gathers: not the one whose embedding or head comes on top, nor a small one.
  int64_t LayerBytes() const {
    std::map<int, int64_t> of_layer;
    for (const GatheredFor& each : readers_) {
      const int layer = graph_.nodes[each.reader].layer;
      if (layer >= 0) of_layer[layer] += each.bytes;
    }
    if (of_layer.empty()) return 0;
    std::vector<int64_t> bytes;
    for (const auto& [layer, sum] : of_layer) bytes.push_back(sum);
    const auto middle = bytes.begin() + static_cast<int64_t>((bytes.size() - 1) / 2);
    std::nth_element(bytes.begin(), middle, bytes.end());
    return *middle;
  }

  // The node ahead of which the gathers of reader j are listed.
  size_t PlaceOf(size_t j, int64_t layer_bytes) const {
    int64_t ahead_bytes = readers_[j].bytes;
    size_t first = j;  // of those that are gathered and not yet read
    while (first > 0 && ahead_bytes + readers_[first - 1].bytes <= layer_bytes) {
      ahead_bytes += readers_[--first].bytes;
    }
    const size_t begins = first == 0 ? 0 : readers_[first - 1].reader;
    return std::max(begins, LayerAhead(readers_[j].reader));
  }

  // Where the layer before that of a node begins.
  size_t LayerAhead(size_t node) const {
    int layer = graph_.nodes[node].layer;
    bool passed = false;  // into the layer before
    size_t begin = node;
    for (size_t n = node; n-- > 0;) {
      const int other = graph_.nodes[n].layer;
      if (other >= 0 && other != layer) {
        if (passed) break;
        passed = true;
        layer = other;
      }
      begin = n;
    }
    return begin;
  }

  // What a gather reads comes before it.
  void BringOperands(std::vector<size_t>& place) const {
    for (size_t n = graph_.nodes.size(); n-- > 0;) {
      if (!of_weights_[n]) continue;
      for (const ValueId input : graph_.nodes[n].inputs) {
        const size_t maker = graph_.value(input).producer.index();
        if (graph_.nodes[maker].op == Op::kInput) continue;  // callers bind them by their order
        place[maker] = std::min(place[maker], place[n]);
      }
    }
  }

  const Graph& graph_;
  std::vector<bool> of_weights_;      // per node: it only rearranges weights
  std::vector<GatheredFor> readers_;  // in their order
};

Result<Graph> InOrder(const Graph& graph, const std::vector<size_t>& order) {
  ir::Builder builder(graph.name);
  IdVector<ValueId, ValueId> renamed(graph.values.size());
  for (const size_t n : order) ir::CopyNode(builder, graph, graph.nodes[n], renamed);
  for (const ir::NamedValue& output : graph.outputs) {
    builder.SetOutput(output.name, renamed[output.value], output.reduction);
  }
  return builder.Finish();
}

}  // namespace

Status GatherEarly(Partition& partition) {
  for (Piece& piece : partition.pieces) {
    if (piece.key.phase == ir::Phase::kUpdate || piece.on_host) continue;
    const auto order = GatherMover(piece, partition).Order();
    if (!order) continue;
    MW_ASSIGN_OR_RETURN(Graph graph, InOrder(*piece.graph, *order));
    piece.graph = std::make_shared<const Graph>(std::move(graph));
  }
  return OkStatus();
}

}  // namespace meshwright::planner
