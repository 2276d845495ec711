#include "search/nearest_plans.h"

#include <algorithm>
#include <vector>

#include "planner/cost_model.h"

namespace meshwright::search {
namespace {

constexpr double kNear = 1.02;
// What is worth a look at its variants, which may be a little faster.
constexpr double kNearlyNear = 1.05;

int64_t CollectivesOf(const ir::Graph& graph) {
  return std::count_if(graph.nodes.begin(), graph.nodes.end(),
                       [](const ir::Node& node) { return planner::IsCollective(node.op); });
}

int64_t CallsOf(const ir::Program& program) {
  std::vector<int64_t> collectives;
  for (const ir::Executable& executable : program.executables) {
    collectives.push_back(CollectivesOf(*executable.graph));
  }
  int64_t calls = 0;
  for (const ir::Instruction& instruction : program.instructions) {
    if (instruction.op == ir::Opcode::kRun) {
      calls += collectives[static_cast<size_t>(instruction.executable.value())];
    } else if (instruction.op != ir::Opcode::kFree) {
      ++calls;
    }
  }
  return calls;
}

}  // namespace

int64_t CallsOf(const planner::Plan& plan) {
  int64_t most = 0;
  for (const ir::Program& program : plan.step) most = std::max(most, CallsOf(program));
  return most;
}

bool IsNearFastest(std::span<const ForecastPlan> plans, const ForecastPlan& plan) {
  return std::all_of(plans.begin(), plans.end(), [&](const ForecastPlan& other) {
    return plan.step_s <= kNearlyNear * other.step_s;
  });
}

size_t ChooseOfNearest(std::span<const ForecastPlan> plans) {
  size_t fastest = 0;
  for (size_t i = 1; i < plans.size(); ++i) {
    if (plans[i].step_s < plans[fastest].step_s) fastest = i;
  }
  size_t chosen = fastest;
  for (size_t i = 0; i < plans.size(); ++i) {
    const bool near = plans[i].step_s <= kNear * plans[fastest].step_s;
    const bool fewer =
        plans[i].calls < plans[fastest].calls && 2 * plans[i].calls <= plans[fastest].calls;
    if (!near || !fewer) continue;
    if (chosen == fastest || plans[i].step_s < plans[chosen].step_s) chosen = i;
  }
  return chosen;
}

}  // namespace meshwright::search
