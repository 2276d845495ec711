#include "tokenizer/post_processor.h"

#include <fmt/format.h>

#include <array>
#include <map>

#include "base/text.h"
#include "tokenizer/vocabulary.h"

namespace meshwright::tokenizer {
namespace {

using Loaded = Result<std::shared_ptr<const PostProcessor>>;

Result<uint32_t> IdOf(const JsonNode& node, const JsonNode& of) {
  MW_ASSIGN_OR_RETURN(const int64_t id, node.AsInt());
  if (id < 0 || id > kMaxTokenId) return Fail(of.Wrong(fmt::format("{} is no id", id)));
  return static_cast<uint32_t>(id);
}

// ByteLevel moves offsets only, which nobody asks for here.
class Nothing final : public PostProcessor {
 public:
  Status Apply(std::vector<TypedIds>& /*parts*/, bool /*special*/) const override {
    return OkStatus();
  }
};

class Sequence final : public PostProcessor {
 public:
  explicit Sequence(std::vector<std::shared_ptr<const PostProcessor>> steps)
      : steps_(std::move(steps)) {}
  Status Apply(std::vector<TypedIds>& parts, bool special) const override {
    for (const auto& step : steps_) MW_TRY(step->Apply(parts, special));
    return OkStatus();
  }

 private:
  std::vector<std::shared_ptr<const PostProcessor>> steps_;
};

// [CLS] A [SEP] B [SEP], or with Roberta's two <\s> between and without types.
class Ends final : public PostProcessor {
 public:
  Ends(uint32_t first, uint32_t last, bool roberta)
      : first_(first), last_(last), roberta_(roberta) {}

  Status Apply(std::vector<TypedIds>& parts, bool special) const override {
    for (size_t i = 0; i < parts.size(); ++i) {
      TypedIds& part = parts[i];
      if (roberta_) part.types.assign(part.ids.size(), 0);
      if (!special) continue;
      const uint32_t type = roberta_ || i == 0 ? 0 : 1;
      if (i == 0 || roberta_) {
        part.ids.insert(part.ids.begin(), i == 0 ? first_ : last_);
        part.types.insert(part.types.begin(), 0);
      }
      part.ids.push_back(last_);
      part.types.push_back(type);
    }
    return OkStatus();
  }

 private:
  const uint32_t first_;
  const uint32_t last_;
  const bool roberta_;
};

// What a template puts in a place: a text by its number, or the ids of a special token.
struct TemplatePiece {
  int text = -1;
  std::vector<uint32_t> ids;
  uint32_t type = 0;
};

class Template final : public PostProcessor {
 public:
  Template(std::vector<TemplatePiece> single, std::vector<TemplatePiece> pair)
      : single_(std::move(single)), pair_(std::move(pair)) {}

  Status Apply(std::vector<TypedIds>& parts, bool special) const override {
    if (parts.empty() || parts.size() > 2) {
      return InvalidArgument(fmt::format(
          "post_processor: a template for one text or two meets {} parts", parts.size()));
    }
    std::vector<TypedIds> made;
    for (const TemplatePiece& piece : parts.size() == 1 ? single_ : pair_) {
      if (piece.text < 0 && !special) continue;
      if (piece.text >= static_cast<int>(parts.size())) {
        return InvalidArgument("post_processor.single asks for a second text");
      }
      const std::vector<uint32_t>& ids =
          piece.text < 0 ? piece.ids : parts[static_cast<size_t>(piece.text)].ids;
      made.push_back({ids, std::vector<uint32_t>(ids.size(), piece.type)});
    }
    parts = std::move(made);
    return OkStatus();
  }

