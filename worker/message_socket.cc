#include "worker/message_socket.h"

#include <fmt/format.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <utility>

#include "base/check.h"
#include "base/os_error.h"

namespace meshwright::worker {
namespace {

constexpr size_t kLengthBytes = 4;
// Who sends bounds what a peer may leave unread; beyond this it does not read at all.
constexpr size_t kMaxPendingBytes = 1 << 30;

uint32_t LengthAt(std::string_view bytes) {
  uint32_t length = 0;
  for (size_t i = 0; i < kLengthBytes; ++i) {
    length |= static_cast<uint32_t>(static_cast<uint8_t>(bytes[i])) << (8 * i);
  }
  return length;
}

std::array<char, kLengthBytes> LengthOf(std::string_view message) {
  std::array<char, kLengthBytes> bytes{};
  for (size_t i = 0; i < kLengthBytes; ++i) {
    bytes[i] = static_cast<char>(message.size() >> (8 * i));
  }
  return bytes;
}

// Of two pieces, one behind the other, how much went out; -1: the connection has ended.
ssize_t SendSome(int fd, std::string_view first, std::string_view second, int flags) {
  std::array<iovec, 2> pieces = {iovec{const_cast<char*>(first.data()), first.size()},
                                 iovec{const_cast<char*>(second.data()), second.size()}};
  msghdr message{};
  message.msg_iov = pieces.data();
  message.msg_iovlen = pieces.size();
  while (true) {
    const ssize_t sent = ::sendmsg(fd, &message, MSG_NOSIGNAL | flags);
    if (sent >= 0) return sent;
    if (errno == EINTR) continue;
    return errno == EAGAIN || errno == EWOULDBLOCK ? 0 : -1;
  }
}

void RemovePrefix(size_t bytes, std::string_view& first, std::string_view& second) {
  const size_t of_first = std::min(bytes, first.size());
  first.remove_prefix(of_first);
  second.remove_prefix(bytes - of_first);
}

}  // namespace

Status SendMessage(int fd, std::string_view message) {
  const auto length = LengthOf(message);
  std::string_view head(length.data(), length.size());
  while (!head.empty() || !message.empty()) {
    const ssize_t sent = SendSome(fd, head, message, 0);
    if (sent < 0) return OsError(errno, "write to a local socket");
    RemovePrefix(static_cast<size_t>(sent), head, message);
  }
  return OkStatus();
}

MessageSocket::MessageSocket(UniqueFd fd, size_t most_bytes, MessageHandlers handlers)
    : fd_(std::move(fd)), most_bytes_(most_bytes), handlers_(std::move(handlers)) {
  MW_CHECK(fd_.valid() && handlers_.message && handlers_.ended) << "a socket without an end";
  writer_ = std::thread([this] { WriteLoop(); });
  reader_ = std::thread([this] { ReadLoop(); });
}

MessageSocket::~MessageSocket() { Close(); }

bool MessageSocket::Send(std::string_view message) {
  const auto length = LengthOf(message);
  std::string_view head(length.data(), length.size());
  const MutexLock lock(mutex_);
  if (ended_) return false;
  if (!writing_ && pending_.empty()) {
    const ssize_t sent = SendSome(fd_.get(), head, message, MSG_DONTWAIT);
    if (sent < 0) return false;
    RemovePrefix(static_cast<size_t>(sent), head, message);
  }
  if (head.empty() && message.empty()) return true;
  if (pending_.size() + message.size() > kMaxPendingBytes) {
    ::shutdown(fd_.get(), SHUT_RDWR);
    return false;
  }
  (pending_ += head) += message;
  wake_.NotifyOne();
  return true;
}

bool MessageSocket::Flush(int64_t timeout_ms) {
  const auto due = std::chrono::steady_clock::now() + std::chrono::milliseconds(timeout_ms);
  const MutexLock lock(mutex_);
  while (!ended_ && (writing_ || !pending_.empty())) {
    if (!written_.WaitUntil(mutex_, due)) return false;
  }
  return !ended_;
}

void MessageSocket::Shutdown() { ::shutdown(fd_.get(), SHUT_RDWR); }

void MessageSocket::Close() {
  Shutdown();
  if (reader_.joinable()) reader_.join();
  if (writer_.joinable()) writer_.join();
}

void MessageSocket::WriteLoop() {
  MutexLock lock(mutex_);
  while (true) {
    while (!ended_ && pending_.empty()) wake_.Wait(mutex_);
    if (ended_) return;
    const std::string bytes = std::exchange(pending_, {});
    writing_ = true;
    lock.Unlock();
    std::string_view rest = bytes;
    while (!rest.empty()) {
      const ssize_t sent = SendSome(fd_.get(), rest, {}, 0);
      if (sent < 0) break;
      rest.remove_prefix(static_cast<size_t>(sent));
    }
    lock.Lock();
    writing_ = false;
    written_.NotifyAll();
    if (!rest.empty()) return;  // the reader sees the end, too
  }
}

Status MessageSocket::TakeMessages(std::string& bytes) {
  std::string_view rest = bytes;
  while (rest.size() >= kLengthBytes) {
    const size_t length = LengthAt(rest);
    if (length > most_bytes_) {
      return InvalidArgument(
          fmt::format("a message of {} bytes; at most {} go", length, most_bytes_));
    }
    if (rest.size() < kLengthBytes + length) break;
    MW_TRY(handlers_.message(rest.substr(kLengthBytes, length)));
    rest.remove_prefix(kLengthBytes + length);
  }
  bytes.erase(0, bytes.size() - rest.size());
  return OkStatus();
}

void MessageSocket::ReadLoop() {
  std::array<char, 1 << 16> block;
  std::string bytes;
  Status end = Unavailable("the connection was closed");
  while (true) {
    const ssize_t got = ::recv(fd_.get(), block.data(), block.size(), 0);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) end = OsError(errno, "read from a local socket");
    if (got <= 0) break;
    bytes.append(block.data(), static_cast<size_t>(got));
    if (const Status status = TakeMessages(bytes); !status.ok()) {
      end = status;
      break;
    }
  }
  ::shutdown(fd_.get(), SHUT_RDWR);
  {
    const MutexLock lock(mutex_);
    ended_ = true;
    wake_.NotifyOne();
    written_.NotifyAll();
  }
  handlers_.ended(end);
}

}  // namespace meshwright::worker
