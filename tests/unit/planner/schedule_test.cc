// Every schedule for every small pipeline: each step once and in an order that its data allow, no
// stage waits for ever where channels hold no more than lowering gives them, no stage holds more
// than the schedule says, and the bubble is not above the closed form of the schedule's paper.
#include "planner/schedule.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "planner/v_schedule.h"

namespace meshwright::planner {
namespace {

constexpr int kMostStages = 8;
constexpr int kMostMicrobatches = 40;

// Seconds of a stage's whole share of one microbatch; parts of a stage share them evenly.
struct StepSeconds {
  double forward = 1;
  double backward = 1;
  double weights = 1;
  double sum() const { return forward + backward + weights; }
};

// Stages that walk through their lists as programs do: a step first takes the message of the part
// before it, then computes, then sends to the part behind it, and waits while the channel is full.
class TableMachine {
 public:
  TableMachine(const PipelineShape& shape, const std::vector<StageSchedule>& schedule,
               int microbatches, const StepSeconds& seconds, bool splits)
      : shape_(shape),
        schedule_(schedule),
        microbatches_(microbatches),
        seconds_(seconds),
        splits_(splits),
        stages_(schedule.size()) {}

  // The time of the last stage's end. None, and why: somebody waits for ever.
  std::optional<double> Run(std::string& why) {
    for (bool moved = true; moved;) {
      moved = false;
      for (int stage = 0; stage < shape_.stages; ++stage) {
        while (Advance(stage)) moved = true;
      }
    }
    double end_s = 0;
    for (int stage = 0; stage < shape_.stages; ++stage) {
      const Stage& state = stages_[static_cast<size_t>(stage)];
      if (state.next < Steps(stage).size()) {
        why += fmt::format("stage {} waits at step {} {}; ", stage, state.next,
                           state.computed ? "to send" : "to receive");
      }
      end_s = std::max(end_s, state.now_s);
    }
    return why.empty() ? std::optional(end_s) : std::nullopt;
  }

 private:
  struct Stage {
    size_t next = 0;
    bool computed = false;  // the step at `next`
    double now_s = 0;
  };
  struct Message {
    int microbatch = 0;
    double sent_s = 0;
  };
  struct Channel {
    std::vector<Message> sent;
    std::vector<double> taken_s;
  };

  const StageSchedule& Steps(int stage) const { return schedule_[static_cast<size_t>(stage)]; }

  // False at the end and while the stage waits.
  bool Advance(int stage) {
    Stage& state = stages_[static_cast<size_t>(stage)];
    if (state.next == Steps(stage).size()) return false;
    const ScheduleStep& step = Steps(stage)[state.next];
    if (!state.computed) {
      if (!Receive(stage, step)) return false;
      state.now_s += SecondsOf(step) / shape_.chunks;
      state.computed = true;
      return true;
    }
    if (!Send(stage, step)) return false;
    state.computed = false;
    ++state.next;
    return true;
  }

  double SecondsOf(const ScheduleStep& step) const {
    if (step.phase == ir::Phase::kForward) return seconds_.forward;
    if (step.weights) return seconds_.weights;
    return splits_ ? seconds_.backward : seconds_.backward + seconds_.weights;
  }

  // The part that a step's data comes from, or goes to: +1 in the forward; -1: there is none.
  int Neighbour(int stage, const ScheduleStep& step, int direction) const {
    if (step.weights) return -1;
    const int part = shape_.PartOf(stage, step.chunk) +
                     (step.phase == ir::Phase::kForward ? direction : -direction);
    return part < shape_.parts() ? part : -1;
  }

  bool Receive(int stage, const ScheduleStep& step) {
    const int from = Neighbour(stage, step, -1);
    if (from < 0) return true;
    Channel& channel = channels_[{step.phase, shape_.PartOf(stage, step.chunk)}];
    const size_t index = channel.taken_s.size();
    if (index == channel.sent.size()) return false;
    EXPECT_EQ(channel.sent[index].microbatch, step.microbatch)
        << "of what stage " << stage << " gets";
    double& now_s = stages_[static_cast<size_t>(stage)].now_s;
    now_s = std::max(now_s, channel.sent[index].sent_s);
    channel.taken_s.push_back(now_s);
    return true;
  }

