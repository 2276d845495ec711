#include "report/plan_diff.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "base/table.h"
#include "base/text.h"
#include "config/config_keys.h"
#include "config/saved_plan.h"

namespace meshwright::report {
namespace {

constexpr char kAbsent[] = "-";

std::string LayersText(const planner::StageInfo& stage) {
  std::vector<std::string> ranges;
  for (const auto& [first, last] : stage.layers) {
    ranges.push_back(fmt::format("{}-{}", first, last));
  }
  std::string text =
      fmt::format("layers {} on {} devices", fmt::join(ranges, ","), stage.mesh.device_count());
  for (const ir::MeshAxis& axis : stage.mesh.axes) {
    text += fmt::format(" {}={}", axis.name, axis.size);
  }
  return text;
}

void AddRow(std::vector<DiffRow>& rows, std::string what, std::string before, std::string after) {
  if (before == after) return;
  rows.push_back({std::move(what), std::move(before), std::move(after)});
}

std::vector<DiffRow> DiffKeys(const NamedPlan& before, const NamedPlan& after) {
  const config::JobConfig a = config::WithDecisions(before.config, before.planned.plan());
  const config::JobConfig b = config::WithDecisions(after.config, after.planned.plan());
  std::vector<DiffRow> rows;
  for (const config::ConfigKey& key : config::ConfigKeys()) {
    const auto value = [&](const config::JobConfig& config) {
      const std::string text = config::FormatValue(key, config);
      return text.empty() || text == "\"\"" ? std::string(kAbsent) : text;
    };
    AddRow(rows, fmt::format("{}.{}", key.section, key.name), value(a), value(b));
  }
  return rows;
}

double Fullest(const planner::Plan& plan) {
  return static_cast<double>(planner::FullestBytes(plan.memory));
}

std::vector<PlanDiff::Figure> DiffFigures(const PlannedJob& before, const PlannedJob& after) {
  const planner::Forecast& a = before.forecast;
  const planner::Forecast& b = after.forecast;
  std::vector<PlanDiff::Figure> figures = {
      {"step_s", a.step_s, b.step_s},
      {"tokens_per_s", a.tokens_per_s, b.tokens_per_s},
      {"mfu", a.model_flops_utilization, b.model_flops_utilization},
      {"hfu", a.hardware_flops_utilization, b.hardware_flops_utilization},
      {"waiting_of_time", a.idle_of_total, b.idle_of_total},
      {"collectives_device_s", a.collective_s, b.collective_s},
      {"memory_bytes", Fullest(before.plan()), Fullest(after.plan())}};
  std::set<std::string> axes;
  for (const auto& [name, traffic] : a.by_axes) axes.insert(name);
  for (const auto& [name, traffic] : b.by_axes) axes.insert(name);
  const auto bytes = [](const planner::Forecast& forecast, const std::string& name) {
    const auto it = forecast.by_axes.find(name);
    return it == forecast.by_axes.end() ? 0 : it->second.bytes;
  };
  for (const std::string& name : axes) {
    figures.push_back({fmt::format("over_{}_bytes", name), bytes(a, name), bytes(b, name)});
  }
  for (size_t link = 0; link < mesh::kLinkClassCount; ++link) {
    if (a.bytes_by_link[link] == 0 && b.bytes_by_link[link] == 0) continue;
    figures.push_back(
        {fmt::format("{}_links_bytes", mesh::LinkClassName(static_cast<mesh::LinkClass>(link))),
         a.bytes_by_link[link], b.bytes_by_link[link]});
  }
  return figures;
}

std::vector<DiffRow> DiffStages(const planner::Plan& before, const planner::Plan& after) {
  std::vector<DiffRow> rows;
  const auto text = [](const planner::Plan& plan, size_t stage) {
    return stage < plan.stages.size() ? LayersText(plan.stages[stage]) : std::string(kAbsent);
  };
  for (size_t i = 0; i < std::max(before.stages.size(), after.stages.size()); ++i) {
    AddRow(rows, fmt::format("stage {}", i), text(before, i), text(after, i));
  }
  return rows;
}

std::vector<DiffRow> DiffParams(const planner::Plan& before, const planner::Plan& after) {
  std::map<std::string, std::string> new_shardings;
  for (const planner::ParamInfo& param : after.params) {
    new_shardings[param.name] = mesh::FormatSharding(param.type, param.sharding);
  }
  std::vector<DiffRow> rows;
  for (const planner::ParamInfo& param : before.params) {
    const auto it = new_shardings.find(param.name);
    AddRow(rows, param.name, mesh::FormatSharding(param.type, param.sharding),
           it == new_shardings.end() ? kAbsent : it->second);
    if (it != new_shardings.end()) new_shardings.erase(it);
  }
  for (const auto& [name, sharding] : new_shardings) AddRow(rows, name, kAbsent, sharding);
  return rows;
}

std::string FigureText(const std::string& name, double value) {
  const auto bytes = static_cast<int64_t>(std::min(value, 9e18));
  if (name.ends_with("_bytes")) return FormatBytes(bytes);
  if (name == "tokens_per_s") return FormatCount(bytes);
  if (name.ends_with("_s")) return FormatDuration(value);
  return fmt::format("{:.1f} %", 100 * value);
}

std::string ChangeText(const PlanDiff::Figure& figure) {
  if (figure.before == figure.after) return "";
  if (figure.before <= 0) return "new";
  return fmt::format("{:+.1f} %", 100 * (figure.after - figure.before) / figure.before);
}

std::string RowTable(const std::string& what, const std::vector<DiffRow>& rows, size_t most) {
  std::vector<std::vector<std::string>> cells;
  for (const DiffRow& row : rows) {
    if (cells.size() < most) cells.push_back({row.what, row.before, row.after});
  }
  std::string text = "\n" + FormatTable({what, "A", "B"}, cells);
  if (rows.size() > most)
    text += fmt::format("... and {} more (--json has all)\n", rows.size() - most);
  return text;
}

nlohmann::ordered_json RowObjects(const std::vector<DiffRow>& rows) {
  nlohmann::ordered_json objects = nlohmann::ordered_json::array();
  for (const DiffRow& row : rows) {
    objects.push_back({{"name", row.what}, {"a", row.before}, {"b", row.after}});
  }
  return objects;
}

}  // namespace

PlanDiff DiffPlans(const NamedPlan& before, const NamedPlan& after) {
  PlanDiff diff;
  diff.keys = DiffKeys(before, after);
  diff.figures = DiffFigures(before.planned, after.planned);
  diff.stages = DiffStages(before.planned.plan(), after.planned.plan());
  diff.params = DiffParams(before.planned.plan(), after.planned.plan());
  return diff;
}

std::string FormatPlanDiff(const NamedPlan& before, const NamedPlan& after, const PlanDiff& diff,
                           size_t most_params) {
  std::string text =
      fmt::format("A  {}: {}\nB  {}: {}\n\n", before.name, before.planned.plan().layout.ToString(),
                  after.name, after.planned.plan().layout.ToString());
  std::vector<std::vector<std::string>> rows;
  for (const PlanDiff::Figure& figure : diff.figures) {
    rows.push_back({figure.name, FigureText(figure.name, figure.before),
                    FigureText(figure.name, figure.after), ChangeText(figure)});
  }
  text += FormatTable({"FORECAST", "A", "B", "CHANGE"}, rows);
  const auto add = [&](const char* what, const std::vector<DiffRow>& differing, size_t most,
                       const char* none) {
    text += differing.empty() ? fmt::format("\n{}\n", none) : RowTable(what, differing, most);
  };
  add("KEY", diff.keys, diff.keys.size(), "(no keys differ)");
  add("STAGE", diff.stages, diff.stages.size(), "(stages are the same)");
  add("PARAM", diff.params, most_params, "(params are split alike)");
  return text;
}

std::string PlanDiffJson(const NamedPlan& before, const NamedPlan& after, const PlanDiff& diff) {
  nlohmann::ordered_json figures = nlohmann::ordered_json::object();
  for (const PlanDiff::Figure& figure : diff.figures) {
    figures[figure.name] = {{"a", figure.before}, {"b", figure.after}};
  }
  const auto plan = [](const NamedPlan& named) {
    return nlohmann::ordered_json{{"file", named.name},
                                  {"layout", named.planned.plan().layout.ToString()}};
  };
  const nlohmann::ordered_json object = {{"a", plan(before)},
                                         {"b", plan(after)},
                                         {"keys", RowObjects(diff.keys)},
                                         {"forecast", figures},
                                         {"stages", RowObjects(diff.stages)},
                                         {"params", RowObjects(diff.params)}};
  return object.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

}  // namespace meshwright::report
