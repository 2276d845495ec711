#include <fmt/format.h>

#include <algorithm>
#include <compare>
#include <memory>
#include <set>
#include <utility>

#include "ir/schema.h"
#include "search/intra_model.h"
#include "search/reshard_table.h"

namespace meshwright::search {
namespace {

using ir::Node;
using mesh::Sharding;
using planner::kMicro;
using planner::NodeStrategy;
using planner::WithoutAxis;

enum class Side : uint8_t { kProduced, kRequired, kOwn };

// Where a conversion starts or ends.
struct End {
  int variable = 0;
  Side side = Side::kOwn;
  size_t slot = 0;  // result or operand
  friend auto operator<=>(const End&, const End&) = default;
};

// Conversions of one tensor between the same variables: equal layers have many.
struct Conversion {
  End from, to;
  size_t table = 0;
  bool whole = false;  // what arrives must not be a sum over devices
  friend auto operator<=>(const Conversion&, const Conversion&) = default;
};

class CostAdder {
 public:
  CostAdder(const IntraCosts& costs, IntraModel& model) : costs_(costs), model_(model) {
    for (const ir::MeshAxis& axis : model.space.axes) links_[axis.name] = costs.Link(axis.name);
  }

  void Run() {
    std::vector<int64_t> instances(model_.variables.size());
    for (size_t i = 0; i < model_.graph->nodes.size(); ++i) {
      if (model_.VariableOf(i) != kNoVariable) ++instances[Index(model_.VariableOf(i))];
    }
    for (size_t v = 0; v < model_.variables.size(); ++v) AddNode(v, instances[v]);
    for (size_t i = 0; i < model_.graph->nodes.size(); ++i) {
      if (model_.VariableOf(i) == kNoVariable || model_.NodeAt(i).op == ir::Op::kParam) continue;
      AddReads(i);
      if (model_.IsOptimizer(i)) AddRenewal(i);
    }
    for (const auto& [conversion, times] : conversions_) AddConversion(conversion, times);
    for (auto& [ends, cost_s] : edges_) {
      model_.problem.edges.push_back({ends.first, ends.second, std::move(cost_s)});
    }
  }

 private:
  static size_t Index(int variable) { return static_cast<size_t>(variable); }

  // ---- nodes ----

  std::string NameOf(const Variable& variable) const {
    const Node& node = model_.NodeAt(Index(variable.node));
    if (variable.kind == VariableKind::kParam) return "param " + node.attrs.Str("name");
    const std::string made_by = fmt::format("{} (node {})", ir::OpName(node.op), variable.node);
    if (variable.kind == VariableKind::kNode) return made_by;
    return fmt::format("form of result {} of {}", variable.result, made_by);
  }

  void AddNode(size_t v, int64_t instances) {
    const Variable& variable = model_.variables[v];
    ChoiceNode node{NameOf(variable), std::vector<double>(variable.shardings.size()), {}};
    for (const NodeStrategy& strategy : variable.strategies) {
      node.cost_s.push_back(StrategySeconds(Index(variable.node), strategy) *
                            static_cast<double>(instances));
    }
    node.memory_bytes.assign(node.cost_s.size(), 0);
    model_.problem.nodes.push_back(std::move(node));
  }

  // Per step. What is computed where it is read comes whole or in blocks, never as a sum.
  double StrategySeconds(size_t index, const NodeStrategy& strategy) const {
    const Node& node = model_.NodeAt(index);
    for (size_t o = 0; o < node.inputs.size(); ++o) {
      if (model_.constant[model_.ProducerOf(node.inputs[o])] &&
          SumsOverDevices(strategy.operands[o]))
        return kForbidden;
    }
    const double seconds = costs_.NodeSeconds(*model_.graph, node, strategy, model_.mesh);
    return (seconds + InnerSeconds(node, strategy)) * static_cast<double>(model_.Executions(index));
  }

  // Of the sums over devices within the node.
  double InnerSeconds(const Node& node, const NodeStrategy& strategy) const {
    planner::InnerSums sums = planner::InnerSumsOf(node, strategy);
    if (sums.count == 0) return 0;
    std::erase(sums.axes, kMicro);
    const auto bytes =
        static_cast<double>(model_.LocalBytes(model_.graph->type(sums.like), sums.sharding));
    mesh::LinkCost worst{0, 0};
    for (const std::string& axis : sums.axes) worst = mesh::Slower(worst, links_.at(axis));
    return sums.count *
           (worst.alpha_s +
            worst.seconds_per_byte * mesh::BytesPerDevice(mesh::CollectiveKind::kAllReduce, bytes,
                                                          model_.mesh.SizeOf(sums.axes)));
  }

  // ---- conversions ----

  size_t TableOf(const ir::TensorType& type) {
    const auto [it, fresh] = table_of_.emplace(std::pair(type.dtype, type.dims), tables_.size());
    if (fresh) {
      tables_.push_back(std::make_unique<ReshardTable>(type, model_.space, links_, costs_.Copy()));
    }
    return it->second;
  }

  void Add(const End& from, const End& to, const ir::TensorType& type, bool whole, int64_t times) {
    conversions_[{from, to, TableOf(type), whole}] += static_cast<double>(times);
  }

  End Produced(size_t node, ValueId value) const {
    const int variable = model_.VariableOf(node);
    const bool param = model_.NodeAt(node).op == ir::Op::kParam;
    return {variable, param ? Side::kOwn : Side::kProduced,
            static_cast<size_t>(model_.ResultIndex(value))};
  }

