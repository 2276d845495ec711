// Folded schedules that hold little: the same block of steps for every microbatch, one block after
// the other, and W wherever a stage would wait.
//
// Stage s holds the parts s and 2 x stages - 1 - s. A block says in which slot, of one F, B or W of
// a part, a stage takes F and B of its two parts; a microbatch's block begins six slots after the
// one before, as many as it has steps. What a stage holds then follows from how long its block's
// forwards wait for their backwards, and that is the same for all stages, because the part that a
// stage gets early in one direction it gets late in the other. Blocks are squeezed together on a
// clock of slots: a stage takes its next F or B as soon as there is what it reads; until then, and
// where it holds as much as it may, it takes a W.
//
//   half   stages + 2 chunks in flight, of which a stage has two (stages + 1 where they are odd):
//          half of 1f1b's memory. Bubble with equal F, B and W of t seconds: 3 (stages - 1) t / 2,
//          half of 1f1b's, and t / 2 less where stages are odd; more with fewer microbatches than
//          half of the stages.
//   min    2 x ((stages + 1) / 3 + 1) chunks, about a third. Bubble: 2 (stages - 1) t, two thirds,
//          and t / 2 more where stages are a multiple of three, else less.
//
// Where F, B and W differ, blocks of min wait for each other in every microbatch: its bubble grows
// with their number.
//
// Thread rule: pure functions. Source of the blocks: Qi et al., "Pipeline parallelism with
// controllable memory", NeurIPS'24, section 3; the clock is this project's own.
#pragma once

#include <cstdint>
#include <vector>

#include "planner/schedule.h"

namespace meshwright::planner {

enum class VBlock : uint8_t { kHalf, kMin };

// Chunks whose forward is done and whose W is not, of any stage at any time. REQUIRES: stages >= 2.
int MostChunksInFlight(VBlock block, int stages);

// One list per stage. REQUIRES: stages >= 2. Cost: O(stages x microbatches).
std::vector<StageSchedule> MakeVSchedule(VBlock block, int stages, int microbatches);

}  // namespace meshwright::planner
