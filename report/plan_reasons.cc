#include "report/plan_reasons.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>
#include <utility>

#include "base/check.h"
#include "ir/parallel_pins.h"
#include "planner/layout.h"
#include "planner/simulate.h"
#include "search/find_shardings.h"
#include "search/sharding_pins.h"

namespace meshwright::report {
namespace {

using planner::Layout;

// Of a step, the mean over its devices.
struct StepParts {
  double waiting_s = 0;
  double collective_s = 0;
  double computing_s = 0;
};

StepParts PartsOf(const planner::Forecast& forecast) {
  StepParts parts;
  parts.waiting_s = forecast.step_s * forecast.idle_of_total;
  parts.collective_s = forecast.collective_s - forecast.hidden_s;  // what is waited for
  parts.computing_s = forecast.step_s - parts.waiting_s - parts.collective_s;
  return parts;
}

// An axis, with what pins it. How a group shares something is asked of its own degree, which stays.
struct AxisRow {
  const char* axis;
  const char* pin;  // its name in ir::Pins()
  int64_t (*degree)(const Layout&);
  bool of_meshes = false;  // that stages may name
  int64_t (*group)(const Layout&) = nullptr;
  int64_t ir::ParallelSpec::*kept = nullptr;
  const char* alone = "there is one device";  // where there is nothing to try
};

constexpr std::array<AxisRow, 7> kRows = {{
    {"pipeline", "pipeline", [](const Layout& layout) { return layout.pipeline; }, true},
    {"data", "data", [](const Layout& layout) { return layout.data(); }, true},
    {"context", "context", [](const Layout& layout) { return layout.context(); }},
    {"tensor", "tensor", [](const Layout& layout) { return layout.tensor(); }, true},
    {"expert", "expert", [](const Layout& layout) { return layout.expert(); }},
    {"sequence", "sequence_parallel",
     [](const Layout& layout) { return int64_t{layout.sequence_parallel}; }, false,
     [](const Layout& layout) { return layout.tensor(); }, &ir::ParallelSpec::tensor,
     "tensor is 1: there is no group whose devices could share the rows between products"},
    {"zero", "zero", [](const Layout& layout) { return layout.zero; }, false,
     [](const Layout& layout) { return layout.data(); }, &ir::ParallelSpec::data,
     "data is 1: there are no replicas that could share their state"},
}};

const ir::Pin& PinOf(const AxisRow& row) {
  const auto pins = ir::Pins();
  const auto pin = std::find_if(pins.begin(), pins.end(), [&](const ir::Pin& other) {
    return std::string_view(other.name) == row.pin;
  });
  MW_CHECK(pin != pins.end()) << "nothing pins " << row.axis;
  return *pin;
}

std::string DegreeText(const AxisRow& row, int64_t degree) {
  if (row.kept == &ir::ParallelSpec::tensor) return degree != 0 ? "on" : "off";
  return std::to_string(degree);
}

class AxisExplainer {
 public:
  AxisExplainer(const ExplainAxesInput& input, const Clock& clock) : in_(input), clock_(clock) {}

  std::vector<AxisReason> Run() {
    std::vector<AxisReason> reasons;
    for (const AxisRow& row : kRows) reasons.push_back(ReasonOf(row));
    return reasons;
  }

 private:
  AxisReason ReasonOf(const AxisRow& row) const {
    const Layout& layout = in_.plan.layout;
    const int64_t degree = row.degree(layout);
    AxisReason reason;
    reason.axis = row.axis;
    reason.degree = DegreeText(row, degree);
    reason.key = PinOf(row).key;
    reason.decision = DecisionOf(row);
    if (reason.decision == AxisDecision::kPinned) return reason;
    // What has no other degree on these devices, with this model, or in this layout.
    const bool alone = row.group ? row.group(layout) == 1 : in_.topology.devices.size() == 1;
    if (alone) reason.refused = row.alone;
    if (alone || reason.decision == AxisDecision::kByRules) return reason;
    const int64_t none = row.group ? 0 : 1;
    const int64_t other = degree == none ? none + 1 : none;
    reason.other = DegreeText(row, other);
    Take(ForecastOfSearch(row, other), row.pin, reason);
    return reason;
  }

  AxisDecision DecisionOf(const AxisRow& row) const {
    const ir::ParallelSpec& asked = in_.job.parallel;
    const ir::Pin& pin = PinOf(row);
    const bool open = pin.open != nullptr && ir::PinText(pin, asked) == pin.open;
    if (!open || (row.of_meshes && !asked.stage_meshes.empty())) return AxisDecision::kPinned;
    const bool rules = !search::LeavesOpen(in_.job) || in_.job.trained() == nullptr;
    return rules ? AxisDecision::kByRules : AxisDecision::kSearched;
  }

