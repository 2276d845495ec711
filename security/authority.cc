#include "security/authority.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <openssl/hmac.h>
#include <openssl/rand.h>

#include <algorithm>
#include <array>
#include <utility>

#include "base/file.h"
#include "base/secret_file.h"
#include "base/sha256.h"
#include "security/certificate.h"
#include "security/openssl_parts.h"

namespace meshwright::security {
namespace {

constexpr int64_t kAuthorityLifeS = 3650 * kDayS;
constexpr int64_t kClocksDifferS = 300;  // those of two machines

std::string KeyText(EVP_PKEY* key) {
  const Part<BIO> bio(BIO_new(BIO_s_mem()));
  PEM_write_bio_PrivateKey(bio.get(), key, nullptr, nullptr, 0, nullptr, nullptr);
  return TextOf(bio.get());
}

bool SetRandomSerial(X509* certificate) {
  std::array<unsigned char, 16> bytes{};
  if (RAND_bytes(bytes.data(), static_cast<int>(bytes.size())) != 1) return false;
  bytes[0] &= 0x7F;  // positive
  BIGNUM* number = BN_bin2bn(bytes.data(), static_cast<int>(bytes.size()), nullptr);
  const bool ok = BN_to_ASN1_INTEGER(number, X509_get_serialNumber(certificate)) != nullptr;
  BN_free(number);
  return ok;
}

void AddNamePart(X509_NAME* name, const char* kind, const std::string& value) {
  X509_NAME_add_entry_by_txt(name, kind, MBSTRING_UTF8,
                             reinterpret_cast<const unsigned char*>(value.c_str()), -1, -1, 0);
}

struct Extension {
  int nid;
  std::string value;
};

bool AddExtensions(X509* certificate, X509* issuer, const std::vector<Extension>& extensions) {
  X509V3_CTX context;
  X509V3_set_ctx_nodb(&context);
  X509V3_set_ctx(&context, issuer, certificate, nullptr, nullptr, 0);
  for (const Extension& each : extensions) {
    const Part<X509_EXTENSION> made(
        X509V3_EXT_conf_nid(nullptr, &context, each.nid, each.value.c_str()));
    if (made == nullptr || X509_add_ext(certificate, made.get(), -1) != 1) return false;
  }
  return true;
}

void SetLife(X509* certificate, int64_t now_s, int64_t life_s) {
  ASN1_TIME_set(X509_getm_notBefore(certificate), static_cast<time_t>(now_s - kClocksDifferS));
  ASN1_TIME_set(X509_getm_notAfter(certificate), static_cast<time_t>(now_s + life_s));
}

// "IP:10.0.0.1" or "DNS:head". Errors: kInvalidArgument.
Result<std::string> AlternativeName(const std::string& host) {
  std::array<unsigned char, 16> address{};
  if (::inet_pton(AF_INET, host.c_str(), address.data()) == 1 ||
      ::inet_pton(AF_INET6, host.c_str(), address.data()) == 1) {
    return "IP:" + host;
  }
  MW_TRY(CheckName(host));
  return "DNS:" + host;
}

Result<std::string> AlternativeNames(const CertificateOrder& order) {
  std::string names = "URI:" + FormatUri(order.subject);
  if (order.subject.role == Role::kController) names += std::string(",DNS:") + kControllerName;
  if (order.subject.role == Role::kWorker) names += std::string(",DNS:") + kWorkerName;
  for (const std::string& host : order.hosts) {
    if (host == kControllerName || host == kWorkerName) {
      return Fail(InvalidArgument(host + " is not for others"));
    }
    MW_ASSIGN_OR_RETURN(const std::string name, AlternativeName(host));
    names += "," + name;
  }
  return names;
}

}  // namespace

struct Authority::Keys {
  Part<X509> certificate;
  Part<EVP_PKEY> key;
};

Authority::Authority(std::string ca_pem, std::unique_ptr<Keys> keys)
    : ca_pem_(std::move(ca_pem)),
      sha256_(FingerprintOf(keys->certificate.get())),
      keys_(std::move(keys)) {}
Authority::~Authority() = default;
Authority::Authority(Authority&& other) noexcept = default;
Authority& Authority::operator=(Authority&& other) noexcept = default;

Result<KeyRequest> MakeKeyRequest(const std::string& key_pem) {
  const Part<EVP_PKEY> key =
      key_pem.empty() ? Part<EVP_PKEY>(EVP_EC_gen("P-256")) : ReadKey(key_pem);
  if (key == nullptr && !key_pem.empty()) {
    return Fail(InvalidArgument("key.pem has no private key in PEM (without a password)"));
  }
  const Part<X509_REQ> request(X509_REQ_new());
  const bool made = key != nullptr && X509_REQ_set_pubkey(request.get(), key.get()) == 1 &&
                    X509_REQ_sign(request.get(), key.get(), EVP_sha256()) > 0;
  if (!made) return Fail(OpenSslError("make a key"));
  const Part<BIO> bio(BIO_new(BIO_s_mem()));
  PEM_write_bio_X509_REQ(bio.get(), request.get());
  return KeyRequest{key_pem.empty() ? KeyText(key.get()) : key_pem, TextOf(bio.get())};
}

Result<std::string> RequestKeySha256(const std::string& request_pem) {
  const Part<X509_REQ> request(
      PEM_read_bio_X509_REQ(ReadableBio(request_pem).get(), nullptr, nullptr, nullptr));
  EVP_PKEY* const key = request == nullptr ? nullptr : X509_REQ_get0_pubkey(request.get());
  const Part<BIO> bio(BIO_new(BIO_s_mem()));
  const bool written = key != nullptr && i2d_PUBKEY_bio(bio.get(), key) == 1;
  ERR_clear_error();
  if (!written) return Fail(InvalidArgument("this is no request for a certificate"));
  return Sha256Hex(TextOf(bio.get()));
}

Result<Authority> Authority::Create(const std::string& folder, int64_t now_s) {
  if (FileExists(folder + "/ca.pem") || FileExists(folder + "/key.pem")) {
    return Fail(AlreadyExists(fmt::format(
        "{} holds an authority already; every certificate that it signed would be worthless "
        "without it",
        folder)));
  }
  MW_TRY(MakeSecretDir(folder));
  const Part<EVP_PKEY> key(EVP_EC_gen("P-256"));
  const Part<X509> certificate(X509_new());
  X509* const raw = certificate.get();
  X509_set_version(raw, 2);
  SetLife(raw, now_s, kAuthorityLifeS);
  AddNamePart(X509_get_subject_name(raw), "CN", "meshwright cluster");
  X509_set_issuer_name(raw, X509_get_subject_name(raw));
  X509_set_pubkey(raw, key.get());
  const bool made = key != nullptr && SetRandomSerial(raw) &&
                    AddExtensions(raw, raw,
                                  {{NID_basic_constraints, "critical,CA:TRUE,pathlen:0"},
                                   {NID_key_usage, "critical,keyCertSign,cRLSign"},
                                   {NID_subject_key_identifier, "hash"}}) &&
                    X509_sign(raw, key.get(), EVP_sha256()) > 0;
  if (!made) return Fail(OpenSslError("make an authority"));
  MW_TRY(WriteSecretFile(folder + "/key.pem", KeyText(key.get())));
  MW_TRY(WriteFileAtomic(folder + "/ca.pem", WriteX509(raw)));
  return Load(folder);
}

Result<Authority> Authority::Load(const std::string& folder) {
  MW_TRY(CheckSecretDir(folder));
  if (!FileExists(folder + "/ca.pem")) {
    return Fail(NotFound(
        fmt::format("{} holds no authority; make one with `meshwright cert init`", folder)));
  }
  MW_ASSIGN_OR_RETURN(std::string ca_pem, ReadFile(folder + "/ca.pem"));
  MW_ASSIGN_OR_RETURN(const std::string key_pem, ReadSecretFile(folder + "/key.pem"));
  auto keys = std::make_unique<Keys>(Keys{ReadX509(ca_pem), ReadKey(key_pem)});
  const bool fit = keys->certificate != nullptr && keys->key != nullptr &&
                   X509_check_private_key(keys->certificate.get(), keys->key.get()) == 1;
  ERR_clear_error();
  if (!fit) {
    return Fail(InvalidArgument(
        fmt::format("{0}/ca.pem and {0}/key.pem are no certificate and its key", folder)));
  }
  return Authority(std::move(ca_pem), std::move(keys));
}

Result<std::string> Authority::Sign(const std::string& request_pem,
                                    const CertificateOrder& order) const {
  MW_TRY(CheckName(order.subject.name));
  MW_ASSIGN_OR_RETURN(const std::string names, AlternativeNames(order));
  const Part<X509_REQ> request(
      PEM_read_bio_X509_REQ(ReadableBio(request_pem).get(), nullptr, nullptr, nullptr));
  EVP_PKEY* const key = request == nullptr ? nullptr : X509_REQ_get0_pubkey(request.get());
  if (key == nullptr || X509_REQ_verify(request.get(), key) != 1) {
    ERR_clear_error();
    return Fail(InvalidArgument("this is no request that was signed with the key in it"));
  }
  const bool serves =
      order.subject.role == Role::kController || order.subject.role == Role::kWorker;
  const Part<X509> certificate(X509_new());
  X509* const raw = certificate.get();
  X509* const issuer = keys_->certificate.get();
  X509_set_version(raw, 2);
  SetLife(raw, order.now_s, order.life_s);
  AddNamePart(X509_get_subject_name(raw), "OU", std::string(RoleName(order.subject.role)));
  AddNamePart(X509_get_subject_name(raw), "CN", order.subject.name);
  X509_set_issuer_name(raw, X509_get_subject_name(issuer));
  X509_set_pubkey(raw, key);
  const bool made =
      SetRandomSerial(raw) &&
      AddExtensions(raw, issuer,
                    {{NID_basic_constraints, "critical,CA:FALSE"},
                     {NID_key_usage, "critical,digitalSignature"},
                     {NID_ext_key_usage, serves ? "serverAuth,clientAuth" : "clientAuth"},
                     {NID_subject_key_identifier, "hash"},
                     {NID_authority_key_identifier, "keyid"},
                     {NID_subject_alt_name, names}}) &&
      X509_sign(raw, keys_->key.get(), EVP_sha256()) > 0;
  if (!made) return Fail(OpenSslError("sign a certificate"));
  std::string pem = WriteX509(raw);
  if (order.subject.role == Role::kController) pem += ca_pem_;
  return pem;
}

std::string Authority::Secret(const std::string& purpose) const {
  const std::string key = KeyText(keys_->key.get());
  std::array<unsigned char, EVP_MAX_MD_SIZE> mac{};
  unsigned int bytes = 0;
  HMAC(EVP_sha256(), key.data(), static_cast<int>(key.size()),
       reinterpret_cast<const unsigned char*>(purpose.data()), purpose.size(), mac.data(), &bytes);
  return {reinterpret_cast<const char*>(mac.data()), bytes};
}

Status WriteIdentity(const std::string& folder, const TlsIdentity& identity) {
  MW_TRY(MakeSecretDir(folder));
  const std::string key_path = folder + "/key.pem";
  const bool same =
      FileExists(key_path) && ReadSecretFile(key_path).value_or("") == identity.key_pem;
  if (!same) MW_TRY(WriteSecretFile(key_path, identity.key_pem));
  MW_TRY(WriteFileAtomic(folder + "/ca.pem", identity.ca_pem));
  return WriteFileAtomic(folder + "/cert.pem", identity.cert_pem);
}

namespace {

// Who knows the holder by a name would not believe a certificate that lacks it.
void KeepHosts(const std::string& folder, CertificateOrder& order) {
  const auto pem = ReadFile(folder + "/cert.pem");
  const auto facts =
      pem.has_value() ? ReadCertificate(*pem) : Result<CertificateFacts>(Fail(pem.error()));
  if (!facts.has_value() || !facts->subject || facts->subject->role != order.subject.role) return;
  for (const std::string& name : facts->names) {
    const bool of_role = name == kControllerName || name == kWorkerName;
    const auto at = std::find(order.hosts.begin(), order.hosts.end(), name);
    if (!of_role && at == order.hosts.end()) order.hosts.push_back(name);
  }
}

}  // namespace

Status IssueTo(const std::string& folder, const Authority& authority, CertificateOrder order) {
  std::string key_pem;
  if (FileExists(folder + "/key.pem")) {
    MW_ASSIGN_OR_RETURN(key_pem, ReadSecretFile(folder + "/key.pem"));
  }
  MW_ASSIGN_OR_RETURN(const KeyRequest made, MakeKeyRequest(key_pem));
  KeepHosts(folder, order);
  MW_ASSIGN_OR_RETURN(std::string cert_pem, authority.Sign(made.request_pem, order));
  return WriteIdentity(folder, {authority.ca_pem(), std::move(cert_pem), made.key_pem});
}

}  // namespace meshwright::security
