// From Oniguruma's language (Ruby's syntax) to PCRE2's.
//
//   pattern := ( escape | set | group | other )*
//   set     := '[' '^'? ( escape | set | '[:' name ':]' | other )* ']'
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>

#include "tokenizer/regex.h"
#include "tokenizer/unicode_tables.h"

namespace meshwright::tokenizer {
namespace {

constexpr std::string_view kSpaces =
    R"(\t\n\x0b\f\r \x{85}\x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000})";

// The inside of a set: `base` and characters of later versions of Unicode.
std::string WithNewer(std::string_view base, std::span<const CodeRange> newer) {
  std::string out(base);
  for (const CodeRange& range : newer) {
    out += fmt::format(R"(\x{{{:x}}})", static_cast<uint32_t>(range.first));
    if (range.last == range.first) continue;
    out += fmt::format(R"(-\x{{{:x}}})", static_cast<uint32_t>(range.last));
  }
  return out;
}

struct Property {
  std::string_view name;
  const std::span<const CodeRange>* newer;
};

// The inside of a set that is the property; none where PCRE2's own is right, or its own affair.
std::optional<std::string> InsideOfProperty(std::string_view name) {
  static const std::array<Property, 21> properties = {{
      {"L", &kNewerL},      {"Lu", &kNewerLu},  {"Ll", &kNewerLl},    {"Lm", &kNewerLm},
      {"Lo", &kNewerLo},    {"M", &kNewerM},    {"Mn", &kNewerMn},    {"Mc", &kNewerMc},
      {"N", &kNewerN},      {"Nd", &kNewerNd},  {"No", &kNewerNo},    {"P", &kNewerP},
      {"Po", &kNewerPo},    {"S", &kNewerS},    {"So", &kNewerSo},    {"Sm", &kNewerSm},
      {"Letter", &kNewerL}, {"Mark", &kNewerM}, {"Number", &kNewerN}, {"Punctuation", &kNewerP},
      {"Symbol", &kNewerS},
  }};
  for (const Property& property : properties) {
    if (property.name != name) continue;
    const std::string_view category = name.size() > 2 ? name.substr(0, 1) : name;
    return WithNewer(fmt::format(R"(\p{{{}}})", category), *property.newer);
  }
  if (name == "Space") return std::string(kSpaces);
  if (name == "Word") return WithNewer(R"(\p{Alphabetic}\p{M}\p{Nd}\p{Pc})", kNewerWord);
  if (name == "Digit") return WithNewer(R"(\p{Nd})", kNewerNd);
  if (name == "Alpha") return std::string(R"(\p{Alphabetic})");
  if (name == "Alnum") return std::string(R"(\p{Alphabetic}\p{Nd})");
  if (name == "Upper") return std::string(R"(\p{Uppercase})");
  if (name == "Lower") return std::string(R"(\p{Lowercase})");
  if (name == "Cntrl") return std::string(R"(\p{Cc})");
  return std::nullopt;
}

// A class of characters: the inside of a set, and whether all others are meant.
struct ClassEscape {
  std::string inside;
  bool complement = false;
};

class Rewriter {
 public:
  explicit Rewriter(std::string_view pattern) : pattern_(pattern) {}

  Result<std::string> Run() {
    std::string out;
    while (at_ < pattern_.size()) {
      const char c = pattern_[at_];
      if (c == '\\') {
        if (const auto escape = TakeClassEscape()) {
          out += fmt::format("[{}{}]", escape->complement ? "^" : "", escape->inside);
        } else {
          TakeEscape(out);
        }
      } else if (c == '[') {
        MW_TRY(TakeSet(out));
      } else if (Here("(?")) {
        TakeGroup(out);
      } else {
        out += c;
        ++at_;
      }
    }
    return out;
  }

 private:
  bool Here(std::string_view text) const { return pattern_.substr(at_).starts_with(text); }

  Status Refuse(std::string_view what) const {
    return InvalidArgument(fmt::format(
        "the pattern '{}' has {} at byte {}, which has no equal in PCRE2", pattern_, what, at_));
  }

