#include "collective/cpu/tcp_dialer.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

namespace meshwright::collective {

TcpDialer::TcpDialer(TcpLoop& loop, std::string address, const Hello& hello, Callbacks callbacks)
    : loop_(loop),
      address_(std::move(address)),
      hello_(EncodeHello(hello)),
      expected_process_(hello.to_process),
      callbacks_(std::move(callbacks)),
      resolver_(loop.io()),
      socket_(loop.io()),
      timer_(loop.io()) {}

void TcpDialer::Start() { Attempt(); }

void TcpDialer::Cancel() {
  cancelled_ = true;
  ErrorCode ignored;
  resolver_.cancel();
  timer_.cancel();
  socket_.close(ignored);
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
  if (const Status status = AssignSocket(socket_, endpoint.protocol(), std::move(*fd));
      !status.ok()) {
    Retry(status.message());
    return;
  }
  socket_.async_connect(endpoint, Current([this](const ErrorCode& error) {
                          if (error) {
                            Retry(error.message());
                          } else {
                            SendHello();
                          }
                        }));
}

void TcpDialer::SendHello() {
  timer_.cancel();  // the answer may take as long as the peer needs to make its fabric
  asio::async_write(socket_, asio::buffer(hello_), Current([this](const ErrorCode& error, size_t) {
                      if (error) {
                        Retry(error.message());
                      } else {
                        ReadReply();
                      }
                    }));
}

void TcpDialer::ReadReply() {
  asio::async_read(
      socket_, asio::buffer(envelope_), Current([this](const ErrorCode& error, size_t) {
        if (error) {
          Retry(fmt::format("closed during the handshake: {}", error.message()));
          return;
        }
        const Result<uint32_t> bytes = DecodeEnvelope(envelope_, kReplyMagic);
        if (!bytes.has_value()) {
          Finish(bytes.error());
          return;
        }
        body_.resize(*bytes);
        asio::async_read(
            socket_, asio::buffer(body_), Current([this](const ErrorCode& body_error, size_t) {
              if (body_error) {
                Retry(fmt::format("closed during the handshake: {}", body_error.message()));
              } else {
                OnReply();
              }
            }));
      }));
}

void TcpDialer::OnReply() {
  const Result<HelloReply> reply = DecodeReply(body_);
  if (!reply.has_value()) {
    Finish(reply.error());
    return;
  }
  const StatusCode code = reply->status.code();
  if (code == StatusCode::kOk && reply->process_id == expected_process_) {
    ++attempt_;  // nothing of the dialer runs any more
    callbacks_.welcomed(std::move(socket_));
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
  ErrorCode ignored;
  socket_.close(ignored);
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
