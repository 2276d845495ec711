#include "tokenizer/tokenizer.h"

#include <fmt/format.h>

#include "base/check.h"
#include "base/file.h"
#include "tokenizer/engine.h"
#include "tokenizer/sentencepiece_engine.h"
#include "tokenizer/sentencepiece_file.h"
#include "tokenizer/unicode.h"

namespace meshwright::tokenizer {
namespace {

Status NeedsUtf8(std::string_view text) {
  const size_t wrong = FindInvalidUtf8(text);
  if (wrong == text.size()) return OkStatus();
  return InvalidArgument(fmt::format("the text is not UTF-8 at byte {} (0x{:02x})", wrong,
                                     static_cast<unsigned char>(text[wrong])));
}

// The file that a folder of a model has.
Result<std::string> FileOf(const std::string& path) {
  if (std::string file = Tokenizer::FileIn(path); !file.empty()) return file;
  if (FileExists(path + "/config.json") || FileExists(path + "/.")) {
    if (FileExists(path + "/adapter_config.json") && !FileExists(path + "/config.json")) {
      return Fail(NotFound(fmt::format(
          "{} is an adapter of PEFT, not a model: `meshwright adapter merge MODEL OUT.safetensors "
          "--adapter {}` adds it to its model",
          path, path)));
    }
    const bool older = FileExists(path + "/vocab.txt") || FileExists(path + "/vocab.json");
    return Fail(NotFound(fmt::format(
        "{} has neither a tokenizer.json nor a tokenizer.model{}", path,
        older ? "; transformers' AutoTokenizer.from_pretrained(..).save_pretrained(..) writes the "
                "first from its vocab files"
              : "")));
  }
  return path;
}

// A file beside another one; "" where there is none.
Result<std::string> Beside(const std::string& file, const char* name) {
  const size_t slash = file.rfind('/');
  const std::string path = file.substr(0, slash == std::string::npos ? 0 : slash + 1) + name;
  if (!FileExists(path)) return std::string();
  return ReadFile(path);
}

Result<Tokenizer> OfPieces(const std::string& file, std::string_view bytes) {
  MW_ASSIGN_OR_RETURN(const std::string config, Beside(file, "tokenizer_config.json"));
  MW_ASSIGN_OR_RETURN(const std::string added, Beside(file, "added_tokens.json"));
  MW_ASSIGN_OR_RETURN(const AroundSentencePiece around, ParseAround(config, added));
  MW_ASSIGN_OR_RETURN(auto engine, MakeSentencePieceEngine(bytes, around));
  return Tokenizer(std::move(engine));
}

}  // namespace

std::string Tokenizer::FileIn(const std::string& folder) {
  // The last two are SentencePiece's under the names that T5 and XLM-R gave it.
  for (const char* name :
       {"/tokenizer.json", "/tokenizer.model", "/spiece.model", "/sentencepiece.bpe.model"}) {
    if (FileExists(folder + name)) return folder + name;
  }
  return "";
}

Result<Tokenizer> Tokenizer::Load(const std::string& path) {
  MW_ASSIGN_OR_RETURN(const std::string file, FileOf(path));
  MW_ASSIGN_OR_RETURN(const std::string bytes, ReadFile(file));
  const size_t first = bytes.find_first_not_of(" \t\r\n");
  const bool json = first != std::string::npos && bytes[first] == '{';
  if (!json && !file.ends_with(".json") && !file.ends_with(".model") &&
      !LooksLikeSentencePiece(bytes)) {
    return Fail(Unimplemented(
        file + " is neither a tokenizer.json nor a tokenizer.model of SentencePiece"));
  }
  const bool pieces = !json && !file.ends_with(".json");
  Result<Tokenizer> made = pieces ? OfPieces(file, bytes) : FromJson(bytes);
  if (!made.has_value()) return Fail(made.error().WithContext(file));
  return made;
}

Result<Tokenizer> Tokenizer::FromJson(std::string_view json) {
  MW_ASSIGN_OR_RETURN(auto engine, MakeJsonEngine(json));
  return Tokenizer(std::move(engine));
}

Result<Tokenizer> Tokenizer::FromSentencePiece(std::string_view model) {
  MW_ASSIGN_OR_RETURN(auto engine, MakeSentencePieceEngine(model, {}));
  return Tokenizer(std::move(engine));
}

Result<std::vector<uint32_t>> Tokenizer::Encode(std::string_view text,
                                                EncodeOptions options) const {
  MW_TRY(NeedsUtf8(text));
  MW_ASSIGN_OR_RETURN(std::vector<uint32_t> ids, engine_->Encode(text));
  std::vector<TypedIds> parts(1);
  parts[0].ids = std::move(ids);
  MW_TRY(engine_->PostProcess(parts, options.special));
  if (parts.size() == 1) return std::move(parts[0].ids);
  std::vector<uint32_t> all;
  for (const TypedIds& part : parts) all.insert(all.end(), part.ids.begin(), part.ids.end());
  return all;
}

Result<PairEncoding> Tokenizer::EncodePair(std::string_view first, std::string_view second,
                                           EncodeOptions options) const {
  std::vector<TypedIds> parts;
  for (const std::string_view text : {first, second}) {
    MW_TRY(NeedsUtf8(text));
    MW_ASSIGN_OR_RETURN(std::vector<uint32_t> ids, engine_->Encode(text));
    const auto type = static_cast<uint32_t>(parts.size());
    std::vector<uint32_t> types(ids.size(), type);
    parts.push_back({std::move(ids), std::move(types)});
  }
  MW_TRY(engine_->PostProcess(parts, options.special));
  PairEncoding all;
  for (const TypedIds& part : parts) {
    MW_CHECK(part.ids.size() == part.types.size());
    all.ids.insert(all.ids.end(), part.ids.begin(), part.ids.end());
    all.types.insert(all.types.end(), part.types.begin(), part.types.end());
  }
  return all;
}

std::string Tokenizer::Decode(const std::vector<uint32_t>& ids, bool skip_special) const {
  DecodeRun run(engine_->decoders(), {});
  for (const uint32_t id : ids) {
    if (const auto text = engine_->DecodedText(id, skip_special)) run.Put(*text);
  }
  run.End();
  return run.Take();
}

std::optional<uint32_t> Tokenizer::IdOf(std::string_view token) const {
  return engine_->IdOf(token);
}
std::optional<std::string> Tokenizer::TokenOf(uint32_t id) const { return engine_->TokenOf(id); }
bool Tokenizer::IsSpecial(uint32_t id) const { return engine_->IsSpecial(id); }
uint32_t Tokenizer::id_end() const { return engine_->id_end(); }

}  // namespace meshwright::tokenizer
