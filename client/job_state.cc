#include <array>

#include "client/client.h"

namespace meshwright::client {

const char* JobStateName(JobState state) {
  static constexpr std::array<const char*, 7> kNames = {
      "QUEUED", "PLANNING", "STARTING", "RUNNING", "SUCCEEDED", "FAILED", "CANCELLED"};
  const auto index = static_cast<size_t>(state);
  return index < kNames.size() ? kNames[index] : "UNKNOWN";
}

bool IsTerminal(JobState state) {
  return state == JobState::kSucceeded || state == JobState::kFailed ||
         state == JobState::kCancelled;
}

}  // namespace meshwright::client
