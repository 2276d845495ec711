#include "controller/halt.h"

namespace meshwright::controller {

SaveCause SaveCauseOf(HaltFor what) {
  switch (what) {
    case HaltFor::kCancel:
      return SaveCause::kCancel;
    case HaltFor::kPause:
    case HaltFor::kPreempt:
      return SaveCause::kPause;
    case HaltFor::kDrain:
      break;
  }
  return SaveCause::kDrain;
}

bool CanHalt(const ir::JobRequest& job) {
  return job.checkpoint.enable && job.driver.kind == ir::DriverKind::kTrain;
}

}  // namespace meshwright::controller
