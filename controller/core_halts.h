// Steps of the core about runs that end before their jobs do: cancelled, paused, preempted, moved
// away from a worker that leaves (controller/halt.h).
//
// A run halts between two steps and behind a save, so that nothing that was done is lost; a job
// that keeps no checkpoints is moved and gives way behind a snapshot in the memory of workers.
// Where the save fails, a job that was to be paused goes on, one that is moved loses the steps
// since its newest checkpoint, and one that is cancelled ends all the same. Thread rule: the core's
// thread.
#pragma once

#include <string>

#include "controller/core_state.h"

namespace meshwright::controller {

void On(const PauseJob& event, CoreState& core, Context& context);
void On(const ResumeJob& event, CoreState& core, Context& context);
void On(const SaveJob& event, CoreState& core, Context& context);

// What was asked of the job is on record before anyone is answered.
void NoteWish(JobEntry& job, JobWish wish, Context& context);

// What a job ends with that is cancelled.
proto::RuntimeError CancelCause();
// True: it is saved first, and ends then. False: there is nothing to save, or no time for it.
bool CancelBehindSave(JobEntry& job, CoreState& core, Context& context);

// The run is to end behind what is under way. A halt that weighs as much stays as it is. May end
// the run at once. REQUIRES a run with a mesh, and CanHalt.
void BeginHalt(JobEntry& job, Halt halt, CoreState& core, Context& context);
// True: the run has halted, and its mesh is closed, or it goes on. REQUIRES an active mesh with
// nothing under way.
bool EndHalt(JobEntry& job, CoreState& core, Context& context);
// Its mesh was released for its halt.
void FinishHalt(JobEntry& job, CoreState& core, Context& context);
// Those that did not come to their end in time, and those that an earlier controller was asked for.
void CheckHalts(CoreState& core, Context& context);

// It has no devices, no run and no place in the queue until somebody resumes it. REQUIRES no run
// with a mesh that works.
void Park(JobEntry& job, CoreState& core, Context& context);

}  // namespace meshwright::controller
