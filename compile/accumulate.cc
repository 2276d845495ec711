// Sums that an op can write itself: x + y, where y is a matrix product, the gradient of the head or
// that of an embedding which nothing else reads, becomes y's op with the accumulator x. So the
// microbatches of a step add their gradients into one tensor, and a tied table's two gradients are
// one.
#include <algorithm>
#include <optional>
#include <vector>

#include "compile/compile.h"
#include "ir/builder.h"
#include "ir/rewrite.h"
#include "ir/schema.h"

namespace meshwright::compile {
namespace {

using ir::Graph;
using ir::Node;
using ir::Op;

struct Match {
  size_t sum = 0;       // goes
  size_t producer = 0;  // gets the accumulator
  ValueId accumulator;
  ValueId result;  // of the last producer: stands for the sum
};

class Finder {
 public:
  explicit Finder(const Graph& graph)
      : graph_(graph), users_(graph.Users()), is_output_(graph.values.size(), false) {
    for (const ir::NamedValue& output : graph.outputs) is_output_[output.value] = true;
  }

  // No two of them share a node.
  std::vector<Match> Run() const {
    std::vector<Match> matches;
    std::vector<bool> taken(graph_.nodes.size(), false);
    for (size_t n = 0; n < graph_.nodes.size(); ++n) {
      const std::optional<Match> match = At(n);
      if (!match || taken[match->producer] || taken[n]) continue;
      // The accumulator or the sum may themselves be what another match replaces.
      if (taken[ProducerOf(match->accumulator)]) continue;
      taken[match->producer] = taken[n] = true;
      matches.push_back(*match);
    }
    return matches;
  }

 private:
  size_t ProducerOf(ValueId id) const { return graph_.value(id).producer.index(); }

  std::optional<Match> At(size_t n) const {
    const Node& node = graph_.nodes[n];
    if ((node.op != Op::kAdd && node.op != Op::kSum) || node.inputs.size() != 2) {
      return std::nullopt;
    }
    const ValueId a = node.inputs[0];
    const ValueId b = node.inputs[1];
    if (a == b || graph_.type(a) != graph_.type(b)) return std::nullopt;
    if (const auto match = Into(n, a, b)) return match;
    return Into(n, b, a);
  }

  // x + y with y's op, or the one that y itself accumulates, taking x.
  std::optional<Match> Into(size_t n, ValueId x, ValueId y) const {
    size_t reader = n;
    for (ValueId made = y;;) {
      const size_t producer = ProducerOf(made);
      const Node& node = graph_.nodes[producer];
      const auto rule = ir::AccumulatorOf(node.op);
      if (!rule || node.outputs[rule->result] != made || !OnlyReader(made, reader) ||
          node.phase != graph_.nodes[n].phase) {
        return std::nullopt;
      }
      if (node.inputs.size() == rule->operand) {
        if (!Worthwhile(n, x, node.op) || !ReadyBefore(x, producer)) return std::nullopt;
        return Match{n, producer, x, y};
      }
      reader = producer;
      made = node.inputs[rule->operand];
    }
  }

  // A sum over microbatches, or gradients that meet; a product's chain is better off with the sum
  // as a step of it.
  bool Worthwhile(size_t sum, ValueId x, Op producer) const {
    const bool over_microbatches =
        graph_.producer(x).op == Op::kInput && is_output_[graph_.nodes[sum].outputs[0]];
    return OnlyReader(x, sum) && (over_microbatches || producer != Op::kEinsum);
  }

  bool ReadyBefore(ValueId x, size_t producer) const {
    return graph_.producer(x).op == Op::kInput || ProducerOf(x) < producer;
  }

  bool OnlyReader(ValueId value, size_t reader) const {
    const std::vector<NodeId>& readers = users_[value];
    return !is_output_[value] && readers.size() == 1 && readers[0].index() == reader;
  }

