#include "client/grpc/session_stream.h"

#include <optional>
#include <string>
#include <utility>

#include "proto/convert.h"

namespace meshwright::client {
namespace {

Result<std::optional<proto::ClientDown>> Join(proto::FrameJoiner& joiner, const v1::Frame& frame) {
  MW_ASSIGN_OR_RETURN(const std::optional<std::string> bytes, joiner.Add(frame));
  if (!bytes) return std::optional<proto::ClientDown>();
  v1::ClientDown wire;
  if (!wire.ParseFromString(*bytes)) {
    return Fail(DataLoss("a message of the session is damaged"));
  }
  MW_ASSIGN_OR_RETURN(proto::ClientDown message, proto::Decode(wire));
  return std::optional(std::move(message));
}

}  // namespace

SessionStream::SessionStream(v1::JobService::Stub& stub,
                             const std::function<void(grpc::ClientContext&)>& prepare)
    : stream_((prepare(context_), stub.Interact(&context_))) {}

SessionStream::~SessionStream() { context_.TryCancel(); }

bool SessionStream::Write(const proto::ClientUp& message) {
  const MutexLock lock(write_mutex_);
  for (const v1::Frame& frame : proto::CutToFrames(proto::Encode(message).SerializeAsString())) {
    if (!stream_->Write(frame)) return false;
  }
  return true;
}

SessionStream::End SessionStream::Read(const std::function<Status(proto::ClientDown)>& take) {
  End end;
  v1::Frame frame;
  proto::FrameJoiner joiner;
  stream_->WaitForInitialMetadata();
  end.taken = context_.GetServerInitialMetadata().contains(proto::kSessionTaken);
  while (end.damage.ok() && stream_->Read(&frame)) {
    Result<std::optional<proto::ClientDown>> message = Join(joiner, frame);
    if (!message.has_value()) {
      end.damage = message.error();
    } else if (*message) {
      end.taken = true;
      end.final = end.final || std::holds_alternative<proto::SessionEnd>(**message);
      end.damage = take(std::move(**message));
    }
  }
  if (!end.damage.ok()) context_.TryCancel();
  end.status = stream_->Finish();
  return end;
}

}  // namespace meshwright::client
