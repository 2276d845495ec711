#include "client/grpc/session_streams.h"

#include <fmt/format.h>

#include <optional>
#include <utility>

#include "client/reconnect.h"

namespace meshwright::client {
namespace {

// Ends that are of the connection, and not of the session.
bool IsOfTheNetwork(StatusCode code) {
  return code == StatusCode::kUnavailable || code == StatusCode::kUnknown ||
         code == StatusCode::kInternal || code == StatusCode::kCancelled;
}

}  // namespace

Status SessionStreams::Run(const Events& events) {
  const int64_t patience_ms = start_.options.reconnect_ms;
  Reconnect reconnect(patience_ms, clock_);
  int64_t pause_ms = 0;
  while (const StreamPtr stream = Next(pause_ms)) {
    const SessionStream::End end = stream->Read(
        [&](proto::ClientDown message) { return events.told(stream, std::move(message)); });
    if (!end.damage.ok()) return end.damage;
    const Status status = start_.explain(end.status);
    if (end.final || !IsOfTheNetwork(status.code()) || patience_ms <= 0) return status;
    const std::optional<int64_t> pause = reconnect.PauseAfter(end.taken);
    if (!pause) {
      return Unavailable(fmt::format("{}; the connection was tried again for {} ms",
                                     status.message(), patience_ms));
    }
    pause_ms = *pause;
    events.lost(status);
  }
  return Cancelled("the session was given up");
}

void SessionStreams::ComeBackTo(int64_t job_id) {
  start_.open = {"", std::nullopt, job_id, start_.open.session, true};
}

void SessionStreams::GiveUp() {
  const MutexLock lock(mutex_);
  given_up_ = true;
  if (stream_) stream_->Cancel();
  changed_.NotifyAll();
}

SessionStreams::StreamPtr SessionStreams::Next(int64_t pause_ms) {
  const auto due = Deadline::After(pause_ms).SteadyTimePoint();
  StreamPtr stream;
  {
    const MutexLock lock(mutex_);
    while (!given_up_ && changed_.WaitUntil(mutex_, due)) {
    }
    if (given_up_) return nullptr;
    stream_ = std::make_shared<SessionStream>(*stub_, start_.prepare);
    stream = stream_;
  }
  (void)stream->Write(start_.open);  // where that fails, Read says why
  return stream;
}

}  // namespace meshwright::client
