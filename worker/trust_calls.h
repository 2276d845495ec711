// The two calls of TrustService (proto/trust.proto).
//
// Thread rule: thread-safe; each blocks, 10 s at most.
#pragma once

#include <string>

#include "base/result.h"
#include "worker/identity.h"

namespace meshwright::worker {

struct JoinCall {
  std::string token;
  std::string name;
  std::string request_pem;
};
// To a controller of that authority, showing nothing but the token.
Result<NewCertificate> CallJoin(const std::string& address, const std::string& ca_pem,
                                const JoinCall& call);
// Showing the identity in the folder.
Result<NewCertificate> CallRenew(const std::string& address, const std::string& folder,
                                 const std::string& request_pem);

}  // namespace meshwright::worker
