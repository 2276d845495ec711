#include "cli/text_codec.h"

#include <utility>

#include "base/utf8.h"
#include "cli/row_files.h"

namespace meshwright::cli {
namespace {

constexpr const char* kNoCharacter = "\xEF\xBF\xBD";  // U+FFFD
constexpr size_t kLongestCharacter = 4;

}  // namespace

TextCodec::TextCodec(std::optional<tokenizer::Tokenizer> tokenizer)
    : tokenizer_(std::move(tokenizer)) {
  if (tokenizer_) stream_.emplace(*tokenizer_);
}

TextCodec TextCodec::OfRowBytes() {
  TextCodec codec = OfBytes();
  codec.first_byte_ = kFirstByte;
  codec.end_ = kEndOfBytes;
  return codec;
}

Result<TextCodec> TextCodec::OfFolder(const std::string& folder) {
  MW_ASSIGN_OR_RETURN(tokenizer::Tokenizer tokenizer, tokenizer::Tokenizer::Load(folder));
  return TextCodec(std::move(tokenizer));
}

Result<std::vector<int32_t>> TextCodec::Encode(const std::string& text, bool special) const {
  std::vector<int32_t> tokens;
  if (!tokenizer_) {
    for (const char c : text) tokens.push_back(first_byte_ + static_cast<unsigned char>(c));
    if (special && end_) tokens.push_back(*end_);
    return tokens;
  }
  MW_ASSIGN_OR_RETURN(const std::vector<uint32_t> ids, tokenizer_->Encode(text, {special}));
  for (const uint32_t id : ids) tokens.push_back(static_cast<int32_t>(id));
  return tokens;
}

std::optional<int32_t> TextCodec::TokenOf(const std::string& text) const {
  if (!tokenizer_) return std::nullopt;
  const std::optional<uint32_t> id = tokenizer_->IdOf(text);
  return id ? std::optional<int32_t>(static_cast<int32_t>(*id)) : std::nullopt;
}

std::string TextCodec::Put(int32_t token) {
  if (stream_) return stream_->Put(static_cast<uint32_t>(token));
  if (token < first_byte_) return "";
  waiting_.push_back(static_cast<char>(token - first_byte_));
  std::string whole;
  while (!waiting_.empty()) {
    if (const size_t length = Utf8Length(waiting_); length > 0) {
      whole += waiting_.substr(0, length);
      waiting_.erase(0, length);
      continue;
    }
    // The beginning of a character, or a byte that belongs to none.
    const auto first = static_cast<unsigned char>(waiting_[0]);
    if (first >= 0xC2 && first < 0xF5 && waiting_.size() < kLongestCharacter) break;
    whole += kNoCharacter;
    waiting_.erase(0, 1);
  }
  return whole;
}

std::string TextCodec::End() {
  if (stream_) {
    std::string rest = stream_->End();
    stream_.emplace(*tokenizer_);
    return rest;
  }
  return std::exchange(waiting_, "").empty() ? "" : kNoCharacter;
}

std::string TokenFormatOf(const ir::DataSpec& data) {
  for (const ir::DataStream& stream : data.streams) {
    if (stream.kind != ir::DataKind::kTokens || stream.fields.empty()) continue;
    const ir::Element element = stream.fields.front().element;
    if (element == ir::Element::kU8) return "bytes";
    return element == ir::Element::kU16 ? "uint16" : "uint32";
  }
  return data.format;
}

}  // namespace meshwright::cli
