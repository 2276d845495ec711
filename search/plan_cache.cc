// A title, the key, a line of JSON and a checksum. Numbers read back the same.
#include "search/plan_cache.h"

#include <fmt/format.h>

#include <map>
#include <nlohmann/json.hpp>

#include "base/json_int.h"
#include "base/sha256.h"
#include "base/text.h"
#include "ir/parallel_pins.h"
#include "ir/text.h"
#include "mesh/device_profile.h"
#include "planner/layout.h"
#include "planner/zero_levels.h"

namespace meshwright::planner {

// What an entry says of a layout, for both ways.
void to_json(nlohmann::json& json, const Degrees& degrees) {
  for (const AxisKind& kind : kAxisKinds) json.push_back(degrees[kind.axis]);
}
void to_json(nlohmann::json& json, const ZeroGroups& groups) {
  for (const ZeroLevel& level : ZeroLevels()) json.push_back(groups.*level.group);
}
void to_json(nlohmann::json& json, const Layout& layout) {
  json = {{"degrees", layout.degrees},
          {"zero_groups", layout.zero_groups},
          {"pipeline", layout.pipeline},
          {"microbatches", layout.microbatches},
          {"schedule", layout.schedule},
          {"sequence_parallel", layout.sequence_parallel},
          {"chunks", layout.chunks},
          {"part_layers", layout.part_layers},
          {"zero", layout.zero},
          {"recompute", layout.recompute},
          {"stage_degrees", layout.stage_degrees},
          {"context_attention", layout.context_attention},
          {"tensor_axes", layout.tensor_axes},
          {"devices", layout.devices}};
}

}  // namespace meshwright::planner

