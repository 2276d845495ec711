#include "report/memory_reasons.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string_view>
#include <utility>

#include "base/check.h"
#include "base/table.h"
#include "base/text.h"
#include "planner/decided.h"
#include "planner/forecast.h"
#include "planner/host_update.h"
#include "planner/resolve_layout.h"
#include "search/find_shardings.h"
#include "search/sharding_pins.h"

namespace meshwright::report {
namespace {

using Json = nlohmann::ordered_json;
using Rows = std::vector<std::vector<std::string>>;

constexpr std::string_view kHost = "host";
constexpr std::string_view kDisk = "disk";

// Of state: weights whose names differ by their layer alone are one.
std::string WeightsText(const std::vector<std::string>& weights) {
  std::vector<std::string> names;
  for (const std::string& weight : weights) {
    const std::string name = NameOfLayers(weight);
    if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
  }
  MW_CHECK(!names.empty()) << "state of no weight";
  return names.front() +
         (names.size() > 1 ? fmt::format(" and {} more", names.size() - 1) : std::string());
}

// The layers of weights: the first number in the name of each that has one.
std::set<int> LayersOf(const std::vector<std::string>& weights) {
  std::set<int> layers;
  for (const std::string& weight : weights) {
    for (const std::string& part : Split(weight, '.')) {
      int layer = 0;
      const auto [end, error] = std::from_chars(part.data(), part.data() + part.size(), layer);
      if (part.empty() || error != std::errc() || end != part.data() + part.size()) continue;
      layers.insert(layer);
      break;
    }
  }
  return layers;
}

// "0-5, 8"; "" of none.
std::string RangesText(const std::set<int>& layers) {
  std::string text;
  for (auto at = layers.begin(); at != layers.end();) {
    const int first = *at;
    int last = first;
    while (++at != layers.end() && *at == last + 1) last = *at;
    text += (text.empty() ? "" : ", ") + std::to_string(first);
    if (last > first) text += "-" + std::to_string(last);
  }
  return text;
}

// Groups that are alike are one line, which says of which layers they are.
class FoldedRows {
 public:
  void Add(const std::vector<std::string>& names, const std::string& last, int64_t bytes) {
    const std::string weights = WeightsText(names);
    const auto at = std::find_if(folded_.begin(), folded_.end(), [&](const Folded& each) {
      return each.weights == weights && each.last == last;
    });
    Folded& row = at != folded_.end() ? *at : folded_.emplace_back(Folded{weights, last, {}, 0, 0});
    row.layers.merge(LayersOf(names));
    ++row.count;
    row.bytes += bytes;
  }

  Rows Take() const {
    Rows rows;
    for (const Folded& row : folded_) {
      rows.push_back({row.weights, RangesText(row.layers), std::to_string(row.count),
                      FormatBytes(row.bytes), row.last});
    }
    return rows;
  }

