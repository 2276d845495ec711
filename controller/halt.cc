#include "controller/halt.h"

namespace meshwright::controller {

SaveCause SaveCauseOf(HaltFor what) {
  switch (what) {
    case HaltFor::kCancel:
      return SaveCause::kCancel;
    case HaltFor::kFailure:
      return SaveCause::kFailure;
    case HaltFor::kPause:
    case HaltFor::kPreempt:
      return SaveCause::kPause;
    case HaltFor::kDrain:
    case HaltFor::kReturn:
      break;
  }
  return SaveCause::kDrain;
}

bool CanSave(const ir::JobRequest& job) {
  return job.checkpoint.enable && job.driver.kind == ir::DriverKind::kTrain;
}

bool CanHalt(const ir::JobRequest& job) { return CanSave(job) || TakesSnapshots(job); }

}  // namespace meshwright::controller