namespace meshwright::search {

// Of stages the fullest alone.
void to_json(nlohmann::json& json, const LayoutCost& cost) {
  json = {{"layout", cost.layout},
          {"step_s", cost.step_s},
          {"is_forecast", cost.is_forecast},
          {"bytes", cost.fullest_bytes()}};
}
void to_json(nlohmann::json& json, const MicrobatchPrice& price) {
  json = {{"degrees", price.degrees},           {"pipeline", price.pipeline},
          {"microbatches", price.microbatches}, {"step_s", price.step_s},
          {"least_s", price.least_s},           {"missing_bytes", price.missing_bytes}};
}
void to_json(nlohmann::json& json, const FoundLayout& found) {
  json = {{"best", found.best},
          {"gap", found.gap},
          {"priced", found.priced},
          {"microbatches", found.microbatches},
          {"candidates", found.candidates}};
}
void to_json(nlohmann::json& json, const PlanEntry& entry) {
  json = {{"layout", entry.layout},
          {"by_search", entry.by_search},
          {"note", entry.note},
          {"found", entry.found}};
}

namespace {

using nlohmann::json;
using planner::Degrees;
using planner::Layout;

constexpr std::string_view kTitle = "meshwright plan cache 10";
// More devices than any cluster has; what is multiplied further stays a number.
constexpr int64_t kMostDevices = int64_t{1} << 32;

Status Wrong(const char* key, std::string_view wanted) {
  return InvalidArgument(fmt::format("\"{}\" is no {}", key, wanted));
}

// Each Take reads a value as what it is for; `key` is said where it is not.
template <JsonWhole T>
Status Take(const json& value, const char* key, T& out) {
  MW_ASSIGN_OR_RETURN(out, JsonInt<T>(value, key));
  return OkStatus();
}

Status Take(const json& value, const char* key, double& out) {
  if (!value.is_number()) return Wrong(key, "number");
  out = value.get<double>();
  return OkStatus();
}

Status Take(const json& value, const char* key, bool& out) {
  if (!value.is_boolean()) return Wrong(key, "truth");
  out = value.get<bool>();
  return OkStatus();
}

Status Take(const json& value, const char* key, std::string& out) {
  if (!value.is_string()) return Wrong(key, "text");
  out = value.get<std::string>();
  return OkStatus();
}

template <typename T>
Status TakeEnum(const json& value, const char* key, T last, T& out) {
  MW_ASSIGN_OR_RETURN(const int number, JsonInt<int>(value, key, 0, static_cast<int>(last)));
  out = static_cast<T>(number);
  return OkStatus();
}

Status Take(const json& value, const char* key, planner::Recompute& out) {
  return TakeEnum(value, key, planner::Recompute::kFull, out);
}

Status Take(const json& value, const char* key, planner::ContextAttention& out) {
  return TakeEnum(value, key, planner::ContextAttention::kNested, out);
}

Status Take(const json& value, const char* key, Degrees& out) {
  if (!value.is_array() || value.size() != planner::kAxisKinds.size()) return Wrong(key, "degrees");
  int64_t most = kMostDevices;
  for (const planner::AxisKind& kind : planner::kAxisKinds) {
    const json& degree = value[static_cast<size_t>(kind.axis)];
    MW_ASSIGN_OR_RETURN(out[kind.axis], JsonInt(degree, key, int64_t{1}, most));
    most /= out[kind.axis];
  }
  return OkStatus();
}

Status Take(const json& value, const char* key, planner::ZeroGroups& out) {
  const auto levels = planner::ZeroLevels();
  if (!value.is_array() || value.size() != levels.size()) return Wrong(key, "groups of replicas");
  for (size_t i = 0; i < levels.size(); ++i) {
    MW_TRY(Take(value[i], key, out.*levels[i].group));
  }
  return OkStatus();
}

Status Take(const json& value, const char* key, Layout& out);
Status Take(const json& value, const char* key, LayoutCost& out);
Status Take(const json& value, const char* key, MicrobatchPrice& out);
Status Take(const json& value, const char* key, FoundLayout& out);

template <typename T>
Status Take(const json& value, const char* key, std::vector<T>& out) {
  if (!value.is_array()) return Wrong(key, "list");
  for (const json& item : value) MW_TRY(Take(item, key, out.emplace_back()));
  return OkStatus();
}

template <typename T>
Status TakeOf(const json& object, const char* key, T& out) {
  const auto found = object.is_object() ? object.find(key) : object.end();
  if (found == object.end()) return InvalidArgument(fmt::format("\"{}\" is missing", key));
  return Take(*found, key, out);
}

Status Take(const json& value, const char* /*key*/, Layout& out) {
  MW_TRY(TakeOf(value, "degrees", out.degrees));
  MW_TRY(TakeOf(value, "zero_groups", out.zero_groups));
  MW_TRY(TakeOf(value, "pipeline", out.pipeline));
  MW_TRY(TakeOf(value, "microbatches", out.microbatches));
  MW_TRY(TakeOf(value, "schedule", out.schedule));
  MW_TRY(TakeOf(value, "sequence_parallel", out.sequence_parallel));
  MW_TRY(TakeOf(value, "chunks", out.chunks));
  MW_TRY(TakeOf(value, "part_layers", out.part_layers));
  MW_TRY(TakeOf(value, "zero", out.zero));
  MW_TRY(TakeOf(value, "recompute", out.recompute));
  MW_TRY(TakeOf(value, "stage_degrees", out.stage_degrees));
  MW_TRY(TakeOf(value, "context_attention", out.context_attention));
  MW_TRY(TakeOf(value, "tensor_axes", out.tensor_axes));
  return TakeOf(value, "devices", out.devices);
}

Status Take(const json& value, const char* /*key*/, LayoutCost& out) {
  MW_TRY(TakeOf(value, "layout", out.layout));
  MW_TRY(TakeOf(value, "step_s", out.step_s));
  MW_TRY(TakeOf(value, "is_forecast", out.is_forecast));
  return TakeOf(value, "bytes", out.stages.emplace_back().state_bytes);
}

Status Take(const json& value, const char* /*key*/, MicrobatchPrice& out) {
  MW_TRY(TakeOf(value, "degrees", out.degrees));
  MW_TRY(TakeOf(value, "pipeline", out.pipeline));
  MW_TRY(TakeOf(value, "microbatches", out.microbatches));
  MW_TRY(TakeOf(value, "step_s", out.step_s));
  MW_TRY(TakeOf(value, "least_s", out.least_s));
  return TakeOf(value, "missing_bytes", out.missing_bytes);
}

Status Take(const json& value, const char* /*key*/, FoundLayout& out) {
  MW_TRY(TakeOf(value, "best", out.best));
  MW_TRY(TakeOf(value, "gap", out.gap));
  MW_TRY(TakeOf(value, "priced", out.priced));
  MW_TRY(TakeOf(value, "microbatches", out.microbatches));
  return TakeOf(value, "candidates", out.candidates);
}

Result<PlanEntry> EntryOf(const json& value) {
  PlanEntry entry;
  MW_TRY(TakeOf(value, "layout", entry.layout));
  MW_TRY(TakeOf(value, "by_search", entry.by_search));
  MW_TRY(TakeOf(value, "note", entry.note));
  MW_TRY(TakeOf(value, "found", entry.found));
  return entry;
}

std::string ChecksumLine(std::string_view text) {
  return fmt::format("sha256 {}\n", Sha256Hex(text));
}

// Numbers in the order in which things are first met: equal for equal partitions.
class Numbers {
 public:
  size_t Of(const std::string& name) {
    return numbers_.emplace(name, numbers_.size()).first->second;
  }

