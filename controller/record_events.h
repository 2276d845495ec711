// What clients want of records, and what comes back: the part of controller/events.h that
// controller/core_records.h is about.
//
// Thread rule: values.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/ids.h"
#include "controller/driver.h"
#include "controller/ids.h"
#include "ir/step_record.h"

namespace meshwright::controller {

// Its devices write down what they do in these steps.
struct RecordSteps {
  CallId call;
  JobId job;
  ir::StepRange steps;
};

// What devices wrote down of the steps of a launch, or how long a save held them up.
struct RecordedMember {
  std::string worker;
  std::string host;      // whose clock its times are of
  ir::ClockRound round;  // not complete: of a save
  int64_t begin_ns = 0;
  int64_t said_ns = 0;
  std::vector<ir::StepRecord> steps;
};
struct StepsRecorded {
  JobId job;
  std::string layout;  // of the plan that it runs by
  PlannedLaunch launch;
  std::vector<RecordedMember> members;
};

// For its story and metrics: from now on the job runs by this plan, which was made for it or ahead,
// or a controller that was restarted takes it up.
struct RunBegins {
  JobId job;
  std::string layout;
  double flops_per_step = 0;
  double peak_flops_per_s = 0;  // of its devices together; 0: not all of them are known
};

}  // namespace meshwright::controller
