#include "search/choose_memory.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "base/check.h"
#include "base/text.h"
#include "planner/forecast.h"

namespace meshwright::search {
namespace {

struct PlacedKind {
  const char* name;
  std::string ir::ParallelSpec::*memory;
  size_t farthest;  // of kMemories
};

constexpr std::array<const char*, 3> kMemories = {"device", "host", "disk"};  // by distance
constexpr std::array<PlacedKind, 4> kPlacedKinds = {{
    {"optimizer", &ir::ParallelSpec::optimizer_memory, 2},
    {"weights", &ir::ParallelSpec::weights_memory, 2},
    {"gradients", &ir::ParallelSpec::gradients_memory, 1},
    {"activations", &ir::ParallelSpec::activations_memory, 1},
}};
constexpr const char* kOpenMemory = "auto";

// Faster by less is not worth moving more.
constexpr double kWorthMoving = 1e-2;

// Decides the kinds from `kind` on, in each way.
void Decide(size_t kind, size_t distance, ir::ParallelSpec spec,
            std::vector<std::vector<ir::ParallelSpec>>& by_distance) {
  if (kind == kPlacedKinds.size()) {
    if (by_distance.size() <= distance) by_distance.resize(distance + 1);
    by_distance[distance].push_back(std::move(spec));
    return;
  }
  const PlacedKind& placed = kPlacedKinds[kind];
  if (spec.*placed.memory != kOpenMemory) {
    Decide(kind + 1, distance, std::move(spec), by_distance);
    return;
  }
  for (size_t far = 0; far <= placed.farthest; ++far) {
    spec.*placed.memory = kMemories[far];
    Decide(kind + 1, distance + far, spec, by_distance);
  }
}

}  // namespace

bool LeavesMemoryOpen(const ir::ParallelSpec& parallel) {
  for (const PlacedKind& placed : kPlacedKinds) {
    if (parallel.*placed.memory == kOpenMemory) return true;
  }
  return false;
}

std::vector<std::vector<ir::ParallelSpec>> MemoryChoices(const ir::ParallelSpec& parallel) {
  std::vector<std::vector<ir::ParallelSpec>> by_distance;
  Decide(0, 0, parallel, by_distance);
  MW_CHECK(!by_distance.empty() && by_distance.front().size() == 1)
      << "nothing is moved in more than one way";
  if (!LeavesMemoryOpen(parallel)) return by_distance;
  // The host renews what is in its memory.
  for (std::vector<ir::ParallelSpec>& as_near : by_distance) {
    for (ir::ParallelSpec& spec : as_near) {
      const bool there =
          spec.optimizer_memory == kMemories[1] && spec.weights_memory != kMemories[2];
      if (!there && parallel.optimizer_memory == kOpenMemory) spec.host_update = 0;
    }
  }
  return by_distance;
}

std::string MemoryText(const ir::ParallelSpec& asked, const ir::ParallelSpec& chosen) {
  std::string text;
  for (const PlacedKind& placed : kPlacedKinds) {
    if (asked.*placed.memory != kOpenMemory || chosen.*placed.memory == kMemories[0]) continue;
    const bool disk = chosen.*placed.memory == kMemories[2];
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", placed.name,
                        disk ? "on the disk" : "in the memory of the host");
  }
  return text.empty() ? "all on the device" : text;
}