  // The job searched with one more pin.
  Result<planner::Forecast> ForecastOfSearch(const AxisRow& row, int64_t other) const {
    ir::JobRequest job = in_.job;
    if (row.kept) job.parallel.*row.kept = row.group(in_.plan.layout);
    MW_TRY(ir::SetPin(PinOf(row), DegreeText(row, other), job.parallel));
    search::FindOptions options;
    options.timeout_ms = in_.timeout_ms;
    options.patience_ms = in_.timeout_ms;
    MW_ASSIGN_OR_RETURN(
        const search::FoundPlan found,
        search::FindPlan(job, in_.topology, options, clock_, planner::PlanScope::kFewPrograms));
    return planner::ForecastStep(found.plan, in_.topology);
  }

  // `pin`: of the axis, by which errors call it.
  void Take(const Result<planner::Forecast>& other, const char* pin, AxisReason& reason) const {
    if (!other.has_value()) {
      const Status& error = other.error();
      const bool is_own = error.field() == fmt::format("parallel.{}", pin);
      reason.refused = (is_own ? error.WithFieldCalled(reason.key) : error).message();
      return;
    }
    reason.other_s = other->step_s;
    reason.more_s = other->step_s - in_.forecast.step_s;
    const StepParts before = PartsOf(in_.forecast);
    const StepParts after = PartsOf(*other);
    const double sign = reason.more_s < 0 ? -1 : 1;
    const std::pair<const char*, double> parts[] = {
        {"computing", after.computing_s - before.computing_s},
        {"collectives", after.collective_s - before.collective_s},
        {"waiting", after.waiting_s - before.waiting_s}};
    const auto* most = std::max_element(
        std::begin(parts), std::end(parts),
        [sign](const auto& a, const auto& b) { return sign * a.second < sign * b.second; });
    reason.where = most->first;
    reason.where_s = most->second;
  }

  const ExplainAxesInput& in_;
  const Clock& clock_;
};

}  // namespace

const char* AxisDecisionName(AxisDecision decision) {
  switch (decision) {
    case AxisDecision::kPinned:
      return "pinned";
    case AxisDecision::kSearched:
      return "searched";
    case AxisDecision::kByRules:
      return "by rules";
  }
  return "?";
}

std::vector<AxisReason> ExplainAxes(const ExplainAxesInput& input, const Clock& clock) {
  return AxisExplainer(input, clock).Run();
}

namespace {

using planner::Plan;

// First and last layer of every part, in the order of the model.
std::vector<std::pair<int, int>> PartsOf(const Plan& plan) {
  const planner::PipelineShape shape = plan.layout.shape();
  std::vector<std::pair<int, int>> parts(static_cast<size_t>(shape.parts()));
  for (int stage = 0; stage < static_cast<int>(plan.stages.size()); ++stage) {
    const auto& layers = plan.stages[static_cast<size_t>(stage)].layers;
    for (size_t chunk = 0; chunk < layers.size(); ++chunk) {
      parts[static_cast<size_t>(shape.PartOf(stage, static_cast<int>(chunk)))] = layers[chunk];
    }
  }
  return parts;
}

class StageExplainer {
 public:
  StageExplainer(const ExplainStageInput& input, int stage, const Clock& clock)
      : input_(input), clock_(clock), stage_(stage) {}

  Result<StageExplanation> Run() {
    const Plan& plan = input_.plan;
    if (stage_ < 0 || stage_ >= static_cast<int>(plan.stages.size())) {
      return Fail(NotFound(fmt::format("there is no stage {}; the plan has stages 0 to {}", stage_,
                                       plan.stages.size() - 1)));
    }
    answer_.stage = stage_;
    answer_.info = plan.stages[static_cast<size_t>(stage_)];
    AddPrograms();
    MW_TRY(AddMoves());
    return std::move(answer_);
  }

