// The invariants of the design that are visible in the core; tests check them after every step.
//
// Thread rule: a pure function.
#pragma once

#include "controller/core_state.h"

namespace meshwright::controller {

// Errors: kInternal naming what does not fit together.
Status CheckInvariants(const CoreState& core);

}  // namespace meshwright::controller
