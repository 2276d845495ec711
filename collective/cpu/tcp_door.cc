#include <fcntl.h>
#include <fmt/format.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/clock.h"
#include "base/os_error.h"
#include "collective/cpu/fabric_port.h"
#include "collective/cpu/tcp_listener.h"
#include "collective/cpu/tcp_socket.h"
#include "collective/door.h"

namespace meshwright::collective {
namespace {

// A door is another process to the port than the fabric of the same mesh.
uint64_t PortOf(uint64_t process_id) { return process_id ^ 0x726f6f642d776d00ULL; }

Status SetBlocking(int fd, bool blocking) {
  const int flags = ::fcntl(fd, F_GETFL);
  const int wanted = blocking ? flags & ~O_NONBLOCK : flags | O_NONBLOCK;
  if (flags < 0 || ::fcntl(fd, F_SETFL, wanted) != 0) return OsError(errno, "set up a connection");
  return OkStatus();
}

void SetTimeouts(int fd, int64_t timeout_ms) {
  const timeval time{timeout_ms / 1000, timeout_ms % 1000 * 1000};
  (void)::setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &time, sizeof time);
  (void)::setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &time, sizeof time);
  const int on = 1;
  (void)::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

class TcpDoor final : public Door, private FabricPort {
 public:
  TcpDoor(std::shared_ptr<TcpListener> listener, DoorName name, std::function<void(UniqueFd)> enter)
      : listener_(std::move(listener)),
        identity_{std::move(name.cluster_id), name.generation, PortOf(name.process_id),
                  std::move(name.secret)},
        enter_(std::move(enter)) {}
  ~TcpDoor() override { listener_->Unregister(this); }
  Status Register() { return listener_->Register(this); }

 private:
  const Identity& identity() const override { return identity_; }
  bool Expects(uint64_t) const override { return true; }  // who knows the secret
  void Adopt(UniqueFd fd, const Hello&) override {
    const Bytes reply = EncodeReply({OkStatus(), identity_.process_id});
    // The buffer is empty, and takes the short reply at once.
    const ssize_t sent = ::send(fd.get(), reply.data(), reply.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent != static_cast<ssize_t>(reply.size())) return;
    if (SetBlocking(fd.get(), true).ok()) enter_(std::move(fd));
  }
  void NoteRefusal(const Status&) override {}

  const std::shared_ptr<TcpListener> listener_;
  const Identity identity_;
  const std::function<void(UniqueFd)> enter_;
};

// Errors: kUnavailable, kDeadlineExceeded.
Result<UniqueFd> ConnectTo(const addrinfo& target, const meshwright::Deadline& deadline) {
  UniqueFd fd(::socket(target.ai_family, target.ai_socktype | SOCK_CLOEXEC | SOCK_NONBLOCK,
                       target.ai_protocol));
  if (!fd.valid()) return Fail(OsError(errno, "make a socket"));
  if (::connect(fd.get(), target.ai_addr, target.ai_addrlen) == 0) return fd;
  if (errno != EINPROGRESS) return Fail(Unavailable(std::strerror(errno)));
  pollfd wait{fd.get(), POLLOUT, 0};
  const int ready = ::poll(&wait, 1, static_cast<int>(deadline.remaining_ms()));
  if (ready == 0) return Fail(DeadlineExceeded("no answer in time"));
  int error = 0;
  socklen_t length = sizeof error;
  (void)::getsockopt(fd.get(), SOL_SOCKET, SO_ERROR, &error, &length);
  if (ready < 0 || error != 0) return Fail(Unavailable(std::strerror(ready < 0 ? errno : error)));
  return fd;
}

Result<UniqueFd> Dial(const HostPort& target, const meshwright::Deadline& deadline) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int error = ::getaddrinfo(target.host.c_str(), target.port.c_str(), &hints, &found);
  if (error != 0) return Fail(Unavailable(::gai_strerror(error)));
  Result<UniqueFd> connected = Fail(Unavailable("it has no address"));
  for (const addrinfo* one = found; one != nullptr && !connected.has_value(); one = one->ai_next) {
    connected = ConnectTo(*one, deadline);
  }
  ::freeaddrinfo(found);
  return connected;
}

Status AwaitWelcome(int fd) {
  std::array<uint8_t, kEnvelopeBytes> envelope{};
  MW_TRY(ReadFully(fd, envelope.data(), envelope.size()));
  MW_ASSIGN_OR_RETURN(const uint32_t bytes, DecodeEnvelope(envelope, kReplyMagic));
  Bytes body(bytes);
  MW_TRY(ReadFully(fd, body.data(), body.size()));
  MW_ASSIGN_OR_RETURN(const HelloReply reply, DecodeReply(body));
  return reply.status;
}

}  // namespace

Result<std::unique_ptr<Door>> OpenDoor(std::shared_ptr<Listener> listener, DoorName name,
                                       std::function<void(UniqueFd)> enter) {
  auto with_port = std::dynamic_pointer_cast<TcpListener>(std::move(listener));
  if (with_port == nullptr) {
    return Fail(InvalidArgument("doors are opened at a listener of MakeListener()"));
  }
  auto door = std::make_unique<TcpDoor>(std::move(with_port), std::move(name), std::move(enter));
  MW_TRY(door->Register());
  return std::unique_ptr<Door>(std::move(door));
}

Result<UniqueFd> EnterDoor(const std::string& address, const DoorName& name, int64_t timeout_ms) {
  const auto of = [&](const Status& status) { return status.WithContext("door of " + address); };
  const auto target = ParseHostPort(address);
  if (!target.has_value()) return Fail(target.error());
  auto fd = Dial(*target, meshwright::Deadline::After(timeout_ms));
  if (!fd.has_value()) return Fail(of(fd.error()));
  MW_TRY(SetBlocking(fd->get(), true));
  SetTimeouts(fd->get(), timeout_ms);
  const Bytes hello =
      EncodeHello({name.cluster_id, name.secret, name.generation, 0, PortOf(name.process_id)});
  if (Status sent = WriteFully(fd->get(), hello.data(), hello.size()); !sent.ok()) {
    return Fail(of(sent));
  }
  if (Status welcome = AwaitWelcome(fd->get()); !welcome.ok()) return Fail(of(welcome));
  return std::move(*fd);
}

Status ReadFully(int fd, void* into, size_t bytes) {
  auto* at = static_cast<char*>(into);
  while (bytes > 0) {
    const ssize_t got = ::recv(fd, at, bytes, 0);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return Unavailable(got == 0 ? "the peer has closed it" : std::strerror(errno));
    at += got;
    bytes -= static_cast<size_t>(got);
  }
  return OkStatus();
}

Status WriteFully(int fd, const void* from, size_t bytes) {
  const auto* at = static_cast<const char*>(from);
  while (bytes > 0) {
    const ssize_t put = ::send(fd, at, bytes, MSG_NOSIGNAL);
    if (put < 0 && errno == EINTR) continue;
    if (put <= 0) return Unavailable(std::strerror(errno));
    at += put;
    bytes -= static_cast<size_t>(put);
  }
  return OkStatus();
}

}  // namespace meshwright::collective
