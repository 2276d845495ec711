#include "tokenizer/sentencepiece_engine.h"

#include <fmt/format.h>

#include <algorithm>

#include "tokenizer/added_tokens.h"
#include "tokenizer/sentencepiece_models.h"
#include "tokenizer/unicode.h"

namespace meshwright::tokenizer {
namespace {

constexpr std::string_view kNoCharacter = "\xEF\xBF\xBD";  // U+FFFD

struct DecodeHow {
  bool bytes = false;       // some pieces are bytes
  bool drops_mark = false;  // the space before the text is not the text's
  bool drops_all_marks = false;
};

// From pieces to text: marks become spaces, bytes become characters, one U+FFFD for each byte that
// belongs to none.
class PiecesStage final : public DecodeStage {
 public:
  PiecesStage(DecodeHow how, FragmentSink& next) : DecodeStage(next), how_(how) {}

  void Put(Fragment fragment) override {
    if (how_.bytes) {
      if (const auto byte = ByteOfPiece(fragment.text)) {
        waiting_ += static_cast<char>(*byte);
        Flush(IncompleteTail(waiting_));
        return;
      }
    }
    Flush(0);
    std::string_view text = fragment.text;
    begun_ = begun_ || mark_dropped_;
    if (!begun_ && how_.drops_mark && text.starts_with(kSpaceMark)) {
      text.remove_prefix(kSpaceMark.size());
      mark_dropped_ = !how_.drops_all_marks;
    }
    Write(text);
  }
  void End() override {
    Flush(0);
    next().End();
  }

 private:
  void Write(std::string_view text) {
    std::string out;
    while (!text.empty()) {
      const bool mark = text.starts_with(kSpaceMark);
      const size_t bytes = mark ? kSpaceMark.size() : 1;
      out += mark ? std::string_view(" ") : text.substr(0, 1);
      text.remove_prefix(bytes);
    }
    begun_ = begun_ || !out.empty();
    next().Put({out, true});
  }

  // Gives out the bytes that wait, but for the last `kept`.
  void Flush(size_t kept) {
    std::string out;
    std::string_view rest = std::string_view(waiting_).substr(0, waiting_.size() - kept);
    while (!rest.empty()) {
      const size_t good = FindInvalidUtf8(rest);
      out += rest.substr(0, good);
      if (good < rest.size()) out += kNoCharacter;
      rest.remove_prefix(std::min(rest.size(), good + 1));
    }
    waiting_.erase(0, waiting_.size() - kept);
    if (out.empty()) return;
    begun_ = true;
    next().Put({out, true});
  }

  const DecodeHow how_;
  std::string waiting_;
  bool begun_ = false;         // there is text, so a mark is a space
  bool mark_dropped_ = false;  // at the front, once
};

class PiecesDecoder final : public Decoder {
 public:
  explicit PiecesDecoder(DecodeHow how) : how_(how) {}
  std::unique_ptr<DecodeStage> Start(DecodeOptions /*how*/, FragmentSink& next) const override {
    return std::make_unique<PiecesStage>(how_, next);
  }

 private:
  const DecodeHow how_;
};

class SentencePieceEngine final : public Tokenizer::Engine {
 public:
  struct Parts {
    std::shared_ptr<const SentencePieceFile> file;
    std::shared_ptr<const SentencePieceNormalizer> normalizer;
    std::shared_ptr<const Model> model;
    AddedTokens added;
    std::optional<uint32_t> begin;  // put before a text
    std::optional<uint32_t> end;
    bool space_behind_added = true;
  };
  explicit SentencePieceEngine(Parts parts) : parts_(std::move(parts)) {
    const SentencePieceFile& file = *parts_.file;
    decoders_ = {std::make_shared<const PiecesDecoder>(
        DecodeHow{file.byte_fallback, file.add_dummy_prefix || file.remove_extra_whitespaces,
                  file.remove_extra_whitespaces})};
  }

