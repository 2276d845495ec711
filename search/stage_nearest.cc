#include "search/stage_nearest.h"

#include <fmt/format.h>

#include <optional>
#include <utility>
#include <vector>

#include "search/stage_space.h"

namespace meshwright::search {
namespace {

constexpr int64_t kAnyBytes = int64_t{1} << 60;

// Some stages that fit when every device has so much more memory; with what they lack without it.
struct NearPlan {
  std::vector<StageChoice> stages;
  StageEvaluation evaluation;
  int64_t over_bytes() const {
    const int worst = evaluation.worst_stage;
    return worst < 0 ? 0 : evaluation.stages[static_cast<size_t>(worst)].over_bytes;
  }
};

Result<std::optional<NearPlan>> WithExtra(const StageProblem& problem,
                                          const StageInventory::Limits& limits, int64_t extra_bytes,
                                          const std::function<bool()>& stop) {
  MW_ASSIGN_OR_RETURN(
      auto space,
      StageSpace::Make(problem, {limits, StageInventory::Counts::kRounded, extra_bytes}));
  auto fill = space->frontier().Minimize({}, stop);
  if (!fill) return std::optional<NearPlan>();
  StageEvaluation evaluation = EvaluateStages(problem, fill->stages);
  return NearPlan{std::move(fill->stages), std::move(evaluation)};
}

std::string ListDevices(const StageProblem& problem) {
  std::string text;
  for (const StageDeviceClass& c : problem.classes) {
    int devices = 0;
    for (int on_host : c.host_devices) devices += on_host;
    text += fmt::format("{}{} devices of class \"{}\" on {} hosts", text.empty() ? "" : ", ",
                        devices, c.name, c.host_devices.size());
  }
  return text.empty() ? "no devices" : text;
}

}  // namespace

Status NearestStages(const StageProblem& problem, const StageInventory::Limits& limits,
                     const std::function<bool()>& stop) {
  // Without its end nothing can be said.
  MW_ASSIGN_OR_RETURN(std::optional<NearPlan> nearest,
                      WithExtra(problem, limits, kAnyBytes, [] { return false; }));
  if (!nearest || nearest->over_bytes() == 0) {
    return ResourceExhausted(fmt::format(
        "no stages of {} options (with the pins, if any) cover {} layers on {}, whatever memory "
        "devices have; give options for more shapes",
        problem.options.size(), problem.layers, ListDevices(problem)));
  }
  int64_t too_few_bytes = 0;
  while (nearest->over_bytes() - too_few_bytes > 1 && !stop()) {
    const int64_t middle = too_few_bytes + (nearest->over_bytes() - too_few_bytes) / 2;
    MW_ASSIGN_OR_RETURN(auto nearer, WithExtra(problem, limits, middle, stop));
    if (nearer) {
      nearest = std::move(nearer);
    } else {
      too_few_bytes = middle;
    }
  }
  const int worst = nearest->evaluation.worst_stage;
  const StageNumbers& numbers = nearest->evaluation.stages[static_cast<size_t>(worst)];
  return ResourceExhausted(fmt::format(
      "no stages fit the memory of their devices; the nearest lack {} bytes: {} needs {} bytes "
      "with {} microbatches in flight",
      numbers.over_bytes, FormatStage(problem, nearest->stages, worst), numbers.memory_bytes,
      numbers.in_flight));
}

}  // namespace meshwright::search
