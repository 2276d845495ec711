#include "report/sharding_reasons.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <fnmatch.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <set>
#include <utility>

#include "base/check.h"
#include "base/text.h"
#include "planner/cost_model.h"
#include "planner/job_on_axes.h"
#include "planner/layout.h"
#include "planner/padding.h"
#include "planner/step_pieces.h"
#include "planner/strategy.h"
#include "planner/zero.h"
#include "search/choice_problem.h"
#include "search/choice_solver.h"
#include "search/find_shardings.h"
#include "search/intra_model.h"

namespace meshwright::report {
namespace {

using ir::Node;
using mesh::Sharding;
using planner::kMicro;
using planner::NodeStrategy;
using planner::WithoutAxis;
using search::ChoiceAnswer;
using search::ChoiceEdge;
using search::ChoiceProblem;
using search::EvaluateChoices;
using search::IntraModel;
using search::kForbidden;
using search::kNoVariable;
using search::SolveChoices;
using search::SolveOptions;
using search::SumsOverDevices;
using search::Variable;
using search::VariableKind;
using search::WithoutMoments;

// Near enough to the best to tell alternatives apart.
constexpr double kPriceGap = 1e-3;

size_t At(int i) { return static_cast<size_t>(i); }

const char* PhaseText(ir::Phase phase) {
  switch (phase) {
    case ir::Phase::kForward:
      return "forward";
    case ir::Phase::kBackward:
      return "backward";
    case ir::Phase::kUpdate:
      return "update";
  }
  return "forward";
}

using ShardingsByName = std::map<std::string, Sharding>;

bool IsGlob(const std::string& pattern) {
  return pattern.find_first_of("*?[") != std::string::npos;
}

struct ShardingExplainer {
  const ExplainOptions& options;
  const Clock& clock;
  planner::StagedStep step = {};
  IntraModel model = {};                          // of step.graph
  std::vector<int> chosen = {};                   // per variable
  std::map<std::string, int> variable_of = {};    // by name; of values by "%17"
  std::vector<std::vector<size_t>> members = {};  // per variable: nodes, ascending

  // ---- set-up ----

  void AddNames() {
    members.resize(model.variables.size());
    for (size_t i = 0; i < step.graph.nodes.size(); ++i) {
      const Node& node = step.graph.nodes[i];
      const int variable = VariableFor(i);
      if (variable == kNoVariable) continue;
      if (!model.IsState(i)) members[At(variable)].push_back(i);
      if (node.op == ir::Op::kParam) variable_of[node.attrs.Str("name")] = variable;
      for (const ValueId value : node.outputs) {
        variable_of[fmt::format("%{}", value.value())] = variable;
      }
    }
    for (const ir::NamedValue& output : step.graph.outputs) {
      const int variable = VariableFor(model.ProducerOf(output.value));
      if (variable != kNoVariable) variable_of.emplace(output.name, variable);
    }
  }

  // The optimizer's state is stored as the node that renews it is split.
  int VariableFor(size_t node) const {
    if (!model.IsState(node)) return model.VariableOf(node);
    const ValueId state = step.graph.nodes[node].outputs[0];
    for (size_t i = 0; i < step.graph.nodes.size(); ++i) {
      const std::vector<ValueId>& inputs = step.graph.nodes[i].inputs;
      const bool reads = std::find(inputs.begin(), inputs.end(), state) != inputs.end();
      if (reads && model.IsOptimizer(i)) return model.VariableOf(i);
    }
    return kNoVariable;
  }

  // ---- names ----

  std::string NodeName(size_t index) const {
    const Node& node = step.graph.nodes[index];
    if (node.op == ir::Op::kParam) return "param " + node.attrs.Str("name");
    std::string place = PhaseText(node.phase);
    if (node.layer >= 0) place = fmt::format("layer {}, {}", node.layer, place);
    return fmt::format("{} %{} ({})", ir::OpName(node.op), node.outputs[0].value(), place);
  }

