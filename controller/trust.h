// Signs the certificates of workers: for a join token, or for the certificate that one has.
//
// Thread rule: thread-safe. Ownership: owns authority and book.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "base/result.h"
#include "security/authority.h"
#include "security/issue_book.h"
#include "security/subject.h"

namespace meshwright::controller {

struct SignedCertificate {
  std::string cert_pem;
  std::string ca_pem;
};

class Trust {
 public:
  static constexpr int64_t kWorkerLifeS = 30 * security::kDayS;

  // `life_s`: of the certificates.
  Trust(security::Authority authority, std::unique_ptr<security::IssueBook> book,
        int64_t life_s = kWorkerLifeS);

  // Errors: kUnauthenticated: the token does not hold; those of IssueBook::Admit;
  // kInvalidArgument: the name, the request.
  Result<SignedCertificate> Join(const std::string& token, const std::string& name,
                                 const std::string& request_pem, int64_t now_s);
  // Errors: those of IssueBook::Renew; kInvalidArgument: the request.
  Result<SignedCertificate> Renew(const security::Subject& subject, const std::string& request_pem,
                                  int64_t now_s);

 private:
  Result<SignedCertificate> Sign(const security::Subject& subject, const std::string& request_pem,
                                 int64_t now_s) const;

  const security::Authority authority_;
  const std::unique_ptr<security::IssueBook> book_;
  const std::string secret_;
  const int64_t life_s_;
};

}  // namespace meshwright::controller
