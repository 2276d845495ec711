#include "report/plan_axes.h"

#include <fmt/format.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "base/check.h"
#include "base/table.h"
#include "base/text.h"
#include "planner/expert_ways.h"
#include "report/plan_search_report.h"

namespace meshwright::report {
namespace {

// Steps that differ by less are as long (report/plan_explain.cc).
constexpr double kSameStep = 5e-3;

std::string OtherText(const AxisReason& reason) {
  if (reason.other_s <= 0) {
    const std::string other = reason.other.empty() ? "" : reason.other + ": ";
    return other + "refused: " + reason.refused;
  }
  const double before_s = reason.other_s - reason.more_s;
  MW_CHECK(!reason.other.empty() && before_s > 0) << "axis " << reason.axis << " has no price";
  const std::string step = FormatDuration(reason.other_s);
  if (std::abs(reason.more_s) < kSameStep * before_s) {
    return fmt::format("{} would be as fast ({})", reason.other, step);
  }
  const std::string unit = reason.where == "collectives" ? "in collectives" : reason.where;
  return fmt::format("{} would take {} {} ({}): {} {} {}", reason.other,
                     FormatDuration(std::abs(reason.more_s)), reason.more_s < 0 ? "less" : "more",
                     step, FormatDuration(std::abs(reason.where_s)),
                     reason.where_s < 0 ? "less" : "more", unit);
}

}  // namespace

std::string OverlapLine(const planner::Plan& plan, const planner::Forecast& forecast) {
  if (forecast.collective_s <= 0) return "";
  const std::string all = FormatDuration(forecast.collective_s);
  if (forecast.hidden_s > 0) {
    return fmt::format("Collectives run beside what computes: {} of {} are hidden.\n",
                       FormatDuration(forecast.hidden_s), all);
  }
  switch (plan.Main()[0].overlap) {
    case ir::OverlapMode::kOn:
      return "Collectives run beside what computes, but no core is free for them: none is "
             "hidden.\n";
    case ir::OverlapMode::kOff:
      return fmt::format("Collectives ({}) run in their turn: parallelism.overlap is false.\n",
                         all);
    case ir::OverlapMode::kByDevice:
      return fmt::format(
          "Collectives ({}) run beside what computes on GPUs, else in their turn: no core is known "
          "to be free.\n",
          all);
  }
  return "";
}

std::string WhyOf(const AxisReason& reason) {
  const bool tried = !reason.other.empty();
  switch (reason.decision) {
    case AxisDecision::kPinned:
      return "not tried otherwise: pinned by the job (" + reason.key + ")";
    case AxisDecision::kSearched:
      return tried ? OtherText(reason) : reason.refused;
    case AxisDecision::kByRules:
      return reason.refused.empty()
                 ? "nothing was compared: replicas take the devices that the pinned degrees leave, "
                   "all else is one"
                 : reason.refused;
  }
  return "";
}

std::string FormatAxes(const std::vector<AxisReason>& reasons, double step_s,
                       const search::DeciderCounts& deciders) {
  MW_CHECK(!reasons.empty() && step_s > 0) << reasons.size() << " axes of a step of " << step_s;
  std::vector<std::vector<std::string>> rows;
  for (const AxisReason& reason : reasons) {
    rows.push_back({reason.axis, reason.degree, AxisDecisionName(reason.decision), WhyOf(reason)});
  }
  return FormatTable({"AXIS", "DEGREE", "DECIDED", "WHY"}, rows) +
         fmt::format(
             "The step is {}. Each other degree was planned and forecast, with all that the job "
             "leaves open\nsearched anew.\n",
             FormatDuration(step_s)) +
         DecidersLine(deciders);
}

std::string AxesJson(const std::vector<AxisReason>& reasons, double step_s,
                     const search::DeciderCounts& deciders) {
  nlohmann::ordered_json axes = nlohmann::ordered_json::array();
  for (const AxisReason& reason : reasons) {
    nlohmann::ordered_json object = {{"axis", reason.axis},
                                     {"degree", reason.degree},
                                     {"decided", AxisDecisionName(reason.decision)},
                                     {"key", reason.key},
                                     {"why", WhyOf(reason)}};
    if (!reason.other.empty()) object["other"] = reason.other;
    if (reason.other_s > 0) {
      object["other_step_s"] = reason.other_s;
      object["more_s"] = reason.more_s;
      object["mostly"] = reason.where;
      object["mostly_s"] = reason.where_s;
    }
    if (!reason.refused.empty()) object["refused"] = reason.refused;
    axes.push_back(std::move(object));
  }
  nlohmann::ordered_json decided = nlohmann::ordered_json::object();
  for (size_t i = 0; i < deciders.times.size(); ++i) {
    if (deciders.times[i] > 0) decided[search::kDeciderNames[i]] = deciders.times[i];
  }
  const nlohmann::ordered_json object = {{"step_s", step_s}, {"axes", axes}, {"deciders", decided}};
  return object.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

std::string ExplainPlanAxes(const PlannedJob& planned, const mesh::Topology& topology, bool json,
                            int64_t timeout_ms, const Clock& clock) {
  const ExplainAxesInput input{planned.prepared.request, topology, planned.plan(), planned.forecast,
                               timeout_ms};
  const std::vector<AxisReason> reasons = ExplainAxes(input, clock);
  const double step_s = planned.forecast.step_s;
  const search::DeciderCounts& deciders = planned.found.found.deciders;
  if (json) return AxesJson(reasons, step_s, deciders);
  std::string text = FormatAxes(reasons, step_s, deciders);
  for (const std::string& note : planned.plan().notes) {
    if (note.starts_with(planner::kExpertNote)) text += note + "\n";
  }
  return text + OverlapLine(planned.plan(), planned.forecast);
}

}  // namespace meshwright::report