 private:
  const std::vector<TemplatePiece> single_;
  const std::vector<TemplatePiece> pair_;
};

using SpecialIds = std::map<std::string, std::vector<uint32_t>, std::less<>>;

Result<SpecialIds> LoadSpecialIds(const JsonNode& node) {
  SpecialIds special;
  MW_ASSIGN_OR_RETURN(const JsonNode tokens, node.Member("special_tokens"));
  MW_TRY(tokens.ForEachMember([&](std::string_view name, const JsonNode& token) -> Status {
    MW_ASSIGN_OR_RETURN(const JsonNode list, token.Member("ids"));
    std::vector<uint32_t>& ids = special[std::string(name)];
    return list.ForEachItem([&](size_t /*index*/, const JsonNode& item) -> Status {
      MW_ASSIGN_OR_RETURN(const uint32_t id, IdOf(item, tokens));
      ids.push_back(id);
      return OkStatus();
    });
  }));
  return special;
}

// {"Sequence": {"id": "A", "type_id": 0}} or {"SpecialToken": {"id": "[CLS]", "type_id": 0}}.
Result<TemplatePiece> LoadPiece(const JsonNode& node, const SpecialIds& special) {
  TemplatePiece piece;
  const bool is_text = node.Find("Sequence").has_value();
  MW_ASSIGN_OR_RETURN(const JsonNode member, node.Member(is_text ? "Sequence" : "SpecialToken"));
  MW_ASSIGN_OR_RETURN(const std::string id, member.Text("id"));
  MW_ASSIGN_OR_RETURN(const int64_t type, member.Int("type_id"));
  if (type < 0 || type > UINT32_MAX) return Fail(member.Wrong("type_id is no type"));
  piece.type = static_cast<uint32_t>(type);
  if (is_text) {
    if (id != "A" && id != "B") return Fail(member.Wrong("id is neither A nor B"));
    piece.text = id == "A" ? 0 : 1;
    return piece;
  }
  const auto ids = special.find(id);
  if (ids == special.end()) {
    return Fail(member.Wrong(fmt::format("'{}' is not among the special_tokens", id)));
  }
  piece.ids = ids->second;
  return piece;
}

Result<std::vector<TemplatePiece>> LoadPieces(const JsonNode& node, std::string_view key,
                                              const SpecialIds& special) {
  std::vector<TemplatePiece> pieces;
  MW_ASSIGN_OR_RETURN(const JsonNode list, node.Member(key));
  MW_ASSIGN_OR_RETURN(const std::vector<JsonNode> items, list.AsList());
  for (const JsonNode& item : items) {
    MW_ASSIGN_OR_RETURN(TemplatePiece piece, LoadPiece(item, special));
    pieces.push_back(std::move(piece));
  }
  return pieces;
}

Loaded LoadTemplate(const JsonNode& node) {
  MW_ASSIGN_OR_RETURN(const SpecialIds special, LoadSpecialIds(node));
  MW_ASSIGN_OR_RETURN(auto single, LoadPieces(node, "single", special));
  MW_ASSIGN_OR_RETURN(auto pair, LoadPieces(node, "pair", special));
  return std::make_shared<const Template>(std::move(single), std::move(pair));
}

// ["[SEP]", 102].
Result<uint32_t> LoadEnd(const JsonNode& node, std::string_view key) {
  MW_ASSIGN_OR_RETURN(const JsonNode pair, node.Member(key));
  MW_ASSIGN_OR_RETURN(const std::vector<JsonNode> items, pair.AsList());
  if (items.size() != 2) return Fail(pair.Wrong("is not a text and an id"));
  return IdOf(items[1], pair);
}

Loaded LoadEnds(const JsonNode& node, bool roberta) {
  MW_ASSIGN_OR_RETURN(const uint32_t first, LoadEnd(node, "cls"));
  MW_ASSIGN_OR_RETURN(const uint32_t last, LoadEnd(node, "sep"));
  return std::make_shared<const Ends>(first, last, roberta);
}

Loaded LoadSequence(const JsonNode& node) {
  std::vector<std::shared_ptr<const PostProcessor>> steps;
  MW_ASSIGN_OR_RETURN(const JsonNode list, node.Member("processors"));
  MW_ASSIGN_OR_RETURN(const std::vector<JsonNode> items, list.AsList());
  for (const JsonNode& item : items) {
    MW_ASSIGN_OR_RETURN(auto step, LoadPostProcessor(item));
    steps.push_back(std::move(step));
  }
  return std::make_shared<const Sequence>(std::move(steps));
}

struct Row {
  std::string_view type;
  Loaded (*load)(const JsonNode& node);
};

constexpr std::array<Row, 5> kRows = {{
    {"BertProcessing", [](const JsonNode& node) { return LoadEnds(node, false); }},
    {"ByteLevel", [](const JsonNode&) -> Loaded { return std::make_shared<const Nothing>(); }},
    {"RobertaProcessing", [](const JsonNode& node) { return LoadEnds(node, true); }},
    {"Sequence", LoadSequence},
    {"TemplateProcessing", LoadTemplate},
}};

}  // namespace

Loaded LoadPostProcessor(const JsonNode& node) {
  MW_ASSIGN_OR_RETURN(const std::string type, node.Text("type"));
  std::vector<std::string> names;
  for (const Row& row : kRows) {
    if (row.type == type) return row.load(node);
    names.emplace_back(row.type);
  }
  return Fail(node.Wrong(fmt::format("unknown post-processor '{}'{}; known: {}", type,
                                     DidYouMean(type, names), Join(names, ", "))));
}

}  // namespace meshwright::tokenizer
