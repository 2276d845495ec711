#include "collective/cpu/tcp_stream.h"

#include <fmt/format.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>

namespace meshwright::collective {
namespace {

constexpr size_t kRecordBytes = 16 << 10;  // the most that TLS puts into one

}  // namespace

TcpStream::TcpStream(TcpSocket socket) : body_(std::make_shared<Body>(std::move(socket))) {}

TcpStream::TcpStream(TcpSocket socket, std::unique_ptr<TlsSession> session)
    : TcpStream(std::move(socket)) {
  body_->session = std::move(session);
}

Status TcpStream::StatusOf(const ErrorCode& error) const {
  return body_->failure.ok() ? Unavailable(error.message()) : body_->failure;
}

ErrorCode TcpStream::FailWith(Body& body, const Status& why) {
  if (body.failure.ok()) body.failure = why;
  FlushNow(body);
  return {EPROTO, boost::system::generic_category()};
}

void TcpStream::FlushNow(Body& body) {
  Bytes& out = body.session->output();
  if (!out.empty()) {
    (void)::send(body.socket.native_handle(), out.data(), out.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  }
  out.clear();
}

void TcpStream::SendNow(const Bytes& bytes) {
  if (!secure()) {
    (void)::send(body_->socket.native_handle(), bytes.data(), bytes.size(),
                 MSG_NOSIGNAL | MSG_DONTWAIT);
    return;
  }
  if (body_->failure.ok()) (void)body_->session->Write(bytes.data(), bytes.size());
  FlushNow(*body_);
}

void TcpStream::Close() {
  ErrorCode ignored;
  body_->socket.close(ignored);
}

Result<UniqueFd> TcpStream::Release() {
  ErrorCode error;
  UniqueFd fd(body_->socket.release(error));
  if (error) return Fail(Unavailable(error.message()));
  return fd;
}

Status TcpStream::Restart(std::unique_ptr<TlsSession> session) {
  if (!body_->session->drained() || !body_->session->output().empty()) {
    return DataLoss("the other end went on before it was told to");
  }
  body_->session = std::move(session);
  return OkStatus();
}

void TcpStream::AsyncHandshake(Shaken shaken) { Shake(body_, std::move(shaken)); }

// Sends what there is, then reads, until it is done. It never calls back from within the call.
void TcpStream::Shake(const BodyPtr& body, Shaken shaken) {
  const Result<bool> done = body->session->Handshake();
  if (!done.has_value()) {
    (void)FailWith(*body, done.error());
    asio::post(body->socket.get_executor(),
               [shaken = std::move(shaken), why = done.error()] { shaken(why); });
    return;
  }
  WriteSecure(body, 0, [body, is_done = *done, shaken](const ErrorCode& error, size_t) {
    if (error) {
      shaken(Unavailable(error.message()));
    } else if (is_done) {
      shaken(OkStatus());
    } else {
      const std::span<uint8_t> space = body->session->InputSpace();
      body->socket.async_read_some(
          asio::buffer(space.data(), space.size()),
          [body, shaken](const ErrorCode& read_error, size_t bytes) {
            if (read_error) {
              shaken(Unavailable(
                  fmt::format("closed during the handshake: {}", read_error.message())));
            } else {
              body->session->Commit(bytes);
              Shake(body, shaken);
            }
          });
    }
  });
}

void TcpStream::ReadSecure(const BodyPtr& body, asio::mutable_buffer into, Done done) {
  const Result<size_t> got = body->session->Read(into.data(), into.size());
  if (got.has_value() && *got == 0 && into.size() > 0) {
    FillThenRead(body, into, std::move(done));
    return;
  }
  const ErrorCode error = got.has_value() ? ErrorCode() : FailWith(*body, got.error());
  asio::post(body->socket.get_executor(),
             [done = std::move(done), error, bytes = got.value_or(0)] { done(error, bytes); });
}

void TcpStream::FillThenRead(const BodyPtr& body, asio::mutable_buffer into, Done done) {
  const std::span<uint8_t> space = body->session->InputSpace();
  body->socket.async_read_some(
      asio::buffer(space.data(), space.size()),
      [body, into, done = std::move(done)](const ErrorCode& error, size_t bytes) {
        if (error) {
          done(error, 0);
          return;
        }
        body->session->Commit(bytes);
        const Result<size_t> got = body->session->Read(into.data(), into.size());
        if (!got.has_value()) {
          done(FailWith(*body, got.error()), 0);
        } else if (*got == 0) {
          FillThenRead(body, into, done);
        } else {
          done(ErrorCode(), *got);
        }
      });
}

// Large pieces become records as they are; small ones, as headers of frames, are joined first.
void TcpStream::Encrypt(Body& body, asio::const_buffer from) {
  const auto* at = static_cast<const uint8_t*>(from.data());
  size_t left = from.size();
  if (body.small.empty() && left >= kRecordBytes) {
    const size_t whole = left - left % kRecordBytes;
    if (Status put = body.session->Write(at, whole); !put.ok()) body.failure = put;
    at += whole;
    left -= whole;
  }
  while (left > 0) {
    const size_t taken = std::min(left, kRecordBytes - body.small.size());
    body.small.insert(body.small.end(), at, at + taken);
    at += taken;
    left -= taken;
    if (body.small.size() == kRecordBytes) FlushSmall(body);
  }
}

void TcpStream::FlushSmall(Body& body) {
  if (body.small.empty()) return;
  if (Status put = body.session->Write(body.small.data(), body.small.size()); !put.ok()) {
    body.failure = put;
  }
  body.small.clear();
}

// `bytes` of the caller have been encrypted.
void TcpStream::WriteSecure(const BodyPtr& body, size_t bytes, Done done) {
  FlushSmall(*body);
  if (!body->failure.ok()) {
    const ErrorCode error(EPROTO, boost::system::generic_category());
    asio::post(body->socket.get_executor(), [done = std::move(done), error] { done(error, 0); });
    return;
  }
  Bytes& out = body->session->output();
  if (out.empty()) {
    asio::post(body->socket.get_executor(),
               [done = std::move(done), bytes] { done(ErrorCode(), bytes); });
    return;
  }
  std::swap(out, body->sending);
  asio::async_write(body->socket, asio::buffer(body->sending),
                    [body, bytes, done = std::move(done)](const ErrorCode& error, size_t) {
                      body->sending.clear();
                      done(error, error ? 0 : bytes);
                    });
}

}  // namespace meshwright::collective