 private:
  std::map<std::string, size_t> numbers_;
};

std::string LinkText(const mesh::LinkCost& link) {
  return fmt::format("{} {}", link.alpha_s, link.seconds_per_byte);
}

}  // namespace

std::string JobFingerprint(const ir::JobRequest& job) {
  const ir::TrainSpec& train = job.train;
  const ir::OptimizerSpec& optimizer = job.optimizer;
  return Sha256Hex(fmt::format(
      "{}\nbatch {} sequence {} compile {} dtype {} {}\noptimizer {} {} {} {}\n",
      ir::FormatGraph(job.main().graph), train.global_batch, train.sequence, train.compile,
      static_cast<int>(train.compute_dtype), static_cast<int>(train.gradient_dtype), optimizer.name,
      static_cast<int>(optimizer.moments_dtype), optimizer.momentum, optimizer.max_norm));
}

std::string ParallelFingerprint(const ir::ParallelSpec& parallel) {
  return Sha256Hex(ir::FormatPins(parallel));
}

std::string TopologyFingerprint(const mesh::Topology& topology) {
  std::string text;
  Numbers workers, hosts, groups;
  std::map<const mesh::DeviceProfile*, std::string> profiles;  // each is written once
  for (size_t i = 0; i < topology.devices.size(); ++i) {
    const mesh::Device& device = topology.devices[i];
    const auto it = topology.hosts.find(device.host);
    const mesh::Host host = it == topology.hosts.end() ? mesh::Host() : it->second;
    std::string& profile = profiles[&topology.ProfileOf(i)];
    if (profile.empty()) {
      profile = Sha256Hex(mesh::FormatDeviceProfile(topology.ProfileOf(i)));
    }
    text += fmt::format("{} {} {} {} {} {} {} {} {} {} {}\n", workers.Of(device.worker),
                        hosts.Of(device.host), device.memory_bytes, device.disk_bytes,
                        static_cast<int>(device.disk), device.threads, profile,
                        groups.Of(host.group), host.cores, host.nic_bytes_per_s, host.memory_bytes);
  }
  text += fmt::format("host {}\nnetwork {}\n", LinkText(topology.links.host),
                      LinkText(topology.links.network));
  for (const mesh::SlowLink& slow : topology.links.slow) {
    text += fmt::format("slow {} {} {}\n", groups.Of(slow.from), groups.Of(slow.to),
                        LinkText(slow.cost));
  }
  return Sha256Hex(text);
}

std::string PlanCacheKey(const ir::JobRequest& job, const mesh::Topology& topology,
                         const FindOptions& options) {
  return Sha256Hex(fmt::format("{}\n{}\n{}\n{}\n{} ms, {} alternatives\n", kTitle,
                               JobFingerprint(job), ParallelFingerprint(job.parallel),
                               TopologyFingerprint(topology), options.timeout_ms,
                               options.alternatives));
}

Result<std::string> FormatPlanEntry(const std::string& key, const PlanEntry& entry) {
  std::string text = fmt::format("{}\n{}\n{}\n", kTitle, key, nlohmann::json(entry).dump());
  text += ChecksumLine(text);
  MW_ASSIGN_OR_RETURN(const PlanEntry again, ParsePlanEntry(key, text));
  bool same = again.layout.AskedText() == entry.layout.AskedText();
  for (size_t i = 0; same && i < entry.found.best.size(); ++i) {
    same = again.found.best[i].layout.AskedText() == entry.found.best[i].layout.AskedText();
  }
  if (same) return text;
  return Fail(Unimplemented(
      fmt::format("an entry cannot say what the layout {} is", entry.layout.ToString())));
}

Result<PlanEntry> ParsePlanEntry(const std::string& key, std::string_view text) {
  const size_t sum = text.rfind("sha256 ");
  if (sum == std::string_view::npos || text.substr(sum) != ChecksumLine(text.substr(0, sum))) {
    return Fail(DataLoss("its checksum does not hold"));
  }
  const std::vector<std::string> lines = Split(text.substr(0, sum), '\n');
  if (lines.size() < 3 || lines[0] != kTitle) return Fail(DataLoss("it is of another version"));
  if (lines[1] != key) return Fail(DataLoss("it was written for another job or cluster"));
  Result<PlanEntry> entry = EntryOf(json::parse(lines[2], nullptr, /*allow_exceptions=*/false));
  if (entry.has_value()) return entry;
  return Fail(DataLoss(fmt::format("it cannot be read: {}", entry.error().message())));
}

}  // namespace meshwright::search
