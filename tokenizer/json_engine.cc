// tokenizer.json, executed.
#include <fmt/format.h>

#include <algorithm>

#include "tokenizer/added_tokens.h"
#include "tokenizer/engine.h"
#include "tokenizer/model.h"
#include "tokenizer/normalizer.h"
#include "tokenizer/pre_tokenizer.h"

namespace meshwright::tokenizer {
namespace {

// The parts of a file. Those that are null are absent.
struct Parts {
  std::shared_ptr<const Normalizer> normalizer;
  LoadedPreTokenizer pre_tokenizer;
  std::shared_ptr<const Model> model;
  std::shared_ptr<const PostProcessor> post_processor;
  Decoders decoders = SpacedTokens();
  AddedTokens added;
};

class JsonEngine final : public Tokenizer::Engine {
 public:
  explicit JsonEngine(Parts parts) : parts_(std::move(parts)) {}

  Result<std::vector<uint32_t>> Encode(std::string_view text) const override {
    Pieces pieces;
    MW_TRY(CutAddedTokens(text, pieces));
    if (parts_.pre_tokenizer.cutter != nullptr) MW_TRY(parts_.pre_tokenizer.cutter->Apply(pieces));
    std::vector<uint32_t> ids;
    ids.reserve(pieces.list().size() + 16);
    for (const Piece& piece : pieces.list()) {
      if (piece.token >= 0) {
        ids.push_back(static_cast<uint32_t>(piece.token));
      } else {
        MW_TRY(parts_.model->Tokenize(piece.bytes, ids));
      }
    }
    return ids;
  }

  Status PostProcess(std::vector<TypedIds>& parts, bool special) const override {
    return parts_.post_processor == nullptr ? OkStatus()
                                            : parts_.post_processor->Apply(parts, special);
  }

  std::optional<uint32_t> IdOf(std::string_view token) const override {
    const auto added = parts_.added.Find(token);
    return added ? added : parts_.model->vocabulary().Find(token);
  }

  std::optional<std::string> TokenOf(uint32_t id) const override {
    if (const AddedToken* const token = parts_.added.Of(id)) return token->content;
    const auto text = parts_.model->vocabulary().TextOf(id);
    return text ? std::optional<std::string>(*text) : std::nullopt;
  }

  bool IsSpecial(uint32_t id) const override {
    const AddedToken* const token = parts_.added.Of(id);
    return token != nullptr && token->special;
  }

  uint32_t id_end() const override {
    const std::vector<uint32_t> added = parts_.added.ids();
    const auto vocabulary = static_cast<uint32_t>(parts_.model->vocabulary().id_end());
    return added.empty() ? vocabulary : std::max(vocabulary, added.back() + 1);
  }

  std::optional<std::string> DecodedText(uint32_t id, bool skip_special) const override {
    std::string text;
    if (parts_.added.Of(id) != nullptr) {
      text = parts_.added.DecodedText(id);
    } else if (const auto known = parts_.model->vocabulary().TextOf(id)) {
      text = *known;
    } else {
      return std::nullopt;
    }
    if (skip_special && parts_.added.IsSpecial(text)) return std::nullopt;
    return text;
  }

  const Decoders& decoders() const override { return parts_.decoders; }

 private:
  // Added tokens out of the text as it is, then out of the normalized text between them.
  Status CutAddedTokens(std::string_view text, Pieces& pieces) const {
    if (text.empty()) return OkStatus();
    const Piece whole = {text, CharacterBytes(text[0])};
    if (parts_.normalizer == nullptr && !parts_.added.any(true)) {
      parts_.added.Cut(whole, false, pieces);
      return OkStatus();
    }
    Pieces raw;
    parts_.added.Cut(whole, false, raw);
    for (const Piece& piece : raw.list()) {
      if (piece.token >= 0) {
        pieces.list().push_back(piece);
        continue;
      }
      Piece normalized = piece;
      if (parts_.normalizer != nullptr) {
        Text made = {std::string(piece.bytes), piece.of_start};
        MW_TRY(parts_.normalizer->Apply(made));
        normalized = pieces.Own(std::move(made));
      }
      parts_.added.Cut(normalized, true, pieces);
    }
    return OkStatus();
  }

  const Parts parts_;
};

Status LoadAround(const JsonNode& root, Parts& parts) {
  if (const auto node = root.Find("normalizer")) {
    MW_ASSIGN_OR_RETURN(parts.normalizer, LoadNormalizer(*node));
  }
  if (const auto node = root.Find("post_processor")) {
    MW_ASSIGN_OR_RETURN(parts.post_processor, LoadPostProcessor(*node));
  }
  if (const auto node = root.Find("decoder")) {
    MW_ASSIGN_OR_RETURN(parts.decoders, LoadDecoders(*node));
  }
  return OkStatus();
}

}  // namespace

Result<std::shared_ptr<const Tokenizer::Engine>> MakeJsonEngine(std::string_view json) {
  MW_ASSIGN_OR_RETURN(const JsonDocument document, JsonDocument::Parse(json));
  const JsonNode& root = document.root();
  MW_ASSIGN_OR_RETURN(const std::string version, root.TextOr("version", "1.0"));
  if (version != "1.0") {
    return Fail(root.Wrong(fmt::format("version is '{}'; only 1.0 is known", version)));
  }
  MW_ASSIGN_OR_RETURN(const JsonNode model, root.Member("model"));
  Parts parts;
  if (const auto node = root.Find("pre_tokenizer")) {
    MW_ASSIGN_OR_RETURN(parts.pre_tokenizer, LoadPreTokenizer(*node, CanTakeBytes(model)));
  }
  MW_TRY(LoadAround(root, parts));
  MW_ASSIGN_OR_RETURN(parts.model, LoadModel(model, parts.pre_tokenizer.final_bytes));
  if (const auto node = root.Find("added_tokens")) {
    MW_ASSIGN_OR_RETURN(parts.added,
                        AddedTokens::Load(*node, *parts.model, parts.normalizer.get()));
  }
  return std::make_shared<const JsonEngine>(std::move(parts));
}

}  // namespace meshwright::tokenizer
