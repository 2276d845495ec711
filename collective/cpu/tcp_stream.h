// A connection of the data plane that is plain or TLS: the one place where that is decided. To
// asio it is a stream as a socket is one, so that async_read and async_write work on it.
//
// Plain, it hands buffers on to the socket. With a session it encrypts what it is given into
// records, which leave in one send, and decrypts into the reader's memory.
//
// Two processes hand a connection on (collective/relay.h) between two sessions: the first one is
// with the process that has the port, the second one with the process of the fabric. Between them
// nothing is on the way, which Restart() checks.
//
// Thread rule: loop thread only; one read and one write at a time. Ownership: owns the socket;
// handlers that are pending when it is closed come with an error, also after it is gone.
#pragma once

#include <functional>
#include <memory>
#include <utility>

#include "collective/cpu/tcp_loop.h"
#include "collective/cpu/tcp_tls.h"

namespace meshwright::collective {

class TcpStream {
 public:
  using executor_type = TcpSocket::executor_type;
  using Done = std::function<void(const ErrorCode&, size_t)>;
  using Shaken = std::function<void(const Status&)>;

  explicit TcpStream(TcpSocket socket);
  TcpStream(TcpSocket socket, std::unique_ptr<TlsSession> session);

  executor_type get_executor() { return body_->socket.get_executor(); }
  TcpSocket& socket() { return body_->socket; }
  bool secure() const { return body_->session != nullptr; }
  // Of a session that failed: what an ErrorCode cannot say. OK: it did not.
  const Status& failure() const { return body_->failure; }
  // What to tell of an error of a read or a write.
  Status StatusOf(const ErrorCode& error) const;
  // The first bytes that the other end sent. REQUIRES: secure().
  uint64_t first_word() const { return body_->session->first_word(); }

  // Until the other end is believed, or not: kUnauthenticated; kUnavailable: it has gone.
  // REQUIRES: secure().
  void AsyncHandshake(Shaken shaken);
  // Goes on with another session on the same socket. Errors: kDataLoss: something is on the way.
  Status Restart(std::unique_ptr<TlsSession> session);
  // Short bytes, at once: into the empty buffer of a socket that nobody else writes to. What it
  // does not take is lost. Also what a failed session wants to say to the other end.
  void SendNow(const Bytes& bytes);
  void Close();
  // The descriptor, for another process to go on with. Errors: those of the system.
  Result<UniqueFd> Release();

  template <typename Buffers, typename Handler>
  void async_read_some(const Buffers& buffers, Handler&& handler) {
    if (body_->session == nullptr) {
      body_->socket.async_read_some(buffers, std::forward<Handler>(handler));
      return;
    }
    asio::mutable_buffer into;
    for (auto at = asio::buffer_sequence_begin(buffers);
         into.size() == 0 && at != asio::buffer_sequence_end(buffers); ++at) {
      into = *at;
    }
    ReadSecure(body_, into, Done(std::forward<Handler>(handler)));
  }

  template <typename Buffers, typename Handler>
  void async_write_some(const Buffers& buffers, Handler&& handler) {
    if (body_->session == nullptr) {
      body_->socket.async_write_some(buffers, std::forward<Handler>(handler));
      return;
    }
    size_t bytes = 0;
    for (auto at = asio::buffer_sequence_begin(buffers); at != asio::buffer_sequence_end(buffers);
         ++at) {
      const asio::const_buffer from = *at;
      Encrypt(*body_, from);
      bytes += from.size();
    }
    WriteSecure(body_, bytes, Done(std::forward<Handler>(handler)));
  }

 private:
  struct Body {
    explicit Body(TcpSocket of) : socket(std::move(of)) {}
    TcpSocket socket;
    std::unique_ptr<TlsSession> session;
    Bytes small;    // pieces that are less than a record, joined
    Bytes sending;  // output that the socket reads
    Status failure;
  };
  using BodyPtr = std::shared_ptr<Body>;

  static ErrorCode FailWith(Body& body, const Status& why);
  static void ReadSecure(const BodyPtr& body, asio::mutable_buffer into, Done done);
  static void FillThenRead(const BodyPtr& body, asio::mutable_buffer into, Done done);
  static void Encrypt(Body& body, asio::const_buffer from);
  static void FlushSmall(Body& body);
  static void WriteSecure(const BodyPtr& body, size_t bytes, Done done);
  static void Shake(const BodyPtr& body, Shaken shaken);
  static void FlushNow(Body& body);

  BodyPtr body_;
};

}  // namespace meshwright::collective
