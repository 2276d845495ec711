// Schedules of a pipeline whose stages share the vocabulary: 1f1b and gpipe with the steps of
// embedding and output layer between them, named 1f1b-vocab and gpipe-vocab.
//
// A stage has four chunks. Of microbatch i:
//   embedding  F: looks up the tokens that are among its rows; the first stage adds up what all
//              found. B: adds the gradient of the embedded tokens to its rows.
//   layers     F and B, as without.
//   output     F: S, logits of its rows, their sums, and what its rows give to the gradient of the
//              last hidden state by these sums alone. B: T, the gradient of its rows.
//   loss       of the last stage alone. F: loss of what all S found. B: the gradient of the last
//              hidden state, a weighted sum of what all S gave. This is the one barrier.
//
// The order of a stage is that of a clock of slots on which each stage takes what is ready, in this
// order: loss, what tokens wait for, S, B, F, T. F is taken while fewer microbatches than with
// 1f1b and one more are in flight, S while the logits of fewer than two are. So a stage s of p
// holds at most p - s + 1 microbatches and logits of two, and no order waits for ever: the clock
// has run it, with as many messages between two steps as a channel has room for.
// The clock's slots are F 2, B 4, S 2, T 1; with them the bubble of 1f1b is at most that without
// a shared vocabulary, (p - 1) x (F + B).
//
// Thread rule: pure functions. Source of S, T and their barrier: vocabulary parallelism (Yeung et
// al., "Balancing pipeline parallelism with vocabulary parallelism", 2024); the clock is this
// project's own.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "planner/layout.h"
#include "planner/schedule.h"

namespace meshwright::planner {

inline constexpr int kEmbeddingChunk = 0;
inline constexpr int kLayersChunk = 1;
inline constexpr int kOutputChunk = 2;
inline constexpr int kLossChunk = 3;
inline constexpr int kVocabularyChunks = 4;

// Microbatches of which a stage holds the logits at once, at most.
inline constexpr int kMostLogits = 2;

// The schedules with a shared vocabulary: "1f1b-vocab" and "gpipe-vocab".
bool SharesVocabulary(const std::string& schedule);
// "1f1b" of "1f1b-vocab". REQUIRES: SharesVocabulary(schedule).
std::string ScheduleWithoutVocabulary(const std::string& schedule);
// The layout has several stages, and they do.
bool SharesVocabulary(const Layout& layout);

// What the steps of the layout's schedule call chunks: parts of the layers, or the four above.
PipelineShape StepShape(const Layout& layout);

// What each stage does in which order, in chunks of StepShape: a step, or with `backward` false a
// run that goes forward only. Errors: as MakeSchedule.
Result<std::vector<StageSchedule>> MakeStepSchedule(const Layout& layout, bool backward);

// One list per stage of the shape {stages, kVocabularyChunks}. `backward`: false for programs that
// go forward only. REQUIRES: stages >= 2, SharesVocabulary(name). Cost: O(stages^2 x microbatches).
std::vector<StageSchedule> MakeVocabularySchedule(const std::string& name, int stages,
                                                  int microbatches, bool backward);

}  // namespace meshwright::planner
