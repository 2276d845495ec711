// What executes a tokenizer.
//
// Thread rule: immutable; any thread.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "tokenizer/decoder.h"
#include "tokenizer/post_processor.h"
#include "tokenizer/tokenizer.h"

namespace meshwright::tokenizer {

class Tokenizer::Engine {
 public:
  virtual ~Engine() = default;

  // The ids of a text, which is UTF-8, without special tokens around.
  virtual Result<std::vector<uint32_t>> Encode(std::string_view text) const = 0;
  // Puts special tokens around one text or two.
  virtual Status PostProcess(std::vector<TypedIds>& parts, bool special) const = 0;

  virtual std::optional<uint32_t> IdOf(std::string_view token) const = 0;
  virtual std::optional<std::string> TokenOf(uint32_t id) const = 0;
  virtual bool IsSpecial(uint32_t id) const = 0;
  virtual uint32_t id_end() const = 0;

  // What a decoder is given for an id; nothing where the token is left out.
  virtual std::optional<std::string> DecodedText(uint32_t id, bool skip_special) const = 0;
  virtual const Decoders& decoders() const = 0;
};

// json_engine.cc
Result<std::shared_ptr<const Tokenizer::Engine>> MakeJsonEngine(std::string_view json);

}  // namespace meshwright::tokenizer
