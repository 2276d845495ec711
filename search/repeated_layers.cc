#include "search/repeated_layers.h"

#include <fmt/format.h>

#include <map>
#include <set>
#include <string>
#include <utility>
#include <variant>

#include "ir/op.h"

namespace meshwright::search {
namespace {

using ir::Graph;
using ir::Node;
using ir::Op;

struct ValueText {
  std::string operator()(int64_t value) const { return fmt::format("{}", value); }
  std::string operator()(double value) const { return fmt::format("{}", value); }
  std::string operator()(const std::string& value) const { return value; }
  std::string operator()(const std::vector<int64_t>& values) const {
    return fmt::format("{}", fmt::join(values, ","));
  }
  std::string operator()(const std::vector<std::string>& values) const {
    return fmt::format("{}", fmt::join(values, ","));
  }
};

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
      text += fmt::format(" {}={}", name, std::visit(ValueText(), value));
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

}  // namespace meshwright::search
