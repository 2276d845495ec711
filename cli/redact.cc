#include "cli/redact.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <optional>
#include <utility>

#include "base/check.h"

namespace meshwright::cli {
namespace {

constexpr std::string_view kInstead = "(left out)";

bool IsWord(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '-';
}
// What tokens are made of: base64 in both alphabets, with dots between parts.
bool IsTokenChar(char c) { return IsWord(c) || c == '.' || c == '+' || c == '/' || c == '='; }

// The bytes of `text` from `at` on that are so.
template <typename Predicate>
size_t SpanOf(std::string_view text, size_t at, Predicate is) {
  size_t end = at;
  while (end < text.size() && is(text[end])) ++end;
  return end - at;
}

// A part of the text to leave out; behind `keep` bytes that stay.
struct Cut {
  size_t keep = 0;
  size_t bytes = 0;
};

// "-----BEGIN EC PRIVATE KEY----- ... -----END EC PRIVATE KEY-----"; one without an end is left out
// to the end of the text. JSON has it on one line.
std::optional<Cut> PrivateKeyAt(std::string_view rest) {
  constexpr std::string_view kBegin = "-----BEGIN ";
  constexpr std::string_view kKey = "PRIVATE KEY-----";
  constexpr std::string_view kEnd = "-----END ";
  if (!rest.starts_with(kBegin)) return std::nullopt;
  const size_t key = rest.substr(0, 80).find(kKey);
  if (key == std::string_view::npos) return std::nullopt;
  const size_t end = rest.find(kEnd, key);
  if (end == std::string_view::npos) return Cut{0, rest.size()};
  const size_t last = rest.find(kKey, end);
  return Cut{0, last == std::string_view::npos ? rest.size() : last + kKey.size()};
}

std::optional<Cut> TokenAt(std::string_view rest) {
  struct Form {
    std::string_view begin;
    size_t least;  // bytes behind it
  };
  static constexpr std::array<Form, 10> kForms = {{{"mwjoin1.", 8},
                                                   {"hf_", 20},
                                                   {"ghp_", 20},
                                                   {"gho_", 20},
                                                   {"github_pat_", 20},
                                                   {"glpat-", 16},
                                                   {"xoxb-", 16},
                                                   {"sk-", 20},
                                                   {"AKIA", 16},
                                                   {"eyJ", 40}}};
  for (const Form& form : kForms) {
    if (!rest.starts_with(form.begin)) continue;
    const size_t bytes = SpanOf(rest, form.begin.size(), IsTokenChar);
    if (bytes >= form.least) return Cut{0, form.begin.size() + bytes};
  }
  return std::nullopt;
}

// "Bearer abc", "Basic abc".
std::optional<Cut> AuthorizationAt(std::string_view rest) {
  for (const std::string_view scheme : {"Bearer ", "bearer ", "Basic "}) {
    if (!rest.starts_with(scheme)) continue;
    const size_t bytes = SpanOf(rest, scheme.size(), IsTokenChar);
    // "Bearer TOKEN" of a message that says what to send is no token.
    if (bytes >= Redactor::kLeastBytes) return Cut{scheme.size(), bytes};
  }
  return std::nullopt;
}

// "://ann:pw@" of a URL.
std::optional<Cut> UserAt(std::string_view rest) {
  constexpr std::string_view kBegin = "://";
  if (!rest.starts_with(kBegin)) return std::nullopt;
  const size_t bytes = SpanOf(rest, kBegin.size(), [](char c) {
    return c != '/' && c != '@' && c != '"' && c != '\'' &&
           std::isspace(static_cast<unsigned char>(c)) == 0;
  });
  const size_t end = kBegin.size() + bytes;
  if (bytes == 0 || end >= rest.size() || rest[end] != '@') return std::nullopt;
  return Cut{kBegin.size(), bytes};
}

// The parts of a name in lower case: "apiKey" and "API_KEY" are "api" and "key".
std::vector<std::string> NameParts(std::string_view name) {
  std::vector<std::string> parts(1);
  bool lower = false;  // the byte before
  for (const char c : name) {
    const bool upper = std::isupper(static_cast<unsigned char>(c)) != 0;
    const bool between = c == '_' || c == '-';
    if ((between || (upper && lower)) && !parts.back().empty()) parts.emplace_back();
    lower = !upper && !between;
    if (!between) parts.back() += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  }
  if (parts.back().empty() && parts.size() > 1) parts.pop_back();
  return parts;
}

enum class SecretKind { kNothing, kToken, kSecret };

SecretKind SecretKindOf(std::string_view name) {
  const std::vector<std::string> parts = NameParts(name);
  const std::string& last = parts.back();
  for (const char* word : {"password", "passwd", "passphrase", "secret", "secrets", "credential",
                           "credentials", "apikey"}) {
    if (last == word) return SecretKind::kSecret;
  }
  if (last == "join" && parts.size() > 1 && parts.front() == "meshwright")
    return SecretKind::kSecret;
  if (last == "token") return SecretKind::kToken;
  if (last != "key" || parts.size() < 2) return SecretKind::kNothing;
  const std::string& before = parts[parts.size() - 2];
  for (const char* word : {"api", "access", "secret", "private", "account"}) {
    if (before == word) return SecretKind::kSecret;
  }
  return SecretKind::kNothing;
}

bool IsQuote(char c) { return c == '"' || c == '\''; }

// What may be a token: not a mark such as <|endoftext|>, a number or a short word.
bool MayBeToken(std::string_view value) {
  const bool plain = std::all_of(value.begin(), value.end(), IsTokenChar);
  const bool number = std::all_of(value.begin(), value.end(), [](char c) {
    return std::isdigit(static_cast<unsigned char>(c)) != 0 || c == '.';
  });
  return plain && !number && value.size() >= Redactor::kLeastBytes;
}

// "password = 'x'", "\"api_key\": \"x\"" from the first byte of the name on.
std::optional<Cut> NamedAt(std::string_view rest) {
  const size_t name = SpanOf(rest, 0, IsWord);
  if (name == 0) return std::nullopt;
  const SecretKind kind = SecretKindOf(rest.substr(0, name));
  if (kind == SecretKind::kNothing) return std::nullopt;
  // Quotes may be escaped: JSON in JSON.
  const auto skip = [&](size_t at) {
    return at + SpanOf(rest, at, [](char c) { return c == ' ' || c == '\\' || IsQuote(c); });
  };
  size_t at = skip(name);
  if (at >= rest.size() || (rest[at] != '=' && rest[at] != ':')) return std::nullopt;
  const size_t value = skip(at + 1);
  const bool quoted = value > at + 1 && IsQuote(rest[value - 1]);
  const size_t bytes = SpanOf(rest, value, [&](char c) {
    if (c == '\n' || c == '\\') return false;
    if (quoted) return c != rest[value - 1];
    return std::isspace(static_cast<unsigned char>(c)) == 0 &&
           std::string_view(",;&)}]\"'").find(c) == std::string_view::npos;
  });
  if (bytes == 0) return std::nullopt;
  if (kind == SecretKind::kToken && !MayBeToken(rest.substr(value, bytes))) return std::nullopt;
  return Cut{value, bytes};
}

std::optional<Cut> FindAt(std::string_view text, size_t at) {
  const std::string_view rest = text.substr(at);
  if (auto found = PrivateKeyAt(rest)) return found;
  if (auto found = UserAt(rest)) return found;
  if (at > 0 && IsWord(text[at - 1])) return std::nullopt;  // within a name
  if (auto found = TokenAt(rest)) return found;
  if (auto found = AuthorizationAt(rest)) return found;
  return NamedAt(rest);
}

}  // namespace

Redactor::Redactor(std::vector<std::string> known) : known_(std::move(known)) {
  std::erase_if(known_, [](const std::string& each) { return each.size() < kLeastBytes; });
  std::sort(known_.begin(), known_.end(), [](const std::string& a, const std::string& b) {
    return a.size() != b.size() ? a.size() > b.size() : a < b;
  });
  known_.erase(std::unique(known_.begin(), known_.end()), known_.end());
}

Redacted Redactor::Redact(std::string_view text) const {
  Redacted result;
  result.text.reserve(text.size());
  const auto known_at = [&](std::string_view rest) -> std::optional<Cut> {
    for (const std::string& each : known_) {
      if (rest.starts_with(each)) return Cut{0, each.size()};
    }
    return std::nullopt;
  };
  for (size_t at = 0; at < text.size();) {
    std::optional<Cut> found = known_at(text.substr(at));
    // All others begin with a word, with dashes or with a colon.
    if (!found && (IsWord(text[at]) || text[at] == ':')) found = FindAt(text, at);
    if (!found) {
      result.text += text[at++];
      continue;
    }
    MW_CHECK(found->bytes > 0 && at + found->keep + found->bytes <= text.size())
        << "a find beyond the text";
    result.text += text.substr(at, found->keep);
    result.text += kInstead;
    ++result.left_out;
    at += found->keep + found->bytes;
  }
  return result;
}

}  // namespace meshwright::cli
