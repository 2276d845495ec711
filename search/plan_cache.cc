// A title, the key, a line of JSON and a checksum. Numbers read back the same.
#include "search/plan_cache.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>

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
void from_json(const nlohmann::json& json, Degrees& degrees) {
  for (const AxisKind& kind : kAxisKinds) {
    degrees[kind.axis] = json.at(static_cast<size_t>(kind.axis)).get<int64_t>();
  }
}
void to_json(nlohmann::json& json, const ZeroGroups& groups) {
  for (const ZeroLevel& level : ZeroLevels()) json.push_back(groups.*level.group);
}
void from_json(const nlohmann::json& json, ZeroGroups& groups) {
  for (size_t i = 0; i < ZeroLevels().size(); ++i) {
    groups.*ZeroLevels()[i].group = json.at(i).get<int64_t>();
  }
}
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Layout, degrees, zero_groups, pipeline, microbatches, schedule,
                                   sequence_parallel, chunks, part_layers, zero, recompute,
                                   stage_degrees, context_attention, tensor_axes, devices)

}  // namespace meshwright::planner

namespace meshwright::search {

// Of stages the fullest alone.
void to_json(nlohmann::json& json, const LayoutCost& cost) {
  json = {{"layout", cost.layout}, {"step_s", cost.step_s}, {"bytes", cost.fullest_bytes()}};
}
void from_json(const nlohmann::json& json, LayoutCost& cost) {
  json.at("layout").get_to(cost.layout);
  json.at("step_s").get_to(cost.step_s);
  json.at("bytes").get_to(cost.stages.emplace_back().state_bytes);
}
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(FoundLayout, best, gap, priced, candidates)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(PlanEntry, layout, by_search, note, found)

namespace {

using planner::Layout;

constexpr std::string_view kTitle = "meshwright plan cache 9";

bool IsKnown(const Layout& layout) {
  return layout.context_attention <= planner::ContextAttention::kNested &&
         std::all_of(layout.recompute.begin(), layout.recompute.end(),
                     [](auto mode) { return mode <= planner::Recompute::kFull; });
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
      "{}\nbatch {} sequence {} compile {} dtype {} {}\noptimizer {} {} {}\n",
      ir::FormatGraph(job.main().graph), train.global_batch, train.sequence, train.compile,
      static_cast<int>(train.compute_dtype), static_cast<int>(train.gradient_dtype), optimizer.name,
      optimizer.momentum, optimizer.max_norm));
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
    text += fmt::format("{} {} {} {} {} {} {} {} {} {}\n", workers.Of(device.worker),
                        hosts.Of(device.host), device.memory_bytes, device.disk_bytes,
                        device.threads, profile, groups.Of(host.group), host.cores,
                        host.nic_bytes_per_s, host.memory_bytes);
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
  bool same = again.layout.ToString() == entry.layout.ToString();
  for (size_t i = 0; same && i < entry.found.best.size(); ++i) {
    same = again.found.best[i].layout.ToString() == entry.found.best[i].layout.ToString();
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
  try {
    PlanEntry entry = nlohmann::json::parse(lines[2]).get<PlanEntry>();
    bool known = IsKnown(entry.layout);
    for (const LayoutCost& cost : entry.found.best) known = known && IsKnown(cost.layout);
    if (known) return entry;
  } catch (const nlohmann::json::exception& error) {
    return Fail(DataLoss(fmt::format("it cannot be read: {}", error.what())));
  }
  return Fail(DataLoss("its layouts are none"));
}

}  // namespace meshwright::search
