#include "report/plan_json.h"

#include <cmath>
#include <nlohmann/json.hpp>

#include "planner/layout.h"
#include "planner/zero_levels.h"
#include "report/memory_series.h"
#include "report/plan_search_report.h"

namespace meshwright::report {
namespace {

using PlanObject = nlohmann::ordered_json;

std::string TextOf(const PlanObject& object) {
  return object.dump(2, ' ', false, PlanObject::error_handler_t::replace) + "\n";
}

PlanObject FiniteOrNull(double value) {
  return std::isfinite(value) ? PlanObject(value) : PlanObject(nullptr);
}

const char* RecomputeName(planner::Recompute mode) {
  switch (mode) {
    case planner::Recompute::kNone:
      return "none";
    case planner::Recompute::kGathers:
      return "gathers";
    case planner::Recompute::kSelective:
      return "selective";
    case planner::Recompute::kFull:
      return "full";
  }
  return "none";
}

// Of each kind of state the axes that split it, and over how many replicas.
PlanObject ZeroObject(const planner::Layout& layout) {
  PlanObject levels = PlanObject::object();
  for (const planner::ZeroLevel& level : planner::ZeroLevels()) {
    levels[level.name] = {{"replicas", planner::ZeroDegree(layout, level.kind)},
                          {"axes", planner::ZeroAxes(layout, level.kind)}};
  }
  return levels;
}

PlanObject LayoutObject(const planner::Layout& layout) {
  PlanObject recompute = PlanObject::array();
  for (const planner::Recompute mode : layout.recompute) recompute.push_back(RecomputeName(mode));
  return {{"text", layout.ToString()},
          {"data", layout.data()},
          {"expert", layout.expert()},  // of data
          {"expert_hosts", layout.expert_hosts},
          {"expert_chunks", layout.expert_chunks},
          {"tensor_chunks", layout.tensor_chunks},
          {"context", layout.context()},
          {"tensor", layout.tensor()},
          {"pipeline", layout.pipeline},
          {"microbatches", layout.microbatches},
          {"schedule", layout.schedule},
          {"chunks", layout.chunks},
          {"sequence_parallel", layout.sequence_parallel},
          {"zero", layout.zero},
          {"zero_levels", ZeroObject(layout)},
          {"stage_meshes", planner::FormatStageDegrees(layout.stage_degrees)},
          {"tensor_axes", layout.tensor_axes},
          {"devices", layout.devices},  // of the cluster, by program; empty: the first ones
          {"recompute", recompute}};
}

PlanObject StageObjects(const planner::Plan& plan) {
  PlanObject stages = PlanObject::array();
  for (size_t i = 0; i < plan.stages.size(); ++i) {
    const planner::StageInfo& stage = plan.stages[i];
    PlanObject axes = PlanObject::object();
    for (const ir::MeshAxis& axis : stage.mesh.axes) axes[axis.name] = axis.size;
    stages.push_back({{"stage", i},
                      {"layers", stage.layers},  // first and last of each part
                      {"first_device", stage.mesh.devices.front().value()},
                      {"devices", stage.mesh.device_count()},
                      {"mesh", axes},
                      {"flops_per_step", FiniteOrNull(stage.flops_per_step)}});
  }
  return stages;
}

PlanObject FarKinds(const planner::FarMemory& far) {
  PlanObject kinds = PlanObject::object();
  for (const auto& [kind, bytes] : far.bytes) kinds[ir::MemoryKindName(kind)] = bytes;
  return kinds;
}

PlanObject MemoryObjects(const planner::Plan& plan, const mesh::Topology& topology) {
  const mesh::Topology seen = planner::TopologyOf(plan.layout, topology);
  PlanObject devices = PlanObject::array();
  for (size_t i = 0; i < plan.memory.size(); ++i) {
    const int device = plan.Main()[i].device.value();
    PlanObject kinds = PlanObject::object();
    for (size_t k = 0; k < kMemoryKindCount; ++k) {
      const auto kind = static_cast<ir::MemoryKind>(k);
      const auto it = plan.memory[i].bytes.find(kind);
      kinds[ir::MemoryKindName(kind)] = it == plan.memory[i].bytes.end() ? 0 : it->second;
    }
    const int64_t budget = seen.devices[static_cast<size_t>(device)].memory_bytes;
    devices.push_back({{"device", device},
                       {"devices", plan.DevicesOf(plan.Main()[i])},
                       {"stage", plan.Main()[i].stage.value()},
                       {"kinds_bytes", kinds},
                       {"host_kinds_bytes", FarKinds(plan.memory[i].host)},
                       {"host_bytes", plan.memory[i].host.total_bytes},
                       {"disk_kinds_bytes", FarKinds(plan.memory[i].disk)},
                       {"disk_bytes", plan.memory[i].disk.total_bytes},
                       {"allocated_bytes", plan.memory[i].total_bytes},
                       {"budget_bytes", budget > 0 ? PlanObject(budget) : PlanObject(nullptr)}});
  }
  return devices;
}

// The first of those that allocate most; it is one of "memory".
int FullestDevice(const planner::Plan& plan) {
  const auto fullest =
      std::max_element(plan.memory.begin(), plan.memory.end(),
                       [](const auto& a, const auto& b) { return a.total_bytes < b.total_bytes; });
  return plan.Main()[static_cast<size_t>(fullest - plan.memory.begin())].device.value();
}

PlanObject TrafficObject(const planner::Forecast& forecast) {
  PlanObject axes = PlanObject::object();
  for (const auto& [name, traffic] : forecast.by_axes) {
    axes[name] = {{"bytes", FiniteOrNull(traffic.bytes)},
                  {"device_s", FiniteOrNull(traffic.seconds)}};
  }
  PlanObject links = PlanObject::object();
  for (size_t link = 0; link < mesh::kLinkClassCount; ++link) {
    const auto name = mesh::LinkClassName(static_cast<mesh::LinkClass>(link));
    if (forecast.bytes_by_link[link] > 0) {
      links[std::string(name)] = {{"bytes", forecast.bytes_by_link[link]}};
    }
  }
  return {{"by_axes", axes}, {"by_link", links}};
}

PlanObject ForecastObject(const planner::Forecast& forecast) {
  return {{"step_s", FiniteOrNull(forecast.step_s)},
          {"tokens_per_s", FiniteOrNull(forecast.tokens_per_s)},
          {"mfu", FiniteOrNull(forecast.model_flops_utilization)},
          {"hfu", FiniteOrNull(forecast.hardware_flops_utilization)},
          {"peak_flops_per_s", FiniteOrNull(forecast.peak_flops_per_s)},
          {"waiting_of_time", FiniteOrNull(forecast.idle_of_total)},
          {"waiting_of_work", FiniteOrNull(forecast.idle_of_busy)},
          {"waiting_for_copies_of_time", FiniteOrNull(forecast.copies_of_total)},
          {"collectives_device_s", FiniteOrNull(forecast.collective_s)},
          {"collectives_hidden_s", FiniteOrNull(forecast.hidden_s)},
          {"traffic", TrafficObject(forecast)}};
}

PlanObject ParamObjects(const planner::Plan& plan) {
  PlanObject params = PlanObject::array();
  for (const planner::ParamInfo& param : plan.params) {
    params.push_back({{"name", param.name},
                      {"sharding", mesh::FormatSharding(param.type, param.sharding)},
                      {"stages", param.stages}});
  }
  return params;
}

// Null where nothing was left to the search.
PlanObject SearchObject(const search::FoundPlan& plan) {
  const search::FoundLayout& found = plan.found;
  if (found.best.empty()) return nullptr;
  PlanObject deciders = PlanObject::object();
  for (size_t i = 0; i < found.deciders.times.size(); ++i) {
    if (found.deciders.times[i] > 0) deciders[search::kDeciderNames[i]] = found.deciders.times[i];
  }
  PlanObject alternatives = PlanObject::array();
  for (const search::LayoutCost& cost : found.best) {
    alternatives.push_back({{"layout", cost.layout.ToString()},
                            {"step_s", FiniteOrNull(cost.step_s)},
                            {"is_forecast", cost.is_forecast},
                            {"memory_bytes", cost.fullest_bytes()}});
  }
  return {{"alternatives", alternatives},
          {"lower_bound_s", FiniteOrNull(found.best.front().step_s * (1 - found.gap))},
          {"gap", FiniteOrNull(found.gap)},
          {"priced", found.priced},
          {"candidates", found.candidates},
          {"deciders", deciders},
          {"cached", plan.from_cache}};
}

}  // namespace

std::string PlanJson(const PlannedJob& planned, const mesh::Topology& topology,
                     const std::optional<NamedFigures>& what_if) {
  const planner::Plan& plan = planned.plan();
  PlanObject object = {{"job", planned.prepared.request.name},
                       {"model", planned.prepared.model.summary},
                       {"fits", true},
                       {"layout", LayoutObject(plan.layout)},
                       {"forecast", ForecastObject(planned.forecast)},
                       {"stages", StageObjects(plan)},
                       {"memory", MemoryObjects(plan, topology)},
                       {"fullest_device", FullestDevice(plan)},
                       {"params", ParamObjects(plan)},
                       {"search", SearchObject(planned.found)},
                       {"notes", plan.notes}};
  if (what_if) {
    object["what_if"] = {{"change", what_if->name},
                         {"layout", what_if->figures.layout},
                         {"step_s", FiniteOrNull(what_if->figures.step_s)},
                         {"mfu", FiniteOrNull(what_if->figures.model_flops_utilization)},
                         {"memory_bytes", what_if->figures.memory_bytes},
                         {"notes", what_if->notes}};
  }
  return TextOf(object);
}

std::string MadePlanJson(const planner::Plan& plan, const planner::Forecast& forecast,
                         const mesh::Topology& topology) {
  return TextOf({{"fits", true},
                 {"layout", LayoutObject(plan.layout)},
                 {"forecast", ForecastObject(forecast)},
                 {"stages", StageObjects(plan)},
                 {"memory", MemoryObjects(plan, topology)},
                 {"fullest_device", FullestDevice(plan)},
                 {"params", ParamObjects(plan)},
                 {"notes", plan.notes}});
}

std::string MisfitJson(const std::string& job, const Status& reason,
                       const FittingChanges& changes) {
  PlanObject listed = PlanObject::array();
  for (const FittingChange& change : changes.fitting) {
    listed.push_back({{"change", change.text},
                      {"step_s", FiniteOrNull(change.step_s)},
                      {"layout", change.layout}});
  }
  return TextOf({{"job", job},
                 {"fits", false},
                 {"reason", reason.message()},
                 {"changes", listed},
                 {"why_no_tier", changes.why_no_tier}});
}

}  // namespace meshwright::report
