#include "base/sha256.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <openssl/evp.h>

#include <array>
#include <cerrno>
#include <vector>

#include "base/check.h"
#include "base/os_error.h"
#include "base/unique_fd.h"

namespace meshwright {

struct Sha256::State {
  EVP_MD_CTX* context = EVP_MD_CTX_new();
  ~State() { EVP_MD_CTX_free(context); }
};

Sha256::Sha256() : state_(std::make_unique<State>()) {
  MW_CHECK(state_->context != nullptr && EVP_DigestInit_ex(state_->context, EVP_sha256(), nullptr))
      << "OpenSSL offers no SHA-256";
}

Sha256::~Sha256() = default;

void Sha256::Update(std::string_view bytes) { Update(bytes.data(), bytes.size()); }

void Sha256::Update(const void* data, size_t bytes) {
  MW_CHECK(state_ != nullptr) << "Update after HexDigest";
  MW_CHECK(EVP_DigestUpdate(state_->context, data, bytes) == 1);
}

std::string Sha256::HexDigest() {
  MW_CHECK(state_ != nullptr) << "HexDigest called twice";
  std::array<unsigned char, EVP_MAX_MD_SIZE> digest{};
  unsigned int length = 0;
  MW_CHECK(EVP_DigestFinal_ex(state_->context, digest.data(), &length) == 1 && length == 32);
  state_.reset();
  std::string hex;
  hex.reserve(64);
  for (unsigned int i = 0; i < length; ++i) hex += fmt::format("{:02x}", digest[i]);
  return hex;
}

std::string Sha256Hex(std::string_view bytes) {
  Sha256 hash;
  hash.Update(bytes);
  return hash.HexDigest();
}

Result<std::string> Sha256File(const std::string& path) {
  const UniqueFd file(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file.valid()) return Fail(OsError(errno, fmt::format("hash {}", path)));
  Sha256 hash;
  std::vector<char> block(1 << 20);
  for (;;) {
    const ssize_t got = read(file.get(), block.data(), block.size());
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return Fail(OsError(errno, fmt::format("hash {}", path)));
    if (got == 0) return hash.HexDigest();
    hash.Update(block.data(), static_cast<size_t>(got));
  }
}

}  // namespace meshwright