  std::string ChoiceText(const Variable& variable, size_t choice) const {
    const Node& node = step.graph.nodes[At(variable.node)];
    const auto text = [&](ValueId value, const Sharding& sharding) {
      return mesh::FormatSharding(step.graph.type(value), WithoutAxis(sharding, kMicro));
    };
    if (variable.kind == VariableKind::kParam) {
      return text(node.outputs[0], variable.shardings[choice]);
    }
    const NodeStrategy& strategy = variable.strategies[choice];
    std::vector<std::string> operands;  // equal ones, and scalars, say nothing
    for (size_t o = 0; o < strategy.operands.size(); ++o) {
      if (step.graph.type(node.inputs[o]).rank() == 0) continue;
      std::string operand = text(node.inputs[o], strategy.operands[o]);
      if (operands.empty() || operands.back() != operand) operands.push_back(std::move(operand));
    }
    std::vector<std::string> results;
    for (size_t r = 0; r < strategy.results.size(); ++r) {
      std::string result = text(node.outputs[r], strategy.results[r]);
      if (results.empty() || results.back() != result) results.push_back(std::move(result));
    }
    if (operands.empty()) return fmt::format("{}", fmt::join(results, ", "));
    return fmt::format("{} -> {}", fmt::join(operands, " x "), fmt::join(results, ", "));
  }

  // Of a device: a param, or the first result for one microbatch.
  int64_t ChoiceBytes(const Variable& variable, size_t choice) const {
    const Node& node = step.graph.nodes[At(variable.node)];
    const Sharding& sharding = variable.kind == VariableKind::kParam
                                   ? variable.shardings[choice]
                                   : variable.strategies[choice].results[0];
    return model.LocalBytes(step.graph.type(node.outputs[0]), sharding);
  }

  // ---- costs ----

  bool StartsAtSum(int variable, int choice) const {
    const Variable& from = model.variables[At(variable)];
    if (from.kind == VariableKind::kParam) return false;
    if (from.kind == VariableKind::kForm) return SumsOverDevices(from.shardings[At(choice)]);
    const std::vector<Sharding>& results = from.strategies[At(choice)].results;
    return std::any_of(results.begin(), results.end(), SumsOverDevices);
  }

  ShardingCosts CostsOf(const std::vector<int>& choices) const {
    MW_CHECK(choices.size() == model.problem.nodes.size())
        << choices.size() << " choices for " << model.problem.nodes.size() << " variables";
    ShardingCosts costs;
    for (size_t i = 0; i < choices.size(); ++i) {
      costs.compute_s += model.problem.nodes[i].cost_s[At(choices[i])];
    }
    for (const ChoiceEdge& edge : model.problem.edges) {
      const int from = choices[At(edge.from)];
      const auto columns = static_cast<size_t>(model.problem.choices_of(edge.to));
      const double cost_s = edge.cost_s[At(from) * columns + At(choices[At(edge.to)])];
      (StartsAtSum(edge.from, from) ? costs.reduce_s : costs.reshard_s) += cost_s;
    }
    return costs;
  }

  // Of a variable with the others as they are: what it computes and the conversions around it.
  std::vector<double> OwnSeconds(int variable) const {
    MW_CHECK(variable >= 0 && At(variable) < chosen.size()) << "variable " << variable;
    std::vector<double> seconds = model.problem.nodes[At(variable)].cost_s;
    for (const ChoiceEdge& edge : model.problem.edges) {
      if (edge.from != variable && edge.to != variable) continue;
      const auto columns = static_cast<size_t>(model.problem.choices_of(edge.to));
      for (size_t c = 0; c < seconds.size(); ++c) {
        const size_t row = edge.from == variable ? c : At(chosen[At(edge.from)]);
        const size_t column = edge.to == variable ? c : At(chosen[At(edge.to)]);
        seconds[c] += edge.cost_s[row * columns + column];
      }
    }
    return seconds;
  }

  // The best choices with some of them fixed.
  Result<std::vector<int>> Solve(const std::map<int, int>& fixed, bool within_memory) const {
    ChoiceProblem problem = within_memory ? model.problem : WithoutMoments(model.problem);
    for (const auto& [variable, choice] : fixed) {
      std::vector<double>& cost_s = problem.nodes[At(variable)].cost_s;
      for (size_t c = 0; c < cost_s.size(); ++c) {
        if (static_cast<int>(c) != choice) cost_s[c] = kForbidden;
      }
    }
    SolveOptions solve;
    solve.timeout_ms = options.timeout_ms;
    solve.gap = kPriceGap;
    MW_ASSIGN_OR_RETURN(ChoiceAnswer answer, SolveChoices(problem, solve, clock));
    return std::move(answer.choices);
  }

  // ---- the plan's own choices ----

  // The choices of variables of one kind that `same` finds among those that they have.
  template <typename Same>
  std::map<int, int> Chosen(VariableKind kind, const Same& same) const {
    std::map<int, int> fixed;
    for (size_t v = 0; v < model.variables.size(); ++v) {
      const Variable& variable = model.variables[v];
      for (int c = 0; variable.kind == kind && c < model.problem.choices_of(static_cast<int>(v));
           ++c) {
        if (!fixed.contains(static_cast<int>(v)) && same(variable, At(c))) {
          fixed[static_cast<int>(v)] = c;
        }
      }
    }
    return fixed;
  }

