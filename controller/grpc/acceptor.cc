#include "controller/grpc/acceptor.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>

#include "base/descriptors.h"
#include "base/listen_address.h"
#include "base/log.h"
#include "base/os_error.h"

namespace meshwright::controller {
namespace {

constexpr int kBacklog = 1024;
constexpr int kAcceptAgainMs = 100;      // with nothing to accept with
constexpr int64_t kUnwellMs = 10'000;    // after the last refusal
constexpr unsigned kUnackedMs = 5'000;   // as the keepalive of the connections
constexpr int64_t kFewestReserved = 16;  // for files of jobs, the store, the metrics page
constexpr int64_t kMostReserved = 256;

UniqueFd OpenAnything() { return UniqueFd(::open("/dev/null", O_RDONLY | O_CLOEXEC)); }

void SetOptions(const UniqueFd& connection) {
  const int yes = 1;
  ::setsockopt(connection.get(), IPPROTO_TCP, TCP_NODELAY, &yes, sizeof(yes));
  ::setsockopt(connection.get(), IPPROTO_TCP, TCP_USER_TIMEOUT, &kUnackedMs, sizeof(kUnackedMs));
}

}  // namespace

Result<std::unique_ptr<Acceptor>> Acceptor::Listen(const std::string& bind, int port,
                                                   int64_t max_connections, const Clock& clock) {
  MW_ASSIGN_OR_RETURN(UniqueFd fd, ListenTcp(bind, port, kBacklog));
  MW_ASSIGN_OR_RETURN(const int own_port, PortOf(fd));
  return Make({std::move(fd), own_port, ""}, max_connections, clock);
}

Result<std::unique_ptr<Acceptor>> Acceptor::ListenLocal(const std::string& path,
                                                        int64_t max_connections,
                                                        const Clock& clock) {
  MW_ASSIGN_OR_RETURN(UniqueFd fd, ListenUnix(path, kBacklog));
  return Make({std::move(fd), 0, path}, max_connections, clock);
}

Result<std::unique_ptr<Acceptor>> Acceptor::Make(Listener listener, int64_t max_connections,
                                                 const Clock& clock) {
  UniqueFd wake(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!wake.valid()) return Fail(OsError(errno, "eventfd"));
  if (::fcntl(listener.fd.get(), F_SETFL, O_NONBLOCK) != 0) {
    return Fail(OsError(errno, "listener"));
  }
  return std::unique_ptr<Acceptor>(
      new Acceptor(std::move(listener), std::move(wake), max_connections, clock));
}

Acceptor::Acceptor(Listener listener, UniqueFd wake, int64_t max_connections, const Clock& clock)
    : listener_(std::move(listener)),
      wake_(std::move(wake)),
      reserve_(OpenAnything()),
      max_connections_(max_connections),
      base_descriptors_(reserve_.get() + 1),
      clock_(clock) {}

Acceptor::~Acceptor() { Stop(); }

void Acceptor::Start(Take take) {
  take_ = std::move(take);
  thread_.Post([this] { Run(); });
}

void Acceptor::Stop() {
  ::eventfd_write(wake_.get(), 1);
  thread_.Stop();
  if (listener_.fd.valid() && !listener_.path.empty()) ::unlink(listener_.path.c_str());
  listener_.fd.Reset();
}

void Acceptor::Run() {
  bool can_accept = true;
  while (true) {
    std::array<pollfd, 2> wanted{
        {{wake_.get(), POLLIN, 0}, {can_accept ? listener_.fd.get() : -1, POLLIN, 0}}};
    ::poll(wanted.data(), wanted.size(), can_accept ? -1 : kAcceptAgainMs);
    if ((wanted[0].revents & POLLIN) != 0) return;
    can_accept = true;
    while (AcceptOne()) {
    }
    // What could not even be refused still waits in the queue: poll would return at once.
    if (!reserve_.valid()) reserve_ = OpenAnything();
    can_accept = reserve_.valid();
  }
}

bool Acceptor::AcceptOne() {
  UniqueFd connection(
      ::accept4(listener_.fd.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
  if (!connection.valid()) return OnAcceptError(errno);
  Admit(std::move(connection));
  return true;
}

void Acceptor::Admit(UniqueFd connection) {
  if (connection.get() >= MostDescriptors()) {
    Refuse(std::move(connection));
    return;
  }
  SetOptions(connection);
  take_(std::move(connection));
}

bool Acceptor::OnAcceptError(int error) {
  if (error == EAGAIN || error == EWOULDBLOCK) return false;
  if (error != EMFILE && error != ENFILE && error != ENOBUFS && error != ENOMEM) {
    return true;  // of the connection that was to be: it is gone
  }
  reserve_.Reset();
  UniqueFd connection(
      ::accept4(listener_.fd.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
  reserve_ = OpenAnything();
  // The kernel looks for a number before it looks for a caller: there may be none.
  if (!connection.valid()) return false;
  if (reserve_.valid()) {  // another number has become free since
    Admit(std::move(connection));
    return true;
  }
  Refuse(std::move(connection));
  reserve_ = OpenAnything();
  return reserve_.valid();
}

// With a reset and not an end: the caller learns at once that it was not heard.
void Acceptor::Refuse(UniqueFd connection) {
  if (!connection.valid()) return;
  const linger at_once{1, 0};
  ::setsockopt(connection.get(), SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once));
  const int64_t now_ms = clock_.NowMs();
  const int64_t before_ms = refused_at_ms_.exchange(now_ms);
  refused_.fetch_add(1);
  if (before_ms >= 0 && now_ms - before_ms < kUnwellMs) return;
  LogWarn("connections are refused: " + Health().message());
}

int64_t Acceptor::MostDescriptors() const {
  const int64_t limit = DescriptorLimit();
  const int64_t reserved = std::clamp(limit / 8, kFewestReserved, kMostReserved);
  return std::min(limit - reserved, base_descriptors_ + max_connections_);
}

Status Acceptor::Health() const {
  const int64_t refused_at_ms = refused_at_ms_.load();
  if (refused_at_ms < 0 || clock_.NowMs() - refused_at_ms >= kUnwellMs) return OkStatus();
  return Unavailable(fmt::format(
      "{} had to refuse {} connections since the start, some in the last {} s: "
      "about {} are open, the most that the limits allow (--max-connections {}, {} "
      "descriptors); close some, or raise 'ulimit -n' and --max-connections",
      listener_.path.empty() ? fmt::format("port {}", port()) : listener_.path, refused(),
      kUnwellMs / 1000, std::max<int64_t>(0, MostDescriptors() - base_descriptors_),
      max_connections_, DescriptorLimit()));
}

}  // namespace meshwright::controller
