// The text of tokens that come one by one.
//
// Never gives out a part of a character: its bytes wait for the rest. All parts together are what
// Tokenizer::Decode says of all tokens, but for one case: where byte tokens ("<0xE2>") turn out to
// be no text after some of them were given out, only the rest is U+FFFD.
//
// Thread rule: one thread. Costs O(1) per token.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "tokenizer/tokenizer.h"

namespace meshwright::tokenizer {

class TextStream {
 public:
  explicit TextStream(Tokenizer tokenizer, bool skip_special = true);
  ~TextStream();
  TextStream(TextStream&&) noexcept;
  TextStream& operator=(TextStream&&) noexcept;

  // What can be shown now, often nothing.
  std::string Put(uint32_t id);
  // What was still waiting; a character that will never be whole is U+FFFD. REQUIRES: called once.
  std::string End();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace meshwright::tokenizer
