// Text to tokens and back, exactly as Hugging Face's `tokenizers` does it by the same file.
//
//   MW_ASSIGN_OR_RETURN(const Tokenizer tokenizer, Tokenizer::Load("gpt2/tokenizer.json"));
//   MW_ASSIGN_OR_RETURN(const std::vector<uint32_t> ids, tokenizer.Encode("Hello, world"));
//   const std::string text = tokenizer.Decode(ids);
//
// A tokenizer.json is executed, whatever model it is of: normalizer, added tokens, pre-tokenizer,
// model, post-processor, decoder. So is a tokenizer.model, exactly as SentencePiece does it.
//
// Thread rule: immutable; any number of threads use one tokenizer without locks. A copy is cheap,
// it shares everything (docs/tokenizers.md).
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace meshwright::tokenizer {

struct EncodeOptions {
  // Adds the tokens that the post-processor puts around a text. Leave them out where the text
  // already has them, as a rendered chat template does.
  bool special = true;
};

// Tokens of two texts, and of which each is: what "type_ids" are.
struct PairEncoding {
  std::vector<uint32_t> ids;
  std::vector<uint32_t> types;
};

class Tokenizer {
 public:
  // The file of a tokenizer that a folder has; "": none that is read.
  static std::string FileIn(const std::string& folder);

  // A tokenizer.json, a tokenizer.model of SentencePiece, or a folder with one of them. Errors:
  // those of ReadFile; kUnimplemented: another file; kInvalidArgument where it cannot be executed,
  // with the path and the place in the file.
  static Result<Tokenizer> Load(const std::string& path);
  static Result<Tokenizer> FromJson(std::string_view json);
  // The bytes of a tokenizer.model alone, as the package `sentencepiece` executes it.
  static Result<Tokenizer> FromSentencePiece(std::string_view model);

  // Errors: kInvalidArgument where the text is not UTF-8, with the byte, and where the vocabulary
  // can say neither a character nor that it does not know it.
  Result<std::vector<uint32_t>> Encode(std::string_view text, EncodeOptions options = {}) const;
  Result<PairEncoding> EncodePair(std::string_view first, std::string_view second,
                                  EncodeOptions options = {}) const;

  // Ids that no token has are passed over. skip_special: leaves out special tokens.
  std::string Decode(const std::vector<uint32_t>& ids, bool skip_special = true) const;

  std::optional<uint32_t> IdOf(std::string_view token) const;
  // As it stands in the vocabulary: "Ġworld".
  std::optional<std::string> TokenOf(uint32_t id) const;
  bool IsSpecial(uint32_t id) const;
  // One more than the largest id: as many rows as an embedding needs.
  uint32_t id_end() const;

  // What is behind the interface (tokenizer/engine.h).
  class Engine;
  explicit Tokenizer(std::shared_ptr<const Engine> engine) : engine_(std::move(engine)) {}
  const std::shared_ptr<const Engine>& engine() const { return engine_; }

 private:
  std::shared_ptr<const Engine> engine_;
};

}  // namespace meshwright::tokenizer
