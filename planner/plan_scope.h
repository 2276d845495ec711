// How many of a plan's programs are made.
#pragma once

#include <cstdint>

namespace meshwright::planner {

// For which devices programs are made. A stage's devices do the same at the same time, so that its
// first one says what a dry run on thousands of devices asks; the verifier takes it for all of
// them, and it cannot run. kFewPrograms: all devices' where that is soon done, else one per stage:
// a plan says which.
enum class PlanScope : uint8_t { kAllDevices, kOnePerStage, kFewPrograms };

}  // namespace meshwright::planner
