#include "search/nearest_plans.h"

#include <algorithm>
#include <vector>

#include "planner/cost_model.h"

namespace meshwright::search {
namespace {

// How much slower than the fastest a plan may be that is chosen.
constexpr double kNearSlowdown = 1.02;

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
      calls += collectives[instruction.executable.index()];
    } else if (instruction.op == ir::Opcode::kSend || instruction.op == ir::Opcode::kRecv) {
      ++calls;
    }
  }
  return calls;
}

}  // namespace

int64_t CallsOf(const planner::Plan& plan) {
  int64_t most = 0;
  for (const ir::Program& program : plan.Main()) most = std::max(most, CallsOf(program));
  return most;
}

size_t FastestOf(std::span<const ForecastPlan> plans) {
  const auto fastest = std::min_element(
      plans.begin(), plans.end(),
      [](const ForecastPlan& a, const ForecastPlan& b) { return a.step_s < b.step_s; });
  return static_cast<size_t>(fastest - plans.begin());
}

double SlowdownOf(const ForecastPlan& plan, std::span<const ForecastPlan> plans) {
  return plan.step_s / plans[FastestOf(plans)].step_s;
}

bool MayReplace(const ForecastPlan& plan, const ForecastPlan& other,
                std::span<const ForecastPlan> plans) {
  return SlowdownOf(plan, plans) <= kNearSlowdown && plan.calls <= other.calls;
}

size_t ChooseOfNearest(std::span<const ForecastPlan> plans) {
  const size_t fastest = FastestOf(plans);
  size_t chosen = fastest;
  for (size_t i = 0; i < plans.size(); ++i) {
    const bool near = plans[i].step_s <= kNearSlowdown * plans[fastest].step_s;
    const bool fewer =
        plans[i].calls < plans[fastest].calls && 2 * plans[i].calls <= plans[fastest].calls;
    if (!near || !fewer) continue;
    if (chosen == fastest || plans[i].step_s < plans[chosen].step_s) chosen = i;
  }
  return chosen;
}

}  // namespace meshwright::search
