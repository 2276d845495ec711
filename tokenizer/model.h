// What makes tokens of a piece: the "model" of tokenizer.json.
//
// Thread rule: immutable; any thread, without locks. What a model remembers of pieces that it saw
// belongs to the thread.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "tokenizer/json.h"
#include "tokenizer/vocabulary.h"

namespace meshwright::tokenizer {

class Model {
 public:
  virtual ~Model() = default;
  // Appends the ids of the tokens of `piece`, which is not empty. Errors: kInvalidArgument where
  // the text has what the vocabulary has no token for, not even an unknown one.
  virtual Status Tokenize(std::string_view piece, std::vector<uint32_t>& ids) const = 0;
  virtual const Vocabulary& vocabulary() const = 0;
  // Entries, also where two are equal.
  virtual size_t size() const { return vocabulary().size(); }
};

// Whether the model of `node` can take bytes that are not written in the alphabet
// (tokenizer/byte_alphabet.h).
bool CanTakeBytes(const JsonNode& node);

// bytes: pieces come as bytes. REQUIRES: CanTakeBytes(node) then. Errors: kInvalidArgument, with
// the path of what is unknown, missing or of another kind.
Result<std::shared_ptr<const Model>> LoadModel(const JsonNode& node, bool bytes);

// One loader per type.
Result<std::shared_ptr<const Model>> LoadBpe(const JsonNode& node, bool bytes);
Result<std::shared_ptr<const Model>> LoadUnigram(const JsonNode& node);
Result<std::shared_ptr<const Model>> LoadWordPiece(const JsonNode& node);
Result<std::shared_ptr<const Model>> LoadWordLevel(const JsonNode& node);

}  // namespace meshwright::tokenizer