  Result<std::vector<uint32_t>> Encode(std::string_view text) const override {
    std::vector<uint32_t> ids;
    if (text.empty()) return ids;
    Pieces pieces;
    parts_.added.Cut({text}, false, pieces);
    bool front = true;
    for (const Piece& piece : pieces.list()) {
      if (piece.token >= 0) {
        ids.push_back(static_cast<uint32_t>(piece.token));
      } else {
        const std::string normalized =
            parts_.normalizer->Apply(piece.bytes, {front || parts_.space_behind_added});
        MW_TRY(parts_.model->Tokenize(normalized, ids));
      }
      front = false;
    }
    return ids;
  }

  Status PostProcess(std::vector<TypedIds>& parts, bool special) const override {
    if (!special) return OkStatus();
    for (uint32_t i = 0; i < parts.size(); ++i) {
      TypedIds& part = parts[i];
      if (parts_.begin) part.ids.insert(part.ids.begin(), *parts_.begin);
      if (parts_.end) part.ids.push_back(*parts_.end);
      if (parts.size() > 1) part.types.assign(part.ids.size(), i);
    }
    return OkStatus();
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
    if (const AddedToken* const token = parts_.added.Of(id)) return token->special;
    return id < parts_.file->pieces.size() && parts_.file->pieces[id].kind == PieceKind::kControl;
  }

  uint32_t id_end() const override {
    const std::vector<uint32_t> added = parts_.added.ids();
    const auto pieces = static_cast<uint32_t>(parts_.file->pieces.size());
    return added.empty() ? pieces : std::max(pieces, added.back() + 1);
  }

  std::optional<std::string> DecodedText(uint32_t id, bool skip_special) const override {
    if (skip_special && IsSpecial(id)) return std::nullopt;
    if (parts_.added.Of(id) != nullptr) return parts_.added.DecodedText(id);
    if (id >= parts_.file->pieces.size()) return std::nullopt;
    const SentencePiece& piece = parts_.file->pieces[id];
    return piece.kind == PieceKind::kUnknown ? parts_.file->unknown_text : piece.text;
  }

  const Decoders& decoders() const override { return decoders_; }

 private:
  const Parts parts_;
  Decoders decoders_;
};

// The id of a token that is put around a text.
Result<std::optional<uint32_t>> Around(const SentencePieceEngine::Parts& parts, bool adds,
                                       const std::string& said, const std::string& of_file) {
  if (!adds) return std::optional<uint32_t>();
  const std::string& text = said.empty() ? of_file : said;
  auto id = parts.added.Find(text);
  if (!id) id = parts.model->vocabulary().Find(text);
  if (id) return id;
  return Fail(InvalidArgument(
      fmt::format("tokenizer_config.json puts '{}' around a text, which is no piece", text)));
}

}  // namespace

Result<std::shared_ptr<const Tokenizer::Engine>> MakeSentencePieceEngine(
    std::string_view model, const AroundSentencePiece& around) {
  SentencePieceEngine::Parts parts;
  MW_ASSIGN_OR_RETURN(SentencePieceFile file, ParseSentencePiece(model));
  parts.file = std::make_shared<const SentencePieceFile>(std::move(file));
  parts.normalizer = std::make_shared<const SentencePieceNormalizer>(parts.file);
  parts.model = MakeSentencePieceModel(parts.file, parts.normalizer);
  MW_ASSIGN_OR_RETURN(const JsonDocument added, JsonDocument::Parse(around.added_tokens));
  MW_ASSIGN_OR_RETURN(parts.added, AddedTokens::Load(added.root(), *parts.model, nullptr));
  MW_ASSIGN_OR_RETURN(parts.begin,
                      Around(parts, around.adds_begin, around.begin, parts.file->begin));
  MW_ASSIGN_OR_RETURN(parts.end, Around(parts, around.adds_end, around.end, parts.file->end));
  parts.space_behind_added = around.space_behind_added;
  return std::make_shared<const SentencePieceEngine>(std::move(parts));
}

}  // namespace meshwright::tokenizer
