// A clock that stands still: time ends no search of ours, so that what it finds does not depend on
// how busy the machine is.
#pragma once

#include "base/clock.h"
#include "tests/fake_clock.h"

namespace meshwright {

inline const FakeClock kStill;

}  // namespace meshwright
