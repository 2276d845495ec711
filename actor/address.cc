#include "actor/address.h"

#include <fmt/format.h>

namespace meshwright::actor {

std::string ToString(const Address& address) {
  std::string text =
      fmt::format("actor {} (generation {})", address.id.value(), address.generation.value());
  if (address.place.value() != 0) text += fmt::format(" of place {}", address.place.value());
  return text;
}

Status FullError(const Address& address, size_t bound) {
  return ResourceExhausted(
      fmt::format("{}: its mailbox is full with {} messages; send more once it has answered some",
                  ToString(address), bound));
}

Status GoneError(const Address& address, ActorGeneration now) {
  if (now.value() == 0) return NotFound(fmt::format("{} is gone", ToString(address)));
  return NotFound(fmt::format("{} is gone: generation {} lives; use the address of its last event",
                              ToString(address), now.value()));
}

Status StoppedError(const Address& address) {
  return Cancelled(fmt::format("{} was stopped", ToString(address)));
}

Status DeadError(const Address& address, const Status& cause) {
  return Aborted(fmt::format("{} is dead: {}", ToString(address), cause.message()));
}

Status LateError(const Address& address, int64_t deadline_ms) {
  return DeadlineExceeded(
      fmt::format("{} did not answer within {} ms", ToString(address), deadline_ms));
}

}  // namespace meshwright::actor
