#include "collective/nccl/comm_state.h"

#include <array>

namespace meshwright::collective::nccl {
namespace {

constexpr std::array kTransitions = {
    Transition{State::kCreated, Event::kStart, State::kInitialising},
    Transition{State::kCreated, Event::kAbort, State::kDestroyed},
    Transition{State::kCreated, Event::kDestroy, State::kDestroyed},
    Transition{State::kInitialising, Event::kDone, State::kReady},
    Transition{State::kInitialising, Event::kError, State::kFailed},
    Transition{State::kInitialising, Event::kAbort, State::kAborted},
    Transition{State::kReady, Event::kError, State::kFailed},
    Transition{State::kReady, Event::kFinalize, State::kClosing},
    Transition{State::kReady, Event::kAbort, State::kAborted},
    Transition{State::kFailed, Event::kError, State::kFailed},
    Transition{State::kFailed, Event::kAbort, State::kAborted},
    Transition{State::kClosing, Event::kError, State::kFailed},
    Transition{State::kClosing, Event::kAbort, State::kAborted},
    Transition{State::kClosing, Event::kDestroy, State::kDestroyed},
    Transition{State::kAborted, Event::kDestroy, State::kDestroyed},
};

}  // namespace

std::span<const Transition> Transitions() { return kTransitions; }

std::optional<State> Next(State from, Event event) {
  for (const Transition& transition : kTransitions) {
    if (transition.from == from && transition.event == event) return transition.to;
  }
  return std::nullopt;
}

const char* StateName(State state) {
  constexpr const char* kNames[kStateCount] = {"created", "initialising", "ready",    "failed",
                                               "closing", "aborted",      "destroyed"};
  return kNames[static_cast<int>(state)];
}

const char* EventName(Event event) {
  constexpr const char* kNames[kEventCount] = {"start",    "done",  "error",
                                               "finalize", "abort", "destroy"};
  return kNames[static_cast<int>(event)];
}

}  // namespace meshwright::collective::nccl
