// The intra-operator search against brute force on small random graphs.
#include "search/intra_problem.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "ir/builder.h"
#include "mesh/reshard.h"
#include "search/node_strategies.h"
#include "tests/rate_costs.h"
#include "tests/scale.h"
#include "tests/still_clock.h"

namespace meshwright::search {
namespace {

using ir::Op;
using mesh::Sharding;
using planner::NodeStrategy;

const mesh::LinkCost kLink{3e-6, 1e-9};

// Rows of data, then up to `ops` products with weights, sums and gates of what there is.
ir::Graph ArbitraryGraph(int ops) {
  const auto below = [](int end) { return *rc::gen::resize(100, rc::gen::inRange(0, end)); };
  ir::Builder b("g");
  const ir::TensorType square{ir::DType::kF32, {16, 16}};
  const ValueId feed =
      b.AddOne(Op::kFeed, {}, {{"source", std::string("t")}}, {{ir::DType::kI32, {16, 17}}});
  const ValueId ids = b.AddOne(Op::kSlice, {feed},
                               {{"dim", int64_t{1}}, {"start", int64_t{0}}, {"size", int64_t{1}}});
  const ValueId flat = b.AddOne(Op::kReshape, {ids}, {}, {{ir::DType::kI32, {16}}});
  const ValueId table = b.AddOne(Op::kRandomNormal, {}, {{"name", std::string("n")}}, {square});
  std::vector<ValueId> values = {b.AddOne(Op::kEmbedding, {table, flat})};
  const auto any = [&] {
    return values[static_cast<size_t>(below(static_cast<int>(values.size())))];
  };
  int weights = 0;
  for (int i = 0; i < ops; ++i) {
    switch (below(4)) {
      case 0:
        values.push_back(b.AddOne(Op::kGelu, {any()}));
        break;
      case 1:
        values.push_back(b.AddOne(Op::kAdd, {any(), any()}));
        break;
      case 2:
        values.push_back(
            b.AddOne(Op::kEinsum, {any(), any()}, {{"equation", std::string("mk,kn->mn")}}));
        break;
      default: {
        if (weights == 2) break;
        const ValueId w =
            b.AddOne(Op::kParam, {}, {{"name", "w" + std::to_string(weights++)}}, {square});
        values.push_back(
            b.AddOne(Op::kEinsum, {any(), w}, {{"equation", std::string("mk,kn->mn")}}));
      }
    }
  }
  const Result<ir::Graph> graph = b.Finish();
  RC_ASSERT(graph.has_value());
  return *graph;
}

// All choices, each priced from nothing but the graph.
class BruteForce {
 public:
  BruteForce(const ir::Graph& graph, mesh::Mesh mesh, const IntraCosts& costs)
      : graph_(graph), space_{std::move(mesh), {}}, costs_(costs), users_(graph.Users()) {
    for (const ir::MeshAxis& axis : space_.mesh.axes) space_.axes.push_back(axis.name);
    for (const ir::Node& node : graph.nodes) {
      NodeStrategy base;
      for (ValueId v : node.inputs)
        base.operands.push_back(Sharding::Replicated(graph.type(v).rank()));
      for (ValueId v : node.outputs)
        base.results.push_back(Sharding::Replicated(graph.type(v).rank()));
      std::vector<NodeStrategy>& options = options_.emplace_back();
      if (node.op == Op::kParam) {
        for (const Sharding& s : StorageShardings(graph.type(node.outputs[0]), space_))
          options.push_back({{}, {s}});
      } else if (node.op == Op::kRandomNormal) {
        options.push_back(base);
      } else {
        options = NodeStrategies(graph, node, base, space_);
      }
    }
    chosen_.resize(graph.nodes.size());
  }

  double Run() {
    Choose(0, 0);
    return best_s_;
  }

  double combinations() const {
    double product = 1;
    for (const auto& options : options_) product *= static_cast<double>(options.size());
    return product;
  }

 private:
  // The cost of nodes before `node`; values count with their last reader.
  void Choose(size_t node, double cost_s) {
    if (cost_s >= best_s_) return;
    if (node == graph_.nodes.size()) {
      best_s_ = cost_s;
      return;
    }
    for (const NodeStrategy& strategy : options_[node]) {
      chosen_[node] = &strategy;
      double more_s = costs_.NodeSeconds(graph_, graph_.nodes[node], strategy, space_.mesh);
      const Op op = graph_.nodes[node].op;
      if (op == Op::kParam || op == Op::kRandomNormal) more_s = 0;  // not computed here
      std::set<ValueId> inputs(graph_.nodes[node].inputs.begin(), graph_.nodes[node].inputs.end());
      for (ValueId value : inputs) {
        const bool last = users_[value].back().value() == static_cast<int>(node);
        if (last) more_s += Deliver(value);
      }
      Choose(node + 1, cost_s + more_s);
    }
  }

