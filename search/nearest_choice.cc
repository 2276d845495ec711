#include "search/nearest_choice.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include "planner/cost_model.h"
#include "planner/forecast.h"
#include "planner/recompute_modes.h"
#include "planner/resolve_layout.h"

namespace meshwright::search {
namespace {

using planner::Layout;
using planner::Plan;

constexpr size_t kMostPriced = 6;
constexpr double kWorthForecasting = 1.2;  // by the price
// By the forecast: of what is a little slower than may be chosen, a variant may be faster.
constexpr double kWorthVarying = 1.05;

// How much slower than the fastest a plan may be that is chosen.
constexpr double kNearSlowdown = 1.02;

int64_t CollectivesOf(const ir::Graph& graph) {
  return std::count_if(graph.nodes.begin(), graph.nodes.end(),
                       [](const ir::Node& node) { return planner::IsCollective(node.op); });
}

int64_t CallsOfProgram(const ir::Program& program) {
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

// The job with all that `layout` decides, but the layers of its parts.
ir::JobRequest Pinned(const ir::JobRequest& job, const Layout& layout) {
  ir::JobRequest pinned = job;
  planner::PinDegrees(layout, pinned.parallel);
  planner::PinRecompute(layout.recompute, pinned.parallel);
  return pinned;
}

class Chooser {
 public:
  explicit Chooser(const NearestInput& input) : input_(input), time_(input.time.ForBetter()) {}

  Result<NearestChoice> Run(const std::vector<LayoutCost>& priced, Plan first) {
    MW_TRY(Add(priced.front(), std::move(first)));
    for (size_t i = 1; i < std::min(priced.size(), kMostPriced); ++i) {
      if (priced[i].step_s > kWorthForecasting * priced.front().step_s || OutOfTime()) break;
      Result<Plan> plan = input_.make_plan(priced[i].layout);
      if (plan.has_value()) MW_TRY(Add(priced[i], *std::move(plan)));
    }
    const size_t priced_count = plans_.size();
    MW_TRY(AddVariants(JobsWithFewerMicrobatches));
    MW_TRY(AddVariants(JobsWithoutZero));
    return Choose(priced_count);
  }

 private:
  bool OutOfTime() {
    timed_out_ = timed_out_ || time_.IsOver(true);
    return timed_out_;
  }

  Status Add(LayoutCost cost, Plan plan) {
    MW_ASSIGN_OR_RETURN(const planner::Forecast forecast,
                        planner::ForecastStep(plan, input_.topology));
    cost.step_s = forecast.step_s;
    cost.is_forecast = true;
    forecasts_.push_back({cost.step_s, CallsOf(plan)});
    costs_.push_back(std::move(cost));
    plans_.push_back(std::move(plan));
    return OkStatus();
  }

  template <typename JobsOf>
  Status AddVariants(const JobsOf& jobs_of) {
    for (const size_t i : FromTheFastest()) {
      if (SlowdownOf(forecasts_[i], forecasts_) > kWorthVarying) continue;
      for (const ir::JobRequest& job : jobs_of(input_.job, costs_[i].layout)) {
        if (OutOfTime()) return OkStatus();
        MW_ASSIGN_OR_RETURN(const bool added, AddVariant(job));
        if (added && MayReplace(forecasts_.back(), forecasts_[i], forecasts_)) break;
      }
    }
    return OkStatus();
  }

  // The plans so far: where time runs out, the best have been varied.
  std::vector<size_t> FromTheFastest() const {
    std::vector<size_t> order(forecasts_.size());
    std::iota(order.begin(), order.end(), size_t{0});
    std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
      return forecasts_[a].step_s < forecasts_[b].step_s;
    });
    return order;
  }

  // Whether there is one.
  Result<bool> AddVariant(const ir::JobRequest& job) {
    FindOptions options = input_.options;
    options.progress = nullptr;  // of the search that is over
    const auto found = FindLayout(job, input_.topology, options, time_);
    if (OutOfTime() || !found.has_value()) return false;
    Result<Plan> plan = input_.make_plan(found->best.front().layout);
    if (!plan.has_value()) return false;
    MW_TRY(Add(found->best.front(), *std::move(plan)));
    return true;
  }

  NearestChoice Choose(size_t priced_count) {
    const size_t chosen = ChooseOfNearest(forecasts_);
    const size_t fastest = FastestOf(forecasts_);
    NearestChoice choice;
    choice.timed_out = timed_out_;
    choice.changed = chosen != 0;
    choice.slowdown = SlowdownOf(forecasts_[chosen], forecasts_);
    if (choice.slowdown > 1) {
      choice.note = fmt::format(
          "the forecast of the plan is {:.1f} % slower than the fastest, {}, which has {} "
          "collectives and messages in a step where the plan has {}",
          1e2 * (choice.slowdown - 1), costs_[fastest].layout.ToString(), forecasts_[fastest].calls,
          forecasts_[chosen].calls);
    }
    for (size_t i = 0; i < costs_.size(); ++i) {
      if (i == chosen || (i >= priced_count && i != fastest)) continue;
      choice.best.push_back(std::move(costs_[i]));
    }
    std::stable_sort(choice.best.begin(), choice.best.end(),
                     [](const auto& a, const auto& b) { return a.step_s < b.step_s; });
    choice.best.insert(choice.best.begin(), std::move(costs_[chosen]));
    choice.plan = std::move(plans_[chosen]);
    return choice;
  }

  const NearestInput& input_;
  const SearchTime time_;
  bool timed_out_ = false;
  // In the order in which they were made.
  std::vector<LayoutCost> costs_;
  std::vector<Plan> plans_;
  std::vector<ForecastPlan> forecasts_;
};

}  // namespace

int64_t CallsOf(const planner::Plan& plan) {
  int64_t most = 0;
  for (const ir::Program& program : plan.Main()) most = std::max(most, CallsOfProgram(program));
  return most;
}

bool SharesCores(const mesh::Topology& topology) {
  const std::vector<planner::CoreUse> uses = planner::CoreUses(topology);
  return std::any_of(uses.begin(), uses.end(), [](const auto& use) { return use.host >= 0; });
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

std::vector<ir::JobRequest> JobsWithoutZero(const ir::JobRequest& job, const Layout& layout) {
  if (layout.zero == 0 || job.parallel.zero > 0 || !layout.stage_degrees.empty()) return {};
  ir::JobRequest whole = Pinned(job, layout);
  whole.parallel.zero = 0;
  return {whole};
}

std::vector<ir::JobRequest> JobsWithFewerMicrobatches(const ir::JobRequest& job,
                                                      const Layout& layout) {
  if (layout.pipeline > 1 || job.parallel.microbatches > 0) return {};
  std::vector<ir::JobRequest> jobs;
  for (int64_t microbatches = 1; microbatches < layout.microbatches; ++microbatches) {
    if (layout.microbatches % microbatches != 0) continue;
    jobs.push_back(Pinned(job, layout));
    jobs.back().parallel.zero = job.parallel.zero;
    jobs.back().parallel.microbatches = microbatches;
  }
  return jobs;
}

Result<NearestChoice> ChooseNearest(const NearestInput& input,
                                    const std::vector<LayoutCost>& priced, Plan first) {
  return Chooser(input).Run(priced, std::move(first));
}

}  // namespace meshwright::search
