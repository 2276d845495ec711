// Special tokens around the tokens of one text or two: the "post_processor" of tokenizer.json.
//
// Thread rule: immutable; any thread.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "base/result.h"
#include "tokenizer/json.h"

namespace meshwright::tokenizer {

// Tokens and their types, which say of which text each is.
struct TypedIds {
  std::vector<uint32_t> ids;
  std::vector<uint32_t> types;
};

class PostProcessor {
 public:
  virtual ~PostProcessor() = default;
  // Changes what is to stand one behind the other: one part per text at first. special: adds
  // special tokens. Errors: kInvalidArgument where a template meets parts that it has no place for.
  virtual Status Apply(std::vector<TypedIds>& parts, bool special) const = 0;
};

// Errors: kInvalidArgument, with the path of what is unknown, missing or of another kind.
Result<std::shared_ptr<const PostProcessor>> LoadPostProcessor(const JsonNode& node);

}  // namespace meshwright::tokenizer