  std::map<int, int> ParamChoices(const ShardingsByName& params) const {
    return Chosen(VariableKind::kParam, [&](const Variable& variable, size_t choice) {
      const auto it = params.find(step.graph.nodes[At(variable.node)].attrs.Str("name"));
      return it != params.end() && variable.shardings[choice] == it->second;
    });
  }

  std::map<int, int> NodeChoices(const planner::Strategies& rules) const {
    return Chosen(VariableKind::kNode, [&](const Variable& variable, size_t choice) {
      const NodeStrategy& own = rules.nodes[At(variable.node)];
      const NodeStrategy& strategy = variable.strategies[choice];
      return strategy.operands == own.operands && strategy.results == own.results;
    });
  }

  // What conversions lie between is the search's in any case; where the rules do what the search
  // has no price for, it fills in.
  Status FindChosen(const planner::Plan& plan, const ir::ParallelSpec& parallel) {
    const bool pinned = !parallel.sharding_pins.empty();
    ShardingsByName stored;
    for (const planner::ParamInfo& param : plan.params) stored[param.name] = param.sharding;
    const std::map<int, int> params = ParamChoices(stored);
    Result<std::vector<int>> answer = Fail(Internal("nothing was tried"));
    if (!options.by_search) {
      MW_ASSIGN_OR_RETURN(
          planner::Strategies rules,
          planner::ChooseStrategies(
              step.graph, step.stages, plan.layout,
              pinned ? planner::WholeOverData(plan.layout, stored) : ShardingsByName(),
              plan.layout.tensor()));
      planner::ApplyZero(step.graph, plan.layout, rules, parallel.zero_min_bytes);
      std::map<int, int> fixed = NodeChoices(rules);
      fixed.insert(params.begin(), params.end());
      answer = Solve(fixed, false);
    }
    if (!answer.has_value()) answer = Solve(params, options.by_search);
    if (!answer.has_value()) answer = Solve(params, false);
    MW_ASSIGN_OR_RETURN(chosen, std::move(answer));
    return OkStatus();
  }

  // ---- tables ----

  ShardingAlternative Price(int variable, int choice, const std::vector<double>& own_s) const {
    ShardingAlternative row;
    row.alone_s = own_s[At(choice)] - own_s[At(chosen[At(variable)])];
    const Variable& subject = model.variables[At(variable)];
    row.text = ChoiceText(subject, At(choice));
    row.bytes = ChoiceBytes(subject, At(choice));
    row.chosen = chosen[At(variable)] == choice;
    const auto answer = Solve({{variable, choice}}, false);
    if (!answer.has_value()) return row;
    row.possible = true;
    row.costs = CostsOf(*answer);
    row.over_bytes = std::max<int64_t>(0, -EvaluateChoices(model.problem, *answer).left_bytes);
    return row;
  }

  ShardingExplanation ExplainVariable(int variable) const {
    ShardingExplanation table;
    table.name = NodeName(At(model.variables[At(variable)].node));
    for (const size_t node : members[At(variable)]) table.alike.push_back(NodeName(node));
    const std::vector<double> own_s = OwnSeconds(variable);
    std::vector<int> order(own_s.size());
    for (size_t c = 0; c < order.size(); ++c) order[c] = static_cast<int>(c);
    std::stable_sort(order.begin(), order.end(), [&](int a, int b) {
      const bool first = a == chosen[At(variable)];
      const bool second = b == chosen[At(variable)];
      return first != second ? first : own_s[At(a)] < own_s[At(b)];
    });
    if (order.size() > options.most_priced) {
      table.unpriced = order.size() - options.most_priced;
      order.resize(options.most_priced);
    }
    for (const int choice : order) table.alternatives.push_back(Price(variable, choice, own_s));
    std::stable_sort(table.alternatives.begin(), table.alternatives.end(),
                     [](const ShardingAlternative& a, const ShardingAlternative& b) {
                       if (a.possible != b.possible) return a.possible;
                       return a.costs.total_s() < b.costs.total_s();
                     });
    return table;
  }

