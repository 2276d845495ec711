// The sending half of TcpLink.
#include <algorithm>

#include "collective/cpu/tcp_link.h"

namespace meshwright::collective {

void TcpLink::Outgoing::Ring() {
  if (!rung.exchange(true)) {
    link.loop_.Post([this] {
      rung.store(false);
      link.QueueData(*this);
    });
  }
}

void TcpLink::Incoming::Ring() {
  if (!rung.exchange(true)) {
    link.loop_.Post([this] {
      rung.store(false);
      link.QueueCredit(*this);
    });
  }
}

void TcpLink::SendRaw(Bytes bytes) {
  control_.push_back(std::move(bytes));
  WriteBatch();
}

void TcpLink::QueueControl(FrameType type, const Bytes& payload) {
  Bytes frame(kFrameHeaderBytes);
  EncodeFrameHeader({.type = type, .payload_bytes = static_cast<uint32_t>(payload.size())},
                    frame.data());
  frame.insert(frame.end(), payload.begin(), payload.end());
  control_.push_back(std::move(frame));
  WriteBatch();
}

void TcpLink::SendManifest(const Bytes& payload) { QueueControl(FrameType::kManifest, payload); }

void TcpLink::SendAbort(const Status& cause) {
  aborting_ = true;
  ready_.clear();
  credits_due_.clear();
  QueueControl(FrameType::kAbort, EncodeCause(cause));
}

void TcpLink::SayGoodbye() {
  goodbye_wanted_ = true;
  WriteBatch();
}

void TcpLink::QueueData(Outgoing& pipe) {
  if (!pipe.queued && !aborting_ && pipe.ring.Unread(pipe.started) != 0) {
    pipe.queued = true;
    ready_.push_back(&pipe);
    WriteBatch();
  }
}

void TcpLink::QueueCredit(Incoming& pipe) {
  if (!pipe.queued && !aborting_ && pipe.ring.tail().value.load() != pipe.credited) {
    pipe.queued = true;
    credits_due_.push_back(&pipe);
    WriteBatch();
  }
}

void TcpLink::AddFrame(const FrameHeader& header, const std::byte* payload) {
  uint8_t* bytes = headers_[frames_in_flight_++].data();
  EncodeFrameHeader(header, bytes);
  buffers_.push_back(asio::buffer(bytes, kFrameHeaderBytes));
  if (header.payload_bytes > 0) {
    buffers_.push_back(asio::buffer(payload, header.payload_bytes));
  }
}

// The next fragment of the pipe's oldest message that is not handed over.
void TcpLink::AddFragment(Outgoing& pipe) {
  const SlotHeader message = *pipe.ring.header(pipe.started);
  const int64_t bytes = std::min<int64_t>(message.bytes - pipe.offset, kMaxFragmentBytes);
  AddFrame({.type = FrameType::kData,
            .payload_bytes = static_cast<uint32_t>(bytes),
            .key = pipe.key,
            .tag = message.tag,
            .message_bytes = static_cast<uint64_t>(message.bytes)},
           pipe.ring.payload(pipe.started) + pipe.offset);
  pipe.offset += bytes;
  if (pipe.offset == message.bytes) {
    pipe.offset = 0;
    ++pipe.started;
    finished_in_flight_.push_back(&pipe);
  }
}

void TcpLink::WriteBatch() {
  if (writing_ || closed_ || goodbye_sent_) {
    return;
  }
  buffers_.clear();
  frames_in_flight_ = 0;
  while (!control_.empty()) {
    control_in_flight_.push_back(std::move(control_.front()));
    control_.pop_front();
  }
  for (const Bytes& frame : control_in_flight_) {
    buffers_.push_back(asio::buffer(frame));
  }
  for (; !credits_due_.empty() && frames_in_flight_ < kBatchFrames; credits_due_.pop_front()) {
    Incoming& pipe = *credits_due_.front();
    pipe.queued = false;
    const uint32_t consumed = pipe.ring.tail().value.load();
    AddFrame({.type = FrameType::kCredit, .key = pipe.key, .tag = consumed - pipe.credited},
             nullptr);
    pipe.credited = consumed;
  }
  // One fragment per pipe and turn; a pipe with more goes to the end of the line.
  for (size_t turns = ready_.size(); turns > 0 && frames_in_flight_ < kBatchFrames; --turns) {
    Outgoing& pipe = *ready_.front();
    ready_.pop_front();
    AddFragment(pipe);
    pipe.queued = pipe.ring.Unread(pipe.started) != 0;
    if (pipe.queued) {
      ready_.push_back(&pipe);
    }
  }
  if (buffers_.empty() && goodbye_wanted_) {
    goodbye_sent_ = true;
    AddFrame({.type = FrameType::kBye}, nullptr);
  }
  if (!buffers_.empty()) {
    writing_ = true;
    asio::async_write(stream_, buffers_,
                      [this](const ErrorCode& error, size_t) { OnWritten(error); });
  }
}

void TcpLink::OnWritten(const ErrorCode& error) {
  writing_ = false;
  if (closed_) {
    return;
  }
  if (error) {
    OnReadError(error);
    return;
  }
  control_in_flight_.clear();
  for (Outgoing* pipe : finished_in_flight_) {
    ++pipe->written;
    ReleaseSlots(*pipe);
  }
  finished_in_flight_.clear();
  WriteBatch();
}

// A slot is free for the sender when the receiver consumed its message and our write of it has
// returned.
void TcpLink::ReleaseSlots(Outgoing& pipe) {
  const uint64_t released = std::min(pipe.written, pipe.credited);
  if (pipe.ring.tail().value.load() != static_cast<uint32_t>(released)) {
    pipe.ring.Release(released);
  }
}

}  // namespace meshwright::collective
