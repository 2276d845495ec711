#include "planner/vocabulary_schedule.h"

#include <algorithm>
#include <array>
#include <limits>

#include "base/check.h"

namespace meshwright::planner {
namespace {

using ir::Phase;

// Of a stage and a microbatch, in the order in which a stage prefers them.
enum class VocabularyStep : uint8_t {
  kLoss,
  kLossBackward,
  kEmbedding,
  kOutput,
  kBackward,
  kEmbeddingBackward,
  kForward,
  kOutputBackward,
};
constexpr size_t kStepKinds = 8;

struct StepKind {
  Phase phase;
  int chunk;
  int slots;
  bool last_stage_only;
};

constexpr std::array<StepKind, kStepKinds> kSteps = {{
    {Phase::kForward, kLossChunk, 0, true},
    {Phase::kBackward, kLossChunk, 0, true},
    {Phase::kForward, kEmbeddingChunk, 0, false},
    {Phase::kForward, kOutputChunk, 2, false},
    {Phase::kBackward, kLayersChunk, 4, false},
    {Phase::kBackward, kEmbeddingChunk, 0, false},
    {Phase::kForward, kLayersChunk, 2, false},
    {Phase::kBackward, kOutputChunk, 1, false},
}};

// Messages of one kind that are on their way at most: what a channel has room for.
constexpr int kMostMessages = 2;

class VocabularyClock {
 public:
  VocabularyClock(int stages, int microbatches, bool all_forwards_first, bool backward)
      : stages_(stages),
        microbatches_(microbatches),
        all_forwards_first_(all_forwards_first),
        backward_(backward),
        free_at_(static_cast<size_t>(stages), 0),
        orders_(static_cast<size_t>(stages)) {
    for (auto& kind : steps_) kind.resize(static_cast<size_t>(stages));
  }

  std::vector<StageSchedule> Run() {
    int64_t left = 0;
    for (size_t kind = 0; kind < kStepKinds; ++kind) {
      if (!Takes(kind)) continue;
      left += int64_t{microbatches_} * (kSteps[kind].last_stage_only ? 1 : stages_);
    }
    for (int64_t now = 0;; now = Next(now)) {
      for (bool taken = true; taken;) {
        taken = false;
        for (int stage = 0; stage < stages_; ++stage) {
          if (free_at_[static_cast<size_t>(stage)] > now || !TakeOne(stage, now)) continue;
          --left;
          taken = true;
        }
      }
      if (left == 0) return std::move(orders_);
    }
  }

 private:
  struct Times {
    int64_t begin = 0, end = 0;
  };
  using Step = VocabularyStep;

  bool Takes(size_t kind) const { return backward_ || kSteps[kind].phase == Phase::kForward; }
  int last() const { return stages_ - 1; }

  const std::vector<Times>& Of(Step step, int stage) const {
    return steps_[static_cast<size_t>(step)][static_cast<size_t>(stage)];
  }
  int Count(Step step, int stage) const { return static_cast<int>(Of(step, stage).size()); }

  bool IsDone(Step step, int stage, int microbatch, int64_t now) const {
    const std::vector<Times>& times = Of(step, stage);
    return static_cast<size_t>(microbatch) < times.size() &&
           times[static_cast<size_t>(microbatch)].end <= now;
  }
  bool AllDone(Step step, int microbatch, int64_t now) const {
    for (int stage = 0; stage < stages_; ++stage) {
      if (!IsDone(step, stage, microbatch, now)) return false;
    }
    return true;
  }
  // The reader has taken a message so long ago that there is room for that of this microbatch.
  bool HasRoom(Step reader, int stage, int microbatch) const {
    if (!Takes(static_cast<size_t>(reader))) return true;
    return Count(reader, stage) > microbatch - kMostMessages;
  }
  bool AllHaveRoom(Step reader, int but, int microbatch) const {
    for (int stage = 0; stage < stages_; ++stage) {
      if (stage != but && !HasRoom(reader, stage, microbatch)) return false;
    }
    return true;
  }

  bool IsReady(Step step, int stage, int microbatch, int64_t now) const {
    const bool is_last = stage == last();
    switch (step) {
      case Step::kLoss:
        return AllDone(Step::kOutput, microbatch, now) &&
               AllHaveRoom(Step::kOutputBackward, stage, microbatch);
      case Step::kLossBackward:
        return IsDone(Step::kLoss, stage, microbatch, now);
      case Step::kEmbedding:
        return stage == 0 || HasRoom(Step::kForward, 0, microbatch);
      case Step::kOutput:
        return IsDone(Step::kForward, last(), microbatch, now) &&
               (is_last || (HasRoom(Step::kLoss, last(), microbatch) &&
                            HasRoom(Step::kLossBackward, last(), microbatch))) &&
               MayHoldLogits(stage);
      case Step::kBackward:
        return IsBackwardReady(stage, microbatch, now);
      case Step::kEmbeddingBackward:
        return IsDone(Step::kBackward, 0, microbatch, now);
      case Step::kForward:
        return IsForwardReady(stage, microbatch, now);
      case Step::kOutputBackward:
        return IsDone(Step::kLoss, last(), microbatch, now);
    }
    return false;
  }