  // One common form for all readers, and from there to each.
  double Deliver(ValueId value) {
    const ir::Node& producer = graph_.producer(value);
    const Sharding made = chosen_[graph_.value(value).producer.index()]->results[0];
    std::vector<Sharding> wanted;
    for (NodeId user : users_[value]) {
      const ir::Node& node = graph_.node(user);
      for (size_t o = 0; o < node.inputs.size(); ++o) {
        if (node.inputs[o] == value) wanted.push_back(chosen_[user.index()]->operands[o]);
      }
    }
    if (producer.op == Op::kRandomNormal) {
      for (const Sharding& w : wanted) {
        if (!w.partial.empty()) return kForbidden;
      }
      return 0;
    }
    double best_s = kForbidden;
    for (const Sharding& form : FormsOf(value)) {
      double cost_s = Seconds(value, made, form);
      for (const Sharding& w : wanted) cost_s += Seconds(value, form, w);
      best_s = std::min(best_s, cost_s);
    }
    return best_s;
  }

  // Whatever its producer could make of it and its readers could want.
  const std::set<Sharding>& FormsOf(ValueId value) {
    const auto [it, fresh] = forms_.try_emplace(value);
    if (!fresh) return it->second;
    for (const NodeStrategy& s : options_[graph_.value(value).producer.index()])
      it->second.insert(s.results[0]);
    for (NodeId user : users_[value]) {
      const ir::Node& node = graph_.node(user);
      for (size_t o = 0; o < node.inputs.size(); ++o) {
        if (node.inputs[o] != value) continue;
        for (const NodeStrategy& s : options_[user.index()]) it->second.insert(s.operands[o]);
      }
    }
    return it->second;
  }

  double Seconds(ValueId value, const Sharding& from, const Sharding& to) {
    const auto [it, fresh] = seconds_.try_emplace({graph_.type(value).dims, from, to});
    if (fresh) {
      const auto path = mesh::FindReshardPath(graph_.type(value), from, to, space_.mesh, kLink);
      it->second = path.has_value() ? path->cost : kForbidden;
    }
    return it->second;
  }

  const ir::Graph& graph_;
  StrategySpace space_;
  const IntraCosts& costs_;
  const IdVector<ValueId, std::vector<NodeId>> users_;
  std::vector<std::vector<NodeStrategy>> options_;
  std::vector<const NodeStrategy*> chosen_;
  std::map<std::tuple<ir::Dims, Sharding, Sharding>, double> seconds_;
  std::map<ValueId, std::set<Sharding>> forms_;
  double best_s_ = kForbidden;
};

void ExpectBruteForceFindsNoLess(const std::vector<ir::MeshAxis>& axes, int most_ops) {
  const ir::Graph graph = ArbitraryGraph(1 + *rc::gen::resize(100, rc::gen::inRange(0, most_ops)));
  const auto stages = planner::AssignStages(graph, {}, {});
  RC_ASSERT(stages.has_value());
  IntraOptions options;
  options.axes = axes;
  options.budget_bytes = int64_t{1} << 40;
  const double rate = *rc::gen::element(1e7, 1e9, 1e11);
  std::map<std::string, mesh::LinkCost> links;
  mesh::Mesh mesh;
  for (const ir::MeshAxis& axis : axes) {
    links[axis.name] = kLink;
    mesh.axes.push_back(axis);
  }
  const auto costs = MakeRateCosts({rate, rate, 0}, links);
  BruteForce brute(graph, mesh, *costs);
  RC_PRE(brute.combinations() < 2e5);
  const auto answer = SearchIntra(graph, *stages, options, *costs, kStill);
  RC_ASSERT(answer.has_value());
  const double wanted_s = brute.Run();
  RC_ASSERT(std::abs(answer->step_s - wanted_s) <= 1e-9 * wanted_s);
}

RC_GTEST_PROP(IntraProperty, FindsTheBestOnOneAxis, ()) {
  if (LeavesOut(10)) return;
  const int64_t devices = *rc::gen::element(2, 4, 8);
  ExpectBruteForceFindsNoLess({{"data", devices}}, 5);
}

RC_GTEST_PROP(IntraProperty, FindsTheBestOnTwoAxes, ()) {
  // Both searches take a second for the largest of these.
  static int graphs = 0;
  if (graphs++ % (kSanitizedBuild ? 20 : 4) != 0) return;
  ExpectBruteForceFindsNoLess({{"data", 2}, {"tensor", *rc::gen::element<int64_t>(2, 4)}}, 2);
}

}  // namespace
}  // namespace meshwright::search
