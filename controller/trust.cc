#include "controller/trust.h"

#include <utility>

#include "security/join_token.h"

namespace meshwright::controller {

using security::IssueBook;
using security::Role;
using security::Subject;

Trust::Trust(security::Authority authority, std::unique_ptr<IssueBook> book, int64_t life_s)
    : authority_(std::move(authority)),
      book_(std::move(book)),
      secret_(authority_.Secret(security::kJoinPurpose)),
      life_s_(life_s) {}

Result<SignedCertificate> Trust::Sign(const Subject& subject, const std::string& request_pem,
                                      int64_t now_s) const {
  MW_ASSIGN_OR_RETURN(std::string cert_pem,
                      authority_.Sign(request_pem, {subject, {}, now_s, life_s_}));
  return SignedCertificate{std::move(cert_pem), authority_.ca_pem()};
}

Result<SignedCertificate> Trust::Join(const std::string& token, const std::string& name,
                                      const std::string& request_pem, int64_t now_s) {
  // Before anything is done with it: whoever asks has shown nothing yet. A token has a bound, too.
  MW_TRY(security::CheckName(name));
  MW_ASSIGN_OR_RETURN(const security::JoinToken held,
                      security::CheckJoinToken(secret_, token, now_s));
  MW_ASSIGN_OR_RETURN(SignedCertificate made, Sign({Role::kWorker, name}, request_pem, now_s));
  MW_ASSIGN_OR_RETURN(const std::string key, security::RequestKeySha256(request_pem));
  MW_TRY(book_->Admit(held, {name, key, now_s + life_s_}, now_s));
  return made;
}

Result<SignedCertificate> Trust::Renew(const Subject& subject, const std::string& request_pem,
                                       int64_t now_s) {
  MW_ASSIGN_OR_RETURN(SignedCertificate made, Sign(subject, request_pem, now_s));
  MW_ASSIGN_OR_RETURN(const std::string key, security::RequestKeySha256(request_pem));
  MW_TRY(book_->Renew({subject.name, key, now_s + life_s_}, now_s));
  return made;
}

}  // namespace meshwright::controller