  const Graph& graph_;
  const IdVector<ValueId, std::vector<NodeId>> users_;
  IdVector<ValueId, bool> is_output_;
};

class Rewriter {
 public:
  Rewriter(const Graph& graph, const std::vector<Match>& matches)
      : graph_(graph),
        match_of_(graph.nodes.size(), nullptr),
        builder_(graph.name),
        map_(graph.values.size()) {
    for (const Match& match : matches) {
      match_of_[match.sum] = &match;
      match_of_[match.producer] = &match;
    }
  }

  Result<Graph> Run(const std::vector<size_t>& order) {
    for (const size_t n : order) Emit(n);
    for (const ir::NamedValue& output : graph_.outputs) {
      builder_.SetOutput(output.name, Mapped(output.value));
    }
    return builder_.Finish();
  }

 private:
  ValueId& Mapped(ValueId id) { return map_[id]; }

  void Emit(size_t n) {
    const Node& node = graph_.nodes[n];
    const Match* match = match_of_[n];
    if (match != nullptr && match->sum == n) {
      Mapped(node.outputs[0]) = Mapped(match->result);
      return;
    }
    std::vector<ValueId> inputs;
    for (ValueId input : node.inputs) inputs.push_back(Mapped(input));
    if (match != nullptr) inputs.push_back(Mapped(match->accumulator));
    const std::vector<ValueId> outputs = ir::AddLike(builder_, graph_, node, std::move(inputs));
    for (size_t i = 0; i < outputs.size(); ++i) Mapped(node.outputs[i]) = outputs[i];
  }

  const Graph& graph_;
  std::vector<const Match*> match_of_;
  ir::Builder builder_;
  IdVector<ValueId, ValueId> map_;
};

// Inputs first: accumulators may stand behind what is added to them. Inputs keep their order.
std::vector<size_t> InputsFirst(const Graph& graph) {
  std::vector<size_t> order;
  for (const bool inputs : {true, false}) {
    for (size_t n = 0; n < graph.nodes.size(); ++n) {
      if ((graph.nodes[n].op == Op::kInput) == inputs) order.push_back(n);
    }
  }
  return order;
}

// Whether the node adds a value to an input that nothing else reads, for an output.
bool IsAccumulation(const Graph& graph, const IdVector<ValueId, std::vector<NodeId>>& users,
                    const Node& node) {
  if (node.op != Op::kAdd || graph.producer(node.inputs[0]).op != Op::kInput) return false;
  const bool output =
      std::any_of(graph.outputs.begin(), graph.outputs.end(),
                  [&](const ir::NamedValue& named) { return named.value == node.outputs[0]; });
  return output && graph.producer(node.inputs[1]).op != Op::kInput &&
         users[node.inputs[0]].size() == 1;
}

}  // namespace

Result<Graph> SumEarly(const Graph& graph) {
  const IdVector<ValueId, std::vector<NodeId>> users = graph.Users();
  std::vector<std::vector<size_t>> behind(graph.nodes.size());
  std::vector<bool> moved(graph.nodes.size(), false);
  for (size_t n = 0; n < graph.nodes.size(); ++n) {
    const Node& node = graph.nodes[n];
    if (!IsAccumulation(graph, users, node)) continue;
    const auto producer = graph.value(node.inputs[1]).producer.index();
    if (moved[producer]) continue;
    behind[producer].push_back(n);
    moved[n] = true;
  }
  std::vector<size_t> order;
  for (const size_t n : InputsFirst(graph)) {
    if (moved[n]) continue;
    order.push_back(n);
    order.insert(order.end(), behind[n].begin(), behind[n].end());
  }
  return Rewriter(graph, {}).Run(order);
}

Result<Graph> AccumulateInPlace(const Graph& graph) {
  Graph current = graph;
  while (true) {
    const std::vector<Match> matches = Finder(current).Run();
    if (matches.empty()) return current;
    MW_ASSIGN_OR_RETURN(current, Rewriter(current, matches).Run(InputsFirst(current)));
  }
}

}  // namespace meshwright::compile
