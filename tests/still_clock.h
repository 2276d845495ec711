// A clock that stands still: time never ends a search, so that what it finds does not depend on how
// busy the machine is.
#pragma once

#include "base/clock.h"

namespace meshwright {

inline const FakeClock kStill;

}  // namespace meshwright
