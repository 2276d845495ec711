#include "controller/run_record.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "base/guard.h"
#include "ir/parallel_pins.h"

namespace meshwright::controller {
namespace {

using nlohmann::json;

json BlobJson(const ir::BlobRef& blob) { return {blob.sha256, blob.size_bytes, blob.name}; }

ir::BlobRef BlobOf(const json& from) {
  return {from.at(0).get<std::string>(), from.at(1).get<int64_t>(), from.at(2).get<std::string>()};
}

json DeviceJson(const PlannedDevice& device) {
  json programs = json::array();
  for (const ir::BlobRef& program : device.programs) programs.push_back(BlobJson(program));
  json rows = json::array();
  for (const auto& [at, range] : device.input_rows) {
    rows.push_back({at.first, at.second, range.first, range.count});
  }
  return {{"programs", std::move(programs)},
          {"saved", device.saved_slots},
          {"state", device.state_slots},
          {"rows", std::move(rows)}};
}

PlannedDevice DeviceOf(const json& from) {
  PlannedDevice device;
  for (const json& program : from.at("programs")) device.programs.push_back(BlobOf(program));
  device.saved_slots = from.at("saved").get<std::vector<std::string>>();
  device.state_slots = from.at("state").get<std::vector<std::string>>();
  for (const json& row : from.at("rows")) {
    device.input_rows[{row.at(0).get<uint32_t>(), row.at(1).get<uint32_t>()}] = {
        row.at(2).get<int64_t>(), row.at(3).get<int64_t>()};
  }
  return device;
}

json PlanJson(const PlannedJob& plan) {
  json boxes = json::array();
  for (const checkpoint::StateBox& box : plan.boxes) {
    boxes.push_back({box.tensor, box.key, box.bytes, box.holders});
  }
  json devices = json::array();
  for (const PlannedDevice& device : plan.devices) devices.push_back(DeviceJson(device));
  return {{"layout", plan.layout},
          {"degrees", ir::FormatPins(plan.degrees)},
          {"programs", plan.programs},
          {"devices", std::move(devices)},
          {"boxes", std::move(boxes)},
          {"graph", BlobJson(plan.graph)},
          {"vocabulary", plan.vocabulary},
          {"device_memory_bytes", plan.device_memory_bytes},
          {"device_budget_bytes", plan.device_budget_bytes},
          {"peak_flops_per_s", plan.peak_flops_per_s}};
}

// The placement has become the ranks, and the notes are in the log.
PlannedJob PlanOf(const json& from) {
  PlannedJob plan;
  plan.layout = from.at("layout").get<std::string>();
  // Records of older versions do not say.
  if (from.contains("degrees") && from.at("degrees").is_string()) {
    Result<ir::ParallelSpec> degrees = ir::ParsePins(from.at("degrees").get<std::string>());
    if (degrees.has_value()) plan.degrees = *std::move(degrees);
  }
  plan.programs = from.at("programs").get<std::vector<std::string>>();
  for (const json& device : from.at("devices")) plan.devices.push_back(DeviceOf(device));
  for (const json& box : from.at("boxes")) {
    plan.boxes.push_back({box.at(0).get<std::string>(), box.at(1).get<std::string>(),
                          box.at(2).get<int64_t>(), box.at(3).get<std::vector<size_t>>()});
  }
  plan.graph = BlobOf(from.at("graph"));
  plan.vocabulary = from.at("vocabulary").get<int64_t>();
  plan.device_memory_bytes = from.at("device_memory_bytes").get<int64_t>();
  plan.device_budget_bytes = from.at("device_budget_bytes").get<int64_t>();
  plan.peak_flops_per_s = from.at("peak_flops_per_s").get<double>();
  return plan;
}

json StartJson(const ir::StartPoint& start) {
  return {{"root", start.checkpoint.root},
          {"path", start.checkpoint.path},
          {"step", start.step},
          {"exclude", start.exclude}};
}

ir::StartPoint StartOf(const json& from) {
  return {{from.at("root").get<std::string>(), from.at("path").get<std::string>()},
          from.at("step").get<int64_t>(),
          from.at("exclude").get<std::vector<std::string>>()};
}

json RanksJson(const std::vector<RankPlace>& ranks) {
  json places = json::array();
  for (const RankPlace& rank : ranks) places.push_back({rank.worker, rank.local_device});
  return places;
}

std::vector<RankPlace> RanksOf(const json& from) {
  std::vector<RankPlace> ranks;
  for (const json& rank : from) {
    ranks.push_back({rank.at(0).get<std::string>(), rank.at(1).get<int>()});
  }
  return ranks;
}

RunRecord RunOf(const json& from) {
  RunRecord run;
  run.number = from.at("number").get<int>();
  run.gen = MeshGeneration(from.at("generation").get<uint64_t>());
  run.kind = from.at("kind").get<std::string>();
  run.ranks = RanksOf(from.at("ranks"));
  run.start = StartOf(from.at("start"));
  run.plan = PlanOf(from.at("plan"));
  if (from.contains("keepers")) run.keepers = from.at("keepers").get<std::set<std::string>>();
  if (from.contains("larger")) {
    const json& larger = from.at("larger");
    run.larger = SeatedPlan{PlanOf(larger.at("plan")), RanksOf(larger.at("ranks"))};
  }
  return run;
}

}  // namespace

std::string FormatRunRecord(const RunRecord& run) {
  json body = {{"number", run.number},       {"generation", run.gen.value()},
               {"kind", run.kind},           {"ranks", RanksJson(run.ranks)},
               {"plan", PlanJson(run.plan)}, {"start", StartJson(run.start)}};
  if (!run.keepers.empty()) body["keepers"] = run.keepers;
  if (run.larger) {
    body["larger"] = {{"plan", PlanJson(run.larger->plan)},
                      {"ranks", RanksJson(run.larger->ranks)}};
  }
  return body.dump(-1, ' ', false, json::error_handler_t::replace);
}

Result<RunRecord> ParseRunRecord(const std::string& text) {
  Result<RunRecord> run =
      Guarded("a stored run", [&]() -> Result<RunRecord> { return RunOf(json::parse(text)); });
  if (!run.has_value()) return Fail(DataLoss(run.error().message()));
  const bool fits = !run->larger || run->larger->ranks.size() == run->larger->plan.devices.size();
  if (run->number < 1 || run->ranks.empty() || !fits ||
      run->ranks.size() != run->plan.devices.size()) {
    return Fail(DataLoss(fmt::format("a stored run of {} ranks for a plan of {} devices",
                                     run->ranks.size(), run->plan.devices.size())));
  }
  return run;
}

}  // namespace meshwright::controller
