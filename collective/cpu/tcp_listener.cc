#include "collective/cpu/tcp_listener.h"

#include <fmt/format.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <vector>

namespace meshwright::collective {
namespace {

constexpr auto kAcceptPause = std::chrono::milliseconds(100);

// Takes the same time wherever the first difference is.
bool SecretsMatch(const std::string& a, const std::string& b) {
  unsigned difference = a.size() == b.size() ? 0 : 1;
  for (size_t i = 0; i < a.size() && i < b.size(); ++i) {
    difference |= static_cast<unsigned char>(a[i]) ^ static_cast<unsigned char>(b[i]);
  }
  return difference == 0;
}

}  // namespace

Result<std::shared_ptr<Listener>> MakeListener(const std::string& bind_address, int port,
                                               std::shared_ptr<Tls> tls) {
  MW_ASSIGN_OR_RETURN(std::shared_ptr<Listener> listener,
                      TcpListener::Make(bind_address, port, std::move(tls)));
  return listener;
}

Result<std::shared_ptr<TcpListener>> TcpListener::Make(const std::string& bind_address, int port,
                                                       std::shared_ptr<Tls> tls) {
  std::shared_ptr<TcpListener> listener(new TcpListener(std::move(tls)));
  MW_TRY(listener->Bind(bind_address, port));
  return listener;
}

// A crashed loop leaves connections unanswered: dialers run into their deadlines.
TcpListener::TcpListener(std::shared_ptr<Tls> tls)
    : tls_(std::move(tls)),
      loop_([](const std::string&) {}),
      acceptor_(loop_.io()),
      accept_pause_(loop_.io()) {}

TcpListener::~TcpListener() { loop_.Stop(); }

Status TcpListener::Bind(const std::string& bind_address, int port) {
  ErrorCode error;
  const asio::ip::address address = asio::ip::make_address(bind_address, error);
  if (error || port < 0 || port > 65535) {
    return InvalidArgument(fmt::format(
        "cannot listen on \"{}\" port {}: need a numeric address such as 0.0.0.0 and a port in "
        "0..65535",
        bind_address, port));
  }
  const asio::ip::tcp::endpoint endpoint(address, static_cast<uint16_t>(port));
  MW_ASSIGN_OR_RETURN(UniqueFd fd, OpenSocket(endpoint.protocol()));
  acceptor_.assign(endpoint.protocol(), fd.get(), error);
  if (!error) {
    fd.Release();
    acceptor_.set_option(asio::socket_base::reuse_address(true), error);
    acceptor_.bind(endpoint, error);
  }
  if (!error) {
    acceptor_.listen(asio::socket_base::max_listen_connections, error);
  }
  if (error) {
    return Unavailable(fmt::format("cannot listen on {} port {}: {}; choose another port or 0",
                                   bind_address, port, error.message()));
  }
  port_ = acceptor_.local_endpoint(error).port();
  loop_.Post([this] { AwaitConnection(); });
  return OkStatus();
}

Status TcpListener::Register(FabricPort* fabric) {
  const FabricPort::Identity& id = fabric->identity();
  {
    const MutexLock lock(mutex_);
    if (!fabrics_.emplace(Key(id.cluster_id, id.generation, id.process_id), fabric).second) {
      return AlreadyExists(fmt::format("process {:x} already has a fabric of generation {}",
                                       id.process_id, id.generation));
    }
    uint64_t& newest = newest_generation_[id.cluster_id];
    newest = std::max(newest, id.generation);
  }
  loop_.Post([this] { RouteHeld(); });
  return OkStatus();
}

void TcpListener::Unregister(FabricPort* fabric) {
  const FabricPort::Identity& id = fabric->identity();
  const MutexLock lock(mutex_);
  const auto found = fabrics_.find(Key(id.cluster_id, id.generation, id.process_id));
  if (found != fabrics_.end() && found->second == fabric) {  // not one that was refused as a twin
    fabrics_.erase(found);
  }
}

void TcpListener::AwaitConnection() {
  acceptor_.async_wait(asio::socket_base::wait_read, [this](const ErrorCode& error) {
    if (!error) {
      AcceptAll();
    }
  });
}

void TcpListener::AcceptAll() {
  for (;;) {
    UniqueFd fd = AcceptConnection(acceptor_.native_handle());
    if (fd.valid()) {
      if (handshakes_.size() < kMaxHandshakes) {
        StartHandshake(std::move(fd));
      }
    } else if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
      // The queue stays readable: without a pause this would spin until a descriptor is free.
      accept_pause_.expires_after(kAcceptPause);
      accept_pause_.async_wait([this](const ErrorCode& error) {
        if (!error) {
          AwaitConnection();
        }
      });
      return;
    } else if (errno != EINTR && errno != ECONNABORTED) {
      break;
    }
  }
  AwaitConnection();
}

