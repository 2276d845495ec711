// What cuts a normalized text into pieces: the "pre_tokenizer" of tokenizer.json.
//
// The byte-level one comes in two parts. It cuts, and it writes bytes as characters of the
// alphabet. Where a byte-level BPE follows, that second part is left to the model, which then looks
// bytes up as they are (LoadedPreTokenizer::final_bytes).
//
// Thread rule: immutable; any thread.
#pragma once

#include <memory>

#include "base/result.h"
#include "tokenizer/json.h"
#include "tokenizer/text.h"

namespace meshwright::tokenizer {

// How GPT-2's tokenizer cuts: contractions, words and numbers with a space before them, the rest.
inline constexpr std::string_view kGpt2Pattern =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

class PreTokenizer {
 public:
  virtual ~PreTokenizer() = default;
  // Cuts each piece that is no token. Errors: a pattern that gives up.
  virtual Status Apply(Pieces& pieces) const = 0;
};

struct LoadedPreTokenizer {
  std::shared_ptr<const PreTokenizer> cutter;
  // Whether what comes out are bytes that the model has to take for characters of the alphabet.
  bool final_bytes = false;
};

// leave_bytes: the model can take bytes. Errors: kInvalidArgument, with the path of what is
// unknown, missing or of another kind.
Result<LoadedPreTokenizer> LoadPreTokenizer(const JsonNode& node, bool leave_bytes);

// Of Metaspace, which is a decoder too.
enum class PrependScheme : uint8_t { kFirst, kNever, kAlways };
struct MetaspaceOptions {
  std::string replacement;  // one character
  PrependScheme prepend = PrependScheme::kAlways;
  bool split = true;
};
Result<MetaspaceOptions> LoadMetaspace(const JsonNode& node);

}  // namespace meshwright::tokenizer