namespace {

struct TimedPlan {
  FoundPlan found;
  double step_s = 0;
  ir::ParallelSpec spec;
};

// Of choices that are as near.
struct NearChoices {
  std::optional<TimedPlan> best;
  size_t fitting = 0;
  Status misfit;  // of the first that does not fit
};

Result<NearChoices> TryChoices(const ir::JobRequest& job, const mesh::Topology& topology,
                               const std::vector<ir::ParallelSpec>& specs,
                               const FindOnDevices& find) {
  NearChoices tried;
  for (const ir::ParallelSpec& spec : specs) {
    ir::JobRequest decided = job;
    decided.parallel = spec;
    Result<FoundPlan> found = find(decided, topology);
    if (!found.has_value()) {
      if (found.error().code() != StatusCode::kResourceExhausted) return Fail(found.error());
      if (tried.misfit.ok()) tried.misfit = found.error();
      continue;
    }
    ++tried.fitting;
    MW_ASSIGN_OR_RETURN(const planner::Forecast forecast,
                        planner::ForecastStep(found->plan, topology));
    if (tried.best && tried.best->step_s <= forecast.step_s) continue;
    tried.best = TimedPlan{*std::move(found), forecast.step_s, spec};
  }
  return tried;
}

// nearest: what is wrong with the nearest choice; OK: it was taken.
std::string MemoryNote(const ir::JobRequest& job, const NearChoices& tried, const Status& nearest) {
  const std::string text = MemoryText(job.parallel, tried.best->spec);
  if (nearest.ok()) return "memories that are open: " + text;
  return fmt::format(
      "memories that are open: {}; a step is forecast to take {}, {}; what is nearer does not fit "
      "({})",
      text, FormatDuration(tried.best->step_s),
      tried.fitting > 1 ? fmt::format("the shortest of {} choices that are as near", tried.fitting)
                        : "and nothing else that is as near fits",
      nearest.message());
}

bool HasLimit(const mesh::Topology& topology) {
  return std::any_of(topology.devices.begin(), topology.devices.end(),
                     [](const mesh::Device& device) { return device.memory_bytes > 0; });
}

// A step of the job with nothing moved, on the same devices without a limit: no choice is faster,
// since all that memories change is what is copied.
Result<double> SecondsWithoutLimit(const ir::JobRequest& job, const ir::ParallelSpec& nearest,
                                   mesh::Topology topology, const FindOnDevices& find) {
  for (mesh::Device& device : topology.devices) device.memory_bytes = 0;
  ir::JobRequest decided = job;
  decided.parallel = nearest;
  MW_ASSIGN_OR_RETURN(const FoundPlan found, find(decided, topology));
  MW_ASSIGN_OR_RETURN(const planner::Forecast forecast,
                      planner::ForecastStep(found.plan, topology));
  return forecast.step_s;
}

// Of a choice that fits: what the next distance takes instead, if it is faster.
Result<std::optional<TimedPlan>> FasterFarther(const ir::JobRequest& job,
                                               const mesh::Topology& topology,
                                               const std::vector<ir::ParallelSpec>& farther,
                                               double step_s, const FindOnDevices& find) {
  MW_CHECK(step_s > 0) << "a step of " << step_s << " s";
  MW_ASSIGN_OR_RETURN(NearChoices tried, TryChoices(job, topology, farther, find));
  if (!tried.best || tried.best->step_s >= step_s * (1 - kWorthMoving)) return std::nullopt;
  tried.best->found.plan.notes.push_back(fmt::format(
      "memories that are open: {}; a step is forecast to take {}, {} where less is moved",
      MemoryText(job.parallel, tried.best->spec), FormatDuration(tried.best->step_s),
      FormatDuration(step_s)));
  return std::move(tried.best);
}

}  // namespace

Result<FoundPlan> FindInMemories(const ir::JobRequest& job, const mesh::Topology& topology,
                                 const FindOnDevices& find) {
  if (!LeavesMemoryOpen(job.parallel)) return find(job, topology);
  Status nearest;
  Status farthest;
  const std::vector<std::vector<ir::ParallelSpec>> choices = MemoryChoices(job.parallel);
  for (size_t d = 0; d < choices.size(); ++d) {
    MW_ASSIGN_OR_RETURN(NearChoices tried, TryChoices(job, topology, choices[d], find));
    if (!tried.best) {
      farthest = tried.misfit;
      if (nearest.ok()) nearest = tried.misfit;
      continue;
    }
    if (d + 1 < choices.size() && HasLimit(topology) && job.trained() != nullptr) {
      const double step_s = tried.best->step_s;
      MW_ASSIGN_OR_RETURN(const double least_s,
                          SecondsWithoutLimit(job, choices[0].front(), topology, find));
      if (step_s > least_s * (1 + kWorthMoving)) {
        MW_ASSIGN_OR_RETURN(std::optional<TimedPlan> faster,
                            FasterFarther(job, topology, choices[d + 1], step_s, find));
        if (faster) return std::move(faster->found);
      }
    }
    tried.best->found.plan.notes.push_back(MemoryNote(job, tried, nearest));
    return std::move(tried.best->found);
  }
  return Fail(Status(farthest.code(), fmt::format("with the farthest memories that are open: {}",
                                                  farthest.message())));
}

}  // namespace meshwright::search
