// A packet of the relay's socket is a byte that says what it is, and the body of a hello with the
// connection's descriptor beside it, or a cause (EncodeCause) of a refusal.
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <thread>

#include "base/mutex.h"
#include "base/os_error.h"
#include "collective/cpu/fabric_port.h"
#include "collective/cpu/tcp_listener.h"
#include "collective/relay.h"

namespace meshwright::collective {
namespace {

constexpr uint8_t kConnection = 1;
constexpr uint8_t kRefusal = 2;
constexpr size_t kMostPacketBytes = 1 + kMaxHandshakeBytes;

// Room for one descriptor beside a packet.
union Control {
  cmsghdr aligned;
  std::array<char, CMSG_SPACE(sizeof(int))> bytes;
};

// Never blocks: a child that does not take its connections loses them, and the dialers see them
// close.
void SendPacket(int socket, uint8_t kind, ByteView body, int fd) {
  Bytes packet = {kind};
  packet.insert(packet.end(), body.begin(), body.end());
  iovec data{packet.data(), packet.size()};
  Control control{};
  msghdr message{};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  if (fd >= 0) {
    message.msg_control = control.bytes.data();
    message.msg_controllen = control.bytes.size();
    cmsghdr* const header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof(int));
    std::memcpy(CMSG_DATA(header), &fd, sizeof(int));
  }
  while (::sendmsg(socket, &message, MSG_NOSIGNAL | MSG_DONTWAIT) < 0 && errno == EINTR) {
  }
}

struct Packet {
  Bytes bytes;  // empty: the other end has gone
  UniqueFd fd;
};

Packet ReceivePacket(int socket) {
  Packet packet;
  packet.bytes.resize(kMostPacketBytes);
  iovec data{packet.bytes.data(), packet.bytes.size()};
  Control control{};
  msghdr message{};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  message.msg_control = control.bytes.data();
  message.msg_controllen = control.bytes.size();
  ssize_t got = 0;
  do {
    got = ::recvmsg(socket, &message, MSG_CMSG_CLOEXEC);
  } while (got < 0 && errno == EINTR);
  packet.bytes.resize(got > 0 ? static_cast<size_t>(got) : 0);
  const cmsghdr* const header = CMSG_FIRSTHDR(&message);
  if (got > 0 && header != nullptr && header->cmsg_level == SOL_SOCKET &&
      header->cmsg_type == SCM_RIGHTS) {
    int fd = -1;
    std::memcpy(&fd, CMSG_DATA(header), sizeof(int));
    packet.fd = UniqueFd(fd);
  }
  return packet;
}

// The child's fabric as the listener sees it.
class RelayPort final : public Relay, private FabricPort {
 public:
  RelayPort(std::shared_ptr<TcpListener> listener, RelayedFabric fabric, UniqueFd socket)
      : listener_(std::move(listener)),
        identity_{fabric.cluster_id, fabric.generation, fabric.process_id, fabric.secret},
        processes_(std::move(fabric.processes)),
        socket_(std::move(socket)) {}
  ~RelayPort() override { listener_->Unregister(this); }
  Status Register() { return listener_->Register(this); }

 private:
  const Identity& identity() const override { return identity_; }
  bool Expects(uint64_t process_id) const override {
    return process_id != identity_.process_id &&
           std::find(processes_.begin(), processes_.end(), process_id) != processes_.end();
  }
  void Adopt(UniqueFd fd, const Hello& hello) override {
    const Bytes envelope = EncodeHello(hello);
    SendPacket(socket_.get(), kConnection, ByteView(envelope).subspan(kEnvelopeBytes), fd.get());
  }
  void NoteRefusal(const Status& why) override {
    SendPacket(socket_.get(), kRefusal, EncodeCause(why), -1);
  }

  const std::shared_ptr<TcpListener> listener_;
  const Identity identity_;
  const std::vector<uint64_t> processes_;
  const UniqueFd socket_;
};

// A connection is for the fabric that the port was told of; secret and peer were checked there.
class RelayedListener final : public FabricListener {
 public:
  RelayedListener(UniqueFd socket, std::function<void()> awaits, std::shared_ptr<Tls> tls)
      : socket_(std::move(socket)),
        awaits_(std::move(awaits)),
        tls_(std::move(tls)),
        thread_([this] { ReadLoop(); }) {}
  ~RelayedListener() override {
    ::shutdown(socket_.get(), SHUT_RDWR);
    thread_.join();
  }

  int port() const override { return 0; }
  std::shared_ptr<Tls> tls() const override { return tls_; }

  Status Register(FabricPort* fabric) override {
    {
      const MutexLock lock(mutex_);
      if (fabric_ != nullptr) return AlreadyExists("this process already has a fabric");
      fabric_ = fabric;
    }
    awaits_();
    return OkStatus();
  }
  void Unregister(FabricPort* fabric) override {
    const MutexLock lock(mutex_);
    if (fabric_ == fabric) fabric_ = nullptr;
  }

 private:
  void ReadLoop() {
    while (true) {
      Packet packet = ReceivePacket(socket_.get());
      if (packet.bytes.empty()) return;
      const ByteView body = ByteView(packet.bytes).subspan(1);
      const MutexLock lock(mutex_);
      if (fabric_ == nullptr) continue;  // it has ended: the connection closes
      if (packet.bytes[0] == kRefusal) {
        fabric_->NoteRefusal(DecodeCause(body));
      } else if (const Result<Hello> hello = DecodeHello(body);
                 hello.has_value() && packet.fd.valid()) {
        fabric_->Adopt(std::move(packet.fd), *hello);
      }
    }
  }

  const UniqueFd socket_;
  const std::function<void()> awaits_;
  const std::shared_ptr<Tls> tls_;
  Mutex mutex_;  // taken before any lock of a fabric
  FabricPort* fabric_ MW_GUARDED_BY(mutex_) = nullptr;
  std::thread thread_;
};

}  // namespace

Result<std::pair<UniqueFd, UniqueFd>> MakeRelaySocket() {
  std::array<int, 2> ends{};
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends.data()) != 0) {
    return Fail(OsError(errno, "make a socket for the connections of a child process"));
  }
  return std::pair{UniqueFd(ends[0]), UniqueFd(ends[1])};
}

Result<std::unique_ptr<Relay>> MakeRelay(std::shared_ptr<Listener> listener, RelayedFabric fabric,
                                         UniqueFd socket) {
  auto with_port = std::dynamic_pointer_cast<TcpListener>(std::move(listener));
  if (with_port == nullptr) {
    return Fail(InvalidArgument("connections are relayed from a listener of MakeListener()"));
  }
  auto relay =
      std::make_unique<RelayPort>(std::move(with_port), std::move(fabric), std::move(socket));
  MW_TRY(relay->Register());
  return std::unique_ptr<Relay>(std::move(relay));
}

std::shared_ptr<Listener> MakeRelayedListener(UniqueFd socket, std::function<void()> awaits,
                                              std::shared_ptr<Tls> tls) {
  return std::make_shared<RelayedListener>(std::move(socket), std::move(awaits), std::move(tls));
}

}  // namespace meshwright::collective
