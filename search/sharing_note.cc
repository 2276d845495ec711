#include "search/sharing_note.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/text.h"
#include "planner/forecast.h"

namespace meshwright::search {
namespace {

// "1.2 s and 3.1 GB"; why not, where there is no forecast.
std::string StepAndMemory(const planner::Plan& plan, const mesh::Topology& topology) {
  const Result<planner::Forecast> forecast = planner::ForecastStep(plan, topology);
  if (!forecast.has_value()) return fmt::format("no forecast ({})", forecast.error().message());
  int64_t fullest_bytes = 0;
  for (const planner::DeviceMemory& memory : plan.memory) {
    fullest_bytes = std::max(fullest_bytes, memory.total_bytes);
  }
  return fmt::format("{} and {}", FormatDuration(forecast->step_s), FormatBytes(fullest_bytes));
}

}  // namespace

std::string SharingNote(const planner::Plan& shared, const Result<planner::Plan>& plain,
                        const mesh::Topology& topology) {
  const std::string without =
      plain.has_value()
          ? fmt::format("with {} it is {}", plain->layout.schedule, StepAndMemory(*plain, topology))
          : fmt::format("without there is no plan: {}", plain.error().message());
  return fmt::format(
      "stages share the vocabulary: a step is forecast to take {} on the fullest device; {}",
      StepAndMemory(shared, topology), without);
}

}  // namespace meshwright::search
