// TLS by hand, to learn about who answers at an address; nothing is said to them, and nothing is
// believed.
//
// A host that joins has no authority to check the controller with: it has the fingerprint in its
// token. A controller sends its authority's certificate behind its own (security/authority.h); the
// one that has the fingerprint is the authority. The call that shows the token is made on a
// connection of its own, checked against this authority.
//
// Thread rule: thread-safe; blocks until the deadline at most.
#pragma once

#include <string>

#include "base/clock.h"
#include "base/result.h"

namespace meshwright::security {

// ca.pem. `address`: host:port. Errors: kUnavailable when nobody answers or without TLS;
// kPermissionDenied when who answers has another authority.
Result<std::string> FetchAuthority(const std::string& address, const std::string& sha256,
                                   const Deadline& deadline);

// Whether who answers at host:port does so by TLS.
bool SpeaksTls(const std::string& address, const Deadline& deadline);

// Why no connection comes about with the identity in the folder: kUnavailable when nobody answers,
// or not by TLS; kPermissionDenied when who answers is no controller of this authority, or does not
// believe the certificate. OK when nothing is wrong.
Status ExplainRefusal(const std::string& address, const std::string& folder,
                      const Deadline& deadline);

}  // namespace meshwright::security
