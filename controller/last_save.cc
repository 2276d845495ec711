#include "controller/last_save.h"

namespace meshwright::controller {

std::optional<PlannedLaunch> LastSave::Next() {
  switch (next_) {
    case kRestoreState:
      next_ = kSaveState;
      return PlannedLaunch{"", step_, 0, LaunchKind::kRestore};
    case kSaveState:
      next_ = kNothing;
      saving_ = true;
      return PlannedLaunch{"", step_, 0, LaunchKind::kSave, SaveCause::kFailure};
    case kNothing:
      break;
  }
  return std::nullopt;
}

}  // namespace meshwright::controller
