// The table of a schedule on the clock of the simulator (planner/device_time.h): when each stage is
// done and what it holds most of.
//
// A stage takes its steps in order. A forward waits for that of the part before, a backward for
// that of the part behind, and for their message. What a forward leaves is held until the backward;
// where the backward is split, what W reads is held until W: of the forward's some, and what B
// makes. Stages at the end of a pipeline delay W most, so that is where it decides.
//
// Thread rule: pure functions. Source of B and W: Qi et al., ICLR'24, section 2.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "mesh/cost.h"
#include "planner/schedule.h"

namespace meshwright::search {

// Of one part, per microbatch.
struct PartCost {
  double forward_s = 0;
  double backward_s = 0;  // without W where the schedule splits it off
  double weight_s = 0;
  int64_t kept_bytes = 0;      // from the forward to the backward
  int64_t waiting_bytes = 0;   // from the backward to W
  int64_t boundary_bytes = 0;  // to the next part, and back
};

struct PipelineCost {
  std::span<const PartCost> parts;
  std::span<const mesh::LinkCost> links;  // from each part to the next; free: the same stage
  bool splits_backward = false;
};

// Microbatches of a part that hold memory.
struct InFlight {
  int forward_done = 0;   // the backward is still to come
  int backward_done = 0;  // W is
};

struct FullestMoments {
  std::vector<int64_t> most_held_bytes;  // per stage
  std::vector<InFlight> in_flight;       // per part, when its stage holds most
};

// REQUIRES, of both: `schedule` is MakeSchedule's for `shape`; a part cost per part, a link
// fewer.
// The order of a stage's steps decides, not when they are done.
FullestMoments FindFullestMoments(const planner::PipelineShape& shape,
                                  const std::vector<planner::StageSchedule>& schedule,
                                  const PipelineCost& cost);
// When each stage is done.
std::vector<double> EndSeconds(const planner::PipelineShape& shape,
                               const std::vector<planner::StageSchedule>& schedule,
                               const PipelineCost& cost);

}  // namespace meshwright::search
