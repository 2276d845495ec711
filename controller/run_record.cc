#include "controller/run_record.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "base/guard.h"
#include "base/json_int.h"
#include "ir/parallel_pins.h"

namespace meshwright::controller {
namespace {

using nlohmann::json;

json BlobJson(const ir::BlobRef& blob) { return {blob.sha256, blob.size_bytes, blob.name}; }

Result<ir::BlobRef> BlobOf(const json& from) {
  MW_ASSIGN_OR_RETURN(const int64_t size_bytes, JsonInt(from.at(1), "size of a program"));
  return ir::BlobRef{from.at(0).get<std::string>(), size_bytes, from.at(2).get<std::string>()};
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

Result<PlannedDevice> DeviceOf(const json& from) {
  PlannedDevice device;
  for (const json& program : from.at("programs")) {
    MW_ASSIGN_OR_RETURN(device.programs.emplace_back(), BlobOf(program));
  }
  device.saved_slots = from.at("saved").get<std::vector<std::string>>();
  device.state_slots = from.at("state").get<std::vector<std::string>>();
  for (const json& row : from.at("rows")) {
    MW_ASSIGN_OR_RETURN(const auto instruction, JsonInt<uint32_t>(row.at(0), "rows"));
    MW_ASSIGN_OR_RETURN(const auto input, JsonInt<uint32_t>(row.at(1), "rows"));
    MW_ASSIGN_OR_RETURN(const int64_t first, JsonInt(row.at(2), "rows"));
    MW_ASSIGN_OR_RETURN(const int64_t count, JsonInt(row.at(3), "rows"));
    device.input_rows[{instruction, input}] = {first, count};
  }
  return device;
}

Result<checkpoint::StateBox> BoxOf(const json& from) {
  checkpoint::StateBox box{from.at(0).get<std::string>(), from.at(1).get<std::string>(), 0, {}};
  MW_ASSIGN_OR_RETURN(box.bytes, JsonInt(from.at(2), "bytes of a box"));
  for (const json& holder : from.at(3)) {
    MW_ASSIGN_OR_RETURN(box.holders.emplace_back(), JsonInt<size_t>(holder, "holders of a box"));
  }
  return box;
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
Result<PlannedJob> PlanOf(const json& from) {
  PlannedJob plan;
  plan.layout = from.at("layout").get<std::string>();
  // Records of older versions do not say.
  if (from.contains("degrees") && from.at("degrees").is_string()) {
    Result<ir::ParallelSpec> degrees = ir::ParsePins(from.at("degrees").get<std::string>());
    if (degrees.has_value()) plan.degrees = *std::move(degrees);
  }
  plan.programs = from.at("programs").get<std::vector<std::string>>();
  for (const json& device : from.at("devices")) {
    MW_ASSIGN_OR_RETURN(plan.devices.emplace_back(), DeviceOf(device));
  }
  for (const json& box : from.at("boxes")) {
    MW_ASSIGN_OR_RETURN(checkpoint::StateBox read, BoxOf(box));
    plan.boxes.push_back(std::move(read));
  }
  MW_ASSIGN_OR_RETURN(plan.graph, BlobOf(from.at("graph")));
  MW_ASSIGN_OR_RETURN(plan.vocabulary, JsonIntOf(from, "vocabulary"));
  MW_ASSIGN_OR_RETURN(plan.device_memory_bytes, JsonIntOf(from, "device_memory_bytes"));
  MW_ASSIGN_OR_RETURN(plan.device_budget_bytes, JsonIntOf(from, "device_budget_bytes"));
  plan.peak_flops_per_s = from.at("peak_flops_per_s").get<double>();
  return plan;
}

json StartJson(const ir::StartPoint& start) {
  return {{"root", start.checkpoint.root},
          {"path", start.checkpoint.path},
          {"step", start.step},
          {"exclude", start.exclude}};
}

Result<ir::StartPoint> StartOf(const json& from) {
  MW_ASSIGN_OR_RETURN(const int64_t step, JsonIntOf(from, "step"));
  return ir::StartPoint{{from.at("root").get<std::string>(), from.at("path").get<std::string>()},
                        step,
                        from.at("exclude").get<std::vector<std::string>>()};
}

json RanksJson(const std::vector<RankPlace>& ranks) {
  json places = json::array();
  for (const RankPlace& rank : ranks) places.push_back({rank.worker, rank.local_device});
  return places;
}

Result<std::vector<RankPlace>> RanksOf(const json& from) {
  std::vector<RankPlace> ranks;
  for (const json& rank : from) {
    MW_ASSIGN_OR_RETURN(const int device, JsonInt<int>(rank.at(1), "ranks"));
    ranks.push_back({rank.at(0).get<std::string>(), device});
  }
  return ranks;
}

Result<RunRecord> RunOf(const json& from) {
  RunRecord run;
  MW_ASSIGN_OR_RETURN(run.number, JsonIntOf<int>(from, "number"));
  MW_ASSIGN_OR_RETURN(const auto generation, JsonIntOf<uint64_t>(from, "generation"));
  run.gen = MeshGeneration(generation);
  run.kind = from.at("kind").get<std::string>();
  MW_ASSIGN_OR_RETURN(run.ranks, RanksOf(from.at("ranks")));
  MW_ASSIGN_OR_RETURN(run.start, StartOf(from.at("start")));
  MW_ASSIGN_OR_RETURN(run.plan, PlanOf(from.at("plan")));
  if (from.contains("keepers")) run.keepers = from.at("keepers").get<std::set<std::string>>();
  if (from.contains("larger")) {
    const json& larger = from.at("larger");
    MW_ASSIGN_OR_RETURN(PlannedJob plan, PlanOf(larger.at("plan")));
    MW_ASSIGN_OR_RETURN(std::vector<RankPlace> ranks, RanksOf(larger.at("ranks")));
    run.larger = SeatedPlan{std::move(plan), std::move(ranks)};
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
