#include "base/listen_address.h"

#include <fmt/format.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/os_error.h"

namespace meshwright {

std::string LocalSocketIn(const std::string& folder) {
  const std::string path = folder + "/controller.sock";
  return path.size() < sizeof(sockaddr_un::sun_path) ? path : "";
}

std::string FormatHostPort(const std::string& host, int port) {
  const bool bare_ipv6 = host.find(':') != std::string::npos && host.front() != '[';
  return bare_ipv6 ? fmt::format("[{}]:{}", host, port) : fmt::format("{}:{}", host, port);
}

std::string NumericHost(const std::string& host) {
  if (host == "localhost") return "127.0.0.1";
  const bool bracketed = host.size() > 2 && host.front() == '[' && host.back() == ']';
  return bracketed ? host.substr(1, host.size() - 2) : host;
}

Result<SocketAddress> ResolveNumeric(const std::string& host, int port) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE | AI_NUMERICHOST | AI_NUMERICSERV;
  addrinfo* found = nullptr;
  const std::string bare = NumericHost(host);
  const int error = getaddrinfo(bare.c_str(), std::to_string(port).c_str(), &hints, &found);
  if (error != 0) {
    return Fail(InvalidArgument(fmt::format(
        "host '{}': {}; give a numeric address such as 127.0.0.1", host, gai_strerror(error))));
  }
  SocketAddress address;
  address.bytes = found->ai_addrlen;
  std::memcpy(&address.storage, found->ai_addr, found->ai_addrlen);
  freeaddrinfo(found);
  return address;
}

Result<UniqueFd> ListenTcp(const std::string& host, int port, int backlog) {
  MW_ASSIGN_OR_RETURN(const SocketAddress address, ResolveNumeric(host, port));
  UniqueFd listener(socket(address.storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const int yes = 1;
  setsockopt(listener.get(), SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
  if (bind(listener.get(), address.get(), address.bytes) == 0 &&
      listen(listener.get(), backlog) == 0) {
    return listener;
  }
  const int error = errno;
  const char* fix = error == EADDRINUSE
                        ? "; stop the process that listens there or choose another port (0: any)"
                        : "; choose an address of this machine and a port above 1023";
  const Status status = OsError(error, FormatHostPort(host, port));
  return Fail(Status(status.code(), status.message() + fix));
}

Result<UniqueFd> ListenUnix(const std::string& path, int backlog) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof(address.sun_path)) {
    return Fail(InvalidArgument(fmt::format("the path of a socket has at most {} bytes: {}",
                                            sizeof(address.sun_path) - 1, path)));
  }
  std::memcpy(address.sun_path, path.data(), path.size());
  struct stat found {};
  if (lstat(path.c_str(), &found) == 0) {
    if (!S_ISSOCK(found.st_mode)) {
      return Fail(AlreadyExists(path + " is no socket: move it away, it is in the way of one"));
    }
    unlink(path.c_str());
  }
  UniqueFd listener(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  // The mode is set before anybody can be heard.
  if (bind(listener.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0 ||
      chmod(path.c_str(), S_IRUSR | S_IWUSR) != 0 || listen(listener.get(), backlog) != 0) {
    return Fail(OsError(errno, path));
  }
  return listener;
}

Result<int> PortOf(const UniqueFd& socket) {
  SocketAddress address;
  address.bytes = sizeof(address.storage);
  if (getsockname(socket.get(), reinterpret_cast<sockaddr*>(&address.storage), &address.bytes) !=
      0) {
    return Fail(OsError(errno, "getsockname"));
  }
  const bool ipv6 = address.storage.ss_family == AF_INET6;
  return ntohs(ipv6 ? reinterpret_cast<const sockaddr_in6*>(address.get())->sin6_port
                    : reinterpret_cast<const sockaddr_in*>(address.get())->sin_port);
}

Status ProbeListen(const std::string& host, int port) {
  return internal::ToStatus(ListenTcp(host, port, 1));
}

}  // namespace meshwright
