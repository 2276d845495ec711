#include "base/tls_identity.h"

#include <fmt/format.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/x509.h>

#include <memory>

#include "base/file.h"
#include "base/secret_file.h"

namespace meshwright {
namespace {

struct FreeIdentityPart {
  void operator()(BIO* bio) const { BIO_free_all(bio); }
  void operator()(X509* certificate) const { X509_free(certificate); }
  void operator()(EVP_PKEY* key) const { EVP_PKEY_free(key); }
};
template <typename T>
using IdentityPart = std::unique_ptr<T, FreeIdentityPart>;

IdentityPart<BIO> BioOf(const std::string& pem) {
  return IdentityPart<BIO>(BIO_new_mem_buf(pem.data(), static_cast<int>(pem.size())));
}

IdentityPart<X509> FirstCertificate(const std::string& pem) {
  return IdentityPart<X509>(PEM_read_bio_X509(BioOf(pem).get(), nullptr, nullptr, nullptr));
}

// An encrypted key would be asked for at the terminal, which a daemon has not.
int NoPassword(char* /*buffer*/, int /*bytes*/, int /*writing*/, void* /*user*/) { return -1; }

Status CheckParts(const TlsIdentity& identity, const std::string& folder) {
  if (FirstCertificate(identity.ca_pem) == nullptr) {
    return InvalidArgument(folder + "/ca.pem has no certificate in PEM");
  }
  const auto certificate = FirstCertificate(identity.cert_pem);
  if (certificate == nullptr) {
    return InvalidArgument(folder + "/cert.pem has no certificate in PEM");
  }
  const IdentityPart<EVP_PKEY> key(
      PEM_read_bio_PrivateKey(BioOf(identity.key_pem).get(), nullptr, NoPassword, nullptr));
  if (key == nullptr) {
    return InvalidArgument(folder + "/key.pem has no private key in PEM (without a password)");
  }
  if (X509_check_private_key(certificate.get(), key.get()) != 1) {
    return InvalidArgument(fmt::format(
        "{0}/key.pem is not the key of {0}/cert.pem; copy both from one `meshwright cert issue`",
        folder));
  }
  return OkStatus();
}

}  // namespace

Result<TlsIdentity> LoadTlsIdentity(const std::string& folder) {
  MW_TRY(CheckSecretDir(folder));
  TlsIdentity identity;
  MW_ASSIGN_OR_RETURN(identity.ca_pem, ReadFile(folder + "/ca.pem"));
  MW_ASSIGN_OR_RETURN(identity.cert_pem, ReadFile(folder + "/cert.pem"));
  MW_ASSIGN_OR_RETURN(identity.key_pem, ReadSecretFile(folder + "/key.pem"));
  const Status checked = CheckParts(identity, folder);
  ERR_clear_error();  // what failed is said; the next reader of the queue is another library
  MW_TRY(checked);
  return identity;
}

}  // namespace meshwright
