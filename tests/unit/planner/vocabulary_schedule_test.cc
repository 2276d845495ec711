// Schedules with a shared vocabulary, for every small pipeline: each step once and in an order that
// its data allow, no stage waits for ever where a channel has room for two messages, no stage holds
// more than is said, and the bubble is not above that of the schedule without.
#include "planner/vocabulary_schedule.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <optional>
#include <tuple>
#include <utility>
#include <vector>

namespace meshwright::planner {
namespace {

using ir::Phase;

constexpr int kMostStages = 8;
constexpr int kMostMicrobatches = 24;

// A step of a stage: phase, chunk, stage.
using Kind = std::tuple<Phase, int, int>;

double SecondsOf(const ScheduleStep& step) {
  if (step.chunk == kLayersChunk) return step.phase == Phase::kForward ? 2 : 4;
  if (step.chunk != kOutputChunk) return 0;
  return step.phase == Phase::kForward ? 2 : 1;
}

// Who sends to whom: written from what the steps compute, not from how the clock asks.
std::vector<Kind> SendersTo(const Kind& kind, int stages, bool backward) {
  const auto [phase, chunk, stage] = kind;
  const int last = stages - 1;
  std::vector<Kind> from;
  if (chunk == kLossChunk && stage != last) return from;
  const auto from_all = [&](Phase of, int of_chunk) {
    for (int s = 0; s < stages; ++s) from.emplace_back(of, of_chunk, s);
  };
  if (phase == Phase::kForward) {
    if (chunk == kLayersChunk && stage == 0) from_all(Phase::kForward, kEmbeddingChunk);
    if (chunk == kLayersChunk && stage > 0) from = {{phase, kLayersChunk, stage - 1}};
    if (chunk == kOutputChunk) from = {{phase, kLayersChunk, last}};
    if (chunk == kLossChunk) from_all(Phase::kForward, kOutputChunk);
    return from;
  }
  if (!backward) return from;
  if (chunk == kLossChunk) from_all(Phase::kForward, kOutputChunk);
  if (chunk == kOutputChunk) from = {{Phase::kForward, kLossChunk, last}};
  if (chunk == kLayersChunk && stage == last) from = {{phase, kLossChunk, last}};
  if (chunk == kLayersChunk && stage < last) from = {{phase, kLayersChunk, stage + 1}};
  if (chunk == kEmbeddingChunk) from = {{phase, kLayersChunk, 0}};
  return from;
}

// Stages that walk through their lists as programs do: a step waits for its messages, computes,
// then sends to each reader, and waits while one has not taken the second last message before.
class VocabularyMachine {
 public:
  VocabularyMachine(const std::vector<StageSchedule>& schedule, bool backward)
      : schedule_(schedule), backward_(backward), stages_(static_cast<int>(schedule.size())) {
    for (const Phase phase : {Phase::kForward, Phase::kBackward}) {
      for (int chunk = 0; chunk < kVocabularyChunks; ++chunk) {
        for (int stage = 0; stage < stages_; ++stage) {
          const Kind reader{phase, chunk, stage};
          for (const Kind& sender : SendersTo(reader, stages_, backward)) {
            readers_[sender].push_back(reader);
          }
        }
      }
    }
  }

  // The end; nothing: somebody waits for ever.
  std::optional<double> Run() {
    std::vector<size_t> next(schedule_.size(), 0);
    std::vector<bool> computed(schedule_.size(), false);
    std::vector<double> now(schedule_.size(), 0);
    for (bool moved = true; moved;) {
      moved = false;
      for (size_t s = 0; s < schedule_.size(); ++s) {
        while (next[s] < schedule_[s].size() && Advance(s, next[s], computed, now)) moved = true;
      }
    }
    for (size_t s = 0; s < schedule_.size(); ++s) {
      if (next[s] < schedule_[s].size()) return std::nullopt;
    }
    return *std::max_element(now.begin(), now.end());
  }

 private:
  bool Advance(size_t s, size_t& next, std::vector<bool>& computed, std::vector<double>& now) {
    const ScheduleStep& step = schedule_[s][next];
    const Kind kind{step.phase, step.chunk, static_cast<int>(s)};
    const auto microbatch = static_cast<size_t>(step.microbatch);
    if (!computed[s]) {
      for (const Kind& sender : SendersTo(kind, stages_, backward_)) {
        if (ends_[sender].size() <= microbatch) return false;
        now[s] = std::max(now[s], ends_[sender][microbatch]);
      }
      ++taken_[kind];
      now[s] += SecondsOf(step);
      ends_[kind].push_back(now[s]);
      computed[s] = true;
      return true;
    }
    for (const Kind& reader : readers_[kind]) {
      const bool own = std::get<2>(reader) == static_cast<int>(s);
      if (!own && taken_[reader] + 2 < microbatch + 1) return false;
    }
    computed[s] = false;
    ++next;
    return true;
  }

