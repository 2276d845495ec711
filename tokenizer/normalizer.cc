#include "tokenizer/normalizer.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "base/text.h"
#include "tokenizer/byte_alphabet.h"

namespace meshwright::tokenizer {
namespace {

using Loaded = Result<std::shared_ptr<const Normalizer>>;

// A normalizer that is one function.
template <typename Function>
class Simple final : public Normalizer {
 public:
  explicit Simple(Function function) : function_(std::move(function)) {}
  Status Apply(Text& text) const override {
    function_(text);
    return OkStatus();
  }

 private:
  Function function_;
};

template <typename Function>
std::shared_ptr<const Normalizer> Make(Function function) {
  return std::make_shared<const Simple<Function>>(std::move(function));
}

class Sequence final : public Normalizer {
 public:
  explicit Sequence(std::vector<std::shared_ptr<const Normalizer>> steps)
      : steps_(std::move(steps)) {}
  Status Apply(Text& text) const override {
    for (const auto& step : steps_) MW_TRY(step->Apply(text));
    return OkStatus();
  }

 private:
  std::vector<std::shared_ptr<const Normalizer>> steps_;
};

class Replace final : public Normalizer {
 public:
  Replace(Regex pattern, std::string content)
      : pattern_(std::move(pattern)), content_(std::move(content)) {}
  Status Apply(Text& text) const override { return ReplaceAll(pattern_, content_, text); }

