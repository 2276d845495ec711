// Pipeline schedules: the order in which each stage runs the forward and backward of every
// microbatch.
//
// The model is cut into parts, one after the other. A stage (a group of devices) holds one part, or
// `chunks` of them: round the stages again and again (interleaved), or there and back (the V of
// zb-v, v-half and v-min: the first stage holds the first and the last part). Zero-bubble schedules
// split the backward: B makes the gradients that other parts wait for, W those of weights, which
// nobody waits for.
//
// A schedule is a table of compute steps only; lowering inserts SEND and RECV around them.
//   gpipe        all forwards, then all backwards
//   1f1b         stage s keeps at most stages - s microbatches in flight
//   interleaved  1f1b over chunks: the bubble shrinks by their number, messages grow by it
//   zb-h1        1f1b whose W fill the bubble, at 1f1b's memory
//   zb-h2        twice the forwards of zb-h1 before the first backward: at twice its memory stages
//                wait for nothing but the pipeline to fill when F, B and W take equal times
//   zb-v         two chunks per stage, folded; no bubble when F, B and W take equal times
//   v-half       folded as zb-v; half of 1f1b's memory and half of its bubble
//   (planner/v_schedule.h) v-min        the same at a third of the memory, with two thirds of the
//   bubble
//
// Any number of microbatches goes through any of them.
//
// Thread rule: pure functions. Sources: GPipe (Huang et al., NeurIPS'19); 1F1B and interleaving
// (Narayanan et al., SC'21, section 2.2); ZB-H1 and ZB-H2 (Qi et al., ICLR'24, section 2.2); ZB-V
// (Qi et al., "Pipeline parallelism with controllable memory", NeurIPS'24). Rounds of uneven sizes
// and the room between chunks are this project's own: tests/unit/planner/schedule_test.cc tries
// them all.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "ir/graph.h"

namespace meshwright::planner {

// Which stage holds which part of the model.
struct PipelineShape {
  int stages = 1;
  int chunks = 1;       // per stage
  bool folded = false;  // chunks run there and back instead of round and round
  int parts() const { return stages * chunks; }
  int StageOf(int part) const;
  int ChunkOf(int part) const { return part / stages; }
  int PartOf(int stage, int chunk) const;
  friend bool operator==(const PipelineShape&, const PipelineShape&) = default;
};

struct ScheduleStep {
  ir::Phase phase = ir::Phase::kForward;
  int microbatch = 0;
  int chunk = 0;
  bool weights = false;  // of the backward: only W; else B, or all of it where nothing is split
  friend bool operator==(const ScheduleStep&, const ScheduleStep&) = default;
};

using StageSchedule = std::vector<ScheduleStep>;

// "1f1b, gpipe, ..." for messages.
std::string KnownSchedules();
// The backward is split into B and W.
bool SplitsBackward(const std::string& schedule);
bool IsFolded(const std::string& schedule);
// The shape that a schedule gives a pipeline; chunks 0: the schedule's usual number. Errors:
// kInvalidArgument naming the schedules, or the numbers of chunks that this one can have.
Result<PipelineShape> ShapeOfSchedule(const std::string& schedule, int stages, int chunks);

// One list per stage. Errors: kInvalidArgument naming the known schedules.
Result<std::vector<StageSchedule>> MakeSchedule(const std::string& name, const PipelineShape& shape,
                                                int microbatches);

// Microbatches whose messages a channel between two parts holds before SEND blocks. Between chunks
// it is more: the first stage reads nothing of the next chunk before its round has passed this one,
// while the last stage has sent what the round has more microbatches than there are stages, and one
// on top. With less room schedules may wait for ever; with this none waits for room.
int MicrobatchesBetween(const PipelineShape& shape, int microbatches, bool changes_chunk);

// All forwards: evaluation.
std::vector<StageSchedule> ForwardSchedule(const PipelineShape& shape, int microbatches);

// "F0 F1 B0 F2 ..." for people and goldens; with chunks "F0.1": microbatch 0 of chunk 1.
std::string FormatSchedule(const StageSchedule& schedule);

}  // namespace meshwright::planner
