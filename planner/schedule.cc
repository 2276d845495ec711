#include "planner/schedule.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <utility>

#include "base/check.h"
#include "planner/v_schedule.h"

namespace meshwright::planner {
namespace {

using ir::Phase;

StageSchedule GPipe(int microbatches) {
  StageSchedule schedule;
  for (int m = 0; m < microbatches; ++m) schedule.push_back({Phase::kForward, m});
  for (int m = 0; m < microbatches; ++m) schedule.push_back({Phase::kBackward, m});
  return schedule;
}

// Some forwards, then one forward per backward, then the rest.
StageSchedule Alternate(const StageSchedule& forwards, const StageSchedule& backwards,
                        size_t warm_up) {
  MW_CHECK(forwards.size() == backwards.size())
      << forwards.size() << " forwards, " << backwards.size() << " backwards";
  StageSchedule schedule;
  size_t forward = 0;
  size_t backward = 0;
  while (forward < std::min(warm_up, forwards.size())) schedule.push_back(forwards[forward++]);
  while (forward < forwards.size()) {
    schedule.push_back(forwards[forward++]);
    schedule.push_back(backwards[backward++]);
  }
  while (backward < backwards.size()) schedule.push_back(backwards[backward++]);
  return schedule;
}

StageSchedule OneForwardOneBackward(int stages, int stage, int microbatches) {
  MW_CHECK(stage >= 0 && stage < stages) << "stage " << stage << " of " << stages;
  const StageSchedule all = GPipe(microbatches);
  const auto half = all.begin() + microbatches;
  return Alternate({all.begin(), half}, {half, all.end()}, static_cast<size_t>(stages - 1 - stage));
}

// Rounds of at least as many microbatches as there are stages and as equal as they can be: each
// passes all chunks before the next one begins. In a shorter round the first stage would wait for a
// chunk that the last has not begun; the longer one is, the more is in flight, and the more
// messages wait between two chunks.
struct RoundSizes {
  int count = 1;
  int shorter = 0;  // microbatches of the later ones
  int longer = 0;   // how many, the first ones, have one more
  int Of(int round) const { return shorter + (round < longer ? 1 : 0); }
};

RoundSizes RoundsOf(const PipelineShape& shape, int microbatches) {
  MW_CHECK(shape.stages >= 1 && microbatches >= 0)
      << microbatches << " microbatches through " << shape.stages << " stages";
  const int count = std::max(1, microbatches / shape.stages);
  return {count, microbatches / count, microbatches % count};
}

StageSchedule Rounds(Phase phase, const PipelineShape& shape, int microbatches) {
  StageSchedule schedule;
  const RoundSizes rounds = RoundsOf(shape, microbatches);
  int begin = 0;
  for (int round = 0; round < rounds.count; ++round) {
    const int end = begin + rounds.Of(round);
    for (int i = 0; i < shape.chunks; ++i) {
      const int chunk = phase == Phase::kForward ? i : shape.chunks - 1 - i;
      for (int m = begin; m < end; ++m) schedule.push_back({phase, m, chunk});
    }
    begin = end;
  }
  MW_CHECK(begin == microbatches) << "rounds of " << begin << " of " << microbatches;
  return schedule;
}

StageSchedule Interleaved(const PipelineShape& shape, int stage, int microbatches) {
  MW_CHECK(stage >= 0 && stage < shape.stages) << "stage " << stage << " of " << shape.stages;
  const int round = RoundsOf(shape, microbatches).Of(0);
  const int warm_up = 2 * (shape.stages - 1 - stage) + (shape.chunks - 1) * round;
  return Alternate(Rounds(Phase::kForward, shape, microbatches),
                   Rounds(Phase::kBackward, shape, microbatches), static_cast<size_t>(warm_up));
}

// Appends the next microbatch's step of a kind, as long as there is one.
class ZeroBubbleBuilder {
 public:
  explicit ZeroBubbleBuilder(int microbatches) : microbatches_(microbatches) {}

  void Forward(int chunk) { Add({Phase::kForward, 0, chunk}, done_[{Phase::kForward, chunk}]); }
  void Backward(int chunk) { Add({Phase::kBackward, 0, chunk}, done_[{Phase::kBackward, chunk}]); }
  void Weights(int chunk) {
    if (weights_[chunk] < backwards(chunk)) {
      Add({Phase::kBackward, 0, chunk, true}, weights_[chunk]);
    }
  }
  int forwards(int chunk) { return done_[{Phase::kForward, chunk}]; }
  int backwards(int chunk) { return done_[{Phase::kBackward, chunk}]; }
  int weights(int chunk) { return weights_[chunk]; }
  int microbatches() const { return microbatches_; }
  // Every microbatch has gone forward, back and into the weights of all chunks.
  bool IsDone(int chunks) {
    for (int chunk = 0; chunk < chunks; ++chunk) {
      if (forwards(chunk) != microbatches_ || backwards(chunk) != microbatches_ ||
          weights(chunk) != microbatches_) {
        return false;
      }
    }
    return true;
  }
  StageSchedule Finish() { return std::move(schedule_); }

