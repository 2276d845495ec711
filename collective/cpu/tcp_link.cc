#include "collective/cpu/tcp_link.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

namespace meshwright::collective {
namespace {

constexpr size_t kStagingBytes = 64 << 10;

ByteView View(const std::byte* bytes, size_t count) {
  return {reinterpret_cast<const uint8_t*>(bytes), count};
}

}  // namespace

TcpLink::TcpLink(TcpLoop& loop, TcpStream stream, Events& events)
    : loop_(loop), stream_(std::move(stream)), events_(events), staging_(kStagingBytes) {}

void TcpLink::Start() { ReadMore(); }

Doorbell* TcpLink::AddOutgoing(uint64_t key, SlotRing ring) {
  auto& pipe = outgoing_[key];
  pipe = std::make_unique<Outgoing>(*this, key, ring);
  return pipe.get();
}

Doorbell* TcpLink::AddIncoming(uint64_t key, SlotRing ring) {
  auto& pipe = incoming_[key];
  pipe = std::make_unique<Incoming>(*this, key, ring);
  return pipe.get();
}

void TcpLink::Close() {
  closed_ = true;
  stream_.Close();
}

void TcpLink::Lose(const Status& why) {
  if (!closed_) {
    Close();
    events_.OnLost(why);
  }
}

void TcpLink::OnReadError(const ErrorCode& error) {
  if (closed_) {
    return;
  }
  if (goodbye_sent_) {
    Close();
    events_.OnClosed();
    return;
  }
  Lose(stream_.StatusOf(error));
}

void TcpLink::ReadMore() {
  std::copy(staging_.begin() + static_cast<ptrdiff_t>(staging_begin_),
            staging_.begin() + static_cast<ptrdiff_t>(staging_end_), staging_.begin());
  staging_end_ -= staging_begin_;
  staging_begin_ = 0;
  stream_.async_read_some(
      asio::buffer(staging_.data() + staging_end_, staging_.size() - staging_end_),
      [this](const ErrorCode& error, size_t bytes) {
        if (error) {
          OnReadError(error);
        } else if (!closed_) {
          staging_end_ += bytes;
          Parse();
        }
      });
}

void TcpLink::ReadBody(std::byte* target, size_t bytes) {
  asio::async_read(stream_, asio::buffer(target, bytes), [this](const ErrorCode& error, size_t) {
    if (error) {
      OnReadError(error);
    } else if (!closed_) {
      if (const Status status = FinishFrame(); !status.ok()) {
        Lose(status);
      } else {
        Parse();
      }
    }
  });
}

void TcpLink::Parse() {
  while (!closed_) {
    const size_t available = staging_end_ - staging_begin_;
    if (available < kFrameHeaderBytes) {
      ReadMore();
      return;
    }
    const Result<FrameHeader> header =
        DecodeFrameHeader(View(staging_.data() + staging_begin_, kFrameHeaderBytes));
    if (!header.has_value()) {
      Lose(header.error());
      return;
    }
    frame_ = *header;
    staging_begin_ += kFrameHeaderBytes;
    const Result<std::byte*> target = PrepareBody();
    if (!target.has_value()) {
      Lose(target.error());
      return;
    }
    const size_t ready = std::min<size_t>(frame_.payload_bytes, staging_end_ - staging_begin_);
    if (ready > 0) {
      std::memcpy(*target, staging_.data() + staging_begin_, ready);
      staging_begin_ += ready;
    }
    if (ready < frame_.payload_bytes) {
      ReadBody(*target + ready, frame_.payload_bytes - ready);
      return;
    }
    if (const Status status = FinishFrame(); !status.ok()) {
      Lose(status);
    }
  }
}

Result<std::byte*> TcpLink::PrepareBody() {
  if (frame_.type == FrameType::kData) {
    return PrepareFragment();
  }
  payload_.resize(frame_.payload_bytes);
  return reinterpret_cast<std::byte*>(payload_.data());
}

Result<std::byte*> TcpLink::PrepareFragment() {
  const auto found = incoming_.find(frame_.key);
  if (found == incoming_.end()) {
    return Fail(DataLoss(fmt::format("data for the unknown pipe {:x}", frame_.key)));
  }
  Incoming& pipe = *found->second;
  const uint64_t end = static_cast<uint64_t>(pipe.offset) + frame_.payload_bytes;
  if (frame_.message_bytes > static_cast<uint64_t>(pipe.ring.shape().slot_bytes) ||
      end > frame_.message_bytes || (frame_.payload_bytes == 0 && frame_.message_bytes > 0)) {
    return Fail(DataLoss(fmt::format("fragment [{}, {}) of a message of {} bytes in slots of {}",
                                     pipe.offset, end, frame_.message_bytes,
                                     pipe.ring.shape().slot_bytes)));
  }
  if (!pipe.ring.HasRoom(pipe.received)) {
    return Fail(DataLoss(fmt::format("message without credit on pipe {:x}", frame_.key)));
  }
  return pipe.ring.payload(pipe.received) + pipe.offset;
}

Status TcpLink::FinishFrame() {
  switch (frame_.type) {
    case FrameType::kData: {
      Incoming& pipe = *incoming_.at(frame_.key);
      pipe.offset += frame_.payload_bytes;
      const auto message_bytes = static_cast<int64_t>(frame_.message_bytes);
      if (pipe.offset == message_bytes) {
        *pipe.ring.header(pipe.received) = {message_bytes, frame_.tag};
        pipe.offset = 0;
        pipe.ring.Publish(++pipe.received);
      }
      return OkStatus();
    }
    case FrameType::kCredit:
      return OnCredit();
    case FrameType::kManifest:
      events_.OnManifest(payload_);
      return OkStatus();
    case FrameType::kAbort:
      events_.OnPeerAbort(DecodeCause(payload_));
      return OkStatus();
    case FrameType::kBye:
      Close();
      events_.OnGoodbye();
      return OkStatus();
  }
  return DataLoss("unknown frame");
}

Status TcpLink::OnCredit() {
  const auto found = outgoing_.find(frame_.key);
  if (found == outgoing_.end() || frame_.tag > found->second->started - found->second->credited) {
    return DataLoss(fmt::format("credit of {} for pipe {:x}", frame_.tag, frame_.key));
  }
  found->second->credited += frame_.tag;
  ReleaseSlots(*found->second);
  return OkStatus();
}

}  // namespace meshwright::collective
