#include "tests/page/http_ask.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include <array>

#include "base/clock.h"
#include "base/unique_fd.h"

namespace meshwright::testing {

HttpAnswer AskHttp(int port, const HttpAsk& ask,
                   const std::function<bool(const std::string& body)>& until) {
  const Deadline deadline = Deadline::After(20'000);
  const UniqueFd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_port = htons(static_cast<uint16_t>(port));
  to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (::connect(fd.get(), reinterpret_cast<const sockaddr*>(&to), sizeof(to)) != 0) return {};
  std::string request =
      fmt::format("{} {} HTTP/1.1\r\nHost: {}\r\n{}", ask.method, ask.path, ask.host, ask.headers);
  if (ask.method == "POST") request += fmt::format("Content-Length: {}\r\n", ask.body.size());
  request += "\r\n" + ask.body;
  if (::send(fd.get(), request.data(), request.size(), MSG_NOSIGNAL) < 0) return {};
  std::string reply;
  size_t begin = std::string::npos;
  while (!deadline.expired()) {
    pollfd ready{fd.get(), POLLIN, 0};
    if (::poll(&ready, 1, static_cast<int>(deadline.remaining_ms())) <= 0) break;
    std::array<char, 65536> block;
    const ssize_t got = ::recv(fd.get(), block.data(), block.size(), 0);
    if (got <= 0) break;
    reply.append(block.data(), static_cast<size_t>(got));
    if (begin == std::string::npos) begin = reply.find("\r\n\r\n");
    if (begin != std::string::npos && until && until(reply.substr(begin + 4))) break;
  }
  if (begin == std::string::npos || reply.size() < 12) return {};
  return {std::stoi(reply.substr(9, 3)), reply.substr(0, begin + 2), reply.substr(begin + 4)};
}

}  // namespace meshwright::testing
