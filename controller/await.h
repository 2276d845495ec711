// Waiting for an answer of the control loop, on another thread.
//
// Thread rule: any thread but the loop's.
#pragma once

#include <chrono>
#include <future>
#include <memory>
#include <utility>

#include "base/result.h"

namespace meshwright::controller {

inline constexpr std::chrono::seconds kLoopAnswers{2};

// What `ask` is answered, given what to call with it. Errors: those of the answer; kUnavailable
// when there is none within 2 s, as long as a scraper of metrics waits.
template <typename T, typename Ask>
Result<T> Await(Ask ask) {
  auto answer = std::make_shared<std::promise<Result<T>>>();
  std::future<Result<T>> future = answer->get_future();
  ask([answer](Result<T> value) { answer->set_value(std::move(value)); });
  if (future.wait_for(kLoopAnswers) != std::future_status::ready) {
    return Fail(Unavailable("the control loop did not answer within 2 s"));
  }
  return future.get();
}

}  // namespace meshwright::controller
