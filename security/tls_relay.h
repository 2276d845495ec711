// One connection of a TLS front (security/tls_front.h): from the first byte of a stranger to the
// last byte of the answer. For .cc files of this room.
//
//   kHello      nothing is known; a first byte that begins no handshake is answered in the clear
//   kHandshake  the handshake is under way
//   kRelay      bytes go both ways between the stranger and the server behind
//   kParting    all is said, and what still comes is thrown away, so that the answer is not lost
//   kOver       to be dropped
//
// Thread rule: one thread.
#pragma once

#include <poll.h>

#include <array>
#include <cstdint>
#include <string>

#include "base/unique_fd.h"
#include "security/callers.h"
#include "security/openssl_parts.h"
#include "security/tls_front.h"

namespace meshwright::security {

class TlsRelay {
 public:
  TlsRelay(UniqueFd outer, Stranger stranger, Part<SSL> ssl, const TlsFrontOptions& options,
           Callers& callers, int64_t now_ms);

  // What both sockets wait for; the second has no descriptor before the server behind is needed.
  std::array<pollfd, 2> Wanted() const;
  // When it is over unless something happens; INT64_MAX: never.
  int64_t deadline_ms() const { return deadline_ms_; }
  // Goes on as far as it goes without waiting.
  void Go(int64_t now_ms);

  // The stranger is gone for good.
  void Drop() { phase_ = Phase::kOver; }
  bool over() const { return phase_ == Phase::kOver; }
  const std::string& address() const { return stranger_.address; }

 private:
  enum class Phase : uint8_t { kHello, kHandshake, kRelay, kParting, kOver };

  void Hello(int64_t now_ms);
  void Handshake(int64_t now_ms);
  void Relay(int64_t now_ms);
  // All is said: the rest is thrown away for a second.
  void PartFrom(int64_t now_ms);
  void ThrowAway();
  bool TakesMore() const;
  // Each: whether anything moved.
  bool ReadOuter(int64_t now_ms);
  bool WriteInner();
  bool ReadInner(int64_t now_ms);
  bool WriteOuter(int64_t now_ms);
  void DialInner(int64_t now_ms);

  UniqueFd outer_;
  UniqueFd inner_;
  Callers::Place place_;  // of the inner one
  const Stranger stranger_;
  Part<SSL> ssl_;
  const TlsFrontOptions& options_;
  Callers& callers_;
  Phase phase_ = Phase::kHello;
  std::string to_inner_;
  std::string to_outer_;
  bool outer_ended_ = false;  // the stranger says no more
  bool inner_ended_ = false;  // the answer is whole
  int64_t deadline_ms_ = 0;
};

}  // namespace meshwright::security
