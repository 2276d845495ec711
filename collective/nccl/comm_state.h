// The life of one communicator, as a table.
//
//   created --start--> initialising --done--> ready --finalize--> closing --destroy--> destroyed
//   any state with a communicator --error--> failed, --abort--> aborted --destroy--> destroyed
//
// Thread rule: pure functions.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

namespace meshwright::collective::nccl {

enum class State : uint8_t {
  kCreated,       // no call of NCCL was made
  kInitialising,  // its members are looking for each other
  kReady,
  kFailed,   // NCCL reported an error: only an abort helps
  kClosing,  // what was given is being finished
  kAborted,
  kDestroyed  // there is nothing left of it in NCCL
};
inline constexpr int kStateCount = 7;

enum class Event : uint8_t { kStart, kDone, kError, kFinalize, kAbort, kDestroy };
inline constexpr int kEventCount = 6;

struct Transition {
  State from;
  Event event;
  State to;
};

std::span<const Transition> Transitions();
// The state after `event`; none: it may not happen in this state.
std::optional<State> Next(State from, Event event);
const char* StateName(State state);
const char* EventName(Event event);

}  // namespace meshwright::collective::nccl
