// How a job waits for its devices, and for whom it gives them away.
//
// Thread rule: values.
#pragma once

#include <cstdint>

#include "base/result.h"

namespace meshwright::ir {

inline constexpr int64_t kMaxPriority = 1000;

struct QueueSpec {
  int64_t priority = 0;      // higher ones go first; of equals the older one
  bool preemptible = false;  // a job of a higher priority may have it saved and take its devices
  int64_t max_wait_s = 0;    // for its first devices; then it ends; 0: for ever
  friend bool operator==(const QueueSpec&, const QueueSpec&) = default;
};

// Errors: kInvalidArgument naming the field.
Status CheckQueue(const QueueSpec& spec);

}  // namespace meshwright::ir
