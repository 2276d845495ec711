// What devices would write down of a step if they did it as a forecast says: for tests of what is
// said about records.
#pragma once

#include <vector>

#include "base/result.h"
#include "ir/step_record.h"
#include "mesh/topology.h"
#include "planner/plan.h"
#include "report/recorded_run.h"

namespace meshwright::report {

// Records of every device, from begin_ns on. `truth`: what the devices are; the plan may have been
// made for others.
Result<std::vector<ir::StepRecord>> RecordsAsForecast(const planner::Plan& plan,
                                                      const mesh::Topology& truth, int64_t step,
                                                      int64_t begin_ns);

// All ranks on one worker whose clock is the controller's.
MemberNote NoteOf(std::vector<ir::StepRecord> records);

}  // namespace meshwright::report