  bool MayHoldLogits(int stage) const {
    return all_forwards_first_ || !backward_ ||
           Count(Step::kOutput, stage) - Count(Step::kOutputBackward, stage) < kMostLogits;
  }

  bool IsForwardReady(int stage, int microbatch, int64_t now) const {
    const int in_flight = Count(Step::kForward, stage) - Count(Step::kBackward, stage);
    const bool bounded = backward_ && !all_forwards_first_;
    if (bounded && in_flight >= stages_ - stage + 1) return false;
    const bool input = stage == 0 ? AllDone(Step::kEmbedding, microbatch, now)
                                  : IsDone(Step::kForward, stage - 1, microbatch, now);
    return input && (stage == last() ? AllHaveRoom(Step::kOutput, stage, microbatch)
                                     : HasRoom(Step::kForward, stage + 1, microbatch));
  }

  bool IsBackwardReady(int stage, int microbatch, int64_t now) const {
    if (all_forwards_first_ && Count(Step::kForward, stage) < microbatches_) return false;
    const bool input = stage == last() ? IsDone(Step::kLossBackward, stage, microbatch, now)
                                       : IsDone(Step::kBackward, stage + 1, microbatch, now);
    return input && (stage == 0 ? AllHaveRoom(Step::kEmbeddingBackward, stage, microbatch)
                                : HasRoom(Step::kBackward, stage - 1, microbatch));
  }

  // The first kind of step that is ready, if there is one.
  bool TakeOne(int stage, int64_t now) {
    for (size_t kind = 0; kind < kStepKinds; ++kind) {
      const StepKind& step = kSteps[kind];
      std::vector<Times>& taken = steps_[kind][static_cast<size_t>(stage)];
      const auto microbatch = static_cast<int>(taken.size());
      if (!Takes(kind) || (step.last_stage_only && stage != last()) ||
          microbatch == microbatches_ ||
          !IsReady(static_cast<Step>(kind), stage, microbatch, now)) {
        continue;
      }
      taken.push_back({now, now + step.slots});
      free_at_[static_cast<size_t>(stage)] = now + step.slots;
      orders_[static_cast<size_t>(stage)].push_back({step.phase, microbatch, step.chunk});
      return true;
    }
    return false;
  }

  // When the next step ends.
  int64_t Next(int64_t now) const {
    int64_t next = std::numeric_limits<int64_t>::max();
    for (const int64_t end : free_at_) {
      if (end > now) next = std::min(next, end);
    }
    MW_CHECK(next < std::numeric_limits<int64_t>::max())
        << "all " << stages_ << " stages wait for one another";
    return next;
  }

  const int stages_;
  const int microbatches_;
  const bool all_forwards_first_;
  const bool backward_;
  std::vector<int64_t> free_at_;
  std::array<std::vector<std::vector<Times>>, kStepKinds> steps_;  // by stage, by microbatch
  std::vector<StageSchedule> orders_;
};

}  // namespace

bool SharesVocabulary(const std::string& schedule) {
  return schedule == "1f1b-vocab" || schedule == "gpipe-vocab";
}

std::string ScheduleWithoutVocabulary(const std::string& schedule) {
  MW_CHECK(SharesVocabulary(schedule)) << schedule;
  return schedule.substr(0, schedule.find('-'));
}

bool SharesVocabulary(const Layout& layout) {
  return layout.pipeline > 1 && SharesVocabulary(layout.schedule);
}

PipelineShape StepShape(const Layout& layout) {
  if (!SharesVocabulary(layout)) return layout.shape();
  return {static_cast<int>(layout.pipeline), kVocabularyChunks, false};
}

Result<std::vector<StageSchedule>> MakeStepSchedule(const Layout& layout, bool backward) {
  const auto microbatches = static_cast<int>(layout.microbatches);
  if (SharesVocabulary(layout)) {
    return MakeVocabularySchedule(layout.schedule, static_cast<int>(layout.pipeline), microbatches,
                                  backward);
  }
  if (!backward) return ForwardSchedule(layout.shape(), microbatches);
  return MakeSchedule(layout.schedule, layout.shape(), microbatches);
}

std::vector<StageSchedule> MakeVocabularySchedule(const std::string& name, int stages,
                                                  int microbatches, bool backward) {
  MW_CHECK(stages >= 2 && microbatches >= 0 && SharesVocabulary(name))
      << name << " of " << microbatches << " microbatches, " << stages << " stages";
  return VocabularyClock(stages, microbatches, name == "gpipe-vocab", backward).Run();
}

}  // namespace meshwright::planner
