#include "planner/schedule.h"

#include <fmt/format.h>

#include <algorithm>

namespace meshwright::planner {
namespace {

using ir::Phase;

StageSchedule GPipe(int microbatches) {
  StageSchedule schedule;
  for (int m = 0; m < microbatches; ++m) schedule.push_back({Phase::kForward, m});
  for (int m = 0; m < microbatches; ++m) schedule.push_back({Phase::kBackward, m});
  return schedule;
}

// Stage s keeps at most stages - s microbatches in flight: that many forwards, then one forward per
// backward, then the rest.
StageSchedule OneForwardOneBackward(int stages, int stage, int microbatches) {
  const int warm_up = std::min(microbatches, stages - 1 - stage);
  StageSchedule schedule;
  int forward = 0;
  int backward = 0;
  while (forward < warm_up) schedule.push_back({Phase::kForward, forward++});
  while (forward < microbatches) {
    schedule.push_back({Phase::kForward, forward++});
    schedule.push_back({Phase::kBackward, backward++});
  }
  while (backward < microbatches) schedule.push_back({Phase::kBackward, backward++});
  return schedule;
}

}  // namespace

Result<std::vector<StageSchedule>> MakeSchedule(const std::string& name, int stages,
                                                int microbatches) {
  std::vector<StageSchedule> result;
  for (int stage = 0; stage < stages; ++stage) {
    if (name == "gpipe") {
      result.push_back(GPipe(microbatches));
    } else if (name == "1f1b") {
      result.push_back(OneForwardOneBackward(stages, stage, microbatches));
    } else {
      return Fail(InvalidArgument(fmt::format("unknown schedule '{}'; known: gpipe, 1f1b", name)));
    }
  }
  return result;
}

std::vector<StageSchedule> ForwardSchedule(int stages, int microbatches) {
  StageSchedule schedule;
  for (int m = 0; m < microbatches; ++m) schedule.push_back({Phase::kForward, m});
  return std::vector<StageSchedule>(static_cast<size_t>(stages), schedule);
}

std::string FormatSchedule(const StageSchedule& schedule) {
  std::vector<std::string> steps;
  for (const ScheduleStep& step : schedule) {
    steps.push_back(
        fmt::format("{}{}", step.phase == Phase::kForward ? 'F' : 'B', step.microbatch));
  }
  return fmt::format("{}", fmt::join(steps, " "));
}

}  // namespace meshwright::planner
