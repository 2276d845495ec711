#include "search/explain_axes.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>
#include <utility>

#include "ir/parallel_pins.h"
#include "search/sharding_pins.h"

namespace meshwright::search {
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
  parts.collective_s = forecast.collective_s;
  parts.computing_s = forecast.step_s - parts.waiting_s - parts.collective_s;
  return parts;
}

// An axis, with what pins it.
struct AxisRow {
  const char* axis;
  const char* pin;  // its name in ir::Pins()
  int64_t (*degree)(const Layout&);
};

constexpr std::array<AxisRow, 7> kRows = {{
    {"pipeline", "pipeline", [](const Layout& layout) { return layout.pipeline; }},
    {"data", "data", [](const Layout& layout) { return layout.data(); }},
    {"context", "context", [](const Layout& layout) { return layout.context(); }},
    {"tensor", "tensor", [](const Layout& layout) { return layout.tensor(); }},
    {"expert", "expert", [](const Layout& layout) { return layout.expert(); }},
    {"sequence", "sequence_parallel",
     [](const Layout& layout) { return int64_t{layout.sequence_parallel}; }},
    {"zero", "zero", [](const Layout& layout) { return layout.zero; }},
}};

const ir::Pin* PinOf(const char* name) {
  for (const ir::Pin& pin : ir::Pins()) {
    if (std::string_view(pin.name) == name) return &pin;
  }
  return nullptr;
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
  static bool IsSwitch(const AxisRow& row) { return std::string_view(row.axis) == "sequence"; }
  static std::string DegreeText(const AxisRow& row, int64_t degree) {
    if (IsSwitch(row)) return degree != 0 ? "on" : "off";
    return std::to_string(degree);
  }

  AxisReason ReasonOf(const AxisRow& row) const {
    AxisReason reason;
    reason.axis = row.axis;
    const int64_t degree = row.degree(in_.plan.layout);
    reason.degree = DegreeText(row, degree);
    const ir::Pin* pin = PinOf(row.pin);
    reason.key = pin == nullptr ? "" : pin->key;
    reason.decision = DecisionOf(row, pin);
    if (reason.decision == AxisDecision::kPinned) return reason;
    reason.refused = NothingToTry(row);
    if (!reason.refused.empty()) return reason;
    if (reason.decision == AxisDecision::kByRules) return reason;
    const int64_t other = OtherDegree(row, degree);
    reason.other = DegreeText(row, other);
    Take(ForecastOfSearch(row, other), row.pin, reason);
    return reason;
  }

  AxisDecision DecisionOf(const AxisRow& row, const ir::Pin* pin) const {
    const ir::ParallelSpec& asked = in_.job.parallel;
    const std::string text = pin == nullptr ? "" : ir::PinText(*pin, asked);
    const bool open = pin != nullptr && pin->open != nullptr && text == pin->open;
    const bool by_stage = !asked.stage_meshes.empty() && (std::string_view(row.axis) == "data" ||
                                                          std::string_view(row.axis) == "tensor" ||
                                                          std::string_view(row.axis) == "pipeline");
    if (by_stage) return AxisDecision::kPinned;
    if (!open) return AxisDecision::kPinned;
    const bool rules = !LeavesOpen(in_.job) || in_.job.trained() == nullptr;
    return rules ? AxisDecision::kByRules : AxisDecision::kSearched;
  }

  // What has no other degree on these devices, with this model, or in this layout.
  std::string NothingToTry(const AxisRow& row) const {
    const Layout& layout = in_.plan.layout;
    const std::string_view axis = row.axis;
    if (axis == "sequence" && layout.tensor() == 1) {
      return "tensor is 1: there is no group whose devices could share the rows between products";
    }
    if (axis == "zero" && layout.data() == 1) {
      return "data is 1: there are no replicas that could share their state";
    }
    if (in_.topology.devices.size() == 1 && axis != "sequence" && axis != "zero") {
      return "there is one device";
    }
    return "";
  }

  static int64_t OtherDegree(const AxisRow& row, int64_t degree) {
    const std::string_view axis = row.axis;
    if (axis == "sequence" || axis == "zero") return degree == 0 ? 1 : 0;
    return degree == 1 ? 2 : 1;
  }

  // The job searched with one more pin.
  Result<planner::Forecast> ForecastOfSearch(const AxisRow& row, int64_t other) const {
    ir::JobRequest job = in_.job;
    const std::string_view axis = row.axis;
    const ir::Pin* pin = PinOf(row.pin);
    if (pin == nullptr) return Fail(Internal("an axis without a pin"));
    // On and off, or how much is shared, says nothing of another group.
    if (axis == "sequence") job.parallel.tensor = in_.plan.layout.tensor();
    if (axis == "zero") job.parallel.data = in_.plan.layout.data();
    MW_TRY(ir::SetPin(*pin, DegreeText(row, other), job.parallel));
    FindOptions options;
    options.timeout_ms = in_.timeout_ms;
    options.patience_ms = in_.timeout_ms;
    MW_ASSIGN_OR_RETURN(const FoundPlan found, FindPlan(job, in_.topology, options, clock_,
                                                        planner::PlanScope::kFewPrograms));
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

}  // namespace meshwright::search
