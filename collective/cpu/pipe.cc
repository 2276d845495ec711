#include "collective/cpu/pipe.h"

#include <fmt/format.h>

#include "base/check.h"

namespace meshwright::collective {

Status PipeEnd::WaitFailure(WaitResult result, const char* awaited) const {
  switch (result) {
    case WaitResult::kReady:
      return OkStatus();
    case WaitResult::kStopped:
      return context_.latch.status();
    case WaitResult::kDeparted:
      return Unavailable(fmt::format("{} closed its fabric while {} still needs it to {}",
                                     context_.RankName(peer_rank_), name_, awaited));
    case WaitResult::kTimedOut:
      return DeadlineExceeded(fmt::format(
          "{} did not {} on {} within {} ms; it is stuck, slow, or runs another operation; {}",
          context_.RankName(peer_rank_), awaited, name_, context_.operation_timeout_ms,
          kLongerDeadline));
  }
  return Internal("unknown wait result");
}

Status PipeEnd::NotConnected() const {
  return FailedPrecondition(
      fmt::format("{} is not connected to {}; call Fabric::Connect() after making groups and "
                  "channels and before using them",
                  name_, context_.RankName(peer_rank_)));
}

Result<std::byte*> PipeSender::Reserve(Deadline deadline) {
  SlotRing& ring = wiring_.ring;
  if (!ring.valid()) {
    return Fail(NotConnected());
  }
  if (wiring_.departed != nullptr && wiring_.departed->load()) {
    return Fail(WaitFailure(WaitResult::kDeparted, "receive"));
  }
  const auto has_room = [&] { return ring.HasRoom(count_); };
  const WaitResult result = WaitOn(ring.tail(), has_room, Scope(deadline));
  if (result != WaitResult::kReady) {
    return Fail(WaitFailure(result, "receive"));
  }
  return ring.payload(count_);
}

void PipeSender::Commit(int64_t bytes, uint64_t tag) {
  SlotRing& ring = wiring_.ring;
  MW_CHECK(bytes >= 0 && bytes <= ring.shape().slot_bytes) << name_ << " message of " << bytes;
  *ring.header(count_) = {bytes, tag};
  ring.Publish(++count_);
  if (wiring_.doorbell != nullptr) {
    wiring_.doorbell->Ring();
  }
}

Result<PipeReceiver::Message> PipeReceiver::Front(Deadline deadline) {
  SlotRing& ring = wiring_.ring;
  if (!ring.valid()) {
    return Fail(NotConnected());
  }
  const auto has_message = [&] { return ring.Unread(count_) != 0; };
  const WaitResult result = WaitOn(ring.head(), has_message, Scope(deadline));
  if (result != WaitResult::kReady) {
    return Fail(WaitFailure(result, "send"));
  }
  const SlotHeader header = *ring.header(count_);
  if (header.bytes < 0 || header.bytes > ring.shape().slot_bytes) {
    return Fail(DataLoss(fmt::format("{} from {} holds a message of {} bytes in a slot of {}",
                                     name_, context_.RankName(peer_rank_), header.bytes,
                                     ring.shape().slot_bytes)));
  }
  return Message{ring.payload(count_), header.bytes, header.tag};
}

void PipeReceiver::Pop() {
  wiring_.ring.Release(++count_);
  if (wiring_.doorbell != nullptr) {
    wiring_.doorbell->Ring();
  }
}

}  // namespace meshwright::collective
