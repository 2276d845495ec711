#include "search/explain_axes.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "base/check.h"
#include "ir/parallel_pins.h"

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
    const bool rules = !LeavesOpen(in_.job) || in_.job.trained() == nullptr;
    return rules ? AxisDecision::kByRules : AxisDecision::kSearched;
  }

  // The job searched with one more pin.
  Result<planner::Forecast> ForecastOfSearch(const AxisRow& row, int64_t other) const {
    ir::JobRequest job = in_.job;
    if (row.kept) job.parallel.*row.kept = row.group(in_.plan.layout);
    MW_TRY(ir::SetPin(PinOf(row), DegreeText(row, other), job.parallel));
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
