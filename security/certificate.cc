#include "security/certificate.h"

#include <arpa/inet.h>
#include <fmt/chrono.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <ctime>

#include "security/openssl_parts.h"

namespace meshwright::security {
namespace {

int64_t UnixSeconds(const ASN1_TIME* time) {
  std::tm parts{};
  if (time == nullptr || ASN1_TIME_to_tm(time, &parts) != 1) return 0;
  return static_cast<int64_t>(::timegm(&parts));
}

std::string BytesOf(const ASN1_STRING* text) {
  return {reinterpret_cast<const char*>(ASN1_STRING_get0_data(text)),
          static_cast<size_t>(ASN1_STRING_length(text))};
}

// "10.0.0.1" of its bytes; empty: these are those of no address.
std::string AddressOf(const std::string& bytes) {
  std::array<char, INET6_ADDRSTRLEN> text{};
  if (bytes.size() != 4 && bytes.size() != 16) return "";
  const int family = bytes.size() == 4 ? AF_INET : AF_INET6;
  return ::inet_ntop(family, bytes.data(), text.data(), text.size()) == nullptr ? "" : text.data();
}

// Who it is for, and by which names.
void ReadNames(X509* certificate, CertificateFacts& facts) {
  const Part<GENERAL_NAMES> names(static_cast<GENERAL_NAMES*>(
      X509_get_ext_d2i(certificate, NID_subject_alt_name, nullptr, nullptr)));
  for (int i = 0; names != nullptr && i < sk_GENERAL_NAME_num(names.get()); ++i) {
    const GENERAL_NAME* name = sk_GENERAL_NAME_value(names.get(), i);
    if (name->type == GEN_URI && !facts.subject) {
      facts.subject = ParseUri(BytesOf(name->d.uniformResourceIdentifier));
    } else if (name->type == GEN_DNS) {
      facts.names.push_back(BytesOf(name->d.dNSName));
    } else if (name->type == GEN_IPADD) {
      facts.names.push_back(AddressOf(BytesOf(name->d.iPAddress)));
    }
  }
  std::erase(facts.names, "");
}

// All certificates of the text.
std::vector<Part<X509>> ReadAll(const std::string& pem) {
  std::vector<Part<X509>> all;
  const Part<BIO> bio = ReadableBio(pem);
  while (X509* next = PEM_read_bio_X509(bio.get(), nullptr, nullptr, nullptr)) {
    all.emplace_back(next);
  }
  ERR_clear_error();
  return all;
}

// Whether a certificate of ca.pem signed it, through those between, leaving time aside.
bool IsSigned(const TlsIdentity& identity) {
  const Part<X509_STORE> store(X509_STORE_new());
  for (const auto& trusted : ReadAll(identity.ca_pem))
    X509_STORE_add_cert(store.get(), trusted.get());
  X509_STORE_set_flags(store.get(), X509_V_FLAG_NO_CHECK_TIME);
  const std::vector<Part<X509>> chain = ReadAll(identity.cert_pem);
  if (chain.empty()) return false;
  STACK_OF(X509)* between = sk_X509_new_null();
  for (size_t i = 1; i < chain.size(); ++i) sk_X509_push(between, chain[i].get());
  const Part<X509_STORE_CTX> context(X509_STORE_CTX_new());
  const bool valid =
      X509_STORE_CTX_init(context.get(), store.get(), chain[0].get(), between) == 1 &&
      X509_verify_cert(context.get()) == 1;
  sk_X509_free(between);
  ERR_clear_error();
  return valid;
}

std::string NamesOf(const std::vector<Role>& roles) {
  std::string names;
  for (const Role role : roles) {
    names += fmt::format("{}{}", names.empty() ? "" : " or ", RoleName(role));
  }
  return names;
}

}  // namespace

Result<CertificateFacts> ReadCertificate(const std::string& pem) {
  const Part<X509> certificate = ReadX509(pem);
  if (certificate == nullptr) return Fail(InvalidArgument("this is no certificate in PEM"));
  CertificateFacts facts;
  ReadNames(certificate.get(), facts);
  facts.not_before_s = UnixSeconds(X509_get0_notBefore(certificate.get()));
  facts.not_after_s = UnixSeconds(X509_get0_notAfter(certificate.get()));
  facts.sha256 = FingerprintOf(certificate.get());
  ERR_clear_error();
  return facts;
}

std::string FormatMoment(int64_t unix_s) {
  return fmt::format("{:%Y-%m-%d %H:%M} UTC", fmt::gmtime(static_cast<std::time_t>(unix_s)));
}

Result<Subject> CheckIdentity(const TlsIdentity& identity, const std::vector<Role>& roles,
                              int64_t now_s) {
  MW_ASSIGN_OR_RETURN(const CertificateFacts facts, ReadCertificate(identity.cert_pem));
  if (!facts.subject) {
    return Fail(
        FailedPrecondition("the certificate names no role: it has no alternative name such as "
                           "URI:meshwright://worker/w0; make one with `meshwright cert issue`"));
  }
  const Subject& subject = *facts.subject;
  if (std::find(roles.begin(), roles.end(), subject.role) == roles.end()) {
    return Fail(FailedPrecondition(fmt::format(
        "the certificate is that of {}, and one with the role {} is needed; make it with "
        "`meshwright cert issue {} NAME`",
        Describe(subject), NamesOf(roles), RoleName(roles.front()))));
  }
  if (now_s > facts.not_after_s) {
    return Fail(FailedPrecondition(fmt::format(
        "the certificate of {} ended on {}; make a new one with `meshwright cert issue "
        "{} {}`, or let a worker join anew with --join",
        Describe(subject), FormatMoment(facts.not_after_s), RoleName(subject.role), subject.name)));
  }
  if (now_s < facts.not_before_s) {
    return Fail(FailedPrecondition(
        fmt::format("the certificate of {} begins on {}; is the clock of this machine right?",
                    Describe(subject), FormatMoment(facts.not_before_s))));
  }
  if (!IsSigned(identity)) {
    return Fail(FailedPrecondition(
        fmt::format("the certificate of {} was not signed by the authority in ca.pem beside it; "
                    "copy all three files from one `meshwright cert issue`",
                    Describe(subject))));
  }
  return subject;
}

}  // namespace meshwright::security