 private:
  void Add(ScheduleStep step, int& next) {
    if (next == microbatches_) return;
    step.microbatch = next++;
    schedule_.push_back(step);
  }

  const int microbatches_;
  std::map<std::pair<Phase, int>, int> done_;
  std::map<int, int> weights_;
  StageSchedule schedule_;
};

// Some forwards, then B, W and F in turn. W stays behind B by `delayed_weights` until the forwards
// end: what would make a stage wait at the end of the step is left for it to do then.
StageSchedule DelayWeights(int microbatches, int warm_up, int delayed_weights) {
  ZeroBubbleBuilder builder(microbatches);
  for (int i = 0; i < warm_up; ++i) builder.Forward(0);
  while (builder.backwards(0) < microbatches) {
    const bool drains = builder.forwards(0) == microbatches;
    builder.Backward(0);
    if (drains || builder.backwards(0) - builder.weights(0) > delayed_weights) builder.Weights(0);
    builder.Forward(0);
  }
  while (builder.weights(0) < microbatches) builder.Weights(0);
  MW_CHECK(builder.IsDone(1)) << "work is left after " << microbatches << " microbatches";
  return builder.Finish();
}

// Stages have as many microbatches in flight as 1f1b's first, and drain without waiting.
StageSchedule ZeroBubbleH1(int stages, int stage, int microbatches) {
  return DelayWeights(microbatches, stages - stage, stage);
}

// Every stage has 2 x stages - 1 in flight. Its forwards fill the time in which the first backward
// comes back, so that a stage once begun does not wait.
StageSchedule ZeroBubbleH2(int stages, int stage, int microbatches) {
  return DelayWeights(microbatches, 2 * (stages - stage) - 1, 2 * stage);
}

// Folded schedules meet in the middle. With fewer than two microbatches per stage they pass through
// the same order, and the steps of those that there are not are left out: what is left waits for
// nothing that it did not wait for, and holds no more.
StageSchedule ZeroBubbleV(int stages, int stage, int microbatches) {
  const int planned = std::max(microbatches, 2 * stages);
  ZeroBubbleBuilder builder(planned);
  const int rest = stages - stage;
  for (int i = 0; i < 2 * rest - 1; ++i) builder.Forward(0);
  for (int i = 0; i < stage; ++i) {
    builder.Forward(1);
    builder.Forward(0);
  }
  for (int i = 0; i < rest; ++i) {
    builder.Forward(1);
    builder.Backward(1);
    builder.Weights(1);
  }
  while (builder.forwards(1) < planned) {
    builder.Forward(0);
    builder.Backward(0);
    builder.Weights(0);
    builder.Forward(1);
    builder.Backward(1);
    builder.Weights(1);
  }
  for (int i = 0; i < stage; ++i) {
    builder.Backward(0);
    builder.Backward(1);
  }
  for (int i = 0; i < rest; ++i) {
    builder.Backward(0);
    builder.Weights(0);
  }
  for (const int chunk : {1, 0}) {
    while (builder.weights(chunk) < builder.backwards(chunk)) builder.Weights(chunk);
  }
  MW_CHECK(builder.IsDone(2)) << "zb-v leaves work of stage " << stage;
  StageSchedule schedule = builder.Finish();
  std::erase_if(schedule,
                [&](const ScheduleStep& step) { return step.microbatch >= microbatches; });
  return schedule;
}

// Of the layers alone; with the vocabulary's steps: planner/vocabulary_schedule.h.
StageSchedule AllForwards(int /*stages*/, int /*stage*/, int microbatches) {
  return GPipe(microbatches);
}

struct Kind {
  const char* name;
  bool splits_backward;
  int fewest_chunks;
  int most_chunks;
  int usual_chunks;
  bool folded;
  // The order of a stage of several; null: it takes the whole shape.
  StageSchedule (*order)(int stages, int stage, int microbatches);
};
constexpr int kManyChunks = 1 << 16;
constexpr Kind kKinds[] = {
    {"1f1b", false, 1, 1, 1, false, OneForwardOneBackward},
    {"gpipe", false, 1, 1, 1, false, AllForwards},
    {"1f1b-vocab", false, 1, 1, 1, false, OneForwardOneBackward},
    {"gpipe-vocab", false, 1, 1, 1, false, AllForwards},
    {"interleaved", false, 1, kManyChunks, 2, false, nullptr},
    {"zb-h1", true, 1, 1, 1, false, ZeroBubbleH1},
    {"zb-h2", true, 1, 1, 1, false, ZeroBubbleH2},
    {"zb-v", true, 2, 2, 2, true, ZeroBubbleV},
    {"v-half", true, 2, 2, 2, true, nullptr},
    {"v-min", true, 2, 2, 2, true, nullptr},
};

const Kind* FindKind(const std::string& name) {
  const auto* const it = std::find_if(std::begin(kKinds), std::end(kKinds),
                                      [&](const Kind& kind) { return name == kind.name; });
  return it == std::end(kKinds) ? nullptr : it;
}

Status UnknownSchedule(const std::string& name) {
  return InvalidArgument(fmt::format("unknown schedule '{}'; known: {}", name, KnownSchedules()));
}

}  // namespace

int PipelineShape::StageOf(int part) const {
  MW_CHECK(part >= 0 && part < parts()) << "part " << part << " of " << parts();
  const int place = part % stages;
  return folded && ChunkOf(part) % 2 == 1 ? stages - 1 - place : place;
}

int PipelineShape::PartOf(int stage, int chunk) const {
  MW_CHECK(stage >= 0 && stage < stages && chunk >= 0 && chunk < chunks)
      << "chunk " << chunk << " of stage " << stage << " of " << stages;
  return chunk * stages + (folded && chunk % 2 == 1 ? stages - 1 - stage : stage);
}

std::string KnownSchedules() {
  std::vector<std::string> names;
  for (const Kind& kind : kKinds) names.emplace_back(kind.name);
  return fmt::format("{}", fmt::join(names, ", "));
}

bool SplitsBackward(const std::string& schedule) {
  const Kind* const kind = FindKind(schedule);
  return kind && kind->splits_backward;
}

bool IsFolded(const std::string& schedule) {
  const Kind* const kind = FindKind(schedule);
  return kind && kind->folded;
}

Result<PipelineShape> ShapeOfSchedule(const std::string& schedule, int stages, int chunks) {
  const Kind* const kind = FindKind(schedule);
  if (!kind) return Fail(UnknownSchedule(schedule));
  // Without a pipeline there is nothing to interleave.
  if (stages == 1) return PipelineShape{};
  if (chunks == 0) chunks = kind->usual_chunks;
  if (chunks < kind->fewest_chunks || chunks > kind->most_chunks) {
    return Fail(
        InvalidArgument(fmt::format("schedule {} has {} chunk(s) per stage, not {}; leave "
                                    "chunks open, or choose \"interleaved\"",
                                    schedule, kind->usual_chunks, chunks)));
  }
  return PipelineShape{stages, chunks, kind->folded};
}

int MicrobatchesBetween(const PipelineShape& shape, int microbatches, bool changes_chunk) {
  constexpr int kOneBeingReadOneBehind = 2;
  if (!changes_chunk) return kOneBeingReadOneBehind;
  return std::max(kOneBeingReadOneBehind, RoundsOf(shape, microbatches).Of(0) - shape.stages + 1);
}

Result<std::vector<StageSchedule>> MakeSchedule(const std::string& name, const PipelineShape& shape,
                                                int microbatches) {
  const Kind* const kind = FindKind(name);
  if (!kind) return Fail(UnknownSchedule(name));
  if (shape.stages > 1 && name == "v-half") {
    return MakeVSchedule(VBlock::kHalf, shape.stages, microbatches);
  }
  if (shape.stages > 1 && name == "v-min") {
    return MakeVSchedule(VBlock::kMin, shape.stages, microbatches);
  }
  std::vector<StageSchedule> result;
  auto* order = kind->order;
  // One stage: nobody waits, so that each microbatch is finished before the next one begins.
  if (shape.stages == 1 && order != AllForwards) {
    order = kind->splits_backward ? ZeroBubbleH1 : OneForwardOneBackward;
  }
  for (int stage = 0; stage < shape.stages; ++stage) {
    result.push_back(order != nullptr ? order(shape.stages, stage, microbatches)
                                      : Interleaved(shape, stage, microbatches));
  }
  return result;
}

std::vector<StageSchedule> ForwardSchedule(const PipelineShape& shape, int microbatches) {
  std::vector<StageSchedule> result;
  for (int stage = 0; stage < shape.stages; ++stage) {
    result.push_back(Rounds(Phase::kForward, shape, microbatches));
  }
  return result;
}

std::string FormatSchedule(const StageSchedule& schedule) {
  const bool chunks = std::any_of(schedule.begin(), schedule.end(),
                                  [](const ScheduleStep& step) { return step.chunk > 0; });
  std::vector<std::string> steps;
  for (const ScheduleStep& step : schedule) {
    const char letter = step.phase == Phase::kForward ? 'F' : step.weights ? 'W' : 'B';
    steps.push_back(chunks ? fmt::format("{}{}.{}", letter, step.microbatch, step.chunk)
                           : fmt::format("{}{}", letter, step.microbatch));
  }
  return fmt::format("{}", fmt::join(steps, " "));
}

}  // namespace meshwright::planner
