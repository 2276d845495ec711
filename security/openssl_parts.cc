#include "security/openssl_parts.h"

#include <fmt/format.h>

#include <array>

namespace meshwright::security {
namespace {

// A password would be asked for at the terminal, which a daemon has not.
int RefusePassword(char* /*buffer*/, int /*bytes*/, int /*writing*/, void* /*user*/) { return -1; }

}  // namespace

Status OpenSslError(const std::string& what) {
  const unsigned long error = ERR_get_error();
  ERR_clear_error();
  std::array<char, 256> text{};
  ERR_error_string_n(error, text.data(), text.size());
  return Internal(fmt::format("{}: {}", what, error == 0 ? "no reason is known" : text.data()));
}

Part<BIO> ReadableBio(const std::string& text) {
  return Part<BIO>(BIO_new_mem_buf(text.data(), static_cast<int>(text.size())));
}

std::string TextOf(BIO* bio) {
  char* data = nullptr;
  const long bytes = BIO_get_mem_data(bio, &data);
  return bytes > 0 ? std::string(data, static_cast<size_t>(bytes)) : std::string();
}

Part<X509> ReadX509(const std::string& pem) {
  Part<X509> read(PEM_read_bio_X509(ReadableBio(pem).get(), nullptr, RefusePassword, nullptr));
  ERR_clear_error();
  return read;
}

Part<EVP_PKEY> ReadKey(const std::string& pem) {
  Part<EVP_PKEY> read(
      PEM_read_bio_PrivateKey(ReadableBio(pem).get(), nullptr, RefusePassword, nullptr));
  ERR_clear_error();
  return read;
}

std::string WriteX509(X509* certificate) {
  const Part<BIO> bio(BIO_new(BIO_s_mem()));
  PEM_write_bio_X509(bio.get(), certificate);
  return TextOf(bio.get());
}

std::string FingerprintOf(X509* certificate) {
  std::array<unsigned char, EVP_MAX_MD_SIZE> digest{};
  unsigned int bytes = 0;
  X509_digest(certificate, EVP_sha256(), digest.data(), &bytes);
  std::string hex;
  for (unsigned int i = 0; i < bytes; ++i) hex += fmt::format("{:02x}", digest[i]);
  return hex;
}

}  // namespace meshwright::security
