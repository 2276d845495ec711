#include <fcntl.h>
#include <fmt/format.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
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
  TcpDoor(std::shared_ptr<TcpListener> listener, DoorName name,
          std::function<void(Connection)> enter)
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
    TlsContext* const tls = ContextOf(listener_->tls());
    if (tls == nullptr) {
      // The buffer is empty, and takes the short reply at once.
      const ssize_t sent =
          ::send(fd.get(), reply.data(), reply.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
      if (sent != static_cast<ssize_t>(reply.size())) return;
      if (SetBlocking(fd.get(), true).ok()) enter_(Connection(std::move(fd)));
      return;
    }
    Result<std::unique_ptr<TlsSession>> session = tls->NewSession(TlsEnd::kListens);
    if (!session.has_value() || !SetBlocking(fd.get(), true).ok()) return;
    enter_(Connection(std::move(fd), std::move(*session), std::string(reply.begin(), reply.end())));
  }
  void NoteRefusal(const Status&) override {}

  const std::shared_ptr<TcpListener> listener_;
  const Identity identity_;
  const std::function<void(Connection)> enter_;
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

Status AwaitWelcome(Connection& connection) {
  std::array<uint8_t, kEnvelopeBytes> envelope{};
  MW_TRY(connection.Read(envelope.data(), envelope.size()));
  MW_ASSIGN_OR_RETURN(const uint32_t bytes, DecodeEnvelope(envelope, kReplyMagic));
  Bytes body(bytes);
  MW_TRY(connection.Read(body.data(), body.size()));
  MW_ASSIGN_OR_RETURN(const HelloReply reply, DecodeReply(body));
  return reply.status;
}

}  // namespace

Result<std::unique_ptr<Door>> OpenDoor(std::shared_ptr<Listener> listener, DoorName name,
                                       std::function<void(Connection)> enter) {
  auto with_port = std::dynamic_pointer_cast<TcpListener>(std::move(listener));
  if (with_port == nullptr) {
    return Fail(InvalidArgument("doors are opened at a listener of MakeListener()"));
  }
  auto door = std::make_unique<TcpDoor>(std::move(with_port), std::move(name), std::move(enter));
  MW_TRY(door->Register());
  return std::unique_ptr<Door>(std::move(door));
}

Result<Connection> EnterDoor(const std::string& address, const DoorName& name, int64_t timeout_ms,
                             const std::shared_ptr<Tls>& tls) {
  const auto of = [&](const Status& status) { return status.WithContext("door of " + address); };
  MW_ASSIGN_OR_RETURN(const HostPort target, ParseHostPort(address));
  auto fd = Dial(target, meshwright::Deadline::After(timeout_ms));
  if (!fd.has_value()) return Fail(of(fd.error()));
  MW_TRY(SetBlocking(fd->get(), true));
  SetTimeouts(fd->get(), timeout_ms);
  TlsContext* const context = ContextOf(tls);
  const auto session = [&]() -> Result<std::unique_ptr<TlsSession>> {
    if (context == nullptr) return std::unique_ptr<TlsSession>();
    return context->NewSession(TlsEnd::kDials);
  };
  MW_ASSIGN_OR_RETURN(std::unique_ptr<TlsSession> with_port, session());
  Connection connection(std::move(*fd), std::move(with_port), "");
  const Bytes hello =
      EncodeHello({name.cluster_id, name.secret, name.generation, 0, PortOf(name.process_id)});
  if (Status sent = connection.Write(hello.data(), hello.size()); !sent.ok()) {
    return Fail(of(sent));
  }
  if (Status welcome = AwaitWelcome(connection); !welcome.ok()) return Fail(of(welcome));
  if (context == nullptr) return connection;
  // The port has handed it on to the door.
  MW_ASSIGN_OR_RETURN(std::unique_ptr<TlsSession> with_door, session());
  MW_TRY(connection.Restart(std::move(with_door)));
  if (Status welcome = AwaitWelcome(connection); !welcome.ok()) return Fail(of(welcome));
  return connection;
}

// ---- A connection -------------------------------------------------------------------------------

Connection::Connection() = default;
Connection::Connection(UniqueFd fd) : fd_(std::move(fd)) {}
Connection::Connection(UniqueFd fd, std::unique_ptr<TlsSession> session, std::string greeting)
    : fd_(std::move(fd)), session_(std::move(session)), greeting_(std::move(greeting)) {}
Connection::~Connection() = default;
Connection::Connection(Connection&& other) noexcept = default;
Connection& Connection::operator=(Connection&& other) noexcept = default;

Status Connection::Restart(std::unique_ptr<TlsSession> session) {
  if (!session_->drained()) return DataLoss("the door went on before it was told to");
  session_ = std::move(session);
  begun_ = false;
  return OkStatus();
}

// Some more bytes of the other end.
Status Connection::Fill() {
  const std::span<uint8_t> space = session_->InputSpace();
  ssize_t got = 0;
  do {
    got = ::recv(fd_.get(), space.data(), space.size(), 0);
  } while (got < 0 && errno == EINTR);
  if (got <= 0) return Unavailable(got == 0 ? "the peer has closed it" : std::strerror(errno));
  session_->Commit(static_cast<size_t>(got));
  return OkStatus();
}

Status Connection::Flush() {
  Bytes& out = session_->output();
  const Status sent = WriteFully(fd_.get(), out.data(), out.size());
  out.clear();
  return sent;
}

Status Connection::Begin() {
  begun_ = true;
  while (session_ != nullptr) {
    const Result<bool> done = session_->Handshake();
    const Status sent = Flush();  // of a handshake that failed: why
    if (!done.has_value()) return done.error();
    MW_TRY(sent);
    if (*done) break;
    MW_TRY(Fill());
  }
  const std::string greeting = std::move(greeting_);
  return greeting.empty() ? OkStatus() : Write(greeting.data(), greeting.size());
}

Status Connection::Read(void* into, size_t bytes) {
  if (!begun_) MW_TRY(Begin());
  if (session_ == nullptr) return ReadFully(fd_.get(), into, bytes);
  auto* at = static_cast<char*>(into);
  while (bytes > 0) {
    MW_ASSIGN_OR_RETURN(const size_t got, session_->Read(at, bytes));
    if (got == 0) MW_TRY(Fill());
    at += got;
    bytes -= got;
  }
  return OkStatus();
}

// In parts, so that what is encrypted does not take as much memory as what is sent.
Status Connection::Write(const void* from, size_t bytes) {
  constexpr size_t kPartBytes = 256 << 10;
  if (!begun_) MW_TRY(Begin());
  if (session_ == nullptr) return WriteFully(fd_.get(), from, bytes);
  const auto* at = static_cast<const char*>(from);
  while (bytes > 0) {
    const size_t part = std::min(bytes, kPartBytes);
    MW_TRY(session_->Write(at, part));
    MW_TRY(Flush());
    at += part;
    bytes -= part;
  }
  return OkStatus();
}

}  // namespace meshwright::collective