  const std::vector<StageSchedule>& schedule_;
  const bool backward_;
  const int stages_;
  std::map<Kind, std::vector<Kind>> readers_;
  std::map<Kind, std::vector<double>> ends_;
  std::map<Kind, size_t> taken_;
};

void ExpectEachStepOnceInOrder(const std::vector<StageSchedule>& schedule, int microbatches,
                               bool backward) {
  for (size_t s = 0; s < schedule.size(); ++s) {
    std::map<std::pair<Phase, int>, int> next;
    for (const ScheduleStep& step : schedule[s]) {
      EXPECT_EQ(step.microbatch, (next[{step.phase, step.chunk}]++)) << "stage " << s;
    }
    const bool last = s + 1 == schedule.size();
    EXPECT_EQ(next.size(), (backward ? 6U : 3U) + (last ? (backward ? 2U : 1U) : 0U));
    for (const auto& [kind, count] : next) EXPECT_EQ(count, microbatches) << "stage " << s;
  }
}

int MostBetween(const StageSchedule& schedule, int chunk) {
  int now = 0;
  int most = 0;
  for (const ScheduleStep& step : schedule) {
    if (step.chunk != chunk) continue;
    now += step.phase == Phase::kForward ? 1 : -1;
    most = std::max(most, now);
  }
  return most;
}

TEST(VocabularySchedule, EveryOrderEndsWithinItsBubbleAndMemory) {
  for (const char* name : {"1f1b-vocab", "gpipe-vocab"}) {
    const bool gpipe = name[0] == 'g';
    for (int stages = 2; stages <= kMostStages; ++stages) {
      for (int microbatches = 1; microbatches <= kMostMicrobatches; ++microbatches) {
        const auto schedule = MakeVocabularySchedule(name, stages, microbatches, true);
        const std::string what = fmt::format("{} p={} m={}", name, stages, microbatches);
        ASSERT_EQ(schedule.size(), static_cast<size_t>(stages));
        ExpectEachStepOnceInOrder(schedule, microbatches, true);
        const std::optional<double> end_s = VocabularyMachine(schedule, true).Run();
        ASSERT_TRUE(end_s.has_value()) << what << " waits for ever";
        const double work_s = microbatches * 9;
        if (!gpipe) {
          EXPECT_LE(*end_s, work_s + (stages - 1) * 6) << what;
        }
        for (int stage = 0; stage < stages; ++stage) {
          const StageSchedule& order = schedule[static_cast<size_t>(stage)];
          const int most = gpipe ? microbatches : std::min(microbatches, stages - stage + 1);
          EXPECT_LE(MostBetween(order, kLayersChunk), most) << what << " stage " << stage;
          const int logits = gpipe ? microbatches : kMostLogits;
          EXPECT_LE(MostBetween(order, kOutputChunk), logits) << what;
        }
      }
    }
  }
}

TEST(VocabularySchedule, ForwardsAloneEnd) {
  for (int stages = 2; stages <= kMostStages; ++stages) {
    for (const int microbatches : {1, 3, 2 * stages + 1}) {
      const auto schedule = MakeVocabularySchedule("1f1b-vocab", stages, microbatches, false);
      ExpectEachStepOnceInOrder(schedule, microbatches, false);
      EXPECT_TRUE(VocabularyMachine(schedule, false).Run().has_value()) << stages;
    }
  }
}

TEST(VocabularySchedule, HasTheOrderOfItsClock) {
  const auto schedule = MakeVocabularySchedule("1f1b-vocab", 2, 2, true);
  EXPECT_EQ(FormatSchedule(schedule[0]),
            "F0.0 F1.0 F0.1 F1.1 F0.2 B0.2 B0.1 F1.2 B0.0 B1.2 B1.1 B1.0");
  EXPECT_EQ(FormatSchedule(schedule[1]),
            "F0.0 F1.0 F0.1 F0.2 F0.3 B0.3 B0.1 F1.1 F1.2 B0.0 B0.2 F1.3 B1.3 B1.1 B1.2 B1.0");
}

TEST(VocabularySchedule, OneStageSharesNothing) {
  Layout layout;
  layout.schedule = "1f1b-vocab";
  EXPECT_FALSE(SharesVocabulary(layout));
  EXPECT_EQ(StepShape(layout), layout.shape());
  layout.pipeline = 2;
  EXPECT_TRUE(SharesVocabulary(layout));
  EXPECT_EQ(StepShape(layout).parts(), 2 * kVocabularyChunks);
}

}  // namespace
}  // namespace meshwright::planner
