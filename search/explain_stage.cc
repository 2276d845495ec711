#include "search/explain_stage.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "planner/layout.h"
#include "planner/simulate.h"
#include "search/find_shardings.h"
#include "search/sharding_pins.h"

namespace meshwright::search {
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
    planner::ShardingChooser chooser = MakePinnedRules(input_.job);
    if (input_.by_search) {
      chooser = MakeShardingChooser(input_.job, input_.topology, {}, clock_);
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

}  // namespace meshwright::search
