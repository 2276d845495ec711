#include "planner/v_schedule.h"

#include <algorithm>
#include <array>
#include <utility>

#include "base/check.h"

namespace meshwright::planner {
namespace {

using ir::Phase;

constexpr int kChunks = 2;
constexpr int kStepsOfBlock = 6;  // F, B and W of two parts

size_t At(int index) { return static_cast<size_t>(index); }

struct Slot {
  int slot = 0;
  ScheduleStep step;
};

// F and B of a stage's two parts, of the first microbatch. No two slots of a stage are alike modulo
// kStepsOfBlock.
std::array<Slot, 4> BlockOf(VBlock block, int stages, int stage) {
  const ScheduleStep forward[] = {{Phase::kForward, 0, 0}, {Phase::kForward, 0, 1}};
  const ScheduleStep backward[] = {{Phase::kBackward, 0, 0}, {Phase::kBackward, 0, 1}};
  if (block == VBlock::kHalf) {
    const int apart = stages % 2 == 0 ? 3 : 0;
    return {{{2 * stage, forward[0]},
             {3 * stages - stage - 2, forward[1]},
             {3 * stages + apart + 2 * stage - 1, backward[1]},
             {6 * stages + apart - stage - 2, backward[0]}}};
  }
  const int apart = stages % 3 == 0 ? 2 : 0;
  return {{{stage, forward[0]},
           {2 * stages - stage - 1, forward[1]},
           {2 * stages + apart + stage, backward[1]},
           {4 * stages + apart - stage - 1, backward[0]}}};
}

// F and B of all microbatches in the order of their slots.
StageSchedule Repeat(const std::array<Slot, 4>& block, int microbatches) {
  std::vector<Slot> slots;
  slots.reserve(block.size() * At(microbatches));
  for (int microbatch = 0; microbatch < microbatches; ++microbatch) {
    for (Slot slot : block) {
      slot.slot += kStepsOfBlock * microbatch;
      slot.step.microbatch = microbatch;
      slots.push_back(slot);
    }
  }
  std::sort(slots.begin(), slots.end(),
            [](const Slot& a, const Slot& b) { return a.slot < b.slot; });
  StageSchedule schedule;
  schedule.reserve(slots.size());
  for (const Slot& slot : slots) schedule.push_back(slot.step);
  return schedule;
}

class SlotClock {
 public:
  SlotClock(VBlock block, const PipelineShape& shape, int microbatches)
      : shape_(shape),
        most_in_flight_(MostChunksInFlight(block, shape.stages)),
        microbatches_(microbatches),
        stages_(At(shape.stages)),
        forward_slot_(At(shape.parts() * microbatches), kNotYet),
        backward_slot_(At(shape.parts() * microbatches), kNotYet) {
    for (int stage = 0; stage < shape.stages; ++stage) {
      stages_[At(stage)].order = Repeat(BlockOf(block, shape.stages, stage), microbatches);
    }
  }

  std::vector<StageSchedule> Run() {
    int left = shape_.stages * kStepsOfBlock * microbatches_;
    for (; left > 0; ++now_) {
      const int before = left;
      for (int stage = 0; stage < shape_.stages; ++stage) left -= Take(stage) ? 1 : 0;
      // A step takes one slot: what nobody can take now, nobody can take later.
      MW_CHECK(left < before) << "all " << shape_.stages << " stages wait in slot " << now_;
    }
    std::vector<StageSchedule> result;
    result.reserve(stages_.size());
    for (Stage& stage : stages_) result.push_back(std::move(stage.taken));
    return result;
  }

 private:
  static constexpr int kNotYet = -1;

  struct Stage {
    StageSchedule order;  // F and B
    size_t next = 0;
    StageSchedule weights;  // in the order of their B
    size_t next_weights = 0;
    int in_flight = 0;
    StageSchedule taken;
  };

  // False: the stage waits.
  bool Take(int index) {
    Stage& stage = stages_[At(index)];
    const bool has_weights = stage.next_weights < stage.weights.size();
    if (stage.next < stage.order.size()) {
      const ScheduleStep& step = stage.order[stage.next];
      const bool forward = step.phase == Phase::kForward;
      const bool full = forward && stage.in_flight >= most_in_flight_ && has_weights;
      if (!full && IsReady(index, step)) {
        (forward ? forward_slot_ : backward_slot_)[Of(shape_.PartOf(index, step.chunk), step)] =
            now_;
        stage.taken.push_back(step);
        if (forward) {
          ++stage.in_flight;
        } else {
          stage.weights.push_back({Phase::kBackward, step.microbatch, step.chunk, true});
        }
        ++stage.next;
        return true;
      }
    }
    if (!has_weights) return false;
    stage.taken.push_back(stage.weights[stage.next_weights++]);
    --stage.in_flight;
    return true;
  }

  bool IsReady(int stage, const ScheduleStep& step) const {
    const int part = shape_.PartOf(stage, step.chunk);
    if (step.phase == Phase::kForward) {
      return part == 0 || IsDone(forward_slot_[Of(part - 1, step)]);
    }
    return part == shape_.parts() - 1 ? IsDone(forward_slot_[Of(part, step)])
                                      : IsDone(backward_slot_[Of(part + 1, step)]);
  }

  bool IsDone(int slot) const { return slot != kNotYet && slot < now_; }

  size_t Of(int part, const ScheduleStep& step) const {
    return At(part) * At(microbatches_) + At(step.microbatch);
  }

  const PipelineShape shape_;
  const int most_in_flight_;
  const int microbatches_;
  int now_ = 0;
  std::vector<Stage> stages_;
  std::vector<int> forward_slot_;  // [part][microbatch]
  std::vector<int> backward_slot_;
};

}  // namespace

int MostChunksInFlight(VBlock block, int stages) {
  MW_CHECK(stages >= 2) << stages << " stages do not fold";
  if (block == VBlock::kHalf) return stages + (stages % 2 == 0 ? 2 : 1);
  return 2 * ((stages + 1) / 3 + 1);
}

std::vector<StageSchedule> MakeVSchedule(VBlock block, int stages, int microbatches) {
  return SlotClock(block, PipelineShape{stages, kChunks, true}, microbatches).Run();
}

}  // namespace meshwright::planner
