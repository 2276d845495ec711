#include "collective/cpu/tcp_socket.h"

#include <fmt/format.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace meshwright::collective {
namespace {

void SetOption(int fd, int level, int option, int value) {
  setsockopt(fd, level, option, &value, sizeof(value));  // best effort: the socket works without
}

}  // namespace

Result<UniqueFd> OpenSocket(const asio::ip::tcp& protocol) {
  UniqueFd fd(socket(protocol.family(), SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, IPPROTO_TCP));
  if (!fd.valid()) {
    return Fail(ResourceExhausted(fmt::format("cannot open a socket: {}", std::strerror(errno))));
  }
  return fd;
}

UniqueFd AcceptConnection(int listener) {
  return UniqueFd(accept4(listener, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
}

Status AssignSocket(TcpSocket& socket, const asio::ip::tcp& protocol, UniqueFd fd) {
  const int raw = fd.get();
  SetOption(raw, IPPROTO_TCP, TCP_NODELAY, 1);
  SetOption(raw, SOL_SOCKET, SO_KEEPALIVE, 1);
  SetOption(raw, IPPROTO_TCP, TCP_KEEPIDLE, 5);
  SetOption(raw, IPPROTO_TCP, TCP_KEEPINTVL, 1);
  SetOption(raw, IPPROTO_TCP, TCP_KEEPCNT, 5);
  SetOption(raw, IPPROTO_TCP, TCP_USER_TIMEOUT, kSilentHostMs);
  ErrorCode error;
  socket.assign(protocol, raw, error);
  if (error) {
    return Unavailable(fmt::format("cannot watch a socket: {}", error.message()));
  }
  fd.Release();
  return OkStatus();
}

Result<TcpSocket> AdoptSocket(asio::io_context& io, UniqueFd fd) {
  sockaddr_storage address{};
  socklen_t length = sizeof(address);
  getsockname(fd.get(), reinterpret_cast<sockaddr*>(&address), &length);
  TcpSocket socket(io);
  const asio::ip::tcp protocol =
      address.ss_family == AF_INET6 ? asio::ip::tcp::v6() : asio::ip::tcp::v4();
  MW_TRY(AssignSocket(socket, protocol, std::move(fd)));
  return socket;
}

Result<HostPort> ParseHostPort(const std::string& address) {
  const size_t colon = address.rfind(':');
  HostPort parsed;
  if (colon != std::string::npos) {
    parsed = {address.substr(0, colon), address.substr(colon + 1)};
  }
  if (parsed.host.size() > 2 && parsed.host.front() == '[' && parsed.host.back() == ']') {
    parsed.host = parsed.host.substr(1, parsed.host.size() - 2);
  }
  const bool digits = !parsed.port.empty() && parsed.port.size() <= 5 &&
                      std::all_of(parsed.port.begin(), parsed.port.end(),
                                  [](char c) { return c >= '0' && c <= '9'; });
  if (parsed.host.empty() || !digits || std::stoi(parsed.port) > 65535) {
    return Fail(InvalidArgument(
        fmt::format("data address \"{}\" is not host:port, e.g. 10.0.0.2:7711", address)));
  }
  return parsed;
}

}  // namespace meshwright::collective
