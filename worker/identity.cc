#include "worker/identity.h"

#include <fmt/format.h>
#include <poll.h>

#include <utility>

#include "base/file.h"
#include "base/log.h"
#include "base/secret_file.h"
#include "base/tls_identity.h"
#include "security/authority.h"
#include "security/certificate.h"
#include "security/join_token.h"
#include "security/tls_probe.h"
#include "worker/trust_calls.h"

namespace meshwright::worker {
namespace {

constexpr int64_t kJoinMs = 10'000;
constexpr int64_t kLookMs = 600'000;
constexpr int64_t kPatienceMs = 30'000;  // as a worker's for its first contact
constexpr int kAgainMs = 200;
constexpr int kSayEach = 10;  // of the times that it is looked for, as a worker's link does

// Of a controller that may not be there yet: hosts are started in any order.
Result<std::string> AwaitAuthority(const std::string& address, const std::string& sha256) {
  const Deadline patience = Deadline::After(kPatienceMs);
  for (int tries = 0;; ++tries) {
    auto found = security::FetchAuthority(address, sha256, Deadline::After(kJoinMs));
    const bool away = !found.has_value() && found.error().code() == StatusCode::kUnavailable;
    if (!away || patience.expired()) return found;
    if (tries % kSayEach == 0) {
      LogWarn(fmt::format("{}; it is looked for again", found.error().message()));
    }
    ::poll(nullptr, 0, kAgainMs);
  }
}

}  // namespace

Status Join(const JoinOptions& options) {
  MW_ASSIGN_OR_RETURN(const security::JoinToken token, security::ReadJoinToken(options.token));
  MW_ASSIGN_OR_RETURN(const std::string ca_pem,
                      AwaitAuthority(options.address, token.authority_sha256));
  // With the key that is there, so that a host that asks twice is the same one.
  std::string key_pem;
  if (FileExists(options.folder + "/key.pem")) {
    MW_ASSIGN_OR_RETURN(key_pem, ReadSecretFile(options.folder + "/key.pem"));
  }
  MW_ASSIGN_OR_RETURN(const security::KeyRequest made, security::MakeKeyRequest(key_pem));
  // On disk before the token is used up: an answer that is lost can be asked for again.
  MW_TRY(MakeSecretDir(options.folder));
  if (key_pem.empty()) MW_TRY(WriteSecretFile(options.folder + "/key.pem", made.key_pem));
  MW_ASSIGN_OR_RETURN(
      NewCertificate signed_one,
      CallJoin(options.address, ca_pem, {options.token, options.name, made.request_pem}));
  return security::WriteIdentity(options.folder,
                                 {ca_pem, std::move(signed_one.cert_pem), made.key_pem});
}

Result<NewCertificate> AskRenewal(const std::string& address, const std::string& folder,
                                  const std::string& request_pem) {
  return CallRenew(address, folder, request_pem);
}

void IdentityKeeper::Start() {
  (void)thread_.Post([this] { LookLater(); });
}

void IdentityKeeper::LookLater() {
  const Result<bool> renewed = Look();
  if (!renewed.has_value()) {
    LogWarn(fmt::format("the certificate in {} could not be renewed, it is tried again: {}",
                        folder_, renewed.error().message()));
  }
  (void)thread_.PostAfter(kLookMs, [this] { LookLater(); });
}

Result<bool> IdentityKeeper::Look() {
  MW_ASSIGN_OR_RETURN(TlsIdentity identity, LoadTlsIdentity(folder_));
  MW_ASSIGN_OR_RETURN(const security::CertificateFacts facts,
                      security::ReadCertificate(identity.cert_pem));
  if (clock_.UnixMs() / 1000 < facts.renew_at_s()) return false;
  MW_ASSIGN_OR_RETURN(const security::KeyRequest request,
                      security::MakeKeyRequest(identity.key_pem));
  MW_ASSIGN_OR_RETURN(NewCertificate renewed, ask_(request.request_pem));
  MW_ASSIGN_OR_RETURN(const security::CertificateFacts now,
                      security::ReadCertificate(renewed.cert_pem));
  // Whom it believes stays: it may believe more than one authority while they change.
  identity.cert_pem = std::move(renewed.cert_pem);
  MW_TRY(security::WriteIdentity(folder_, identity));
  LogInfo(fmt::format("the certificate in {} was renewed and holds until {}", folder_,
                      security::FormatMoment(now.not_after_s)));
  return true;
}

}  // namespace meshwright::worker