  // Sums over devices stay in their layer and stage.
  bool Crosses(size_t producer, size_t reader) const {
    const int from = model_.NodeAt(producer).layer;
    const int to = model_.NodeAt(reader).layer;
    if (from >= 0 && to >= 0 && from != to) return true;
    if (model_.NodeAt(producer).op == ir::Op::kParam) return false;
    const std::vector<int>& made = model_.stages->node_stages[producer];
    const std::vector<int>& read = model_.stages->node_stages[reader];
    return !std::includes(made.begin(), made.end(), read.begin(), read.end());
  }

  void AddReads(size_t reader) {
    const Node& node = model_.NodeAt(reader);
    const NodeStrategy& base = model_.base.nodes[reader];
    if (base.expansion == planner::Expansion::kGroupedSum)
      return;  // reduces what it gets, in any form
    for (size_t o = 0; o < node.inputs.size(); ++o) {
      const ValueId value = node.inputs[o];
      const size_t producer = model_.ProducerOf(value);
      if (model_.VariableOf(producer) == kNoVariable) continue;
      const ir::TensorType type = model_.TypeWithin(value, base.operands[o]);
      const End to{model_.VariableOf(reader), Side::kRequired, o};
      const int form = model_.FormOf(value, reader);
      const bool renews =
          model_.IsOptimizer(reader) && model_.NodeAt(producer).op == ir::Op::kParam;
      if (form == kNoVariable || renews) {
        Add(Produced(producer, value), to, type, Crosses(producer, reader),
            model_.Executions(reader));
        continue;
      }
      Add({form, Side::kOwn, 0}, to, type, Crosses(producer, reader), model_.Executions(reader));
      AddForm(value, producer, model_.AudienceOf(value, reader), form);
    }
  }

  // Once for all readers.
  void AddForm(ValueId value, size_t producer, Audience audience, int form) {
    if (!formed_.emplace(value, audience).second) return;
    const bool update = audience == Audience::kUpdate;
    const int64_t times = update                        ? model_.Executions(producer)
                          : audience == Audience::kOnce ? 1
                                                        : model_.options.microbatches;
    const End from = Produced(producer, value);
    const bool sharded = from.side == Side::kProduced && !update;
    const ir::TensorType type =
        sharded ? model_.TypeWithin(value, model_.base.nodes[producer].results[from.slot])
                : model_.graph->type(value);
    Add(from, {form, Side::kOwn, 0}, type, false, times);
  }

  // A renewed param goes back to where it is stored.
  void AddRenewal(size_t optimizer) {
    const Node& node = model_.NodeAt(optimizer);
    const size_t param = model_.ProducerOf(node.inputs[0]);
    Add({model_.VariableOf(optimizer), Side::kProduced, 0},
        {model_.VariableOf(param), Side::kOwn, 0}, model_.graph->type(node.inputs[0]), false, 1);
  }

  // ---- costs of conversions ----

  Sharding ShardingAt(const End& end, size_t choice) const {
    const Variable& variable = model_.variables[Index(end.variable)];
    if (end.side == Side::kOwn) return variable.shardings[choice];
    const NodeStrategy& strategy = variable.strategies[choice];
    return WithoutAxis(
        end.side == Side::kProduced ? strategy.results[end.slot] : strategy.operands[end.slot],
        kMicro);
  }

  static constexpr int kNoForm = -1;

  // Per choice of the end's variable; kNoForm: its sharding does not divide the tensor.
  const std::vector<int>& FormsOf(const End& end, size_t table) {
    const auto [it, fresh] = forms_.try_emplace({end, table});
    if (!fresh) return it->second;
    const int choices = static_cast<int>(model_.problem.choices_of(end.variable));
    for (int c = 0; c < choices; ++c) {
      const Sharding sharding = ShardingAt(end, static_cast<size_t>(c));
      const bool valid =
          mesh::ValidateSharding(tables_[table]->type(), sharding, model_.space).ok();
      it->second.push_back(valid ? tables_[table]->Form(sharding) : kNoForm);
    }
    return it->second;
  }

  double SecondsOf(const Conversion& conversion, int from, int to) {
    ReshardTable& table = *tables_[conversion.table];
    if (from == kNoForm || to == kNoForm) return kForbidden;
    if (conversion.whole && SumsOverDevices(table.sharding(to))) return kForbidden;
    return table.Seconds(from, to);
  }

  void AddConversion(const Conversion& conversion, double times) {
    const std::vector<int>& from = FormsOf(conversion.from, conversion.table);
    const std::vector<int>& to = FormsOf(conversion.to, conversion.table);
    const int a = conversion.from.variable;
    const int b = conversion.to.variable;
    if (a == b) {
      std::vector<double>& cost_s = model_.problem.nodes[Index(a)].cost_s;
      for (size_t c = 0; c < cost_s.size(); ++c) {
        cost_s[c] += SecondsOf(conversion, from[c], to[c]) * times;
      }
      return;
    }
    std::vector<double>& cost_s = edges_[std::minmax(a, b)];
    cost_s.resize(from.size() * to.size());
    for (size_t c = 0; c < from.size(); ++c) {
      for (size_t d = 0; d < to.size(); ++d) {
        const size_t at = a < b ? c * to.size() + d : d * from.size() + c;
        cost_s[at] += SecondsOf(conversion, from[c], to[d]) * times;
      }
    }
  }

  const IntraCosts& costs_;
  IntraModel& model_;
  AxisLinks links_;
  std::vector<std::unique_ptr<ReshardTable>> tables_;
  std::map<std::pair<ir::DType, ir::Dims>, size_t> table_of_;
  std::map<Conversion, double> conversions_;  // times per step
  std::set<std::pair<ValueId, Audience>> formed_;
  std::map<std::pair<End, size_t>, std::vector<int>> forms_;
  std::map<std::pair<int, int>, std::vector<double>> edges_;
};

}  // namespace

void AddIntraCosts(const IntraCosts& costs, IntraModel& model) { CostAdder(costs, model).Run(); }

}  // namespace meshwright::search
