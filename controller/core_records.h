// Steps of the core about what devices write down: which steps, and who is told of what came back.
//
// The second to the fourth step of every run are recorded (the first one is none to go by), as many
// after each further thousand, and those that somebody asks for. Thread rule: the core's thread.
#pragma once

#include "controller/core_state.h"

namespace meshwright::controller {

// The most that may be asked for at once.
inline constexpr int64_t kMostRecordedSteps = 64;

void On(const RecordSteps& event, CoreState& core, Context& context);

// Of a launch of the job, the steps that its devices are to record.
ir::StepRange RecordedIn(const PlannedLaunch& launch, const JobEntry& job);

// A run of the job begins, or is taken up.
RunBegins BeginsBy(const PlannedJob& plan, const JobEntry& job);

// A launch of the job is over: records, and how long a save held its devices up, are told.
void TellRecorded(LaunchResult& result, const MeshState& mesh, const JobEntry& job, CoreState& core,
                  Context& context);

}  // namespace meshwright::controller