void TcpListener::StartHandshake(UniqueFd fd) {
  Result<TcpSocket> socket = AdoptSocket(loop_.io(), std::move(fd));
  if (!socket.has_value()) {
    return;
  }
  std::unique_ptr<TlsSession> session;
  if (tls_ != nullptr) {
    Result<std::unique_ptr<TlsSession>> made = ContextOf(tls_)->NewSession(TlsEnd::kListens);
    if (!made.has_value()) return;
    session = std::move(*made);
  }
  const auto pending = std::make_shared<TcpGreeting>(std::move(*socket));
  handshakes_.insert(pending);
  pending->timer.expires_after(std::chrono::milliseconds(kHandshakeMs));
  pending->timer.async_wait([this, pending](const ErrorCode& error) {
    if (!error && handshakes_.erase(pending) > 0) {
      pending->stream.Close();
    }
  });
  pending->Begin(std::move(session),
                 [this, pending](const Status& heard) { OnHeard(pending, heard); });
}

void TcpListener::OnHeard(const PendingPtr& pending, const Status& heard) {
  if (handshakes_.count(pending) == 0) return;  // it took too long
  if (heard.ok()) {
    Route(pending);
  } else if (heard.code() == StatusCode::kUnavailable) {
    handshakes_.erase(pending);
    pending->timer.cancel();
  } else {
    if (tls_ != nullptr) {  // which fabric it came for nobody knows: all are told
      const MutexLock lock(mutex_);
      for (const auto& [key, fabric] : fabrics_) fabric->NoteRefusal(heard);
    }
    Refuse(pending, heard);
  }
}

void TcpListener::Route(const PendingPtr& pending) {
  bool hold = false;
  const Status status = Dispatch(pending, &hold);
  if (!status.ok()) {
    Refuse(pending, status);
  } else if (hold) {
    Hold(pending);
  } else {
    handshakes_.erase(pending);
    held_.erase(pending);
    pending->timer.cancel();
  }
}

// OK: handed over, or *hold when the fabric may still come.
Status TcpListener::Dispatch(const PendingPtr& pending, bool* hold) {
  const Hello& hello = pending->hello;
  const MutexLock lock(mutex_);
  const auto fabric = fabrics_.find(Key(hello.cluster_id, hello.generation, hello.to_process));
  if (fabric != fabrics_.end()) {
    Status why;
    if (!SecretsMatch(fabric->second->identity().secret, hello.secret)) {
      why = Unauthenticated(fmt::format("wrong secret for generation {}", hello.generation));
    } else if (!fabric->second->Expects(hello.from_process)) {
      why = Unauthenticated(fmt::format("process {:x} is no other member of generation {}",
                                        hello.from_process, hello.generation));
    }
    if (!why.ok()) {
      fabric->second->NoteRefusal(why);
      return why;
    }
    // Who dials begins another session when it knows that the fabric has the connection.
    if (pending->stream.secure()) pending->stream.SendNow(EncodeReply({OkStatus(), 0}));
    MW_ASSIGN_OR_RETURN(UniqueFd fd, pending->stream.Release());
    fabric->second->Adopt(std::move(fd), hello);
    return OkStatus();
  }
  const auto newest = newest_generation_.find(hello.cluster_id);
  if (newest != newest_generation_.end() && hello.generation < newest->second) {
    return Unauthenticated(fmt::format("generation {} is over, this process is in generation {}",
                                       hello.generation, newest->second));
  }
  *hold = true;
  return OkStatus();
}

void TcpListener::Hold(const PendingPtr& pending) {
  if (held_.count(pending) > 0) {
    return;
  }
  if (held_.size() >= kMaxHeld) {
    Refuse(pending, ResourceExhausted(fmt::format(
                        "{} connections already wait for fabrics that were not made", kMaxHeld)));
    return;
  }
  handshakes_.erase(pending);
  held_.insert(pending);
  pending->timer.expires_after(std::chrono::milliseconds(kHoldMs));
  pending->timer.async_wait([this, pending](const ErrorCode& error) {
    if (!error && held_.count(pending) > 0) {
      Refuse(pending, Unavailable(fmt::format(
                          "no fabric of generation {} for process {:x} came within {} ms",
                          pending->hello.generation, pending->hello.to_process, kHoldMs)));
    }
  });
}

void TcpListener::RouteHeld() {
  const std::vector<PendingPtr> waiting(held_.begin(), held_.end());
  for (const PendingPtr& pending : waiting) {
    Route(pending);
  }
}

// Who is not believed counts until it has closed, or its time is over.
void TcpListener::Refuse(const PendingPtr& pending, const Status& why) {
  held_.erase(pending);
  pending->Refuse(why, [this, pending] {
    handshakes_.erase(pending);
    pending->timer.cancel();
  });
}

}  // namespace meshwright::collective
