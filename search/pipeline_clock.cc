#include "search/pipeline_clock.h"

#include <algorithm>
#include <utility>

namespace meshwright::search {
namespace {

using planner::PipelineShape;
using planner::ScheduleStep;
using planner::StageSchedule;

size_t PartIndex(int index) { return static_cast<size_t>(index); }

int MicrobatchesOf(const StageSchedule& schedule) {
  int count = 0;
  for (const ScheduleStep& step : schedule) count = std::max(count, step.microbatch + 1);
  return count;
}

class Clock {
 public:
  Clock(const PipelineShape& shape, const std::vector<StageSchedule>& schedule,
        const PipelineCost& cost)
      : shape_(shape),
        schedule_(schedule),
        cost_(cost),
        microbatches_(schedule.empty() ? 0 : MicrobatchesOf(schedule.front())),
        held_bytes_(PartIndex(shape.stages), 0),
        in_flight_(PartIndex(shape.parts())),
        forward_end_s_(PartIndex(shape.parts() * microbatches_), -1),
        backward_end_s_(PartIndex(shape.parts() * microbatches_), -1) {
    times_.end_s.assign(PartIndex(shape.stages), 0);
    times_.most_held_bytes.assign(PartIndex(shape.stages), 0);
    times_.in_flight.resize(PartIndex(shape.parts()));
  }

  PipelineTimes Run() {
    std::vector<size_t> next(PartIndex(shape_.stages), 0);
    for (bool progress = true; progress;) {
      progress = false;
      for (int stage = 0; stage < shape_.stages; ++stage) {
        const StageSchedule& steps = schedule_[PartIndex(stage)];
        while (next[PartIndex(stage)] < steps.size() &&
               Step(stage, steps[next[PartIndex(stage)]])) {
          ++next[PartIndex(stage)];
          progress = true;
        }
      }
    }
    return std::move(times_);
  }

 private:
  size_t Instance(int part, int microbatch) const {
    return PartIndex(part * microbatches_ + microbatch);
  }

  // False when what it needs is not there yet.
  bool Step(int stage, const ScheduleStep& step) {
    const int part = shape_.PartOf(stage, step.chunk);
    const PartCost& cost = cost_.parts[PartIndex(part)];
    double& now_s = times_.end_s[PartIndex(stage)];
    if (step.weights) {
      now_s += cost.weight_s;
      Hold(stage, part, {0, -1});
      return true;
    }
    const bool forward = step.phase == ir::Phase::kForward;
    const int from = forward ? part - 1 : part + 1;
    std::vector<double>& end_s = forward ? forward_end_s_ : backward_end_s_;
    if (from >= 0 && from < shape_.parts()) {
      const double ready_s = end_s[Instance(from, step.microbatch)];
      if (ready_s < 0) return false;
      now_s = std::max(now_s, ready_s + cost_.transfer_s[PartIndex(std::min(from, part))]);
    }
    now_s += forward ? cost.forward_s : cost.backward_s;
    end_s[Instance(part, step.microbatch)] = now_s;
    if (forward) {
      Hold(stage, part, {1, 0});
    } else {
      Hold(stage, part, {-1, cost_.splits_backward ? 1 : 0});
    }
    return true;
  }

  void Hold(int stage, int part, InFlight change) {
    const PartCost& cost = cost_.parts[PartIndex(part)];
    InFlight& own = in_flight_[PartIndex(part)];
    own.forward_done += change.forward_done;
    own.backward_done += change.backward_done;
    int64_t& bytes = held_bytes_[PartIndex(stage)];
    bytes += change.forward_done * cost.kept_bytes + change.backward_done * cost.waiting_bytes;
    if (bytes <= times_.most_held_bytes[PartIndex(stage)]) return;
    times_.most_held_bytes[PartIndex(stage)] = bytes;
    for (int chunk = 0; chunk < shape_.chunks; ++chunk) {
      const size_t other = PartIndex(shape_.PartOf(stage, chunk));
      times_.in_flight[other] = in_flight_[other];
    }
  }

  const PipelineShape& shape_;
  const std::vector<StageSchedule>& schedule_;
  const PipelineCost& cost_;
  const int microbatches_;
  std::vector<int64_t> held_bytes_;    // per stage, now
  std::vector<InFlight> in_flight_;    // per part, now
  std::vector<double> forward_end_s_;  // [part][microbatch]; -1: not yet
  std::vector<double> backward_end_s_;
  PipelineTimes times_;
};

}  // namespace

PipelineTimes RunSchedule(const PipelineShape& shape, const std::vector<StageSchedule>& schedule,
                          const PipelineCost& cost) {
  return Clock(shape, schedule, cost).Run();
}

}  // namespace meshwright::search
