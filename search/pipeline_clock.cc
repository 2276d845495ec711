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
        end_s_(PartIndex(shape.stages), 0),
        link_free_s_(PartIndex(shape.stages), 0),
        forward_sent_s_(PartIndex(shape.parts() * microbatches_), -1),
        backward_sent_s_(PartIndex(shape.parts() * microbatches_), -1) {
    for (int stage = 0; stage < shape.stages; ++stage) {
      for (int chunk = 0; chunk < shape.chunks; ++chunk) parts_.push_back(PartAt(stage, chunk));
    }
  }

  std::vector<double> Run() {
    std::vector<size_t> next(PartIndex(shape_.stages), 0);
    for (bool progress = true; progress;) {
      progress = false;
      for (int stage = 0; stage < shape_.stages; ++stage) {
        const StageSchedule& steps = schedule_[PartIndex(stage)];
        size_t& at = next[PartIndex(stage)];
        while (at < steps.size() && Step(stage, steps[at])) {
          ++at;
          progress = true;
        }
      }
    }
    return std::move(end_s_);
  }

 private:
  // What steps of a part read and write.
  struct Part {
    PartCost cost;
    const double* forward_ready_s = nullptr;  // [microbatch] of the part before; null: none
    const double* backward_ready_s = nullptr;
    double* forward_sent_s = nullptr;
    double* backward_sent_s = nullptr;
    double forward_transfer_s = 0;  // of what it sends
    double backward_transfer_s = 0;
  };

  Part PartAt(int stage, int chunk) {
    const int index = shape_.PartOf(stage, chunk);
    const auto at = [&](std::vector<double>& times, int part) {
      return times.data() + PartIndex(part) * PartIndex(microbatches_);
    };
    Part part;
    part.cost = cost_.parts[PartIndex(index)];
    part.forward_sent_s = at(forward_sent_s_, index);
    part.backward_sent_s = at(backward_sent_s_, index);
    if (index > 0) {
      part.forward_ready_s = at(forward_sent_s_, index - 1);
      part.backward_transfer_s = cost_.transfer_s[PartIndex(index - 1)];
    }
    if (index + 1 < shape_.parts()) {
      part.backward_ready_s = at(backward_sent_s_, index + 1);
      part.forward_transfer_s = cost_.transfer_s[PartIndex(index)];
    }
    return part;
  }

  // False when what it needs is not there yet.
  bool Step(int stage, const ScheduleStep& step) {
    const Part& part = parts_[PartIndex(stage * shape_.chunks + step.chunk)];
    double& now_s = end_s_[PartIndex(stage)];
    if (step.weights) {
      now_s += part.cost.weight_s;
      return true;
    }
    const bool forward = step.phase == ir::Phase::kForward;
    const double* const ready = forward ? part.forward_ready_s : part.backward_ready_s;
    if (ready != nullptr) {
      const double ready_s = ready[step.microbatch];
      if (ready_s < 0) return false;
      now_s = std::max(now_s, ready_s);
    }
    now_s += forward ? part.cost.forward_s : part.cost.backward_s;
    (forward ? part.forward_sent_s : part.backward_sent_s)[step.microbatch] =
        Sent(stage, forward ? part.forward_transfer_s : part.backward_transfer_s);
    return true;
  }

  // When the message that the stage sends now has arrived: one leaves after the other, in either
  // direction, and none holds up the stage.
  double Sent(int stage, double transfer_s) {
    const double now_s = end_s_[PartIndex(stage)];
    if (transfer_s == 0) return now_s;
    double& link_free_s = link_free_s_[PartIndex(stage)];
    return link_free_s = std::max(link_free_s, now_s) + transfer_s;
  }

  const PipelineShape& shape_;
  const std::vector<StageSchedule>& schedule_;
  const PipelineCost& cost_;
  const int microbatches_;
  std::vector<double> end_s_;           // per stage, now
  std::vector<double> link_free_s_;     // per stage: its last message has arrived
  std::vector<double> forward_sent_s_;  // [part][microbatch]: arrived; -1: not yet
  std::vector<double> backward_sent_s_;
  std::vector<Part> parts_;  // [stage][chunk]
};

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
  return Clock(shape, schedule, cost).Run();
}

}  // namespace meshwright::search