 private:
  void AddPrograms() {
    const Plan& plan = input_.plan;
    const mesh::Topology seen = planner::TopologyOf(plan.layout, input_.topology);
    std::optional<size_t> first;
    for (size_t i = 0; i < plan.Main().size(); ++i) {
      if (plan.Main()[i].stage.value() != stage_) continue;
      if (!first) first = i;
      if (plan.memory[i].total_bytes <= answer_.memory.total_bytes) continue;
      answer_.memory = plan.memory[i];
      const auto device = plan.Main()[i].device.index();
      answer_.budget_bytes = seen.devices[device].memory_bytes;
    }
    if (!first) return;
    const planner::Simulation& simulation = input_.forecast.simulation;
    answer_.idle_s = simulation.idle_s[*first];
    answer_.messages_sent_bytes = simulation.sent_bytes[*first];
    const ir::Program& program = plan.Main()[*first];
    for (const planner::Span& span : simulation.spans) {
      if (span.device != program.device.value()) continue;
      const ir::Instruction& run = program.instructions[static_cast<size_t>(span.instruction)];
      const std::string piece =
          planner::ExecutablePiece(program.executables[run.executable.index()]);
      answer_.seconds[std::string(planner::PieceCategory(piece))] += span.end_s - span.begin_s;
    }
  }

  Status AddMoves() {
    const auto parts = PartsOf(input_.plan);
    const planner::PipelineShape shape = input_.plan.layout.shape();
    for (int cut = 1; cut < shape.parts(); ++cut) {
      const bool own = shape.StageOf(cut - 1) == stage_ || shape.StageOf(cut) == stage_;
      // A layer that moves within a stage changes little.
      if (!own || shape.StageOf(cut - 1) == shape.StageOf(cut)) continue;
      for (const int by : {-1, 1}) {
        if (static_cast<int>(answer_.moves.size()) >= input_.most_moves) return OkStatus();
        MW_TRY(AddMove(parts, cut, by));
      }
    }
    return OkStatus();
  }

  // The part behind `cut` begins a layer earlier (-1) or later (1).
  Status AddMove(const std::vector<std::pair<int, int>>& parts, int cut, int by) {
    const planner::PipelineShape shape = input_.plan.layout.shape();
    planner::Layout layout = input_.plan.layout;
    layout.part_layers.clear();
    for (const auto& [first, last] : parts) layout.part_layers.push_back(last - first + 1);
    const auto behind = static_cast<size_t>(cut);
    layout.part_layers[behind - 1] += by;
    layout.part_layers[behind] -= by;
    if (layout.part_layers[behind - 1] < 1 || layout.part_layers[behind] < 1) return OkStatus();
    BoundaryMove move;
    move.layer = by < 0 ? parts[behind - 1].second : parts[behind].first;
    move.from_stage = shape.StageOf(by < 0 ? cut - 1 : cut);
    move.to_stage = shape.StageOf(by < 0 ? cut : cut - 1);
    const Result<Plan> plan = MakeMoved(layout);
    if (!plan.has_value()) {
      move.refused = plan.error().message();
    } else {
      MW_ASSIGN_OR_RETURN(const planner::Forecast forecast,
                          planner::ForecastStep(*plan, input_.topology));
      move.step_s = forecast.step_s;
      move.memory_bytes = planner::FullestBytes(plan->memory);
    }
    answer_.moves.push_back(std::move(move));
    return OkStatus();
  }

  Result<Plan> MakeMoved(const planner::Layout& layout) const {
    planner::ShardingChooser chooser = search::MakePinnedRules(input_.job);
    if (input_.by_search) {
      chooser = search::MakeShardingChooser(input_.job, input_.topology, {}, clock_);
    }
    return planner::MakePlanOf(input_.job, input_.topology, layout,
                               planner::PlanScope::kOnePerStage, chooser);
  }

  const ExplainStageInput& input_;
  const Clock& clock_;
  const int stage_;
  StageExplanation answer_;
};

}  // namespace

Result<StageExplanation> ExplainStage(const ExplainStageInput& input, int stage,
                                      const Clock& clock) {
  return StageExplainer(input, stage, clock).Run();
}

Result<std::vector<int>> StagesOfLayers(const planner::Plan& plan, int first, int last) {
  std::vector<int> stages;
  int most = -1;
  for (size_t i = 0; i < plan.stages.size(); ++i) {
    const auto& parts = plan.stages[i].layers;
    for (const auto& [begin, end] : parts) most = std::max(most, end);
    const bool has = std::any_of(parts.begin(), parts.end(), [&](const auto& part) {
      return part.first <= last && first <= part.second;
    });
    if (has) stages.push_back(static_cast<int>(i));
  }
  if (!stages.empty() && first <= last && last <= most) return stages;
  return Fail(NotFound(
      fmt::format("there are no layers {}-{}; the model has layers 0 to {}", first, last, most)));
}

}  // namespace meshwright::report
