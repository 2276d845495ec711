#include "ir/queue_spec.h"

#include <fmt/format.h>

namespace meshwright::ir {

Status CheckQueue(const QueueSpec& spec) {
  constexpr int64_t kMostSeconds = 1'000'000'000;
  if (spec.priority < -kMaxPriority || spec.priority > kMaxPriority) {
    return InvalidField("queue.priority", fmt::format("is {}; it must be in [-{}, {}]",
                                                      spec.priority, kMaxPriority, kMaxPriority));
  }
  if (spec.max_wait_s < 0 || spec.max_wait_s > kMostSeconds) {
    return InvalidField("queue.max_wait_s",
                        fmt::format("is {}; it must be in [0, {}]", spec.max_wait_s, kMostSeconds));
  }
  return OkStatus();
}

}  // namespace meshwright::ir
