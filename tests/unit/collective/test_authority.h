// An authority of certificates for tests, and folders of identities that it signs.
//
// Made by OpenSSL alone, so that the data plane is tested against certificates of any authority and
// not against our own.
#pragma once

#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>

#include <memory>
#include <string>
#include <vector>

#include "base/check.h"
#include "base/file.h"

namespace meshwright::collective {

class TestAuthority {
 public:
  TestAuthority() : key_(NewKey()), certificate_(Sign("test authority", key_.get(), {}, true, 0)) {}

  // A folder of worker `name`.
  std::string WorkerFolder(const std::string& name) const {
    return Folder(name, "meshwright://worker/" + name);
  }
  // With this URI, or none; `ended`: its time is over.
  std::string Folder(const std::string& name, const std::string& uri, bool ended = false) const {
    const std::string folder = dir_.File(name + std::to_string(++folders_));
    Write(folder, uri, ended);
    return folder;
  }
  // Into a folder that is there already: another certificate, with another key.
  void Write(const std::string& folder, const std::string& uri, bool ended = false) const {
    const KeyPtr key = NewKey();
    const CertificatePtr certificate = Sign("an identity", key.get(), uri, false, ended ? -2 : 0);
    MW_CHECK(MakeDirs(folder).ok()) << folder;
    Put(folder + "/ca.pem", Pem(certificate_.get()), 0644);
    Put(folder + "/cert.pem", Pem(certificate.get()), 0644);
    Put(folder + "/key.pem", Pem(key.get()), 0600);
  }
  std::string ca_pem() const { return Pem(certificate_.get()); }

 private:
  struct Free {
    void operator()(EVP_PKEY* key) const { EVP_PKEY_free(key); }
    void operator()(X509* certificate) const { X509_free(certificate); }
    void operator()(BIO* bio) const { BIO_free_all(bio); }
  };
  using KeyPtr = std::unique_ptr<EVP_PKEY, Free>;
  using CertificatePtr = std::unique_ptr<X509, Free>;
  using BioPtr = std::unique_ptr<BIO, Free>;

  static KeyPtr NewKey() { return KeyPtr(EVP_EC_gen("P-256")); }

  static void AddExtension(X509* to, int nid, const std::string& value) {
    X509_EXTENSION* const made = X509V3_EXT_conf_nid(nullptr, nullptr, nid, value.c_str());
    MW_CHECK(made != nullptr) << value;
    X509_add_ext(to, made, -1);
    X509_EXTENSION_free(made);
  }

  // days: from now until its end, but for a year that it has.
  CertificatePtr Sign(const std::string& name, EVP_PKEY* key, const std::string& uri,
                      bool of_authority, int days) const {
    static long serial = 1;
    CertificatePtr made(X509_new());
    X509_set_version(made.get(), 2);
    ASN1_INTEGER_set(X509_get_serialNumber(made.get()), ++serial);
    X509_gmtime_adj(X509_getm_notBefore(made.get()), -3 * 86'400L);
    X509_gmtime_adj(X509_getm_notAfter(made.get()), days < 0 ? days * 86'400L : 365 * 86'400L);
    X509_NAME* const subject = X509_get_subject_name(made.get());
    X509_NAME_add_entry_by_txt(subject, "CN", MBSTRING_ASC,
                               reinterpret_cast<const unsigned char*>(name.c_str()), -1, -1, 0);
    X509_set_issuer_name(made.get(),
                         of_authority ? subject : X509_get_subject_name(certificate_.get()));
    X509_set_pubkey(made.get(), key);
    if (of_authority) AddExtension(made.get(), NID_basic_constraints, "critical,CA:TRUE");
    if (!of_authority) AddExtension(made.get(), NID_ext_key_usage, "clientAuth");
    if (!uri.empty()) AddExtension(made.get(), NID_subject_alt_name, "URI:" + uri);
    MW_CHECK(X509_sign(made.get(), key_.get(), EVP_sha256()) > 0);
    return made;
  }

  template <typename T>
  static std::string Pem(T* what) {
    const BioPtr bio(BIO_new(BIO_s_mem()));
    if constexpr (std::is_same_v<T, X509>) {
      PEM_write_bio_X509(bio.get(), what);
    } else {
      PEM_write_bio_PrivateKey(bio.get(), what, nullptr, nullptr, 0, nullptr, nullptr);
    }
    char* bytes = nullptr;
    const long count = BIO_get_mem_data(bio.get(), &bytes);
    return {bytes, static_cast<size_t>(count)};
  }

  static void Put(const std::string& path, const std::string& text, unsigned mode) {
    MW_CHECK(WriteFileAtomic(path, text, mode).ok()) << path;
  }

  const TempDir dir_ = TempDir::Make("mw-tls").value();
  const KeyPtr key_;
  const CertificatePtr certificate_;
  mutable int folders_ = 0;
};

}  // namespace meshwright::collective
