#include "collective/cpu/pipe_channel.h"

#include <fmt/format.h>

#include <cstring>

namespace meshwright::collective {
namespace {

Status Fatal(const FabricContext& context, const Status& status) {
  context.abort(status);
  return context.latch.status();
}

Status CheckArguments(const PipeEnd& pipe, const void* data, int64_t bytes) {
  if (bytes < 0 || (bytes > 0 && data == nullptr)) {
    return InvalidArgument(fmt::format("{}: {} bytes at a {} address", pipe.name(), bytes,
                                       data == nullptr ? "null" : "valid"));
  }
  return OkStatus();
}

}  // namespace

Status SendChannel::Send(const void* data, int64_t bytes) {
  MW_TRY(CheckArguments(pipe_, data, bytes));
  if (bytes > max_message_bytes_) {
    return InvalidArgument(fmt::format("{}: message of {} bytes, the channel was made for {}",
                                       pipe_.name(), bytes, max_message_bytes_));
  }
  if (context_.latch.stopped()) {
    return context_.latch.status();
  }
  const auto start = std::chrono::steady_clock::now();
  const Result<std::byte*> slot = pipe_.Reserve(context_.OperationDeadline());
  if (!slot.has_value()) {
    return Fatal(context_, slot.error());
  }
  if (bytes > 0) {
    std::memcpy(*slot, data, static_cast<size_t>(bytes));
  }
  pipe_.Commit(bytes, ++sequence_);
  counters_.Count(bytes, std::chrono::steady_clock::now() - start);
  return OkStatus();
}

Status SendChannel::Receive(void* /*data*/, int64_t /*bytes*/) {
  return FailedPrecondition(fmt::format("{}: this is the sending end", pipe_.name()));
}

Status ReceiveChannel::Receive(void* data, int64_t bytes) {
  MW_TRY(CheckArguments(pipe_, data, bytes));
  if (context_.latch.stopped()) {
    return context_.latch.status();
  }
  const auto start = std::chrono::steady_clock::now();
  const Result<PipeReceiver::Message> message = pipe_.Front(context_.OperationDeadline());
  if (!message.has_value()) {
    return Fatal(context_, message.error());
  }
  if (message->bytes != bytes) {
    return Fatal(context_,
                 Internal(fmt::format(
                     "{}: message #{} from {} has {} bytes, {} were expected", pipe_.name(),
                     message->tag, context_.RankName(pipe_.peer_rank()), message->bytes, bytes)));
  }
  if (bytes > 0) {
    std::memcpy(data, message->data, static_cast<size_t>(bytes));
  }
  pipe_.Pop();
  counters_.Count(0, std::chrono::steady_clock::now() - start);  // a receiver sends nothing
  return OkStatus();
}

Status ReceiveChannel::Send(const void* /*data*/, int64_t /*bytes*/) {
  return FailedPrecondition(fmt::format("{}: this is the receiving end", pipe_.name()));
}

}  // namespace meshwright::collective
