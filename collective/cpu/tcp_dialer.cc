#include "collective/cpu/tcp_dialer.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

namespace meshwright::collective {

TcpDialer::TcpDialer(TcpLoop& loop, std::string address, const Hello& hello,
                     std::shared_ptr<Tls> tls, Callbacks callbacks)
    : loop_(loop),
      address_(std::move(address)),
      hello_(EncodeHello(hello)),
      expected_process_(hello.to_process),
      callbacks_(std::move(callbacks)),
      resolver_(loop.io()),
      tls_(std::move(tls)),
      stream_(TcpSocket(loop.io())),
      timer_(loop.io()) {}

void TcpDialer::Start() { Attempt(); }

void TcpDialer::Cancel() {
  cancelled_ = true;
  resolver_.cancel();
  timer_.cancel();
  stream_.Close();
}

void TcpDialer::Attempt() {
  ++attempt_;
  const Result<HostPort> target = ParseHostPort(address_);
  if (!target.has_value()) {
    Finish(target.error());
    return;
  }
  timer_.expires_after(std::chrono::milliseconds(kConnectMs));
  timer_.async_wait(Current([this](const ErrorCode& error) {
    if (!error) {
      Retry(fmt::format("no answer within {} ms", kConnectMs));
    }
  }));
  ErrorCode error;
  const asio::ip::address address = asio::ip::make_address(target->host, error);
  if (error) {
    Resolve(*target);
  } else {
    ConnectTo({address, static_cast<uint16_t>(std::stoi(target->port))});
  }
}

void TcpDialer::Resolve(const HostPort& target) {
  resolver_.async_resolve(
      target.host, target.port,
      Current([this](const ErrorCode& error, const asio::ip::tcp::resolver::results_type& found) {
        if (error || found.empty()) {
          Retry(fmt::format("cannot resolve the host: {}", error.message()));
        } else {
          // Every attempt takes the next address of the host.
          ConnectTo(std::next(found.begin(), static_cast<ptrdiff_t>(attempt_ % found.size()))
                        ->endpoint());
        }
      }));
}

void TcpDialer::ConnectTo(const asio::ip::tcp::endpoint& endpoint) {
  Result<UniqueFd> fd = OpenSocket(endpoint.protocol());
  if (!fd.has_value()) {
    Retry(fd.error().message());
    return;
  }
  stream_ = TcpStream(TcpSocket(loop_.io()));
  handed_on_ = false;
  if (const Status status = AssignSocket(stream_.socket(), endpoint.protocol(), std::move(*fd));
      !status.ok()) {
    Retry(status.message());
    return;
  }
  stream_.socket().async_connect(endpoint, Current([this](const ErrorCode& error) {
                                   if (error) {
                                     Retry(error.message());
                                   } else {
                                     OnConnected();
                                   }
                                 }));
}

void TcpDialer::OnConnected() {
  if (tls_ == nullptr) {
    SendHello();
    return;
  }
  Result<std::unique_ptr<TlsSession>> session = ContextOf(tls_)->NewSession(TlsEnd::kDials);
  if (!session.has_value()) {
    Finish(session.error());
    return;
  }
  if (!handed_on_) {
    stream_ = TcpStream(std::move(stream_.socket()), std::move(*session));
  } else if (const Status restarted = stream_.Restart(std::move(*session)); !restarted.ok()) {
    Finish(restarted);
    return;
  }
  Shake();
}

void TcpDialer::Shake() {
  stream_.AsyncHandshake([this, attempt = attempt_](const Status& shaken) {
    if (cancelled_ || attempt != attempt_) return;
    if (shaken.code() == StatusCode::kUnavailable) {
      Retry(shaken.message());
    } else if (!shaken.ok()) {
      Finish(shaken);
    } else if (handed_on_) {
      ReadReply();
    } else {
      SendHello();
    }
  });
}

void TcpDialer::SendHello() {
  timer_.cancel();  // the answer may take as long as the peer needs to make its fabric
  asio::async_write(stream_, asio::buffer(hello_), Current([this](const ErrorCode& error, size_t) {
                      if (error) {
                        OnBroken(error);
                      } else {
                        ReadReply();
                      }
                    }));
}

void TcpDialer::ReadReply() {
  asio::async_read(stream_, asio::buffer(envelope_),
                   Current([this](const ErrorCode& error, size_t) {
                     if (error) {
                       OnBroken(error);
                       return;
                     }
                     const Result<uint32_t> bytes = DecodeEnvelope(envelope_, kReplyMagic);
                     if (!bytes.has_value()) {
                       Finish(bytes.error());
                       return;
                     }
                     body_.resize(*bytes);
                     asio::async_read(stream_, asio::buffer(body_),
                                      Current([this](const ErrorCode& body_error, size_t) {
                                        if (body_error) {
                                          OnBroken(body_error);
                                        } else {
                                          OnReply();
                                        }
                                      }));
                   }));
}

// With TLS 1.3 the other end may say after the handshake that it does not believe this one.
void TcpDialer::OnBroken(const ErrorCode& error) {
  const Status why = stream_.StatusOf(error);
  if (why.code() == StatusCode::kUnavailable) {
    Retry(fmt::format("closed during the handshake: {}", why.message()));
  } else {
    Finish(why);
  }
}

void TcpDialer::OnReply() {
  const Result<HelloReply> reply = DecodeReply(body_);
  if (!reply.has_value()) {
    Finish(reply.error());
    return;
  }
  const StatusCode code = reply->status.code();
  if (tls_ != nullptr && !handed_on_ && code == StatusCode::kOk) {
    handed_on_ = true;
    OnConnected();
  } else if (code == StatusCode::kOk && reply->process_id == expected_process_) {
    ++attempt_;  // nothing of the dialer runs any more
    callbacks_.welcomed(std::move(stream_));
  } else if (code == StatusCode::kOk) {
    Finish(Unauthenticated(fmt::format("process {:x} answered, {:x} was expected",
                                       reply->process_id, expected_process_)));
  } else if (code == StatusCode::kUnauthenticated || code == StatusCode::kAlreadyExists ||
             code == StatusCode::kInvalidArgument) {
    Finish(reply->status);
  } else {
    Retry(reply->status.message());
  }
}

void TcpDialer::Retry(const std::string& why) {
  ++attempt_;
  stream_.Close();
  callbacks_.attempt_failed(why);
  timer_.expires_after(std::chrono::milliseconds(pause_ms_));
  pause_ms_ = std::min(2 * pause_ms_, kLongestPauseMs);
  timer_.async_wait(Current([this](const ErrorCode& error) {
    if (!error) {
      Attempt();
    }
  }));
}

void TcpDialer::Finish(const Status& refusal) {
  Cancel();
  callbacks_.refused(refusal);
}

}  // namespace meshwright::collective
