// What every step of the control core has at hand: the options, the time, and the effects so far.
//
// Thread rule: a value of one step of the core.
#pragma once

#include <utility>

#include "controller/core_options.h"
#include "controller/events.h"

namespace meshwright::controller {

struct Context {
  const CoreOptions& options;
  Now now;
  Effects effects = {};  // in the order in which they are to be carried out

  void Do(Effect effect) { effects.push_back(std::move(effect)); }
};

}  // namespace meshwright::controller
