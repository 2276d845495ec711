#include "tests/e2e/cuttable_proxy.h"

#include <netinet/in.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>

#include "base/os_error.h"

namespace meshwright::testing {
namespace {

sockaddr_in Loopback(int port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(static_cast<uint16_t>(port));
  return address;
}

}  // namespace

Result<std::unique_ptr<CuttableProxy>> CuttableProxy::Start(int target_port) {
  UniqueFd listener(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  UniqueFd wake(::eventfd(0, EFD_CLOEXEC));
  sockaddr_in address = Loopback(0);
  socklen_t length = sizeof(address);
  auto* const any = reinterpret_cast<sockaddr*>(&address);
  const bool listens =
      listener.valid() && wake.valid() && ::bind(listener.get(), any, length) == 0 &&
      ::listen(listener.get(), 16) == 0 && ::getsockname(listener.get(), any, &length) == 0;
  if (!listens) return Fail(Internal("the proxy cannot listen"));
  return std::unique_ptr<CuttableProxy>(new CuttableProxy(std::move(listener), std::move(wake),
                                                          ntohs(address.sin_port), target_port));
}

CuttableProxy::CuttableProxy(UniqueFd listener, UniqueFd wake, int port, int target_port)
    : listener_(std::move(listener)),
      wake_(std::move(wake)),
      port_(port),
      target_port_(target_port) {
  thread_.Post([this] { Run(); });
}

CuttableProxy::~CuttableProxy() {
  stop_ = true;
  Cut();
  thread_.Stop();
}

void CuttableProxy::Cut() {
  cut_ = true;
  const uint64_t one = 1;
  (void)!::write(wake_.get(), &one, sizeof(one));
}

void CuttableProxy::Run() {
  while (!stop_) {
    std::vector<pollfd> watched = {{listener_.get(), POLLIN, 0}, {wake_.get(), POLLIN, 0}};
    for (const auto& [a, b] : pairs_) {
      watched.push_back({a.get(), POLLIN, 0});
      watched.push_back({b.get(), POLLIN, 0});
    }
    (void)::poll(watched.data(), watched.size(), 1000);
    if (watched[1].revents != 0) {
      uint64_t count = 0;
      (void)!::read(wake_.get(), &count, sizeof(count));
    }
    if (cut_.exchange(false)) {
      pairs_.clear();
      continue;
    }
    std::vector<bool> ended(pairs_.size(), false);
    for (size_t i = 0; i < pairs_.size(); ++i) {
      const int a = pairs_[i].first.get(), b = pairs_[i].second.get();
      if (watched[2 + 2 * i].revents != 0) ended[i] = !Pass(a, b);
      if (!ended[i] && watched[3 + 2 * i].revents != 0) ended[i] = !Pass(b, a);
    }
    for (size_t i = pairs_.size(); i-- > 0;) {
      if (ended[i]) pairs_.erase(pairs_.begin() + static_cast<std::ptrdiff_t>(i));
    }
    if (watched[0].revents != 0) Accept();
  }
  pairs_.clear();
}

void CuttableProxy::Accept() {
  UniqueFd client(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
  UniqueFd server(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const sockaddr_in target = Loopback(target_port_);
  if (!client.valid() || !server.valid()) return;
  if (::connect(server.get(), reinterpret_cast<const sockaddr*>(&target), sizeof(target)) != 0) {
    return;
  }
  ++connections_;
  pairs_.emplace_back(std::move(client), std::move(server));
}

bool CuttableProxy::Pass(int from, int to) {
  std::array<char, 64 << 10> buffer;
  const ssize_t got = ::recv(from, buffer.data(), buffer.size(), MSG_DONTWAIT);
  if (got <= 0) return false;
  for (ssize_t sent = 0; sent < got;) {
    const ssize_t now =
        ::send(to, buffer.data() + sent, static_cast<size_t>(got - sent), MSG_NOSIGNAL);
    if (now <= 0) return false;
    sent += now;
  }
  return true;
}

}  // namespace meshwright::testing
