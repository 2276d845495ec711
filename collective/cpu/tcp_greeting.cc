#include "collective/cpu/tcp_greeting.h"

#include <utility>

namespace meshwright::collective {

TcpGreeting::TcpGreeting(TcpSocket socket)
    : stream(std::move(socket)), timer(stream.get_executor()) {}

void TcpGreeting::Begin(std::unique_ptr<TlsSession> session, Heard heard) {
  if (session == nullptr) {
    ReadEnvelope(std::move(heard));
    return;
  }
  believed_ = false;
  stream = TcpStream(std::move(stream.socket()), std::move(session));
  stream.AsyncHandshake([self = shared_from_this(), heard](const Status& shaken) {
    self->believed_ = shaken.ok();
    if (shaken.ok()) {
      self->ReadEnvelope(heard);
    } else {
      heard(shaken);
    }
  });
}

void TcpGreeting::ReadEnvelope(Heard heard) {
  asio::async_read(stream, asio::buffer(envelope_),
                   [self = shared_from_this(), heard](const ErrorCode& error, size_t) {
                     if (error) {
                       heard(Unavailable(error.message()));
                     } else {
                       self->ReadBody(heard);
                     }
                   });
}

void TcpGreeting::ReadBody(Heard heard) {
  const Result<uint32_t> bytes = DecodeEnvelope(envelope_, kHelloMagic);
  if (!bytes.has_value()) {
    heard(bytes.error());
    return;
  }
  body_.resize(*bytes);
  asio::async_read(stream, asio::buffer(body_),
                   [self = shared_from_this(), heard](const ErrorCode& error, size_t) {
                     Result<Hello> said = DecodeHello(self->body_);
                     if (error) {
                       heard(Unavailable(error.message()));
                     } else if (!said.has_value()) {
                       heard(said.error());
                     } else {
                       self->hello = std::move(*said);
                       heard(OkStatus());
                     }
                   });
}

void TcpGreeting::Refuse(const Status& why, std::function<void()> ended) {
  ErrorCode ignored;
  if (believed_) {
    // One send into an empty socket buffer always takes the short reply; a peer that lost interest
    // does not matter.
    stream.SendNow(EncodeReply({why, 0}));
    stream.socket().shutdown(asio::socket_base::shutdown_both, ignored);
    stream.Close();
    ended();
    return;
  }
  if (stream.first_word() == kHelloMagic) {
    stream = TcpStream(std::move(stream.socket()));
    stream.SendNow(EncodeReply(
        {Unauthenticated("this worker takes TLS only, and the connection is plain: give every "
                         "worker of the cluster a certificate"),
         0}));
  }
  stream.socket().shutdown(asio::socket_base::shutdown_send, ignored);
  Drain(std::move(ended));
}

void TcpGreeting::Drain(std::function<void()> ended) {
  body_.resize(kMaxHandshakeBytes);
  stream.socket().async_read_some(
      asio::buffer(body_), [self = shared_from_this(), ended](const ErrorCode& error, size_t) {
        if (error) {
          ended();
        } else {
          self->Drain(ended);
        }
      });
}

}  // namespace meshwright::collective
