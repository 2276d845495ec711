#include "report/plan_explain.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "base/check.h"
#include "base/table.h"
#include "base/text.h"
#include "report/memory_reasons.h"

namespace meshwright::report {
namespace {

constexpr size_t kShownNames = 3;
// Costs that differ by less are as good; they are solved to a thousandth.
constexpr double kEqualShare = 2e-3;
// Steps that differ by less are as long.
constexpr double kEqualStep = 5e-3;
constexpr const char* kPieces[] = {"forward", "backward", "weight gradient", "update"};

std::optional<int> NumberIn(std::string_view text) {
  int number = 0;
  const auto [at, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || at != text.data() + text.size()) return std::nullopt;
  return number;
}

// "stage 2" -> 2 stages of that number; "layers 3-5" -> those that hold them; none: no such text.
Result<std::optional<std::vector<int>>> StagesNamed(const planner::Plan& plan,
                                                    std::string_view subject) {
  const size_t space = subject.find(' ');
  const std::string_view word = subject.substr(0, space);
  const bool stage = word == "stage";
  if (space == std::string_view::npos || (!stage && word != "layer" && word != "layers")) {
    return std::optional<std::vector<int>>();
  }
  const std::string_view range = Trim(subject.substr(space + 1));
  const size_t dash = range.find('-');
  const auto first = NumberIn(range.substr(0, dash));
  const auto last = dash == std::string_view::npos ? first : NumberIn(range.substr(dash + 1));
  if (!first || !last || (stage && dash != std::string_view::npos)) {
    return Fail(InvalidArgument(fmt::format(
        "'{}' is no stage and no layers: write \"stage 2\", \"layer 5\" or \"layers 3-5\"",
        subject)));
  }
  if (stage) return std::optional(std::vector<int>{*first});
  MW_ASSIGN_OR_RETURN(std::vector<int> stages, StagesOfLayers(plan, *first, *last));
  return std::optional(std::move(stages));
}

std::string SignedPercent(double before, double after) {
  return before > 0 ? fmt::format("{:+.1f} %", 100 * (after - before) / before) : "";
}

std::string RangesText(const planner::StageInfo& info) {
  std::vector<std::string> ranges;
  for (const auto& [first, last] : info.layers) {
    ranges.push_back(first == last ? std::to_string(first) : fmt::format("{}-{}", first, last));
  }
  return fmt::format("{}", fmt::join(ranges, ", "));
}

std::string MovesText(const StageExplanation& stage, double step_s) {
  if (stage.moves.empty()) {
    return "why here   the stage has no boundary that a layer could cross\n";
  }
  std::vector<std::vector<std::string>> rows;
  bool best = true;
  for (const BoundaryMove& move : stage.moves) {
    const std::string what = fmt::format("layer {} from stage {} to stage {}", move.layer,
                                         move.from_stage, move.to_stage);
    if (!move.refused.empty()) {
      rows.push_back({what, "-", "", "-", "does not fit: " + move.refused});
      continue;
    }
    best = best && move.step_s >= step_s * (1 - kEqualStep);
    rows.push_back({what, FormatDuration(move.step_s), SignedPercent(step_s, move.step_s),
                    FormatBytes(move.memory_bytes), ""});
  }
  std::string verdict = fmt::format(
      "no layer that crosses a boundary of this stage makes the step more than {:.1f} % shorter\n",
      100 * kEqualStep);
  if (!best) {
    verdict =
        "a layer could cross and make the step shorter by this forecast: boundaries are chosen by "
        "estimates of layers; pin parallelism.pipeline_parallel_layers to have it\n";
  }
  return FormatTable({"IF INSTEAD", "STEP", "CHANGE", "MEMORY", ""}, rows) + verdict;
}

// What an alternative pays more for than the plan; "" where it is the plan's or as good.
std::string ReasonOf(const ShardingAlternative& row, const ShardingAlternative& chosen) {
  if (row.chosen) return "the plan's";
  if (!row.possible) return "no step has it together with the rest";
  if (row.over_bytes > chosen.over_bytes) {
    return fmt::format("{} over the memory of a device", FormatBytes(row.over_bytes));
  }
  const double more_s = row.costs.total_s() - chosen.costs.total_s();
  if (more_s < -kEqualShare * chosen.costs.total_s()) return "less work with all else chosen anew";
  if (more_s <= kEqualShare * chosen.costs.total_s()) return "nearly as good";
  const std::array<std::pair<const char*, double>, 3> parts = {
      {{"computing", row.costs.compute_s - chosen.costs.compute_s},
       {"reducing", row.costs.reduce_s - chosen.costs.reduce_s},
       {"resharding", row.costs.reshard_s - chosen.costs.reshard_s}}};
  const auto worst = std::max_element(
      parts.begin(), parts.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
  return fmt::format("{} more {}", FormatDuration(worst->second), worst->first);
}

// The row of the plan, or an empty one.
ShardingAlternative ChosenOf(const ShardingExplanation& table) {
  for (const ShardingAlternative& row : table.alternatives) {
    if (row.chosen) return row;
  }
  return {};
}

// "+1.20 ms": what it changes by itself.
std::string AloneText(const ShardingAlternative& row) {
  if (row.chosen) return "";
  if (!std::isfinite(row.alone_s)) return "not alone";
  return (row.alone_s < 0 ? "-" : "+") + FormatDuration(std::abs(row.alone_s));
}

std::vector<std::string> AlternativeRow(const ShardingAlternative& row,
                                        const ShardingAlternative& chosen) {
  const std::string mark = row.chosen ? "*" : "";
  const std::string why = ReasonOf(row, chosen);
  const std::string alone = AloneText(row);
  const std::string bytes = FormatBytes(row.bytes);
  if (!row.possible) return {mark, alone, "-", "", "-", "-", "-", bytes, why, row.text};
  const ShardingCosts& costs = row.costs;
  return {mark,
          alone,
          FormatDuration(costs.total_s()),
          row.chosen ? "" : SignedPercent(chosen.costs.total_s(), costs.total_s()),
          FormatDuration(costs.compute_s),
          FormatDuration(costs.reduce_s),
          FormatDuration(costs.reshard_s),
          bytes,
          why,
          row.text};
}

std::string TableText(const ShardingExplanation& table) {
  std::string text = table.name;
  if (table.alike.size() > 1) {
    const std::vector<std::string> shown(
        table.alike.begin() + 1, table.alike.begin() + static_cast<std::ptrdiff_t>(std::min(
                                                           table.alike.size(), kShownNames)));
    text += fmt::format(", and {} more that are split alike: {}{}", table.alike.size() - 1,
                        Join(shown, ", "), table.alike.size() > kShownNames ? ", ..." : "");
  }
  const ShardingAlternative chosen = ChosenOf(table);
  std::vector<std::vector<std::string>> rows;
  for (const ShardingAlternative& row : table.alternatives) {
    rows.push_back(AlternativeRow(row, chosen));
  }
  text += "\n" + FormatTable({"", "ALONE", "WORK", "CHANGE", "COMPUTE", "REDUCE", "RESHARD",
                              "BYTES", "WHY", "SHARDING"},
                             rows);
  if (table.unpriced > 0) {
    text += fmt::format("{} more ways, which cost more by themselves, were not priced\n",
                        table.unpriced);
  }
  return text;
}

nlohmann::ordered_json AlternativeObject(const ShardingAlternative& row,
                                         const ShardingAlternative& chosen) {
  nlohmann::ordered_json object = {{"sharding", row.text},
                                   {"chosen", row.chosen},
                                   {"possible", row.possible},
                                   {"why", ReasonOf(row, chosen)},
                                   {"device_bytes", row.bytes}};
  if (!row.possible) return object;
  if (std::isfinite(row.alone_s)) object["alone_s"] = row.alone_s;
  object["work_s"] = row.costs.total_s();
  object["compute_s"] = row.costs.compute_s;
  object["reduce_s"] = row.costs.reduce_s;
  object["reshard_s"] = row.costs.reshard_s;
  object["over_memory_bytes"] = row.over_bytes;
  return object;
}

nlohmann::ordered_json StageObject(const StageExplanation& stage) {
  MW_CHECK(!stage.info.mesh.devices.empty()) << "stage " << stage.stage << " has no device";
  nlohmann::ordered_json kinds = nlohmann::ordered_json::object();
  for (const auto& [kind, bytes] : stage.memory.bytes) kinds[ir::MemoryKindName(kind)] = bytes;
  nlohmann::ordered_json moves = nlohmann::ordered_json::array();
  for (const BoundaryMove& move : stage.moves) {
    nlohmann::ordered_json object = {
        {"layer", move.layer}, {"from_stage", move.from_stage}, {"to_stage", move.to_stage}};
    object["fits"] = move.refused.empty();
    if (move.refused.empty()) {
      object["step_s"] = move.step_s;
      object["memory_bytes"] = move.memory_bytes;
    } else {
      object["reason"] = move.refused;
    }
    moves.push_back(std::move(object));
  }
  return {{"stage", stage.stage},
          {"layers", stage.info.layers},
          {"first_device", stage.info.mesh.devices.front().value()},
          {"devices", stage.info.mesh.device_count()},
          {"seconds", stage.seconds},
          {"waiting_s", stage.idle_s},
          {"sent_bytes", stage.messages_sent_bytes},
          {"kinds_bytes", kinds},
          {"allocated_bytes", stage.memory.total_bytes},
          {"if_instead", moves}};
}

std::string IndentedJson(const nlohmann::ordered_json& object) {
  return object.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

}  // namespace

std::string FormatStage(const StageExplanation& stage, double step_s) {
  const mesh::Mesh& mesh = stage.info.mesh;
  MW_CHECK(!mesh.devices.empty()) << "stage " << stage.stage << " has no device";
  std::string axes;
  for (const ir::MeshAxis& axis : mesh.axes) axes += fmt::format(" {}={}", axis.name, axis.size);
  std::string text =
      fmt::format("stage {}: layers {}\ndevices    {}-{}{}\n", stage.stage, RangesText(stage.info),
                  mesh.devices.front().value(), mesh.devices.back().value(), axes);
  std::vector<std::string> parts;
  for (const char* piece : kPieces) {
    const auto it = stage.seconds.find(piece);
    if (it != stage.seconds.end()) {
      parts.push_back(fmt::format("{} {}", piece, FormatDuration(it->second)));
    }
  }
  text += fmt::format("step       {}: {}, waiting {}\n", FormatDuration(step_s), Join(parts, ", "),
                      FormatDuration(stage.idle_s));
  parts.clear();
  for (const auto& [kind, bytes] : stage.memory.bytes) {
    if (bytes > 0)
      parts.push_back(fmt::format("{} {}", ir::MemoryKindName(kind), FormatBytes(bytes)));
  }
  text += fmt::format(
      "memory     {}{}: {} (fullest device)\n", FormatBytes(stage.memory.total_bytes),
      stage.budget_bytes > 0 ? " of " + FormatBytes(stage.budget_bytes) : "", Join(parts, ", "));
  text += fmt::format("sends      {} a step and device\n", FormatBytes(stage.messages_sent_bytes));
  return text + MovesText(stage, step_s);
}

std::string FormatShardings(const ShardingExplanations& answer, bool by_search) {
  std::string text;
  for (const ShardingExplanation& table : answer.tables) {
    text += (text.empty() ? "" : "\n") + TableText(table);
  }
  if (answer.left_out > 0) {
    text += fmt::format("\n... and {} tables more: narrow the pattern\n", answer.left_out);
  }
  const ShardingCosts& planned = answer.planned;
  return text +
         fmt::format(
             "\n* the plan's, chosen by {}. Prices are the search's: seconds of a value's way "
             "through all layers and stages in a step.\nALONE: more than now when nothing else "
             "changes. WORK: the best step with it, all else chosen anew.\nAs planned: {}, of it "
             "{} computing, {} reducing, {} resharding.\n",
             by_search ? "the search" : "the rules", FormatDuration(planned.total_s()),
             FormatDuration(planned.compute_s), FormatDuration(planned.reduce_s),
             FormatDuration(planned.reshard_s));
}

std::string StagesJson(const std::vector<StageExplanation>& stages, double step_s) {
  nlohmann::ordered_json objects = nlohmann::ordered_json::array();
  for (const StageExplanation& stage : stages) objects.push_back(StageObject(stage));
  return IndentedJson({{"step_s", step_s}, {"stages", objects}});
}

std::string ShardingsJson(const ShardingExplanations& answer, bool by_search) {
  nlohmann::ordered_json tables = nlohmann::ordered_json::array();
  for (const ShardingExplanation& table : answer.tables) {
    nlohmann::ordered_json rows = nlohmann::ordered_json::array();
    const ShardingAlternative chosen = ChosenOf(table);
    for (const ShardingAlternative& row : table.alternatives) {
      rows.push_back(AlternativeObject(row, chosen));
    }
    tables.push_back({{"name", table.name},
                      {"alike", table.alike},
                      {"alternatives", rows},
                      {"unpriced", table.unpriced}});
  }
  return IndentedJson({{"chosen_by", by_search ? "search" : "rules"},
                       {"planned_work_s", answer.planned.total_s()},
                       {"tables", tables},
                       {"left_out", answer.left_out}});
}

Result<std::string> ExplainPlan(const PlannedJob& planned, const mesh::Topology& topology,
                                const std::string& subject, bool json, const Clock& clock) {
  const planner::Plan& plan = planned.plan();
  const ir::JobRequest& job = planned.prepared.request;
  const bool by_search = planned.found.by_search;
  const double step_s = planned.forecast.step_s;
  if (subject == "memory") return ExplainMemory(planned, topology, json, clock);
  MW_ASSIGN_OR_RETURN(const std::optional<std::vector<int>> numbers, StagesNamed(plan, subject));
  if (numbers) {
    const ExplainStageInput input{job, topology, plan, planned.forecast, by_search};
    std::vector<StageExplanation> stages;
    std::string text;
    for (const int number : *numbers) {
      MW_ASSIGN_OR_RETURN(StageExplanation stage, ExplainStage(input, number, clock));
      text += (text.empty() ? "" : "\n") + FormatStage(stage, step_s);
      stages.push_back(std::move(stage));
    }
    return json ? StagesJson(stages, step_s) : text;
  }
  const ExplainShardingsInput input{job, topology, plan, {.by_search = by_search}};
  MW_ASSIGN_OR_RETURN(const ShardingExplanations answer, ExplainShardings(input, subject, clock));
  return json ? ShardingsJson(answer, by_search) : FormatShardings(answer, by_search);
}

}  // namespace meshwright::report
