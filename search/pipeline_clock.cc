#include "search/pipeline_clock.h"

#include <algorithm>

#include "planner/device_time.h"

namespace meshwright::search {
namespace {

using planner::PipelineShape;
using planner::ScheduleStep;
using planner::StageSchedule;

// Parts of one stage hand values over in place.
constexpr mesh::LinkCost kWithin = {0, 0};

size_t PartIndex(int index) { return static_cast<size_t>(index); }

int MicrobatchesOf(const StageSchedule& schedule) {
  int count = 0;
  for (const ScheduleStep& step : schedule) count = std::max(count, step.microbatch + 1);
  return count;
}

}  // namespace

FullestMoments FindFullestMoments(const PipelineShape& shape,
                                  const std::vector<StageSchedule>& schedule,
                                  const PipelineCost& cost) {
  FullestMoments moments;
  moments.in_flight.resize(PartIndex(shape.parts()));
  std::vector<InFlight> now(PartIndex(shape.chunks)), fullest;
  std::vector<PartCost> costs(now.size());
  for (int stage = 0; stage < shape.stages; ++stage) {
    now.assign(now.size(), {});
    fullest = now;
    for (int chunk = 0; chunk < shape.chunks; ++chunk) {
      costs[PartIndex(chunk)] = cost.parts[PartIndex(shape.PartOf(stage, chunk))];
    }
    int64_t held_bytes = 0;
    int64_t most_bytes = 0;
    for (const ScheduleStep& step : schedule[PartIndex(stage)]) {
      InFlight& own = now[PartIndex(step.chunk)];
      const PartCost& part = costs[PartIndex(step.chunk)];
      if (step.weights) {
        --own.backward_done;
        held_bytes -= part.waiting_bytes;
      } else if (step.phase == ir::Phase::kForward) {
        ++own.forward_done;
        held_bytes += part.kept_bytes;
      } else {
        --own.forward_done;
        held_bytes -= part.kept_bytes;
        if (cost.splits_backward) {
          ++own.backward_done;
          held_bytes += part.waiting_bytes;
        }
      }
      if (held_bytes <= most_bytes) continue;
      most_bytes = held_bytes;
      fullest = now;
    }
    moments.most_held_bytes.push_back(most_bytes);
    for (int chunk = 0; chunk < shape.chunks; ++chunk) {
      moments.in_flight[PartIndex(shape.PartOf(stage, chunk))] = fullest[PartIndex(chunk)];
    }
  }
  return moments;
}

std::vector<double> EndSeconds(const PipelineShape& shape,
                               const std::vector<StageSchedule>& schedule,
                               const PipelineCost& cost) {
  constexpr double kNotYet = -1;
  const int parts = shape.parts();
  const int microbatches = MicrobatchesOf(schedule.front());
  std::vector<int> part_of;  // [stage][chunk]
  for (int stage = 0; stage < shape.stages; ++stage) {
    for (int chunk = 0; chunk < shape.chunks; ++chunk)
      part_of.push_back(shape.PartOf(stage, chunk));
  }
  // When what a step sends has arrived: [backward][part][microbatch].
  std::vector<double> arrived_s(PartIndex(2 * parts * microbatches), kNotYet);
  std::vector<planner::DeviceTime> times(PartIndex(shape.stages));
  // False when what it needs is not there yet.
  const auto take = [&](int stage, const ScheduleStep& step) {
    planner::DeviceTime& time = times[PartIndex(stage)];
    const int part = part_of[PartIndex(stage * shape.chunks + step.chunk)];
    const PartCost& own = cost.parts[PartIndex(part)];
    if (step.weights) {
      time.now_s += own.weight_s;
      return true;
    }
    const bool forward = step.phase == ir::Phase::kForward;
    const auto place = [&](int of) {
      return PartIndex(((forward ? 0 : parts) + of) * microbatches + step.microbatch);
    };
    const int from = forward ? part - 1 : part + 1;
    if (from >= 0 && from < parts) {
      if (arrived_s[place(from)] == kNotYet) return false;
      time.WaitUntil(arrived_s[place(from)]);
    }
    time.now_s += forward ? own.forward_s : own.backward_s;
    const int cut = forward ? part : part - 1;  // that its message crosses
    const bool sends = cut >= 0 && cut + 1 < parts && cost.links[PartIndex(cut)] != kWithin;
    arrived_s[place(part)] =
        sends ? time.Send(cost.links[PartIndex(cut)], cost.parts[PartIndex(cut)].boundary_bytes)
              : time.now_s;
    return true;
  };
  std::vector<size_t> next(PartIndex(shape.stages), 0);
  for (bool progress = true; progress;) {
    progress = false;
    for (int stage = 0; stage < shape.stages; ++stage) {
      const StageSchedule& steps = schedule[PartIndex(stage)];
      size_t& at = next[PartIndex(stage)];
      for (; at < steps.size() && take(stage, steps[at]); ++at) progress = true;
    }
  }
  std::vector<double> end_s;
  for (const planner::DeviceTime& time : times) end_s.push_back(time.now_s);
  return end_s;
}

}  // namespace meshwright::search