 private:
  Regex pattern_;
  std::string content_;
};

template <typename Predicate>
void Filter(Text& text, Predicate keep) {
  Rewriting rewriting(text);
  while (!rewriting.done()) {
    if (keep(rewriting.Next().code)) {
      rewriting.Keep();
    } else {
      rewriting.Drop();
    }
  }
  rewriting.Finish();
}

void Lowercase(Text& text) {
  Rewriting rewriting(text);
  std::string lower;
  while (!rewriting.done()) {
    lower.clear();
    AppendLower(rewriting.Next().code, lower);
    const Character first = CharacterAt(lower, 0);
    rewriting.Replace(first.code);
    for (size_t at = first.bytes; at < lower.size();) {
      const Character next = CharacterAt(lower, at);
      rewriting.Insert(next.code);
      at += next.bytes;
    }
  }
  rewriting.Finish();
}

void ToNormalForm(Text& text, NormalForm form) {
  if (text.bytes.empty()) return;
  std::string made = Normalize(text.bytes, form);
  if (text.of_start > 0) {
    const size_t first = CharacterBytes(text.bytes[0]);
    const size_t grown = Normalize(std::string_view(text.bytes).substr(0, first), form).size();
    text.of_start = std::min(std::max(grown, CharacterBytes(made[0])), made.size());
  }
  text.bytes = std::move(made);
}

void CleanForBert(Text& text) {
  Rewriting rewriting(text);
  while (!rewriting.done()) {
    const char32_t code = rewriting.Next().code;
    if (code == 0 || Contains(kBertRemoved, code)) {
      rewriting.Drop();
    } else {
      rewriting.Replace(IsWhitespace(code) ? ' ' : code);
    }
  }
  rewriting.Finish();
}

void SpaceIdeographs(Text& text) {
  Rewriting rewriting(text);
  while (!rewriting.done()) {
    const char32_t code = rewriting.Next().code;
    if (!Contains(kIdeographs, code)) {
      rewriting.Keep();
      continue;
    }
    rewriting.Replace(' ');
    rewriting.Insert(code);
    rewriting.Insert(' ');
  }
  rewriting.Finish();
}

Loaded LoadBert(const JsonNode& node) {
  MW_ASSIGN_OR_RETURN(const bool clean, node.Bool("clean_text"));
  MW_ASSIGN_OR_RETURN(const bool ideographs, node.Bool("handle_chinese_chars"));
  MW_ASSIGN_OR_RETURN(const bool lower, node.Bool("lowercase"));
  MW_ASSIGN_OR_RETURN(const bool accents, node.BoolOr("strip_accents", lower));
  return Make([clean, ideographs, accents, lower](Text& text) {
    if (clean) CleanForBert(text);
    if (ideographs) SpaceIdeographs(text);
    if (accents) {
      ToNormalForm(text, NormalForm::kNfd);
      Filter(text, [](char32_t code) { return code < 0x80 || !Contains(kBertAccents, code); });
    }
    if (lower) Lowercase(text);
  });
}

// Source: SentencePiece's nmt normalization.
void ToNmt(Text& text) {
  static constexpr std::array<CodeRange, 6> removed = {
      {{1, 8}, {0xb, 0xb}, {0xe, 0x1f}, {0x7f, 0x7f}, {0x8f, 0x8f}, {0x9f, 0x9f}}};
  static constexpr std::array<CodeRange, 8> spaces = {{{9, 0xd},
                                                       {0x1680, 0x1680},
                                                       {0x200b, 0x200f},
                                                       {0x2028, 0x2029},
                                                       {0x2581, 0x2581},
                                                       {0xfeff, 0xfeff},
                                                       {0xfffd, 0xfffd},
                                                       {0x110000, 0x110000}}};
  Rewriting rewriting(text);
  while (!rewriting.done()) {
    const char32_t code = rewriting.Next().code;
    if (Contains(removed, code)) {
      rewriting.Drop();
    } else {
      rewriting.Replace(Contains(spaces, code) ? ' ' : code);
    }
  }
  rewriting.Finish();
}

void ToBytes(Text& text) {
  Rewriting rewriting(text);
  std::string one;
  while (!rewriting.done()) {
    one.clear();
    AppendUtf8(rewriting.Next().code, one);
    for (size_t i = 0; i < one.size(); ++i) {
      const char32_t code = ByteAlphabet()[static_cast<unsigned char>(one[i])];
      if (i == 0) {
        rewriting.Replace(code);
      } else {
        rewriting.Insert(code);
      }
    }
  }
  rewriting.Finish();
}

Loaded LoadStrip(const JsonNode& node) {
  MW_ASSIGN_OR_RETURN(const bool left, node.Bool("strip_left"));
  MW_ASSIGN_OR_RETURN(const bool right, node.Bool("strip_right"));
  return Make([left, right](Text& text) {
    size_t begin = 0;
    size_t end = text.bytes.size();
    while (left && begin < end) {
      const Character first = CharacterAt(text.bytes, begin);
      if (!IsWhitespace(first.code)) break;
      begin += first.bytes;
    }
    while (right && begin < end) {
      const size_t last = LastCharacter(std::string_view(text.bytes).substr(0, end));
      if (!IsWhitespace(CharacterAt(text.bytes, last).code)) break;
      end = last;
    }
    text.bytes = text.bytes.substr(begin, end - begin);
    text.of_start = text.of_start > begin ? std::min(text.of_start, end) - begin : 0;
  });
}

Loaded LoadReplace(const JsonNode& node) {
  MW_ASSIGN_OR_RETURN(Regex pattern, LoadPattern(node));
  MW_ASSIGN_OR_RETURN(std::string content, node.Text("content"));
  return std::make_shared<const Replace>(std::move(pattern), std::move(content));
}

Loaded LoadPrepend(const JsonNode& node) {
  MW_ASSIGN_OR_RETURN(std::string front, node.Text("prepend"));
  return Make([front = std::move(front)](Text& text) { Prepend(front, text); });
}

Loaded LoadSequence(const JsonNode& node) {
  MW_ASSIGN_OR_RETURN(const JsonNode list, node.Member("normalizers"));
  MW_ASSIGN_OR_RETURN(const std::vector<JsonNode> nodes, list.AsList());
  std::vector<std::shared_ptr<const Normalizer>> steps;
  for (const JsonNode& step : nodes) {
    MW_ASSIGN_OR_RETURN(auto loaded, LoadNormalizer(step));
    steps.push_back(std::move(loaded));
  }
  return std::make_shared<const Sequence>(std::move(steps));
}

template <NormalForm form>
Loaded LoadNormalForm(const JsonNode& /*node*/) {
  return Make([](Text& text) { ToNormalForm(text, form); });
}

struct Row {
  std::string_view type;
  Loaded (*load)(const JsonNode& node);
};

constexpr std::array<Row, 14> kRows = {{
    {"BertNormalizer", LoadBert},
    {"ByteLevel", [](const JsonNode&) -> Loaded { return Make(ToBytes); }},
    {"Lowercase", [](const JsonNode&) -> Loaded { return Make(Lowercase); }},
    {"NFC", LoadNormalForm<NormalForm::kNfc>},
    {"NFD", LoadNormalForm<NormalForm::kNfd>},
    {"NFKC", LoadNormalForm<NormalForm::kNfkc>},
    {"NFKD", LoadNormalForm<NormalForm::kNfkd>},
    {"Nmt", [](const JsonNode&) -> Loaded { return Make(ToNmt); }},
    {"Precompiled", MakeCharsmap},
    {"Prepend", LoadPrepend},
    {"Replace", LoadReplace},
    {"Sequence", LoadSequence},
    {"Strip", LoadStrip},
    {"StripAccents",
     [](const JsonNode&) -> Loaded {
       return Make([](Text& text) {
         Filter(text, [](char32_t code) { return code < 0x80 || !Contains(kAccents, code); });
       });
     }},
}};

}  // namespace

Status ReplaceAll(const Regex& pattern, std::string_view content, Text& text) {
  std::vector<Match> matches;
  MW_TRY(pattern.FindAll(text.bytes, matches));
  if (std::none_of(matches.begin(), matches.end(), [](const Match& m) { return m.matched; })) {
    return OkStatus();
  }
  Text out;
  for (const Match& match : matches) {
    const size_t before = out.bytes.size();
    if (!match.matched) {
      out.bytes.append(text.bytes, match.span.begin, match.span.end - match.span.begin);
      const size_t of_start = std::min(text.of_start, match.span.end);
      if (of_start > match.span.begin && out.of_start == before) {
        out.of_start = before + of_start - match.span.begin;
      }
      continue;
    }
    // What is written belongs to the last character that it replaces.
    out.bytes += content;
    const size_t aligned = match.span.end == 0 ? 0 : match.span.end - 1;
    if (aligned < text.of_start && out.of_start == before) out.of_start = out.bytes.size();
  }
  text = std::move(out);
  return OkStatus();
}

Result<Regex> LoadPattern(const JsonNode& node) {
  MW_ASSIGN_OR_RETURN(const JsonNode pattern, node.Member("pattern"));
  Result<Regex> made = [&]() -> Result<Regex> {
    if (pattern.Find("String")) {
      MW_ASSIGN_OR_RETURN(const std::string text, pattern.Text("String"));
      return Regex::Literal(text);
    }
    MW_ASSIGN_OR_RETURN(const std::string text, pattern.Text("Regex"));
    return Regex::Compile(text);
  }();
  if (!made.has_value()) return Fail(made.error().WithContext(pattern.path()));
  return made;
}

Loaded LoadNormalizer(const JsonNode& node) {
  MW_ASSIGN_OR_RETURN(const std::string type, node.Text("type"));
  std::vector<std::string> names;
  for (const Row& row : kRows) {
    if (row.type == type) return row.load(node);
    names.emplace_back(row.type);
  }
  return Fail(node.Wrong(fmt::format("unknown normalizer '{}'{}; known: {}", type,
                                     DidYouMean(type, names), Join(names, ", "))));
}

}  // namespace meshwright::tokenizer
