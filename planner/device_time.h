// Time of one device as simulations count it: it computes, waits, and sends one message after the
// other.
//
// The programs of a plan (planner/simulate.h) and the table of a schedule
// (search/pipeline_clock.h) go by it.
//
// Thread rule: a value.
#pragma once

#include <algorithm>
#include <cstdint>

#include "mesh/cost.h"

namespace meshwright::planner {

struct DeviceTime {
  double now_s = 0;
  double link_free_s = 0;  // when its last message has left

  void WaitUntil(double time_s) { now_s = std::max(now_s, time_s); }

  // When a message that is sent now has arrived: it leaves when the one before has left, which
  // holds up no computation.
  double Send(const mesh::LinkCost& link, int64_t bytes) {
    link_free_s = std::max(link_free_s, now_s) + static_cast<double>(bytes) * link.seconds_per_byte;
    return link_free_s + link.alpha_s;
  }
};

}  // namespace meshwright::planner
