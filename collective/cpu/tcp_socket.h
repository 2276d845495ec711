// Sockets as the data plane wants them: close-on-exec from birth, non-blocking, no Nagle delay,
// dead hosts noticed.
//
// Thread rule: pure functions over sockets; the caller owns the socket's loop.
#pragma once

#include <string>
#include <utility>

#include "base/result.h"
#include "base/unique_fd.h"
#include "collective/cpu/tcp_loop.h"

namespace meshwright::collective {

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
