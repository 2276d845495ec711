// The first words on a connection that came to the port: with TLS whose it is, then the hello,
// which says what it came for. Who is not believed is told why.
//
// Thread rule: loop thread only. Ownership: shared; what waits on the connection keeps it, until it
// is closed.
#pragma once

#include <array>
#include <functional>
#include <memory>

#include "collective/cpu/tcp_stream.h"
#include "collective/cpu/wire.h"

namespace meshwright::collective {

struct TcpGreeting : std::enable_shared_from_this<TcpGreeting> {
  explicit TcpGreeting(TcpSocket socket);

  // OK: `hello` has come. kUnavailable: it has gone. Others: it is to be refused, see Refuse().
  using Heard = std::function<void(const Status&)>;
  // session: null: plain.
  void Begin(std::unique_ptr<TlsSession> session, Heard heard);
  // Tells it why: by a reply, and closes. Who was not believed TLS has told already; it is read
  // from until it closes, so that this is not lost to a reset. Then `ended` is called.
  void Refuse(const Status& why, std::function<void()> ended);

  TcpStream stream;
  asio::steady_timer timer;  // its owner's
  Hello hello;

 private:
  void ReadEnvelope(Heard heard);
  void ReadBody(Heard heard);
  void Drain(std::function<void()> ended);

  bool believed_ = true;
  std::array<uint8_t, kEnvelopeBytes> envelope_{};
  Bytes body_;
};

}  // namespace meshwright::collective
