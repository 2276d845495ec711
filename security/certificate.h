// What a certificate says, and whether an identity can be used: whose it is, until when, and
// whether the authority beside it signed it.
//
// Thread rule: pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/tls_identity.h"
#include "security/subject.h"

namespace meshwright::security {

struct CertificateFacts {
  std::optional<Subject> subject;  // none: it is no certificate of a cluster
  int64_t not_before_s = 0;        // since 1970, UTC
  int64_t not_after_s = 0;
  std::string sha256;              // 64 hex digits, of the whole certificate
  std::vector<std::string> names;  // and addresses, by which its holder is reached

  // The moment from which on it should be renewed: when a third of its life is left.
  int64_t renew_at_s() const { return not_after_s - (not_after_s - not_before_s) / 3; }
};

// Of the first certificate in the text. Errors: kInvalidArgument.
Result<CertificateFacts> ReadCertificate(const std::string& pem);

// "2026-11-27 05:30 UTC".
std::string FormatMoment(int64_t unix_s);

// Who it is, if it can be used at that moment by one of these roles.
// Errors, with the command that mends it: kFailedPrecondition when it has ended or has not begun,
// when it is of another role, when ca.pem is not the authority that signed it.
Result<Subject> CheckIdentity(const TlsIdentity& identity, const std::vector<Role>& roles,
                              int64_t now_s);

}  // namespace meshwright::security
