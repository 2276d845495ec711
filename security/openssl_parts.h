// Owners of OpenSSL's objects, and what its error queue says. For .cc files of this room.
//
// Thread rule: as OpenSSL's objects: one thread at a time. The error queue is of the thread.
#pragma once

#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>
#include <openssl/x509v3.h>

#include <memory>
#include <string>

#include "base/status.h"

namespace meshwright::security {

struct FreePart {
  void operator()(BIO* part) const { BIO_free_all(part); }
  void operator()(X509* part) const { X509_free(part); }
  void operator()(X509_REQ* part) const { X509_REQ_free(part); }
  void operator()(X509_STORE* part) const { X509_STORE_free(part); }
  void operator()(X509_STORE_CTX* part) const { X509_STORE_CTX_free(part); }
  void operator()(X509_EXTENSION* part) const { X509_EXTENSION_free(part); }
  void operator()(EVP_PKEY* part) const { EVP_PKEY_free(part); }
  void operator()(SSL_CTX* part) const { SSL_CTX_free(part); }
  void operator()(SSL* part) const { SSL_free(part); }
  void operator()(GENERAL_NAMES* part) const { GENERAL_NAMES_free(part); }
};
template <typename T>
using Part = std::unique_ptr<T, FreePart>;

// "what: the first error of the queue", and the queue is empty then.
Status OpenSslError(const std::string& what);

Part<BIO> ReadableBio(const std::string& text);
// What has been written to a memory BIO.
std::string TextOf(BIO* bio);

// Null where there is none.
Part<X509> ReadX509(const std::string& pem);
Part<EVP_PKEY> ReadKey(const std::string& pem);
std::string WriteX509(X509* certificate);
// 64 hex digits: what `openssl x509 -fingerprint -sha256` prints, without colons.
std::string FingerprintOf(X509* certificate);

}  // namespace meshwright::security
