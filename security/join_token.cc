#include "security/join_token.h"

#include <fmt/format.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/rand.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <string_view>

#include "base/text.h"
#include "security/certificate.h"
#include "security/subject.h"

namespace meshwright::security {
namespace {

constexpr std::string_view kPrefix = "mwjoin1.";
constexpr char kVersion = 1;
constexpr int kOnce = 1;
constexpr int kReplace = 2;
constexpr size_t kNonceBytes = 8;
constexpr size_t kDigestBytes = 32;
constexpr size_t kFixedBytes = 2 + 8 + kNonceBytes + kDigestBytes;
constexpr size_t kCodeBytes = 16;
constexpr size_t kMostText = 512;

std::string Base64Url(const std::string& bytes) {
  std::string text(4 * ((bytes.size() + 2) / 3) + 1, '\0');
  const int count = EVP_EncodeBlock(reinterpret_cast<unsigned char*>(text.data()),
                                    reinterpret_cast<const unsigned char*>(bytes.data()),
                                    static_cast<int>(bytes.size()));
  text.erase(static_cast<size_t>(count));
  std::replace(text.begin(), text.end(), '+', '-');
  std::replace(text.begin(), text.end(), '/', '_');
  while (!text.empty() && text.back() == '=') text.pop_back();
  return text;
}

// Empty: it is none.
std::string FromBase64Url(std::string text) {
  for (const char c : text) {
    if (std::isalnum(static_cast<unsigned char>(c)) == 0 && c != '-' && c != '_') return "";
  }
  std::replace(text.begin(), text.end(), '-', '+');
  std::replace(text.begin(), text.end(), '_', '/');
  size_t padding = 0;
  while (text.size() % 4 != 0) {
    text += '=';
    ++padding;
  }
  std::string bytes(3 * (text.size() / 4), '\0');
  const int count = EVP_DecodeBlock(reinterpret_cast<unsigned char*>(bytes.data()),
                                    reinterpret_cast<const unsigned char*>(text.data()),
                                    static_cast<int>(text.size()));
  if (count < 0 || padding > 2) return "";
  bytes.erase(static_cast<size_t>(count) - padding);
  return bytes;
}

std::string ToHex(std::string_view bytes) {
  std::string hex;
  for (const char c : bytes) hex += fmt::format("{:02x}", static_cast<unsigned char>(c));
  return hex;
}

// Empty: these are no hex digits of so many bytes.
std::string FromHex(const std::string& hex, size_t bytes) {
  const auto digit = [](char c) -> int {
    if (c >= '0' && c <= '9') return c - '0';
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
  };
  if (hex.size() != 2 * bytes) return "";
  std::string out;
  for (size_t i = 0; i < hex.size(); i += 2) {
    const int high = digit(hex[i]);
    const int low = digit(hex[i + 1]);
    if (high < 0 || low < 0) return "";
    out += static_cast<char>(high * 16 + low);
  }
  return out;
}

std::string CodeOf(const std::string& secret, const std::string& payload) {
  std::array<unsigned char, EVP_MAX_MD_SIZE> mac{};
  unsigned int bytes = 0;
  HMAC(EVP_sha256(), secret.data(), static_cast<int>(secret.size()),
       reinterpret_cast<const unsigned char*>(payload.data()), payload.size(), mac.data(), &bytes);
  return {reinterpret_cast<const char*>(mac.data()), kCodeBytes};
}

Result<std::string> RandomBytes(size_t count) {
  std::string bytes(count, '\0');
  if (RAND_bytes(reinterpret_cast<unsigned char*>(bytes.data()), static_cast<int>(count)) != 1) {
    return Fail(Internal("the system gives no random bytes"));
  }
  return bytes;
}

// The payload and the code behind it. Errors: kInvalidArgument.
Result<std::string> BytesOf(const std::string& text) {
  const std::string_view trimmed = Trim(text);
  std::string bytes;
  if (trimmed.starts_with(kPrefix) && trimmed.size() <= kMostText) {
    bytes = FromBase64Url(std::string(trimmed.substr(kPrefix.size())));
  }
  if (bytes.size() >= kFixedBytes + kCodeBytes && bytes[0] == kVersion) return bytes;
  return Fail(InvalidArgument(
      "this is no whole join token; `meshwright cert join-token` prints one on the host of the "
      "controller, and it begins with mwjoin1."));
}

}  // namespace

Result<std::string> MintJoinToken(const std::string& secret, JoinToken token) {
  if (!token.name.empty()) MW_TRY(CheckName(token.name));
  const std::string digest = FromHex(token.authority_sha256, kDigestBytes);
  if (digest.empty()) return Fail(InvalidArgument("a join token needs the authority's SHA-256"));
  std::string nonce = FromHex(token.nonce, kNonceBytes);
  if (nonce.empty()) {
    MW_ASSIGN_OR_RETURN(nonce, RandomBytes(kNonceBytes));
  }
  std::string payload(1, kVersion);
  payload += static_cast<char>((token.once ? kOnce : 0) | (token.replace ? kReplace : 0));
  for (int shift = 56; shift >= 0; shift -= 8) {
    payload += static_cast<char>((token.expires_s >> shift) & 0xFF);
  }
  payload += nonce + digest + token.name;
  return std::string(kPrefix) + Base64Url(payload + CodeOf(secret, payload));
}

Result<JoinToken> ReadJoinToken(const std::string& text) {
  MW_ASSIGN_OR_RETURN(const std::string bytes, BytesOf(text));
  JoinToken token;
  token.once = (bytes[1] & kOnce) != 0;
  token.replace = (bytes[1] & kReplace) != 0;
  for (size_t i = 2; i < 10; ++i) {
    token.expires_s = (token.expires_s << 8) | static_cast<unsigned char>(bytes[i]);
  }
  token.nonce = ToHex(std::string_view(bytes).substr(10, kNonceBytes));
  token.authority_sha256 = ToHex(std::string_view(bytes).substr(10 + kNonceBytes, kDigestBytes));
  token.name = bytes.substr(kFixedBytes, bytes.size() - kFixedBytes - kCodeBytes);
  if (!token.name.empty()) MW_TRY(CheckName(token.name));
  return token;
}

Result<JoinToken> CheckJoinToken(const std::string& secret, const std::string& text,
                                 int64_t now_s) {
  const Result<std::string> bytes = BytesOf(text);
  if (!bytes.has_value()) return Fail(Unauthenticated(bytes.error().message()));
  const std::string payload = bytes->substr(0, bytes->size() - kCodeBytes);
  const std::string code = CodeOf(secret, payload);
  if (CRYPTO_memcmp(code.data(), bytes->data() + payload.size(), kCodeBytes) != 0) {
    return Fail(Unauthenticated(
        "the join token was not made by this cluster's authority; print one with `meshwright cert "
        "join-token` on the host of the controller"));
  }
  MW_ASSIGN_OR_RETURN(JoinToken token, ReadJoinToken(text));
  if (now_s <= token.expires_s) return token;
  return Fail(Unauthenticated(
      fmt::format("the join token ended on {}; print a new one with `meshwright cert join-token`",
                  FormatMoment(token.expires_s))));
}

}  // namespace meshwright::security
