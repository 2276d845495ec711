#include "security/tls_relay.h"

#include <netinet/in.h>
#include <sys/socket.h>

#include <cerrno>
#include <limits>
#include <utility>

#include "base/check.h"
#include "base/listen_address.h"

namespace meshwright::security {
namespace {

constexpr size_t kBufferBytes = 16 << 10;
constexpr int kRounds = 32;  // of one connection before the others have their turn
constexpr char kHandshakeRecord = 0x16;
constexpr int64_t kPartingMs = 1000;
constexpr int64_t kNever = std::numeric_limits<int64_t>::max();

constexpr char kSpeaksTls[] =
    "HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: 71\r\n"
    "Connection: close\r\n\r\n"
    "this port speaks TLS: write https:// in place of http:// (docs/page.md)";

bool WouldWait() { return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR; }

}  // namespace

TlsRelay::TlsRelay(UniqueFd outer, Stranger stranger, Part<SSL> ssl, const TlsFrontOptions& options,
                   Callers& callers, int64_t now_ms)
    : outer_(std::move(outer)),
      stranger_(std::move(stranger)),
      ssl_(std::move(ssl)),
      options_(options),
      callers_(callers),
      deadline_ms_(now_ms + options.handshake_ms) {
  MW_CHECK(outer_.valid() && ssl_ != nullptr);
}

std::array<pollfd, 2> TlsRelay::Wanted() const {
  short outer = 0;
  short inner = 0;
  const bool relays = phase_ == Phase::kRelay;
  if (!relays || TakesMore()) outer |= POLLIN;
  if (relays && !to_outer_.empty()) outer |= POLLOUT;
  if (phase_ == Phase::kHandshake && SSL_want_write(ssl_.get())) outer |= POLLOUT;
  if (inner_.valid() && to_outer_.size() < kBufferBytes) inner |= POLLIN;
  if (inner_.valid() && !to_inner_.empty()) inner |= POLLOUT;
  // A socket of which nothing is wanted would say again and again that it is closed.
  return {pollfd{outer_.get(), outer, 0}, pollfd{inner == 0 ? -1 : inner_.get(), inner, 0}};
}

bool TlsRelay::TakesMore() const {
  return !outer_ended_ && !inner_ended_ && to_inner_.size() < kBufferBytes;
}

void TlsRelay::Go(int64_t now_ms) {
  if (phase_ == Phase::kHello) Hello(now_ms);
  if (phase_ == Phase::kHandshake) Handshake(now_ms);
  if (phase_ == Phase::kRelay) Relay(now_ms);
  if (phase_ == Phase::kParting) ThrowAway();
  if (now_ms >= deadline_ms_) Drop();
}

void TlsRelay::Hello(int64_t now_ms) {
  char first = 0;
  const ssize_t got = ::recv(outer_.get(), &first, 1, MSG_PEEK | MSG_DONTWAIT);
  if (got < 0 && WouldWait()) return;
  if (got <= 0) return Drop();
  if (first == kHandshakeRecord) {
    phase_ = Phase::kHandshake;
    return;
  }
  (void)::send(outer_.get(), kSpeaksTls, sizeof(kSpeaksTls) - 1, MSG_NOSIGNAL | MSG_DONTWAIT);
  PartFrom(now_ms);
}

void TlsRelay::Handshake(int64_t now_ms) {
  ERR_clear_error();
  const int done = SSL_accept(ssl_.get());
  if (done == 1) {
    phase_ = Phase::kRelay;
    deadline_ms_ = now_ms + options_.request_ms;
    return;
  }
  const int why = SSL_get_error(ssl_.get(), done);
  ERR_clear_error();
  if (why == SSL_ERROR_WANT_READ || why == SSL_ERROR_WANT_WRITE) return;
  // The alert has been sent; who sent bytes behind the broken handshake shall get it all the same.
  PartFrom(now_ms);
}

void TlsRelay::Relay(int64_t now_ms) {
  bool moved = true;
  for (int round = 0; moved && round < kRounds && phase_ == Phase::kRelay; ++round) {
    moved = ReadOuter(now_ms);
    moved = (phase_ == Phase::kRelay && WriteInner()) || moved;
    moved = (phase_ == Phase::kRelay && ReadInner(now_ms)) || moved;
    moved = (phase_ == Phase::kRelay && WriteOuter(now_ms)) || moved;
  }
  if (phase_ != Phase::kRelay || !inner_ended_ || !to_outer_.empty()) return;
  ERR_clear_error();
  (void)SSL_shutdown(ssl_.get());  // says that the answer is whole
  ERR_clear_error();
  PartFrom(now_ms);
}

void TlsRelay::PartFrom(int64_t now_ms) {
  ::shutdown(outer_.get(), SHUT_WR);
  place_.Drop();
  inner_.Reset();
  phase_ = Phase::kParting;
  deadline_ms_ = now_ms + kPartingMs;
}

void TlsRelay::ThrowAway() {
  std::array<char, 4096> bytes{};
  for (int round = 0; round < kRounds; ++round) {
    const ssize_t got = ::recv(outer_.get(), bytes.data(), bytes.size(), MSG_DONTWAIT);
    if (got < 0 && WouldWait()) return;
    if (got <= 0) return Drop();
  }
}

bool TlsRelay::ReadOuter(int64_t now_ms) {
  if (!TakesMore()) return false;
  std::array<char, 4096> bytes{};
  ERR_clear_error();
  const int got = SSL_read(ssl_.get(), bytes.data(), static_cast<int>(bytes.size()));
  if (got > 0) {
    to_inner_.append(bytes.data(), static_cast<size_t>(got));
    if (!inner_.valid()) DialInner(now_ms);
    return true;
  }
  const int why = SSL_get_error(ssl_.get(), got);
  ERR_clear_error();
  if (why == SSL_ERROR_WANT_READ || why == SSL_ERROR_WANT_WRITE) return false;
  outer_ended_ = why == SSL_ERROR_ZERO_RETURN;
  // Without a request, or without the word that the connection ends well, nothing is owed.
  if (!outer_ended_ || !inner_.valid()) Drop();
  return outer_ended_;
}

void TlsRelay::DialInner(int64_t now_ms) {
  deadline_ms_ = now_ms + options_.answer_ms;
  inner_ = UniqueFd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  const auto behind = ResolveNumeric("127.0.0.1", options_.behind);
  MW_CHECK(behind.has_value()) << "port " << options_.behind;
  if (!inner_.valid() ||
      (::connect(inner_.get(), behind->get(), behind->bytes) != 0 && errno != EINPROGRESS)) {
    return Drop();
  }
  place_ = callers_.Put(PortOf(inner_).value_or(0), stranger_);
}

bool TlsRelay::WriteInner() {
  if (!inner_.valid()) return false;
  if (to_inner_.empty()) {
    if (outer_ended_) ::shutdown(inner_.get(), SHUT_WR);
    return false;
  }
  const ssize_t sent =
      ::send(inner_.get(), to_inner_.data(), to_inner_.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  if (sent > 0) to_inner_.erase(0, static_cast<size_t>(sent));
  // A server that refuses the rest of a body may have answered before.
  if (sent < 0 && !WouldWait()) to_inner_.clear();
  return sent > 0;
}

bool TlsRelay::ReadInner(int64_t now_ms) {
  if (!inner_.valid() || to_outer_.size() >= kBufferBytes) return false;
  std::array<char, 4096> bytes{};
  const ssize_t got = ::recv(inner_.get(), bytes.data(), bytes.size(), MSG_DONTWAIT);
  if (got < 0 && WouldWait()) return false;
  if (got <= 0) {
    inner_ended_ = true;
    place_.Drop();
    inner_.Reset();
    return true;
  }
  if (to_outer_.empty()) deadline_ms_ = now_ms + options_.stall_ms;
  to_outer_.append(bytes.data(), static_cast<size_t>(got));
  return true;
}

bool TlsRelay::WriteOuter(int64_t now_ms) {
  if (to_outer_.empty()) return false;
  ERR_clear_error();
  const int sent = SSL_write(ssl_.get(), to_outer_.data(), static_cast<int>(to_outer_.size()));
  if (sent > 0) {
    to_outer_.erase(0, static_cast<size_t>(sent));
    // A stream that has nothing to say may stay as long as the server behind keeps it.
    deadline_ms_ = to_outer_.empty() ? kNever : now_ms + options_.stall_ms;
    return true;
  }
  const int why = SSL_get_error(ssl_.get(), sent);
  ERR_clear_error();
  if (why != SSL_ERROR_WANT_READ && why != SSL_ERROR_WANT_WRITE) Drop();
  return false;
}

}  // namespace meshwright::security
