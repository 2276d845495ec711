#include "worker/frame_socket.h"

#include <fmt/format.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <utility>

#include "base/os_error.h"

namespace meshwright::worker {
namespace {

constexpr size_t kLengthBytes = 4;
constexpr size_t kMaxFrameBytes = 8 << 20;
// Credits bound what a peer may leave unread; beyond this it does not read at all.
constexpr size_t kMaxPendingBytes = 1 << 30;

uint32_t LengthAt(std::string_view bytes) {
  uint32_t length = 0;
  for (size_t i = 0; i < kLengthBytes; ++i) {
    length |= static_cast<uint32_t>(static_cast<uint8_t>(bytes[i])) << (8 * i);
  }
  return length;
}

std::string WithLength(const actor::Frame& frame) {
  const std::string body = actor::EncodeFrame(frame);
  std::string bytes;
  bytes.reserve(kLengthBytes + body.size());
  for (size_t i = 0; i < kLengthBytes; ++i) {
    bytes.push_back(static_cast<char>(body.size() >> (8 * i)));
  }
  return bytes += body;
}

// How much went out; -1: the connection has ended.
ssize_t SendSome(int fd, std::string_view bytes, int flags) {
  while (true) {
    const ssize_t sent = ::send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL | flags);
    if (sent >= 0) return sent;
    if (errno == EINTR) continue;
    return errno == EAGAIN || errno == EWOULDBLOCK ? 0 : -1;
  }
}

}  // namespace

FrameSocket::FrameSocket(UniqueFd fd, FrameHandlers handlers)
    : fd_(std::move(fd)), handlers_(std::move(handlers)) {
  writer_ = std::thread([this] { WriteLoop(); });
  reader_ = std::thread([this] { ReadLoop(); });
}

FrameSocket::~FrameSocket() { Close(); }

bool FrameSocket::Send(const actor::Frame& frame) {
  std::string bytes = WithLength(frame);
  const MutexLock lock(mutex_);
  if (ended_) return false;
  size_t sent = 0;
  if (!writing_ && pending_.empty()) {
    const ssize_t some = SendSome(fd_.get(), bytes, MSG_DONTWAIT);
    if (some < 0) return false;
    sent = static_cast<size_t>(some);
  }
  if (sent == bytes.size()) return true;
  if (pending_.size() + bytes.size() > kMaxPendingBytes) {
    ::shutdown(fd_.get(), SHUT_RDWR);
    return false;
  }
  pending_.append(bytes, sent);
  wake_.NotifyOne();
  return true;
}

void FrameSocket::Shutdown() { ::shutdown(fd_.get(), SHUT_RDWR); }

void FrameSocket::Close() {
  Shutdown();
  if (reader_.joinable()) reader_.join();
  if (writer_.joinable()) writer_.join();
}

void FrameSocket::WriteLoop() {
  MutexLock lock(mutex_);
  while (true) {
    while (!ended_ && pending_.empty()) wake_.Wait(mutex_);
    if (ended_) return;
    const std::string bytes = std::exchange(pending_, {});
    writing_ = true;
    lock.Unlock();
    std::string_view rest = bytes;
    while (!rest.empty()) {
      const ssize_t sent = SendSome(fd_.get(), rest, 0);
      if (sent < 0) break;
      rest.remove_prefix(static_cast<size_t>(sent));
    }
    lock.Lock();
    writing_ = false;
    if (!rest.empty()) return;  // the reader sees the end, too
  }
}

Status FrameSocket::TakeFrames(std::string& bytes) {
  std::string_view rest = bytes;
  while (rest.size() >= kLengthBytes) {
    const size_t length = LengthAt(rest);
    if (length > kMaxFrameBytes) {
      return InvalidArgument(
          fmt::format("a frame of {} bytes; at most {} go", length, kMaxFrameBytes));
    }
    if (rest.size() < kLengthBytes + length) break;
    MW_ASSIGN_OR_RETURN(actor::Frame frame, actor::DecodeFrame(rest.substr(kLengthBytes, length)));
    rest.remove_prefix(kLengthBytes + length);
    handlers_.frame(std::move(frame));
  }
  bytes.erase(0, bytes.size() - rest.size());
  return OkStatus();
}

void FrameSocket::ReadLoop() {
  std::array<char, 1 << 16> block;
  std::string bytes;
  Status end = Unavailable("the connection was closed");
  while (true) {
    const ssize_t got = ::recv(fd_.get(), block.data(), block.size(), 0);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) end = OsError(errno, "read from a local socket");
    if (got <= 0) break;
    bytes.append(block.data(), static_cast<size_t>(got));
    if (const Status status = TakeFrames(bytes); !status.ok()) {
      end = status;
      break;
    }
  }
  ::shutdown(fd_.get(), SHUT_RDWR);
  {
    const MutexLock lock(mutex_);
    ended_ = true;
    wake_.NotifyOne();
  }
  handlers_.ended(end);
}

}  // namespace meshwright::worker
