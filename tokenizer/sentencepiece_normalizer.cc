#include "tokenizer/sentencepiece_normalizer.h"

#include "tokenizer/unicode.h"

namespace meshwright::tokenizer {

SentencePieceNormalizer::SentencePieceNormalizer(std::shared_ptr<const SentencePieceFile> file)
    : file_(std::move(file)) {
  for (uint32_t id = 0; id < file_->pieces.size(); ++id) {
    const SentencePiece& piece = file_->pieces[id];
    if (piece.kind == PieceKind::kUserDefined) user_defined_.Add(piece.text, id);
  }
}

size_t SentencePieceNormalizer::UserDefinedAt(std::string_view text) const {
  size_t longest = 0;
  user_defined_.ForEachPrefix(text, [&](size_t bytes, uint32_t) { longest = bytes; });
  return longest;
}

SentencePieceNormalizer::Step SentencePieceNormalizer::Next(std::string_view input) const {
  if (const size_t bytes = UserDefinedAt(input); bytes > 0) return {input.substr(0, bytes), bytes};
  if (file_->replacements) {
    if (const auto found = file_->replacements->Longest(input)) return {found->text, found->bytes};
  }
  const size_t bytes = CharacterBytes(input[0]);
  return {input.substr(0, bytes), bytes};
}

std::string SentencePieceNormalizer::Apply(std::string_view text, Options options) const {
  const std::string_view space = file_->escape_whitespaces ? kSpaceMark : " ";
  if (file_->remove_extra_whitespaces) {
    while (!text.empty()) {
      const Step step = Next(text);
      if (step.text != " ") break;
      text.remove_prefix(step.read);
    }
  }
  std::string out;
  if (text.empty()) return out;
  out.reserve(text.size() + text.size() / 4 + space.size());
  if (file_->add_dummy_prefix && options.prefix) out += space;
  bool after_space = file_->remove_extra_whitespaces;
  while (!text.empty()) {
    const Step step = Next(text);
    std::string_view part = step.text;
    while (after_space && part.starts_with(' ')) part.remove_prefix(1);
    for (const char c : part) {
      if (c == ' ') {
        out += space;
      } else {
        out += c;
      }
    }
    if (!part.empty()) after_space = part.ends_with(' ');
    if (!file_->remove_extra_whitespaces) after_space = false;
    text.remove_prefix(step.read);
  }
  if (file_->remove_extra_whitespaces) {
    while (out.ends_with(space)) out.erase(out.size() - space.size());
  }
  return out;
}

}  // namespace meshwright::tokenizer
