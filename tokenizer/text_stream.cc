#include "tokenizer/text_stream.h"

#include "base/check.h"
#include "tokenizer/engine.h"

namespace meshwright::tokenizer {

struct TextStream::State {
  State(Tokenizer of, bool skip)
      : tokenizer(std::move(of)),
        run(tokenizer.engine()->decoders(), {.eager = true}),
        skip_special(skip) {}

  Tokenizer tokenizer;
  DecodeRun run;
  bool skip_special;
  bool ended = false;
};

TextStream::TextStream(Tokenizer tokenizer, bool skip_special)
    : state_(std::make_unique<State>(std::move(tokenizer), skip_special)) {}
TextStream::~TextStream() = default;
TextStream::TextStream(TextStream&&) noexcept = default;
TextStream& TextStream::operator=(TextStream&&) noexcept = default;

std::string TextStream::Put(uint32_t id) {
  MW_CHECK(!state_->ended);
  const auto& engine = *state_->tokenizer.engine();
  if (const auto text = engine.DecodedText(id, state_->skip_special)) state_->run.Put(*text);
  return state_->run.Take();
}

std::string TextStream::End() {
  MW_CHECK(!state_->ended);
  state_->ended = true;
  state_->run.End();
  return state_->run.Take();
}

}  // namespace meshwright::tokenizer
