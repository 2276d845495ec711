#include "search/short_model.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <variant>

#include "ir/builder.h"
#include "ir/op.h"
#include "ir/rewrite.h"
#include "planner/stages.h"

namespace meshwright::search {
namespace {

using ir::Graph;
using ir::Node;
using ir::Op;

class Matcher {
 public:
  explicit Matcher(const Graph& graph) : graph_(graph), first_(graph.nodes.size(), kUnknown) {}

  std::vector<int> Run() {
    FindLayers();
    for (const auto& [layer, nodes] : layers_) MatchLayer(nodes);
    for (size_t i = 0; i < graph_.nodes.size(); ++i) {
      if (first_[i] == kUnknown) MatchLoose(i);
    }
    return std::move(first_);
  }

 private:
  static constexpr int kUnknown = -1;

  size_t Producer(ValueId value) const { return graph_.value(value).producer.index(); }

  // Nodes per layer, and the layer of every param that one layer alone computes with.
  void FindLayers() {
    std::map<size_t, std::set<int>> readers;
    for (size_t i = 0; i < graph_.nodes.size(); ++i) {
      const Node& node = graph_.nodes[i];
      if (node.op == Op::kParam) continue;
      if (node.layer >= 0) layers_[node.layer].push_back(i);
      if (node.phase == ir::Phase::kUpdate) continue;
      for (ValueId input : node.inputs) {
        if (graph_.producer(input).op == Op::kParam) readers[Producer(input)].insert(node.layer);
      }
    }
    for (const auto& [param, layers] : readers) {
      if (layers.size() == 1 && *layers.begin() >= 0) own_layer_[param] = *layers.begin();
    }
  }

  std::string Describe(const Node& node) const {
    std::string text = fmt::format("{} {}", ir::OpName(node.op), static_cast<int>(node.phase));
    // How a param starts, and what names are, changes nothing.
    for (const auto& [name, value] : node.attrs.values()) {
      if (node.op == Op::kParam || name == "name") continue;
      std::visit([&, &of = name](const auto& v) { text += fmt::format(" {}={}", of, v); }, value);
    }
    for (ValueId input : node.inputs) text += " " + graph_.type(input).ToString();
    for (ValueId output : node.outputs) text += ">" + graph_.type(output).ToString();
    return text;
  }

  size_t ResultIndex(ValueId value) const {
    const std::vector<ValueId>& outputs = graph_.producer(value).outputs;
    size_t i = 0;
    while (outputs[i] != value) ++i;
    return i;
  }

  void MatchLayer(const std::vector<size_t>& nodes) {
    std::string key;
    std::map<size_t, size_t> places;  // of nodes and params, in order of first use
    std::vector<size_t> members;
    const auto place = [&](size_t node) {
      const auto [it, fresh] = places.emplace(node, members.size());
      if (fresh) members.push_back(node);
      return it->second;
    };
    for (size_t i : nodes) {
      const Node& node = graph_.nodes[i];
      key += Describe(node);
      for (ValueId input : node.inputs) {
        const size_t producer = Producer(input);
        const bool is_param = graph_.nodes[producer].op == Op::kParam;
        const auto own = own_layer_.find(producer);
        if (own != own_layer_.end()) {
          if (!places.contains(producer)) key += Describe(graph_.nodes[producer]);
          key += fmt::format(" p{}", place(producer));
        } else if (is_param) {
          key += fmt::format(" shared{}", producer);
        } else if (graph_.nodes[producer].layer == node.layer) {
          key += fmt::format(" {}.{}", place(producer), ResultIndex(input));
        } else {
          key += " other";
        }
      }
      place(i);
      key += "\n";
    }
    const std::vector<size_t>& firsts =
        layer_of_key_.emplace(std::move(key), members).first->second;
    for (size_t m = 0; m < members.size(); ++m) first_[members[m]] = static_cast<int>(firsts[m]);
  }

  // A node of the update equals one of the same kind that reads equal values. State has its place
  // from its reader, which comes later.
  void MatchLoose(size_t i) {
    const Node& node = graph_.nodes[i];
    if (node.inputs.empty() || node.phase != ir::Phase::kUpdate) {
      first_[i] = static_cast<int>(i);
      return;
    }
    std::string key = Describe(node);
    for (ValueId input : node.inputs) {
      const size_t producer = Producer(input);
      const Node& source = graph_.nodes[producer];
      const bool state = source.op == Op::kParam && source.attrs.Int("state") != 0;
      key += state ? " state" + Describe(source)
                   : fmt::format(" {}.{}", first_[producer], ResultIndex(input));
    }
    const size_t first = node_of_key_.emplace(std::move(key), i).first->second;
    first_[i] = static_cast<int>(first);
    for (size_t o = 0; o < node.inputs.size(); ++o) {
      const size_t producer = Producer(node.inputs[o]);
      const Node& source = graph_.nodes[producer];
      if (source.op != Op::kParam || source.attrs.Int("state") == 0) continue;
      first_[producer] = static_cast<int>(Producer(graph_.nodes[first].inputs[o]));
    }
  }

  const Graph& graph_;
  std::vector<int> first_;
  std::map<int, std::vector<size_t>> layers_;
  std::map<size_t, int> own_layer_;  // of params
  std::map<std::string, std::vector<size_t>> layer_of_key_;
  std::map<std::string, size_t> node_of_key_;
};

}  // namespace

std::vector<int> RepeatedNodes(const Graph& graph) { return Matcher(graph).Run(); }

namespace {

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
    Node node = loss_.nodes[index];
    if (node.op == ir::Op::kParam ? dropped_[index] : IsGone(node)) {
      if (node.op != ir::Op::kParam) StandFor(index);
      return;
    }
    if (node.layer >= 0) node.layer = short_layer[static_cast<size_t>(node.layer)];
    ir::CopyNode(builder_, loss_, node, map_);
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
