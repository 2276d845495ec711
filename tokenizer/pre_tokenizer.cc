#include "tokenizer/pre_tokenizer.h"

#include <fmt/format.h>

#include <array>

#include "base/check.h"
#include "base/text.h"
#include "tokenizer/byte_alphabet.h"
#include "tokenizer/normalizer.h"

namespace meshwright::tokenizer {
namespace {

using Loaded = Result<std::shared_ptr<const PreTokenizer>>;

// Calls body(piece, pieces) for each piece that is no token; what it adds takes its place.
template <typename Body>
Status CutEach(Pieces& pieces, Body body) {
  std::vector<Piece> before;
  before.swap(pieces.list());
  pieces.list().reserve(before.size());
  for (Piece& piece : before) {
    if (piece.token >= 0) {
      pieces.list().push_back(piece);
    } else {
      MW_TRY(body(piece, pieces));
    }
  }
  return OkStatus();
}

// A pre-tokenizer that is one function of a piece.
template <typename Function>
class Simple final : public PreTokenizer {
 public:
  explicit Simple(Function function) : function_(std::move(function)) {}
  Status Apply(Pieces& pieces) const override { return CutEach(pieces, function_); }

 private:
  Function function_;
};

template <typename Function>
std::shared_ptr<const PreTokenizer> Make(Function function) {
  return std::make_shared<const Simple<Function>>(std::move(function));
}

class Sequence final : public PreTokenizer {
 public:
  explicit Sequence(std::vector<std::shared_ptr<const PreTokenizer>> steps)
      : steps_(std::move(steps)) {}
  Status Apply(Pieces& pieces) const override {
    for (const auto& step : steps_) MW_TRY(step->Apply(pieces));
    return OkStatus();
  }

