// Sockets as the data plane wants them: close-on-exec from birth, non-blocking, no Nagle delay,
// dead hosts noticed.
//
// Thread rule: pure functions over sockets; the caller owns the socket's loop.
#pragma once

#include <string>
#include <utility>

#include "base/result.h"
#include "collective/cpu/tcp_loop.h"

namespace meshwright::collective {

// A file descriptor that is closed with its owner. Movable.
class UniqueFd {
 public:
  UniqueFd() = default;
  explicit UniqueFd(int fd) : fd_(fd) {}
  UniqueFd(UniqueFd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  UniqueFd& operator=(UniqueFd&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  UniqueFd(const UniqueFd&) = delete;
  UniqueFd& operator=(const UniqueFd&) = delete;
  ~UniqueFd();

  int get() const { return fd_; }
  bool valid() const { return fd_ >= 0; }
  int Release() { return std::exchange(fd_, -1); }

 private:
  int fd_ = -1;
};

// A silent peer host is given up after this long: keep-alive probes when idle, unacknowledged data
// otherwise.
inline constexpr int kSilentHostMs = 10'000;

// A new, unconnected stream socket for `protocol`. Errors: kResourceExhausted.
Result<UniqueFd> OpenSocket(const asio::ip::tcp& protocol);
// The next connection of a listening socket; invalid with errno set when there is none.
UniqueFd AcceptConnection(int listener);
// Gives the descriptor to asio and sets the options above. Errors: kUnavailable.
Result<TcpSocket> AdoptSocket(asio::io_context& io, UniqueFd fd);
Status AssignSocket(TcpSocket& socket, const asio::ip::tcp& protocol, UniqueFd fd);

// "host:port", "[v6]:port". Errors: kInvalidArgument.
struct HostPort {
  std::string host;
  std::string port;
};
Result<HostPort> ParseHostPort(const std::string& address);

}  // namespace meshwright::collective