 private:
  struct Folded {
    std::string weights;
    std::string last;  // column
    std::set<int> layers;
    int64_t count = 0;
    int64_t bytes = 0;
  };
  std::vector<Folded> folded_;
};

// Who renews what of the state in the host's memory; empty: nothing is there.
Rows RowsInHost(const std::vector<planner::UpdateGroup>& groups) {
  FoldedRows rows;
  for (const planner::UpdateGroup& group : groups) {
    rows.Add(group.weights, group.on_host ? "host" : "device", group.state_bytes);
  }
  return rows.Take();
}

// State on the disk; empty: nothing is there.
Rows RowsOnDisk(const ir::Program& program) {
  FoldedRows rows;
  for (const ir::Slot& slot : program.slots) {
    if (!slot.persistent || slot.space != ir::Space::kDisk) continue;
    // "opt.m/wte" is of the weight "wte".
    rows.Add({slot.name.substr(slot.name.find('/') + 1)}, ir::MemoryKindName(slot.kind),
             slot.type.bytes());
  }
  return rows.Take();
}

Json ObjectsOnDisk(const ir::Program& program) {
  Json objects = Json::array();
  for (const ir::Slot& slot : program.slots) {
    if (!slot.persistent || slot.space != ir::Space::kDisk) continue;
    objects.push_back({{"name", slot.name},
                       {"kind", ir::MemoryKindName(slot.kind)},
                       {"bytes", slot.type.bytes()}});
  }
  return objects;
}

Rows RowsOfKinds(const planner::DeviceMemory& device, Json& kinds) {
  Rows rows;
  for (const ir::MemoryKind kind :
       {ir::MemoryKind::kWeights, ir::MemoryKind::kGradients, ir::MemoryKind::kOptimizer,
        ir::MemoryKind::kActivations, ir::MemoryKind::kWorkspace, ir::MemoryKind::kOther}) {
    const auto bytes_in = [&](const std::map<ir::MemoryKind, int64_t>& bytes) {
      const auto found = bytes.find(kind);
      return found == bytes.end() ? int64_t{0} : found->second;
    };
    const int64_t near = bytes_in(device.bytes);
    const int64_t host = bytes_in(device.host.bytes);
    const int64_t disk = bytes_in(device.disk.bytes);
    rows.push_back(
        {ir::MemoryKindName(kind), FormatBytes(near), FormatBytes(host), FormatBytes(disk)});
    kinds.push_back({{"kind", ir::MemoryKindName(kind)},
                     {"device_bytes", near},
                     {"host_bytes", host},
                     {"disk_bytes", disk}});
  }
  rows.push_back({"allocated", FormatBytes(device.total_bytes),
                  FormatBytes(device.host.total_bytes), FormatBytes(device.disk.total_bytes)});
  return rows;
}

std::string PlaceText(std::string_view memory) {
  return memory == kHost ? "in the host's memory" : "on the device";
}

// memory_bytes: of the plan's fullest device.
std::string NearerText(const std::vector<NearerMemory>& nearer, double step_s,
                       int64_t memory_bytes) {
  if (nearer.empty()) return "";
  MW_CHECK(step_s > 0) << "a step of " << step_s << " s";
  Rows rows = {{"as planned", FormatDuration(step_s), "", FormatBytes(memory_bytes), ""}};
  for (const NearerMemory& each : nearer) {
    const std::string what = fmt::format("{} {}", each.kind, PlaceText(each.nearer));
    if (!each.refused.empty()) {
      rows.push_back({what, "-", "", "-", each.refused});
      continue;
    }
    rows.push_back({what, FormatDuration(each.step_s),
                    fmt::format("{:+.1f} %", 100 * (each.step_s - step_s) / step_s),
                    FormatBytes(each.memory_bytes), ""});
  }
  return FormatTable({"IF NEARER", "STEP", "CHANGE", "MEMORY", ""}, rows);
}

Json NearerObjects(const std::vector<NearerMemory>& nearer) {
  Json objects = Json::array();
  for (const NearerMemory& each : nearer) {
    Json object = {{"kind", each.kind}, {"nearer", each.nearer}};
    if (each.refused.empty()) {
      object["step_s"] = each.step_s;
      object["memory_bytes"] = each.memory_bytes;
    } else {
      object["refused"] = each.refused;
    }
    objects.push_back(std::move(object));
  }
  return objects;
}

// A search within the time of an answer may split weights worse than that of the plan did, and what
// differs would not be the memory's: weights are split as they are.
std::string PinsOfWeights(const planner::Plan& plan) {
  std::string pins;
  for (const planner::ParamInfo& param : plan.params) {
    pins += fmt::format("{}{}={}", pins.empty() ? "" : "; ", param.name,
                        search::FormatPinnedSharding(param.sharding));
  }
  return pins;
}

}  // namespace

std::string NameOfLayers(const std::string& name) {
  std::vector<std::string> parts = Split(name, '.');
  for (std::string& part : parts) {
    const bool number = !part.empty() && std::all_of(part.begin(), part.end(),
                                                     [](char c) { return c >= '0' && c <= '9'; });
    if (number) part = "*";
  }
  return Join(parts, ".");
}

Result<std::vector<NearerMemory>> FindNearer(const PlannedJob& planned,
                                             const mesh::Topology& topology, const Clock& clock) {
  constexpr int64_t kAllMs = 10'000;
  const search::SearchTime time(kAllMs, kAllMs, clock);
  const search::ShardingSearch searches{.time = &time};
  const planner::Plan& plan = planned.plan();
  std::vector<NearerMemory> answers;
  for (const planner::MemoryPin& pin : planner::kMemoryPins) {
    const std::string& where = plan.decided.*pin.memory;
    if (where != kHost && where != kDisk) continue;
    ir::JobRequest job = planned.prepared.request;
    planner::PinMemories(plan, job.parallel);
    job.parallel.*pin.memory = where == kDisk ? "host" : "device";
    if (job.parallel.optimizer_memory != kHost) job.parallel.host_update = 0;
    MW_CHECK(where != kDisk || pin.may_lie_on_disk) << pin.kind << " is on a disk";
    NearerMemory answer{pin.kind, job.parallel.*pin.memory, 0, 0, {}};
    if (time.IsOver(true)) {
      answer.refused = "not tried: the time for it was over";
      answers.push_back(std::move(answer));
      continue;
    }
    if (planned.found.by_search) job.parallel.sharding_pins = PinsOfWeights(plan);
    planner::ShardingChooser chooser = search::MakePinnedRules(job);
    if (planned.found.by_search)
      chooser = search::MakeShardingChooser(job, topology, searches, clock);
    const Result<planner::Plan> made =
        planner::MakePlanOf(job, topology, plan.layout, planner::PlanScope::kOnePerStage, chooser);
    if (!made.has_value()) {
      const bool misfit = made.error().code() == StatusCode::kResourceExhausted;
      answer.refused = (misfit ? "does not fit: " : "") + made.error().message();
    } else {
      MW_ASSIGN_OR_RETURN(const planner::Forecast forecast, planner::ForecastStep(*made, topology));
      answer.step_s = forecast.step_s;
      answer.memory_bytes = planner::FullestBytes(made->memory);
    }
    answers.push_back(std::move(answer));
  }
  return answers;
}

Result<std::string> ExplainMemory(const PlannedJob& planned, const mesh::Topology& topology,
                                  bool json, const Clock& clock) {
  const planner::Plan& plan = planned.plan();
  const auto fullest =
      std::max_element(plan.memory.begin(), plan.memory.end(),
                       [](const auto& a, const auto& b) { return a.total_bytes < b.total_bytes; });
  MW_CHECK(fullest != plan.memory.end()) << "a plan of no device";
  const ir::Program& program = plan.Main()[static_cast<size_t>(fullest - plan.memory.begin())];
  Json kinds = Json::array();
  const Rows rows = RowsOfKinds(*fullest, kinds);
  const std::vector<planner::UpdateGroup> groups = planner::UpdateGroupsOf(program);
  MW_ASSIGN_OR_RETURN(const std::vector<NearerMemory> nearer, FindNearer(planned, topology, clock));
  if (json) {
    Json update = Json::array();
    for (const planner::UpdateGroup& group : groups) {
      MW_CHECK(!group.weights.empty()) << "instruction " << group.instruction << " has no weight";
      const size_t others = group.weights.size() - 1;
      update.push_back({{"weights", group.weights.front() +
                                        (others > 0 ? fmt::format(" and {} more", others) : "")},
                        {"layers", RangesText(LayersOf(group.weights))},
                        {"state_bytes", group.state_bytes},
                        {"renewed_by", group.on_host ? "host" : "device"}});
    }
    const Json object{{"step_s", planned.forecast.step_s}, {"memory", std::move(kinds)},
                      {"update", std::move(update)},       {"on_disk", ObjectsOnDisk(program)},
                      {"nearer", NearerObjects(nearer)},   {"notes", plan.notes}};
    return object.dump(2) + "\n";
  }
  std::string text = FormatTable({"FULLEST DEVICE", "DEVICE", "HOST", "DISK"}, rows);
  const Rows in_host = RowsInHost(groups);
  if (!in_host.empty()) {
    text += FormatTable({"STATE IN THE HOST'S MEMORY", "LAYERS", "CHUNKS", "BYTES", "RENEWED BY"},
                        in_host);
  }
  const Rows on_disk = RowsOnDisk(program);
  if (!on_disk.empty()) {
    text += FormatTable({"STATE ON THE DISK", "LAYERS", "TENSORS", "BYTES", "KIND"}, on_disk);
  }
  text += NearerText(nearer, planned.forecast.step_s, fullest->total_bytes);
  for (const std::string& note : plan.notes) text += fmt::format("note: {}\n", note);
  return text;
}

}  // namespace meshwright::report
