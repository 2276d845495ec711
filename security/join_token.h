// Join tokens: what lets a host have a certificate signed that has none yet.
//
// A token says until when it holds, which authority the host must find, and perhaps for which
// worker it is; a code at its end, which only the authority's key makes, keeps anyone from making
// or changing one. So nothing is kept of tokens that are given out: who has the authority's folder
// makes them, a controller with that folder believes them. A token opens nothing but the one call
// that signs a worker's certificate. It holds for any number of hosts until it ends, unless it is
// for one name or once (security/issue_book.h).
//
//   "mwjoin1." base64url(payload code)
//   payload = version(1) flags(1) expiry_s(8, big endian) nonce(8) authority_sha256(32) name(0..64)
//   flags   = once 1, replace 2
//   code    = the first 16 bytes of HMAC-SHA256(authority secret, payload)
//
// Thread rule: pure.
#pragma once

#include <cstdint>
#include <string>

#include "base/result.h"

namespace meshwright::security {

struct JoinToken {
  std::string authority_sha256;  // 64 hex digits
  int64_t expires_s = 0;         // since 1970
  std::string name;              // of the worker; empty: any
  bool once = false;
  bool replace = false;    // also for a name that another key has a certificate for
  std::string nonce = {};  // 16 hex digits; empty: Mint makes one
};

// The purpose of Authority::Secret for all functions here.
inline constexpr const char* kJoinPurpose = "meshwright join token 1";

// Errors: kInvalidArgument: no fingerprint, no name.
Result<std::string> MintJoinToken(const std::string& secret, JoinToken token);

// What it says, which need not be true: for who holds no secret. Errors: kInvalidArgument.
Result<JoinToken> ReadJoinToken(const std::string& text);

// What it says, if the authority made it and it holds at that moment. Errors: kUnauthenticated.
Result<JoinToken> CheckJoinToken(const std::string& secret, const std::string& text, int64_t now_s);

}  // namespace meshwright::security
