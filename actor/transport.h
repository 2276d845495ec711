// Transport: carries frames from this place to others. Between two places in one process, over a
// local socket, or over a worker's session.
//
// Promise: after a Send that returned true the frame arrives once, or the sending place hears of
// the end of the other one (Place::OnPlaceLost). Thread rule: thread-safe; never blocks.
#pragma once

#include "actor/frame.h"

namespace meshwright::actor {

class Transport {
 public:
  virtual ~Transport() = default;
  // False when there is no way to that place (any more).
  virtual bool Send(PlaceId to, Frame frame) = 0;
};

}  // namespace meshwright::actor
