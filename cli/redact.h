// Text for people outside: without what opens a door.
//
//   what is known      the tokens and keys of this user, wherever they stand
//   what is a secret   private keys in PEM, join tokens, "Authorization: Bearer ...", the user part
//     by its form      of URLs, tokens of well-known services (hf_..., ghp_..., AKIA...)
//   what is called     password = ..., "api_key": "...", MESHWRIGHT_TOKEN=...: by the last part of
//     so               the name before '=' or ':', so that token_file and tokens stay
// It leaves out too much rather than too little: "(left out)" stands there instead.
//
// Thread rule: values; Redact is pure.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace meshwright::cli {

struct Redacted {
  std::string text;
  size_t left_out = 0;  // places
};

class Redactor {
 public:
  // `known`: secrets as they are; those of less than kLeastBytes are words of any text, and not
  // looked for.
  static constexpr size_t kLeastBytes = 6;
  explicit Redactor(std::vector<std::string> known);

  Redacted Redact(std::string_view text) const;

 private:
  std::vector<std::string> known_;  // the longest first: one may be a part of another
};

}  // namespace meshwright::cli
