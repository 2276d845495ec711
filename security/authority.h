// The authority of a cluster: a folder with ca.pem and its key, which signs certificates.
//
// Keys are of the curve P-256. A certificate names its holder (security/subject.h); that of a
// controller has kControllerName besides, that of a worker kWorkerName. A controller's file holds
// the authority's certificate behind its own, so that who joins can compare that with the
// fingerprint in the join token.
//
// Thread rule: Sign is thread-safe.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/tls_identity.h"
#include "security/subject.h"

namespace meshwright::security {

inline constexpr int64_t kDayS = 86'400;

// A request to sign, with the key that it is for.
struct KeyRequest {
  std::string key_pem;
  std::string request_pem;
};
// `key_pem` empty: of a new key. Errors: kInvalidArgument: it is no key.
Result<KeyRequest> MakeKeyRequest(const std::string& key_pem = "");
// 64 hex digits, of the public key in a request. Errors: kInvalidArgument.
Result<std::string> RequestKeySha256(const std::string& request_pem);

struct CertificateOrder {
  Subject subject;
  std::vector<std::string> hosts;  // other names or addresses to be known by
  int64_t now_s = 0;
  int64_t life_s = 30 * kDayS;
};

class Authority {
 public:
  // Makes a new one in the folder (0700). Errors: kAlreadyExists when there is one.
  static Result<Authority> Create(const std::string& folder, int64_t now_s);
  // Errors: kNotFound naming `meshwright cert init`; those of ReadSecretFile; kInvalidArgument.
  static Result<Authority> Load(const std::string& folder);
  ~Authority();
  Authority(Authority&& other) noexcept;
  Authority& operator=(Authority&& other) noexcept;

  const std::string& ca_pem() const { return ca_pem_; }
  const std::string& sha256() const { return sha256_; }  // 64 hex digits, of ca.pem

  // cert.pem for whoever made the request. Errors: kInvalidArgument: no request, or it was not made
  // with the key in it; a host that is none.
  Result<std::string> Sign(const std::string& request_pem, const CertificateOrder& order) const;

  // 32 bytes that only who has the authority's key can compute, for that purpose alone.
  std::string Secret(const std::string& purpose) const;

 private:
  struct Keys;
  Authority(std::string ca_pem, std::unique_ptr<Keys> keys);

  std::string ca_pem_;
  std::string sha256_;
  std::unique_ptr<Keys> keys_;
};

// Writes the three files; the key with mode 0600, the folder with 0700. A key that is the same
// stays untouched, and the certificate comes in one piece, so that who reads the folder anew always
// finds files that fit.
Status WriteIdentity(const std::string& folder, const TlsIdentity& identity);

// Has the authority sign a certificate for the folder: with the key that is there, else a new one,
// and with the hosts that the certificate there has, if that is of the same role, besides those of
// the order.
Status IssueTo(const std::string& folder, const Authority& authority, CertificateOrder order);

}  // namespace meshwright::security