  // The node that computes with a param in the forward, behind its cast.
  int ReaderOf(int variable) const {
    const Variable& param = model.variables[At(variable)];
    if (param.kind != VariableKind::kParam) return kNoVariable;
    ValueId value = step.graph.nodes[At(param.node)].outputs[0];
    for (size_t i = 0; i < step.graph.nodes.size(); ++i) {
      const Node& node = step.graph.nodes[i];
      const bool reads =
          std::find(node.inputs.begin(), node.inputs.end(), value) != node.inputs.end();
      if (!reads || node.phase != ir::Phase::kForward) continue;
      if (!planner::IsWeightCast(step.graph, node)) return model.VariableOf(i);
      value = node.outputs[0];
    }
    return kNoVariable;
  }

  // In the order of names, each once, with the readers of params behind them.
  Result<std::vector<int>> Matches(const std::string& pattern) const {
    std::vector<int> matches;
    const auto add = [&](int variable) {
      const bool known = std::find(matches.begin(), matches.end(), variable) != matches.end();
      if (variable != kNoVariable && !known) matches.push_back(variable);
    };
    std::vector<std::string> names;
    const bool of_outputs = pattern.find('/') != std::string::npos;
    for (const auto& [name, variable] : variable_of) {
      const bool value = name.starts_with('%');
      const bool meant = !value && (of_outputs || name.find('/') == std::string::npos);
      const bool own = IsGlob(pattern) ? meant && ::fnmatch(pattern.c_str(), name.c_str(), 0) == 0
                                       : name == pattern;
      if (!value) names.push_back(name);
      if (!own) continue;
      add(variable);
      add(ReaderOf(variable));
    }
    if (!matches.empty()) return matches;
    return Fail(
        NotFound(fmt::format("no param, output or value of the step is called '{}'{}; write a name "
                             "of `meshwright plan`, "
                             "grad/NAME, %17 for a value, or a glob such as '*.weight'",
                             pattern, DidYouMean(pattern, names))));
  }
};

}  // namespace

Result<ShardingExplanations> ExplainShardings(const ExplainShardingsInput& input,
                                              const std::string& pattern, const Clock& clock) {
  const planner::Layout& layout = input.plan.layout;
  if (!layout.stage_degrees.empty()) {
    return Fail(InvalidArgument(fmt::format(
        "shardings are explained for stages of equal meshes, not for {}; pin equal degrees to "
        "compare",
        planner::FormatStageDegrees(layout.stage_degrees))));
  }
  if (layout.zero_groups != planner::ZeroGroups{}) {
    return Fail(InvalidArgument(
        "shardings are explained where all replicas split the same; leave "
        "parallelism.data_parallel_shard_degree, zero_gradients_degree and zero_weights_degree out "
        "to compare"));
  }
  if (layout.expert_hosts > 1 || layout.expert_chunks > 1) {
    return Fail(InvalidArgument(
        "shardings are explained where tokens reach experts in one step, at once; set "
        "parallelism.expert_parallel_dispatch = \"flat\" and expert_parallel_chunks = 1 to "
        "compare"));
  }
  ShardingExplainer explainer{input.options, clock};
  const mesh::Topology seen = planner::TopologyOf(layout, input.topology);
  const planner::CostModel of_ways(seen);
  std::vector<int> devices(static_cast<size_t>(layout.device_count()));
  std::iota(devices.begin(), devices.end(), 0);
  MW_ASSIGN_OR_RETURN(const planner::JobOnAxes placed,
                      planner::PlaceOnAxes(input.job, layout, {of_ways, devices, true}));
  MW_ASSIGN_OR_RETURN(const std::optional<planner::PaddedJob> padded,
                      planner::PadJob(placed.job, layout));
  const ir::JobRequest& job = padded ? padded->job : placed.job;
  MW_ASSIGN_OR_RETURN(ir::Graph graph, planner::MakeStepGraph(job));
  MW_ASSIGN_OR_RETURN(explainer.step, planner::StageStep(job, std::move(graph), layout));
  const auto costs = search::MakeModelCosts(planner::TopologyOf(layout, input.topology), layout);
  MW_ASSIGN_OR_RETURN(
      explainer.model,
      search::MakeIntraModel(explainer.step.graph, explainer.step.stages,
                             search::IntraOptionsOf(input.topology, layout, 1), *costs));
  explainer.AddNames();
  MW_ASSIGN_OR_RETURN(const std::vector<int> matches, explainer.Matches(pattern));
  MW_TRY(explainer.FindChosen(input.plan, input.job.parallel));
  ShardingExplanations answer;
  answer.planned = explainer.CostsOf(explainer.chosen);
  for (const int variable : matches) {
    if (answer.tables.size() == input.options.most_tables) {
      ++answer.left_out;
    } else {
      answer.tables.push_back(explainer.ExplainVariable(variable));
    }
  }
  return answer;
}

}  // namespace meshwright::report
