// Who decides what a mesh runs next, and what its reports mean.
//
// A driver is a pure value: Next() gives launches until it has none to give now, On() takes what
// came back. The core asks for launches while its window has room and carries out what On() says;
// it does not know which driver it has. Thread rule: one thread. Ownership: owned by its mesh.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/result.h"
#include "controller/judge.h"
#include "ir/job.h"
#include "proto/messages.h"

namespace meshwright::controller {

enum class LaunchKind : uint8_t {
  kProgram,
  kSave,     // a checkpoint of the state as it is between two steps; runs no program
  kRestore,  // the state is that of the run's start point; runs no program
};

// Why a checkpoint is saved.
enum class SaveCause : uint8_t {
  kInterval,
  kTime,
  kEnd,
  kPause,
  kDrain,
  kCancel,
  kFailure,
  kAsked,
  kBest,     // of all validations so far
  kBestEnd,  // that, and the end
};
inline constexpr int kSaveCauseCount = 10;
const char* SaveCauseName(SaveCause cause);  // "interval"

struct PlannedLaunch {
  std::string program;
  int64_t first_step = 0;  // of "eval": the validation batch, from 0
  int64_t count = 1;
  // Of kSave and kRestore: first_step steps are done, count is 0.
  LaunchKind kind = LaunchKind::kProgram;
  SaveCause cause = SaveCause::kInterval;  // of kSave
  bool snapshot = false;                   // of the state behind its last step
  friend bool operator==(const PlannedLaunch&, const PlannedLaunch&) = default;
};

// A launch of an earlier controller that the workers know of.
struct ResumedLaunch {
  PlannedLaunch launch;
  bool asked = false;  // by a client: none of the driver's
  friend bool operator==(const ResumedLaunch&, const ResumedLaunch&) = default;
};

// What the end of a launch means for the job.
struct DriverNews {
  std::vector<proto::StepMetrics> steps;  // complete, in order
  std::vector<std::string> log_lines;
  std::optional<int64_t> steps_done;
  std::optional<double> loss;
  Status status;  // kAborted: the job cannot go on
};

class Driver {
 public:
  virtual ~Driver() = default;

  // The next launch, or nothing: for now, or for good when done().
  virtual std::optional<PlannedLaunch> Next() = 0;
  // True when nothing comes any more; what was launched may still be under way.
  virtual bool done() const = 0;
  // Reports of a launch of this driver, one per step, in the order of the launches.
  virtual DriverNews On(const PlannedLaunch& launch,
                        const std::vector<proto::StepReport>& reports) = 0;
  // Goes on where the driver of an earlier controller was, behind these launches; On() is told of
  // each of them, done or not, in their order. from_first: no launch came before them. Errors:
  // kAborted: it cannot. Before the first Next().
  virtual Status Resume(const std::vector<ResumedLaunch>& launches, bool from_first) {
    if (launches.empty() && from_first) return OkStatus();
    return Aborted("jobs of this kind start anew");
  }
  // The mesh has failed: what is complete, and was held back, is told.
  virtual DriverNews Abandon() { return {}; }
  // The state is to be saved as soon as it may be: between two launches, after the last save is
  // written.
  virtual void RequestSave(SaveCause) {}
  // What a save's launch has begun is over; `saved`: there is a checkpoint.
  virtual void SaveEnded(bool /*saved*/) {}
  // Nothing new is begun: what belongs to the steps that are done is, and a save of the state, if
  // it can be saved and is not, or else a step with a snapshot, if it takes any. Nothing, for a
  // driver that cannot.
  virtual void Halt(SaveCause) {}
  // No halt any more: it goes on where it was.
  virtual void GoOn() {}
  // True when a halt waits for nothing any more; what was launched may still be under way.
  virtual bool halted() const { return false; }
  // The snapshot of a launch is over, well or not. step_seconds: of one step of the launch.
  virtual void SnapshotEnded(const proto::SnapshotTaken& /*taken*/, double /*step_seconds*/) {}
  // So many steps are in the newest snapshot that is whole; below 0: there is none.
  virtual int64_t SnapshotStep() const { return -1; }
  // A step that is done and not told yet.
  virtual std::optional<proto::StepMetrics> Held() const { return std::nullopt; }
  // How its validations were, for the driver of the job's next run.
  virtual std::optional<JudgedSoFar> Stands() const { return std::nullopt; }
  // The client that the job was for is gone, or says that it has finished.
  virtual void Close() {}
};

// The driver that the job asks for, from where it starts. told_steps: that people have seen the
// metrics of, although they are run again. held: of the step before the start, which has not been
// told. stands: of the run before. REQUIRES a valid job.
std::unique_ptr<Driver> MakeDriver(const ir::JobRequest& job, const ir::StartPoint& start = {},
                                   int64_t told_steps = 0,
                                   std::optional<proto::StepMetrics> held = std::nullopt,
                                   const std::optional<JudgedSoFar>& stands = std::nullopt);

// Whether the job's runs are to take snapshots.
bool TakesSnapshots(const ir::JobRequest& job);

// How far a job has to go, in what its driver counts; 0: nobody knows.
int64_t StepsOf(const ir::JobRequest& job);

}  // namespace meshwright::controller
