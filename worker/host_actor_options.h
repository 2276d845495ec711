// What a worker's binary offers in the way of host actors, and how their processes are treated.
//
// Thread rule: values.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace meshwright::worker {

struct HostActorOptions {
  std::vector<std::string> types;  // of the binary's registry
  // Starts the process; "--fd=N --silent-ms=M" is added. Empty: no actors.
  std::vector<std::string> command;
  int64_t start_ms = 60'000;  // for an actor to begin
  int64_t ping_ms = 1'000;
  int64_t silent_ms = 15'000;  // then the process is killed
  // For one message, or to be made: then the actor has failed, and its process ends, since the
  // thread that it holds cannot be taken from it. 0: for ever.
  int64_t actor_silent_ms = 600'000;
  int64_t end_grace_ms = 1'000;  // to end by itself; then it is killed
};

}  // namespace meshwright::worker