  // A class such as \s or \p{L}, which is taken; none where something else stands here.
  std::optional<ClassEscape> TakeClassEscape() {
    if (at_ + 1 >= pattern_.size()) return std::nullopt;
    const char c = pattern_[at_ + 1];
    const std::string_view letters = "sSwWdDhH";
    if (letters.find(c) != letters.npos) {
      at_ += 2;
      const bool upper = c < 'a';
      if (c == 's' || c == 'S') return ClassEscape{*InsideOfProperty("Space"), upper};
      if (c == 'w' || c == 'W') return ClassEscape{*InsideOfProperty("Word"), upper};
      if (c == 'd' || c == 'D') return ClassEscape{*InsideOfProperty("Digit"), upper};
      return ClassEscape{"0-9a-fA-F", upper};
    }
    if ((c != 'p' && c != 'P') || at_ + 2 >= pattern_.size()) return std::nullopt;
    size_t end = at_ + 3;
    std::string_view name = pattern_.substr(at_ + 2, 1);
    if (name == "{") {
      const size_t close = pattern_.find('}', at_);
      if (close == pattern_.npos) return std::nullopt;
      name = pattern_.substr(at_ + 3, close - at_ - 3);
      end = close + 1;
    }
    bool complement = c == 'P';
    if (name.starts_with("^")) {
      complement = !complement;
      name.remove_prefix(1);
    }
    at_ = end;
    if (auto inside = InsideOfProperty(name)) return ClassEscape{std::move(*inside), complement};
    return ClassEscape{fmt::format(R"(\p{{{}}})", name), complement};
  }

  // Any other escape: as it is, but for \uHHHH.
  void TakeEscape(std::string& out) {
    if (Here("\\u") && at_ + 6 <= pattern_.size()) {
      out += fmt::format("\\x{{{}}}", pattern_.substr(at_ + 2, 4));
      at_ += 6;
      return;
    }
    out += pattern_.substr(at_, 2);
    at_ += 2;
  }

  // "(?" and the flags behind it: what Ruby calls multi-line is for PCRE2 a dot that takes all.
  void TakeGroup(std::string& out) {
    out += "(?";
    at_ += 2;
    size_t end = at_;
    while (end < pattern_.size() &&
           std::string_view("imx-").find(pattern_[end]) != std::string::npos)
      ++end;
    const bool flags = end < pattern_.size() && (pattern_[end] == ':' || pattern_[end] == ')');
    if (!flags) return;
    for (; at_ < end; ++at_) out += pattern_[at_] == 'm' ? 's' : pattern_[at_];
  }

  Status TakeSet(std::string& out) {
    out += '[';
    ++at_;
    if (Here("^")) {
      out += '^';
      ++at_;
    }
    MW_TRY(TakeInside(out, 0));
    out += ']';
    return OkStatus();
  }

  // What stands between the brackets, and the closing one. Sets within are unions.
  Status TakeInside(std::string& out, int depth) {
    if (depth > 16) return Refuse("sets within sets, too deep,");
    for (bool first = true;; first = false) {
      if (at_ >= pattern_.size()) return Refuse("a set without an end");
      if (Here("]") && !first) break;
      MW_TRY(TakeMember(out, depth));
    }
    ++at_;
    return OkStatus();
  }

  Status TakeMember(std::string& out, int depth) {
    if (Here("&&")) return Refuse("'&&'");
    if (Here("[:")) {
      const size_t close = pattern_.find(":]", at_);
      if (close != pattern_.npos) {
        out += pattern_.substr(at_, close + 2 - at_);
        at_ = close + 2;
        return OkStatus();
      }
    }
    if (Here("[^")) return Refuse("a complement within a set");
    if (Here("[")) {
      ++at_;
      return TakeInside(out, depth + 1);
    }
    if (pattern_[at_] == '\\') {
      const size_t begin = at_;
      if (const auto escape = TakeClassEscape()) {
        // PCRE2 has the complement of a class, of its own version of Unicode; of spaces exactly.
        if (!escape->complement) {
          out += escape->inside;
        } else if (pattern_[begin + 1] == 'S') {
          out += R"(\x{0}-\x{8}\x{e}-\x{1f}!-\x{84}\x{86}-\x{9f}\x{a1}-\x{167f}\x{1681}-\x{1fff})"
                 R"(\x{200b}-\x{2027}\x{202a}-\x{202e}\x{2030}-\x{205e}\x{2060}-\x{2fff})"
                 R"(\x{3001}-\x{10ffff})";
        } else {
          out += pattern_.substr(begin, at_ - begin);
        }
        return OkStatus();
      }
      TakeEscape(out);
      return OkStatus();
    }
    // A bracket or a hyphen that PCRE2 would read otherwise.
    if (pattern_[at_] == ']') out += '\\';
    out += pattern_[at_++];
    return OkStatus();
  }

  std::string_view pattern_;
  size_t at_ = 0;
};

}  // namespace

Result<std::string> RewritePattern(std::string_view pattern) { return Rewriter(pattern).Run(); }

}  // namespace meshwright::tokenizer
