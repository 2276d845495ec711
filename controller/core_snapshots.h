// Steps of the core about snapshots of jobs in the memory of workers: what a run takes, what is
// asked for between two runs, and where the next one starts.
//
// Thread rule: the core's thread.
#pragma once

#include <memory>
#include <string>

#include "controller/core_state.h"

namespace meshwright::controller {

// A launch with a snapshot has come to its end; others copy of it what is held once.
void NoteSnapshot(JobEntry& job, const LaunchResult& result, const MeshState& mesh, CoreState& core,
                  Context& context);

// A worker has its copy, or not. False: the message is none of these.
bool OnSnapshotCopied(const Worker& worker, const proto::UpBody& body, CoreState& core,
                      Context& context);

// Between two runs: everyone who may hold snapshots of the job is asked.
void AskForSnapshots(JobEntry& job, CoreState& core, Context& context);
// It has registered: who waits for it asks it.
void AskArrived(const Worker& worker, CoreState& core, Context& context);
// False: the message is none of these.
bool OnSnapshotsHeld(const Worker& worker, const proto::UpBody& body, CoreState& core,
                     Context& context);
// Between two runs nothing is dropped, however long it takes: workers keep what is asked for.
void KeepSnapshots(CoreState& core, Context& context);
// Whether a job needs what only this worker holds: its next run has not begun, or reads there.
bool HoldsForNextRun(const std::string& worker, CoreState& core, Now now);
// The worker is gone, with its memory.
void ForgetSnapshots(const std::string& worker, CoreState& core, Context& context);

// Where the next run of a job starts: from the newest snapshot that is whole, if no checkpoint is
// newer. What is not taken, and why, is told once. REQUIRES a recovery.
RunStart NewestRunStart(JobEntry& job, Context& context);

// The job has ended: nobody needs them any more.
void DropSnapshots(JobEntry& job, CoreState& core, Context& context);

}  // namespace meshwright::controller