  bool Send(int stage, const ScheduleStep& step) {
    const int to = Neighbour(stage, step, 1);
    if (to < 0) return true;
    Channel& channel = channels_[{step.phase, to}];
    double& now_s = stages_[static_cast<size_t>(stage)].now_s;
    // Parts of one stage hand values over in place.
    if (shape_.StageOf(to) != stage) {
      const auto room = static_cast<size_t>(
          MicrobatchesBetween(shape_, microbatches_, shape_.ChunkOf(to) != step.chunk));
      const size_t sent = channel.sent.size();
      if (sent >= room + channel.taken_s.size()) return false;
      if (sent >= room) now_s = std::max(now_s, channel.taken_s[sent - room]);
    }
    channel.sent.push_back({step.microbatch, now_s});
    return true;
  }

  const PipelineShape& shape_;
  const std::vector<StageSchedule>& schedule_;
  const int microbatches_;
  const StepSeconds seconds_;
  const bool splits_;
  std::vector<Stage> stages_;
  std::map<std::pair<ir::Phase, int>, Channel> channels_;  // by what the reading part does
};

struct Variant {
  const char* name;
  int chunks;
};

constexpr std::array<Variant, 11> kVariants = {{{"gpipe", 1},
                                                {"1f1b", 1},
                                                {"interleaved", 1},
                                                {"interleaved", 2},
                                                {"interleaved", 3},
                                                {"interleaved", 4},
                                                {"zb-h1", 1},
                                                {"zb-h2", 1},
                                                {"zb-v", 2},
                                                {"v-half", 2},
                                                {"v-min", 2}}};

// Of the makespan over the work of one stage. None: there is no closed form.
std::optional<double> ClosedFormOfBubble(const std::string& name, const PipelineShape& shape,
                                         int microbatches, const StepSeconds& s) {
  const double others = shape.stages - 1;
  if (name == "gpipe" || name == "1f1b") return others * s.sum();
  // SC'21, section 2.2. The paper has only whole rounds.
  if (name == "interleaved" && microbatches >= shape.stages) return others * s.sum() / shape.chunks;
  // ICLR'24, table 1; it asks for W that fill the warm-up.
  if (name == "zb-h1" && microbatches >= 2 * shape.stages && s.weights <= s.backward) {
    return others * (s.forward + s.backward - s.weights);
  }
  const bool equal = s.forward == s.backward && s.backward == s.weights;
  if (!equal || shape.stages == 1) return std::nullopt;
  // The pipeline fills, and nobody waits any more.
  if (name == "zb-h2" && microbatches >= 2 * shape.stages) return others * s.forward;
  if (name == "zb-v" && microbatches >= 2 * shape.stages) return others * s.forward / shape.chunks;
  // planner/v_schedule.h
  if (name == "v-half" && 2 * microbatches > shape.stages) {
    return (3 * others - shape.stages % 2) * s.forward / 2;
  }
  if (name == "v-min") return (2 * others + (shape.stages % 3 == 0 ? 0.5 : -0.5)) * s.forward;
  return std::nullopt;
}

// Chunks whose forward is done and whose backward, W included, is not.
int MostInFlight(const StageSchedule& steps, bool splits) {
  int most = 0;
  int now = 0;
  for (const ScheduleStep& step : steps) {
    if (step.phase == ir::Phase::kForward) {
      most = std::max(most, ++now);
    } else if (step.weights == splits) {
      --now;
    }
  }
  return most;
}

// In chunks, of a stage.
int ClosedFormOfInFlight(const std::string& name, const PipelineShape& shape, int stage,
                         int microbatches) {
  const int all = shape.chunks * microbatches;
  const int from_end = shape.stages - stage;
  if (name == "gpipe") return all;
  if (name == "interleaved" && shape.chunks > 1) {
    // SC'21: the warm-up and one on top. The longest round is the first.
    const int rounds = std::max(1, microbatches / shape.stages);
    const int round = (microbatches + rounds - 1) / rounds;
    return std::min(all, 2 * (from_end - 1) + (shape.chunks - 1) * round + 1);
  }
  if (name == "interleaved") return std::min(all, 2 * from_end - 1);
  if (name == "1f1b") return std::min(all, from_end);
  if (name == "zb-h1" || shape.stages == 1) return std::min(all, shape.stages);
  if (name == "zb-h2") return std::min(all, 2 * shape.stages - 1);
  if (name == "zb-v") return std::min(all, 2 * shape.stages);
  return std::min(
      all, MostChunksInFlight(name == "v-half" ? VBlock::kHalf : VBlock::kMin, shape.stages));
}

// Calls `check` with every schedule that there is.
template <typename Check>
void ForEverySchedule(const Check& check) {
  for (const Variant& variant : kVariants) {
    for (int stages = 1; stages <= kMostStages; ++stages) {
      const auto shape = ShapeOfSchedule(variant.name, stages, variant.chunks);
      ASSERT_TRUE(shape.has_value()) << shape.error();
      for (int microbatches = 1; microbatches <= kMostMicrobatches; ++microbatches) {
        const auto schedule = MakeSchedule(variant.name, *shape, microbatches);
        ASSERT_TRUE(schedule.has_value()) << schedule.error();
        SCOPED_TRACE(fmt::format("{} of {} chunks, {} stages, {} microbatches", variant.name,
                                 shape->chunks, stages, microbatches));
        check(std::string(variant.name), *shape, microbatches, *schedule);
        if (::testing::Test::HasFailure()) return;
      }
    }
  }
}

TEST(EverySchedule, HasEachStepOnceAndWhatItReadsBeforeIt) {
  ForEverySchedule([](const std::string& name, const PipelineShape& shape, int microbatches,
                      const std::vector<StageSchedule>& schedule) {
    const int kinds = SplitsBackward(name) ? 3 : 2;
    for (const StageSchedule& steps : schedule) {
      std::set<std::tuple<int, int, int>> done;  // kind, microbatch, chunk
      for (const ScheduleStep& step : steps) {
        const int kind = step.phase == ir::Phase::kForward ? 0 : step.weights ? 2 : 1;
        EXPECT_TRUE(done.insert({kind, step.microbatch, step.chunk}).second)
            << FormatSchedule(steps);
        EXPECT_TRUE(kind == 0 || done.contains({kind - 1, step.microbatch, step.chunk}))
            << FormatSchedule(steps);
      }
      EXPECT_EQ(done.size(), static_cast<size_t>(kinds * microbatches * shape.chunks));
    }
  });
}

TEST(EverySchedule, EndsInItsChannelsAndWaitsNoLongerThanItsClosedForm) {
  constexpr std::array<StepSeconds, 3> kSeconds = {{{1, 1, 1}, {10, 12, 8}, {3, 2, 1}}};
  ForEverySchedule([&](const std::string& name, const PipelineShape& shape, int microbatches,
                       const std::vector<StageSchedule>& schedule) {
    for (const StepSeconds& seconds : kSeconds) {
      TableMachine machine(shape, schedule, microbatches, seconds, SplitsBackward(name));
      std::string why;
      const std::optional<double> end_s = machine.Run(why);
      ASSERT_TRUE(end_s.has_value()) << why;
      const double work_s = microbatches * seconds.sum();
      EXPECT_GE(*end_s, work_s - 1e-9);
      const auto bubble_s = ClosedFormOfBubble(name, shape, microbatches, seconds);
      if (bubble_s) {
        EXPECT_LE(*end_s, work_s + *bubble_s + 1e-9);
      }
    }
  });
}

// Where there are enough microbatches to fill a stage, it holds exactly so much.
TEST(EverySchedule, HoldsNoMoreThanItSays) {
  ForEverySchedule([](const std::string& name, const PipelineShape& shape, int microbatches,
                      const std::vector<StageSchedule>& schedule) {
    int most = 0;
    int stated = 0;
    for (int stage = 0; stage < shape.stages; ++stage) {
      const int held = MostInFlight(schedule[static_cast<size_t>(stage)], SplitsBackward(name));
      const int bound = ClosedFormOfInFlight(name, shape, stage, microbatches);
      EXPECT_LE(held, bound) << "stage " << stage;
      most = std::max(most, held);
      stated = std::max(stated, bound);
    }
    if (microbatches >= 2 * shape.stages) {
      EXPECT_EQ(most, stated);
    }
  });
}

struct TableGolden {
  const char* name;
  int stages, microbatches;
  StepSeconds seconds;
  double bubble_s;
  double in_flight;  // microbatches of whole stages, of the fullest stage
};

// Papers and the design have these as a table; bubbles are of the whole pipeline, with its filling.
TEST(EverySchedule, HasTheBubbleAndTheMemoryOfItsTable) {
  constexpr StepSeconds kEqual = {1, 1, 1};
  constexpr StepSeconds kUnequal = {10, 12, 8};
  const TableGolden goldens[] = {
      {"1f1b", 4, 8, kEqual, 9, 4},       {"zb-h1", 4, 8, kEqual, 3, 4},
      {"zb-h2", 4, 8, kEqual, 3, 7},      {"zb-v", 4, 8, kEqual, 1.5, 4},
      {"v-half", 4, 8, kEqual, 4.5, 3},   {"v-min", 4, 8, kEqual, 5.5, 2},
      {"1f1b", 8, 16, kEqual, 21, 8},     {"zb-h1", 8, 16, kEqual, 7, 8},
      {"zb-h2", 8, 16, kEqual, 7, 15},    {"zb-v", 8, 16, kEqual, 3.5, 8},
      {"v-half", 8, 16, kEqual, 10.5, 5}, {"v-min", 8, 16, kEqual, 13.5, 4},
      {"1f1b", 4, 8, kUnequal, 90, 4},    {"zb-h1", 4, 8, kUnequal, 42, 4},
      {"zb-h2", 4, 8, kUnequal, 30, 7},   {"zb-v", 4, 8, kUnequal, 18, 4},
      {"v-half", 4, 8, kUnequal, 59, 3},  {"v-min", 4, 8, kUnequal, 104, 2},
      {"v-half", 3, 9, kEqual, 2.5, 2},   {"v-min", 3, 9, kEqual, 4.5, 2},
      {"v-half", 7, 21, kEqual, 8.5, 4},  {"v-min", 7, 21, kEqual, 11.5, 3},
      {"zb-v", 4, 4, kEqual, 3, 4},       {"zb-v", 4, 2, kEqual, 5, 2},
  };
  for (const TableGolden& golden : goldens) {
    SCOPED_TRACE(fmt::format("{} {} {}", golden.name, golden.stages, golden.microbatches));
    const auto shape = ShapeOfSchedule(golden.name, golden.stages, 0);
    ASSERT_TRUE(shape.has_value()) << shape.error();
    const auto schedule = MakeSchedule(golden.name, *shape, golden.microbatches);
    ASSERT_TRUE(schedule.has_value()) << schedule.error();
    const bool splits = SplitsBackward(golden.name);
    std::string why;
    const auto end_s =
        TableMachine(*shape, *schedule, golden.microbatches, golden.seconds, splits).Run(why);
    ASSERT_TRUE(end_s.has_value()) << why;
    EXPECT_NEAR(*end_s - golden.microbatches * golden.seconds.sum(), golden.bubble_s, 1e-9);
    int most = 0;
    for (const StageSchedule& steps : *schedule) most = std::max(most, MostInFlight(steps, splits));
    EXPECT_DOUBLE_EQ(static_cast<double>(most) / shape->chunks, golden.in_flight);
  }
}

TEST(EverySchedule, ForwardsOfAnEvaluationEndInTheirChannels) {
  for (int stages = 1; stages <= kMostStages; ++stages) {
    for (int chunks = 1; chunks <= 4; ++chunks) {
      for (int microbatches = 1; microbatches <= kMostMicrobatches; ++microbatches) {
        const PipelineShape shape = {stages, chunks, false};
        const auto schedule = ForwardSchedule(shape, microbatches);
        std::string why;
        EXPECT_TRUE(TableMachine(shape, schedule, microbatches, {}, false).Run(why).has_value())
            << stages << " stages, " << chunks << " chunks, " << microbatches << ": " << why;
      }
    }
  }
}

TEST(EverySchedule, RoundsKeepAsFewMicrobatchesInFlightAsTheyCan) {
  // Eleven microbatches on four stages: rounds of six and five, not of seven and four.
  const auto schedule = MakeSchedule("interleaved", {4, 2, false}, 11);
  ASSERT_TRUE(schedule.has_value());
  const StageSchedule& first = schedule->front();
  const auto of_next_chunk = std::find_if(first.begin(), first.end(),
                                          [](const ScheduleStep& step) { return step.chunk == 1; });
  EXPECT_EQ(of_next_chunk - first.begin(), 6);
}

}  // namespace
}  // namespace meshwright::planner