 private:
  std::vector<std::shared_ptr<const PreTokenizer>> steps_;
};

// Cuts where characters of a kind stand, each of which is a match.
template <typename Predicate>
std::shared_ptr<const PreTokenizer> AtCharacters(Predicate is_match, SplitBehavior behavior) {
  return Make([is_match, behavior](const Piece& piece, Pieces& pieces) {
    std::vector<Match> matches;
    size_t covered = 0;
    for (size_t at = 0; at < piece.bytes.size();) {
      const Character character = CharacterAt(piece.bytes, at);
      const size_t end = at + character.bytes;
      if (is_match(character.code)) {
        if (covered < at) matches.push_back({{covered, at}, false});
        matches.push_back({{at, end}, true});
        covered = end;
      }
      at = end;
    }
    if (covered < piece.bytes.size()) matches.push_back({{covered, piece.bytes.size()}, false});
    AddSplit(piece, matches, behavior, pieces);
    return OkStatus();
  });
}

std::shared_ptr<const PreTokenizer> AtPattern(Regex pattern, SplitBehavior behavior, bool invert) {
  return Make([pattern = std::move(pattern), behavior, invert](const Piece& piece,
                                                               Pieces& pieces) -> Status {
    thread_local std::vector<Match> matches;
    matches.clear();
    MW_TRY(pattern.FindAll(piece.bytes, matches));
    if (invert) {
      for (Match& match : matches) match.matched = !match.matched;
    }
    AddSplit(piece, matches, behavior, pieces);
    return OkStatus();
  });
}

Result<SplitBehavior> LoadBehavior(const JsonNode& node, std::string_view absent) {
  static constexpr std::array<std::pair<std::string_view, SplitBehavior>, 5> names = {{
      {"Removed", SplitBehavior::kRemoved},
      {"Isolated", SplitBehavior::kIsolated},
      {"MergedWithPrevious", SplitBehavior::kMergedWithPrevious},
      {"MergedWithNext", SplitBehavior::kMergedWithNext},
      {"Contiguous", SplitBehavior::kContiguous},
  }};
  MW_ASSIGN_OR_RETURN(const std::string name,
                      absent.empty() ? node.Text("behavior") : node.TextOr("behavior", absent));
  for (const auto& [known, behavior] : names) {
    if (known == name) return behavior;
  }
  return Fail(node.Wrong(fmt::format("unknown behavior '{}'", name)));
}

Loaded LoadSplit(const JsonNode& node) {
  MW_ASSIGN_OR_RETURN(Regex pattern, LoadPattern(node));
  MW_ASSIGN_OR_RETURN(const SplitBehavior behavior, LoadBehavior(node, ""));
  MW_ASSIGN_OR_RETURN(const bool invert, node.Bool("invert"));
  return AtPattern(std::move(pattern), behavior, invert);
}

Loaded LoadPunctuation(const JsonNode& node) {
  MW_ASSIGN_OR_RETURN(const SplitBehavior behavior, LoadBehavior(node, "Isolated"));
  return AtCharacters(IsPunctuation, behavior);
}

Loaded LoadDigits(const JsonNode& node) {
  MW_ASSIGN_OR_RETURN(const bool individual, node.Bool("individual_digits"));
  return AtCharacters(IsNumeric,
                      individual ? SplitBehavior::kIsolated : SplitBehavior::kContiguous);
}

// The one character that a member is.
Result<char32_t> LoadCharacter(const JsonNode& node, std::string_view key) {
  MW_ASSIGN_OR_RETURN(const std::string text, node.Text(key));
  if (text.empty() || CharacterBytes(text[0]) != text.size()) {
    return Fail(node.Wrong(fmt::format("{} is '{}', not one character", key, text)));
  }
  return CharacterAt(text, 0).code;
}

Loaded LoadDelimiter(const JsonNode& node) {
  MW_ASSIGN_OR_RETURN(const char32_t delimiter, LoadCharacter(node, "delimiter"));
  return AtCharacters([delimiter](char32_t code) { return code == delimiter; },
                      SplitBehavior::kRemoved);
}

// Runs of word characters, and of what is neither that nor a space.
Status CutWords(const Piece& piece, Pieces& pieces) {
  enum class Kind : uint8_t { kSpace, kWord, kOther };
  Kind last = Kind::kSpace;
  size_t begin = 0;
  for (size_t at = 0; at < piece.bytes.size();) {
    const Character character = CharacterAt(piece.bytes, at);
    const Kind kind = IsWord(character.code)         ? Kind::kWord
                      : IsWhitespace(character.code) ? Kind::kSpace
                                                     : Kind::kOther;
    if (kind != last) {
      if (last != Kind::kSpace) pieces.Add(piece, {begin, at});
      begin = at;
      last = kind;
    }
    at += character.bytes;
  }
  if (last != Kind::kSpace) pieces.Add(piece, {begin, piece.bytes.size()});
  return OkStatus();
}

// Where the script changes. Spaces and characters of no script belong to what is before them; those
// before the first script are lost, which is what models were trained with.
Status CutScripts(const Piece& piece, Pieces& pieces) {
  int32_t last = -1;
  size_t begin = piece.bytes.size();
  for (size_t at = 0; at < piece.bytes.size();) {
    const Character character = CharacterAt(piece.bytes, at);
    const int32_t script = ScriptOf(character.code);
    if (script >= 0 && script != last) {
      if (last >= 0) pieces.Add(piece, {begin, at});
      begin = at;
      last = script;
    }
    at += character.bytes;
  }
  pieces.Add(piece, {begin, piece.bytes.size()});
  return OkStatus();
}

Loaded LoadFixedLength(const JsonNode& node) {
  MW_ASSIGN_OR_RETURN(const int64_t length, node.Find("length") ? node.Int("length") : 5);
  if (length < 1) return Fail(node.Wrong(fmt::format("length is {}; at least 1", length)));
  return Make([length](const Piece& piece, Pieces& pieces) {
    size_t begin = 0;
    int64_t count = 0;
    for (size_t at = 0; at < piece.bytes.size();) {
      at += CharacterBytes(piece.bytes[at]);
      if (++count < length && at < piece.bytes.size()) continue;
      pieces.Add(piece, {begin, at});
      begin = at;
      count = 0;
    }
    return OkStatus();
  });
}

Loaded MakeMetaspace(const JsonNode& node) {
  MW_ASSIGN_OR_RETURN(MetaspaceOptions options, LoadMetaspace(node));
  MW_ASSIGN_OR_RETURN(Regex space, Regex::Literal(" "));
  MW_ASSIGN_OR_RETURN(Regex mark, Regex::Literal(options.replacement));
  return Make([options, space, mark](const Piece& piece, Pieces& pieces) -> Status {
    Text text = {std::string(piece.bytes), piece.of_start};
    MW_TRY(ReplaceAll(space, options.replacement, text));
    const bool wanted = options.prepend == PrependScheme::kAlways ||
                        (options.prepend == PrependScheme::kFirst && piece.of_start > 0);
    if (wanted && !text.bytes.starts_with(options.replacement)) {
      Prepend(options.replacement, text);
    }
    const Piece made = pieces.Own(std::move(text));
    if (!options.split) {
      pieces.Add(made);
      return OkStatus();
    }
    std::vector<Match> matches;
    MW_TRY(mark.FindAll(made.bytes, matches));
    AddSplit(made, matches, SplitBehavior::kMergedWithNext, pieces);
    return OkStatus();
  });
}

// The part of ByteLevel that cuts; the other one is ToBytes.
Loaded LoadByteLevel(const JsonNode& node) {
  MW_ASSIGN_OR_RETURN(const bool prefix_space, node.Bool("add_prefix_space"));
  MW_ASSIGN_OR_RETURN(const bool use_regex, node.BoolOr("use_regex", true));
  MW_ASSIGN_OR_RETURN(Regex pattern, Regex::Compile(kGpt2Pattern));
  const auto cutter = AtPattern(std::move(pattern), SplitBehavior::kIsolated, false);
  const auto space = Make([](const Piece& piece, Pieces& pieces) {
    if (piece.bytes.starts_with(' ')) {
      pieces.Add(piece);
      return OkStatus();
    }
    Text text = {std::string(piece.bytes), piece.of_start};
    Prepend(" ", text);
    pieces.Add(pieces.Own(std::move(text)));
    return OkStatus();
  });
  std::vector<std::shared_ptr<const PreTokenizer>> steps;
  if (prefix_space) steps.push_back(space);
  if (use_regex) steps.push_back(cutter);
  return std::make_shared<const Sequence>(std::move(steps));
}

std::shared_ptr<const PreTokenizer> ToBytes() {
  return Make([](const Piece& piece, Pieces& pieces) {
    Text text = {ToByteAlphabet(piece.bytes), 0};
    if (piece.of_start > 0) {
      text.of_start = ToByteAlphabet(piece.bytes.substr(0, piece.of_start)).size();
    }
    pieces.Add(pieces.Own(std::move(text)));
    return OkStatus();
  });
}

struct Row {
  std::string_view type;
  Loaded (*load)(const JsonNode& node);
};

constexpr std::array<Row, 11> kRows = {{
    {"BertPreTokenizer",
     [](const JsonNode&) -> Loaded {
       return std::make_shared<const Sequence>(std::vector<std::shared_ptr<const PreTokenizer>>{
           AtCharacters(IsWhitespace, SplitBehavior::kRemoved),
           AtCharacters(IsPunctuation, SplitBehavior::kIsolated)});
     }},
    {"ByteLevel", LoadByteLevel},
    {"CharDelimiterSplit", LoadDelimiter},
    {"Digits", LoadDigits},
    {"FixedLength", LoadFixedLength},
    {"Metaspace", MakeMetaspace},
    {"Punctuation", LoadPunctuation},
    {"Split", LoadSplit},
    {"UnicodeScripts", [](const JsonNode&) -> Loaded { return Make(CutScripts); }},
    {"Whitespace", [](const JsonNode&) -> Loaded { return Make(CutWords); }},
    {"WhitespaceSplit",
     [](const JsonNode&) -> Loaded { return AtCharacters(IsWhitespace, SplitBehavior::kRemoved); }},
}};

using Steps = std::vector<std::shared_ptr<const PreTokenizer>>;

// Adds the steps of `node`, which is the last one of all where `last`. Returns whether it ends in
// bytes.
Result<bool> AddSteps(const JsonNode& node, bool leave_bytes, Steps& steps) {
  MW_ASSIGN_OR_RETURN(const std::string type, node.Text("type"));
  if (type == "Sequence") {
    MW_ASSIGN_OR_RETURN(const JsonNode member, node.Member("pretokenizers"));
    MW_ASSIGN_OR_RETURN(const std::vector<JsonNode> nodes, member.AsList());
    bool bytes = false;
    for (size_t i = 0; i < nodes.size(); ++i) {
      MW_ASSIGN_OR_RETURN(bytes, AddSteps(nodes[i], leave_bytes && i + 1 == nodes.size(), steps));
    }
    return bytes;
  }
  std::vector<std::string> names = {"Sequence"};
  for (const Row& row : kRows) {
    names.emplace_back(row.type);
    if (row.type != type) continue;
    MW_ASSIGN_OR_RETURN(auto step, row.load(node));
    steps.push_back(std::move(step));
    if (type != "ByteLevel") return false;
    if (!leave_bytes) steps.push_back(ToBytes());
    return leave_bytes;
  }
  return Fail(node.Wrong(fmt::format("unknown pre-tokenizer '{}'{}; known: {}", type,
                                     DidYouMean(type, names), Join(names, ", "))));
}

}  // namespace

Result<MetaspaceOptions> LoadMetaspace(const JsonNode& node) {
  MetaspaceOptions options;
  MW_ASSIGN_OR_RETURN(const char32_t replacement, LoadCharacter(node, "replacement"));
  AppendUtf8(replacement, options.replacement);
  MW_ASSIGN_OR_RETURN(const std::string scheme, node.TextOr("prepend_scheme", "always"));
  if (scheme != "first" && scheme != "never" && scheme != "always") {
    return Fail(
        node.Wrong(fmt::format("prepend_scheme is '{}'; 'first', 'never' or 'always'", scheme)));
  }
  options.prepend = scheme == "first"   ? PrependScheme::kFirst
                    : scheme == "never" ? PrependScheme::kNever
                                        : PrependScheme::kAlways;
  MW_ASSIGN_OR_RETURN(const bool prefix, node.BoolOr("add_prefix_space", true));
  if (!prefix && node.Find("prepend_scheme") && options.prepend != PrependScheme::kNever) {
    return Fail(node.Wrong("add_prefix_space does not go with prepend_scheme"));
  }
  if (!prefix) options.prepend = PrependScheme::kNever;
  MW_ASSIGN_OR_RETURN(options.split, node.BoolOr("split", true));
  return options;
}

Result<LoadedPreTokenizer> LoadPreTokenizer(const JsonNode& node, bool leave_bytes) {
  Steps steps;
  MW_ASSIGN_OR_RETURN(const bool final_bytes, AddSteps(node, leave_bytes, steps));
  return LoadedPreTokenizer{std::make_shared<const Sequence>(std::move(steps)), final_bytes};
}

}  // namespace meshwright::tokenizer
