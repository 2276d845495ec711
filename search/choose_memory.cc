#include "search/choose_memory.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "base/check.h"
#include "base/text.h"
#include "planner/forecast.h"
#include "planner/memory.h"
#include "planner/resolve_layout.h"

namespace meshwright::search {
namespace {

using planner::kMemoryPins;
using planner::MemoryPin;

constexpr std::array<const char*, 3> kMemories = {"device", "host", "disk"};  // by distance
constexpr const char* kOpenMemory = "auto";

// Faster by less is not worth moving more.
constexpr double kWorthMoving = 1e-2;

// Decides the kinds from `kind` on, in each way.
void Decide(size_t kind, size_t distance, bool with_disk, ir::ParallelSpec spec,
            std::vector<std::vector<ir::ParallelSpec>>& by_distance) {
  if (kind == kMemoryPins.size()) {
    if (by_distance.size() <= distance) by_distance.resize(distance + 1);
    by_distance[distance].push_back(std::move(spec));
    return;
  }
  const MemoryPin& placed = kMemoryPins[kind];
  if (spec.*placed.memory != kOpenMemory) {
    Decide(kind + 1, distance, with_disk, std::move(spec), by_distance);
    return;
  }
  const bool disk = with_disk && placed.may_lie_on_disk;
  for (size_t far = 0; far < kMemories.size() - (disk ? 0 : 1); ++far) {
    spec.*placed.memory = kMemories[far];
    Decide(kind + 1, distance + far, with_disk, spec, by_distance);
  }
}

}  // namespace

bool LeavesMemoryOpen(const ir::ParallelSpec& parallel) {
  return std::any_of(kMemoryPins.begin(), kMemoryPins.end(), [&](const MemoryPin& placed) {
    return parallel.*placed.memory == kOpenMemory;
  });
}

std::vector<std::vector<ir::ParallelSpec>> MemoryChoices(const ir::ParallelSpec& parallel,
                                                         bool with_disk) {
  std::vector<std::vector<ir::ParallelSpec>> by_distance;
  Decide(0, 0, with_disk, parallel, by_distance);
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
  for (const MemoryPin& placed : kMemoryPins) {
    if (asked.*placed.memory != kOpenMemory || chosen.*placed.memory == kMemories[0]) continue;
    const bool disk = chosen.*placed.memory == kMemories[2];
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", placed.kind,
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

Result<TimedPlan> FindTimed(const ir::JobRequest& job, const mesh::Topology& topology,
                            const ir::ParallelSpec& spec, const SearchTime& time,
                            const FindOnDevices& find) {
  ir::JobRequest decided = job;
  decided.parallel = spec;
  MW_ASSIGN_OR_RETURN(FoundPlan found, find(decided, topology, time));
  MW_ASSIGN_OR_RETURN(const planner::Forecast forecast,
                      planner::ForecastStep(found.plan, topology));
  return TimedPlan{std::move(found), forecast.step_s, spec};
}

std::string SlowerText(const ir::ParallelSpec& asked, const TimedPlan& timed) {
  return fmt::format("{} takes {}", MemoryText(asked, timed.spec), FormatDuration(timed.step_s));
}

// Of several that are as near the errors say much the same.
std::string MisfitText(const std::string& memories, const Status& misfit, size_t as_near) {
  if (as_near > 1) return memories + " does not fit";
  return fmt::format("{} does not fit ({})", memories, misfit.message());
}

// Of choices that are as near.
struct NearChoices {
  std::optional<TimedPlan> best;
  Status misfit;  // of the first that does not fit
  // Of those that are not taken, what is wrong with each: "all on the device does not fit".
  std::vector<std::string> passed_over;
  // Of those whose programs the verifier rejects: a defect of the planner and not of the job.
  std::vector<std::string> rejected;
};

Result<NearChoices> TryChoices(const ir::JobRequest& job, const mesh::Topology& topology,
                               const std::vector<ir::ParallelSpec>& specs, const SearchTime& time,
                               const FindOnDevices& find) {
  NearChoices tried;
  for (size_t i = 0; i < specs.size(); ++i) {
    if (i > 0 && time.IsOver(tried.best.has_value())) break;
    const std::string memories = MemoryText(job.parallel, specs[i]);
    Result<TimedPlan> timed =
        FindTimed(job, topology, specs[i], time.OneOf(specs.size() - i), find);
    if (!timed.has_value()) {
      const StatusCode code = timed.error().code();
      const bool rejected = code == StatusCode::kInternal;
      if (!rejected && code != StatusCode::kResourceExhausted) return Fail(timed.error());
      if (rejected) {
        tried.rejected.push_back(
            fmt::format("{} is left out, {}", memories, timed.error().message()));
      }
      if (!rejected) tried.passed_over.push_back(MisfitText(memories, timed.error(), specs.size()));
      // What does not fit says more about the job than what should not have been.
      const bool says_more = !rejected && tried.misfit.code() == StatusCode::kInternal;
      if (tried.misfit.ok() || says_more) tried.misfit = timed.error();
      continue;
    }
    const bool first = !tried.best.has_value();
    const bool taken = first || timed->step_s < tried.best->step_s;
    if (!first) tried.passed_over.push_back(SlowerText(job.parallel, taken ? *tried.best : *timed));
    if (taken) tried.best = *std::move(timed);
  }
  return tried;
}

// What is taken, and what is wrong with what is nearer or as near.
std::string MemoryNote(const std::string& memories, double step_s,
                       const std::vector<std::string>& passed_over) {
  constexpr size_t kShown = 4;
  if (passed_over.empty()) return memories;
  std::string text =
      fmt::format("{}; a step is forecast to take {}", memories, FormatDuration(step_s));
  for (size_t i = 0; i < std::min(kShown, passed_over.size()); ++i) {
    text += (i == 0 ? "; not taken: " : "; ") + passed_over[i];
  }
  if (passed_over.size() <= kShown) return text;
  return text + fmt::format("; and {} more", passed_over.size() - kShown);
}

// A step without a limit, with nothing moved: no choice is faster, since all that memories change
// is what is copied. Nothing: there is no limit.
std::optional<mesh::Topology> WithoutLimit(mesh::Topology topology) {
  bool limited = false;
  for (mesh::Device& device : topology.devices) {
    limited = limited || device.memory_bytes > 0;
    device.memory_bytes = 0;
  }
  if (!limited) return std::nullopt;
  return topology;
}

// Whether a disk would be looked at, had the workers been started with a folder for it.
bool LacksFolder(const ir::ParallelSpec& asked, const mesh::Topology& topology) {
  const bool open = std::any_of(planner::kMemoryPins.begin(), planner::kMemoryPins.end(),
                                [&](const planner::MemoryPin& pin) {
                                  return pin.may_lie_on_disk && asked.*pin.memory == "auto";
                                });
  return open && !planner::MayUseDisk(topology) &&
         std::any_of(
             topology.devices.begin(), topology.devices.end(),
             [](const mesh::Device& device) { return device.disk == mesh::Disk::kNoFolder; });
}

}  // namespace

Result<FoundPlan> FindInMemories(const ir::JobRequest& job, const mesh::Topology& topology,
                                 const SearchTime& time, const FindOnDevices& find) {
  MW_TRY(planner::CheckDisks(job.parallel, topology));
  if (!LeavesMemoryOpen(job.parallel)) return find(job, topology, time);
  const bool disk = planner::MayUseDisk(topology);
  const auto memories = [&](const NearChoices& tried) {
    return "memories that are open: " + MemoryText(job.parallel, tried.best->spec);
  };
  Status farthest;
  std::vector<std::string> passed_over;
  std::vector<std::string> rejected;
  const char* tried_last =
      LacksFolder(job.parallel, topology)
          ? "with the farthest memories that are open (no worker has a folder for a disk, which "
            "--scratch-dir DIR gives it)"
          : "with the farthest memories that are open";
  const std::vector<std::vector<ir::ParallelSpec>> choices = MemoryChoices(job.parallel, disk);
  for (size_t d = 0; d < choices.size(); ++d) {
    if (d > 0 && time.IsOver(false)) {
      tried_last = "the time was over before farther memories were tried; with nearer ones";
      break;
    }
    const SearchTime own = time.OneOf(d + 1 < choices.size() ? 2 : 1);
    MW_ASSIGN_OR_RETURN(NearChoices tried, TryChoices(job, topology, choices[d], own, find));
    rejected.insert(rejected.end(), tried.rejected.begin(), tried.rejected.end());
    passed_over.insert(passed_over.end(), tried.passed_over.begin(), tried.passed_over.end());
    if (!tried.best) {
      farthest = tried.misfit;
      continue;
    }
    const double step_s = tried.best->step_s;
    const auto free = WithoutLimit(topology);
    const bool may_go_on = d + 1 < choices.size() && !time.IsOver(true);
    if (may_go_on && free && job.trained() != nullptr) {
      MW_CHECK(step_s > 0) << "a step of " << step_s << " s";
      MW_ASSIGN_OR_RETURN(const TimedPlan least, FindTimed(job, *free, choices[0].front(),
                                                           time.ForBetter().OneOf(2), find));
      NearChoices next;
      if (step_s > least.step_s * (1 + kWorthMoving)) {
        MW_ASSIGN_OR_RETURN(next,
                            TryChoices(job, topology, choices[d + 1], time.ForBetter(), find));
      }
      if (next.best && next.best->step_s < step_s * (1 - kWorthMoving)) {
        passed_over.push_back(SlowerText(job.parallel, *tried.best));
        passed_over.insert(passed_over.end(), next.passed_over.begin(), next.passed_over.end());
        tried = std::move(next);
      }
    }
    std::vector<std::string>& notes = tried.best->found.plan.notes;
    notes.insert(notes.end(), rejected.begin(), rejected.end());
    notes.push_back(MemoryNote(memories(tried), tried.best->step_s, passed_over));
    return std::move(tried.best->found);
  }
  return Fail(Status(farthest.code(), fmt::format("{}: {}", tried_last, farthest.message())));
}

}  // namespace meshwright::search
