// Pipeline schedules: the order in which each stage runs the forward and backward of every
// microbatch.
//
// A schedule is a table of compute steps only; lowering inserts SEND and RECV around them. New
// schedules (interleaved, zero-bubble) are new tables. Source: GPipe (Huang et al., NeurIPS'19),
// 1F1B (PipeDream-flush; Narayanan et al., SC'21 section 2.2). Counts: design parallelism.md 2.6.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "ir/graph.h"

namespace meshwright::planner {

struct ScheduleStep {
  ir::Phase phase = ir::Phase::kForward;
  int microbatch = 0;
  friend bool operator==(const ScheduleStep&, const ScheduleStep&) = default;
};

using StageSchedule = std::vector<ScheduleStep>;

// One list per stage. name: "gpipe" | "1f1b". Errors: kInvalidArgument naming the known schedules.
Result<std::vector<StageSchedule>> MakeSchedule(const std::string& name, int stages,
                                                int microbatches);

// All forwards in order: evaluation.
std::vector<StageSchedule> ForwardSchedule(int stages, int microbatches);

// "F0 F1 B0 F2 ..." for people and goldens.
std::string FormatSchedule(const StageSchedule& schedule);

}  // namespace meshwright::planner
