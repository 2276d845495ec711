#include "tests/e2e/control/half_sender.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>

#include "base/listen_address.h"
#include "base/os_error.h"

namespace meshwright::testing {
namespace {

enum FrameType : uint8_t {
  kData = 0,
  kHeaders = 1,
  kReset = 3,
  kSettings = 4,
  kPing = 6,
  kGoAway = 7,
  kWindow = 8
};
constexpr uint8_t kAck = 1;
constexpr uint8_t kEndStream = 1;
constexpr uint8_t kEndHeaders = 4;
constexpr int64_t kMaxFrame = 16384;

std::string BigEndian(uint32_t value, int bytes) {
  std::string text;
  for (int i = bytes - 1; i >= 0; --i) text += static_cast<char>(value >> (8 * i));
  return text;
}

uint32_t ReadBigEndian(const std::string& text, size_t at, size_t bytes) {
  uint32_t value = 0;
  for (size_t i = 0; i < bytes; ++i) value = value << 8 | static_cast<uint8_t>(text[at + i]);
  return value;
}

// REQUIRES: shorter than 127 bytes.
std::string Text(const std::string& text) { return static_cast<char>(text.size()) + text; }

std::string Header(const std::string& name, const std::string& value) {
  return std::string(1, '\0') + Text(name) + Text(value);
}

std::string RequestHeaders(const std::string& path, const std::string& token) {
  // ":method: POST" and ":scheme: http" are entries 3 and 6 of the static table, ":path" is 4,
  // ":authority" 1.
  std::string block = "\x83\x86\x01" + Text("mesh") + "\x04" + Text(path) +
                      Header("content-type", "application/grpc") + Header("te", "trailers");
  if (!token.empty()) block += Header("authorization", "Bearer " + token);
  return block;
}

}  // namespace

Result<HalfSender> HalfSender::Connect(int port) {
  MW_ASSIGN_OR_RETURN(const SocketAddress address, ResolveNumeric("127.0.0.1", port));
  UniqueFd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (::connect(fd.get(), address.get(), address.bytes) != 0) {
    return Fail(OsError(errno, "connect"));
  }
  const std::string preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
  ::send(fd.get(), preface.data(), preface.size(), MSG_NOSIGNAL);
  HalfSender sender(std::move(fd));
  if (!sender.Write(kSettings, 0, 0, "")) return Fail(Unavailable("the connection was closed"));
  return sender;
}

Status HalfSender::Begin(const std::string& path, const std::string& token, int calls,
                         int64_t message_bytes) {
  for (int i = 0; i < calls; ++i) {
    if (!Write(kHeaders, kEndHeaders, next_stream_, RequestHeaders(path, token))) {
      return Unavailable("the connection was closed");
    }
    constexpr int64_t kPrefixBytes = 5;
    streams_[next_stream_] = {initial_window_, kPrefixBytes + message_bytes - 1};
    next_stream_ += 2;
  }
  return OkStatus();
}

void HalfSender::Run(const Deadline& deadline) {
  while (!closed_ && !streams_.empty() && !deadline.expired()) {
    const bool sent = SendSome();
    pollfd wanted{fd_.get(), POLLIN, 0};
    if (::poll(&wanted, 1, sent ? 0 : 10) > 0 && !Receive()) closed_ = true;
  }
}

bool HalfSender::Write(uint8_t type, uint8_t flags, uint32_t stream, const std::string& payload) {
  const std::string frame = BigEndian(static_cast<uint32_t>(payload.size()), 3) +
                            static_cast<char>(type) + static_cast<char>(flags) +
                            BigEndian(stream, 4) + payload;
  return ::send(fd_.get(), frame.data(), frame.size(), MSG_NOSIGNAL) ==
         static_cast<ssize_t>(frame.size());
}

// One frame of each stream that may send one, as long as the socket takes them.
bool HalfSender::SendSome() {
  bool sent = false;
  for (auto& [id, stream] : streams_) {
    const int64_t bytes = std::min({stream.left, stream.window, window_, kMaxFrame});
    pollfd writable{fd_.get(), POLLOUT, 0};
    if (bytes <= 0 || ::poll(&writable, 1, 0) != 1 || (writable.revents & POLLOUT) == 0) continue;
    std::string payload(static_cast<size_t>(bytes), 'x');
    if (!stream.headed && bytes >= 5) {
      payload.replace(0, 5, '\0' + BigEndian(static_cast<uint32_t>(stream.left - 5 + 1), 4));
      stream.headed = true;
    }
    if (!Write(kData, 0, id, payload)) {
      closed_ = true;
      return sent;
    }
    stream.left -= bytes;
    stream.window -= bytes;
    window_ -= bytes;
    sent_bytes_ += bytes;
    sent = true;
  }
  return sent;
}

bool HalfSender::Receive() {
  std::array<char, 65536> bytes{};
  const ssize_t got = ::recv(fd_.get(), bytes.data(), bytes.size(), 0);
  if (got <= 0) return false;
  received_.append(bytes.data(), static_cast<size_t>(got));
  constexpr size_t kHead = 9;
  while (received_.size() >= kHead) {
    const size_t length = ReadBigEndian(received_, 0, 3);
    if (received_.size() < kHead + length) break;
    OnFrame(static_cast<uint8_t>(received_[3]), static_cast<uint8_t>(received_[4]),
            ReadBigEndian(received_, 5, 4), received_.substr(kHead, length));
    received_.erase(0, kHead + length);
  }
  return true;
}

void HalfSender::OnFrame(uint8_t type, uint8_t flags, uint32_t stream, const std::string& payload) {
  if (type == kSettings && (flags & kAck) == 0) {
    OnSettings(payload);
    Write(kSettings, kAck, 0, "");
  } else if (type == kPing && (flags & kAck) == 0) {
    Write(kPing, kAck, 0, payload);
  } else if (type == kWindow) {
    const int64_t more = ReadBigEndian(payload, 0, 4);
    if (stream == 0) {
      window_ += more;
    } else if (const auto it = streams_.find(stream); it != streams_.end()) {
      it->second.window += more;
    }
  } else if (type == kReset || (type == kHeaders && (flags & kEndStream) != 0)) {
    if (type == kHeaders) last_answer_ = payload;
    ended_ += static_cast<int>(streams_.erase(stream));
  } else if (type == kGoAway) {
    closed_ = true;
  }
}

void HalfSender::OnSettings(const std::string& payload) {
  constexpr uint32_t kInitialWindowSize = 4;
  for (size_t at = 0; at + 6 <= payload.size(); at += 6) {
    if (ReadBigEndian(payload, at, 2) != kInitialWindowSize) continue;
    const int64_t window = ReadBigEndian(payload, at + 2, 4);
    for (auto& [id, stream] : streams_) stream.window += window - initial_window_;
    initial_window_ = window;
  }
}

}  // namespace meshwright::testing
