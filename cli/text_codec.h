// Between what a user types and reads and the tokens of a model: bytes, or the tokenizer of a
// folder.
//
// Thread rule: one thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "ir/data_spec.h"
#include "tokenizer/text_stream.h"
#include "tokenizer/tokenizer.h"

namespace meshwright::cli {

class TextCodec {
 public:
  static TextCodec OfBytes() { return TextCodec(std::nullopt); }
  // As rows of texts are made of bytes (cli/row_files.h): other numbers, and a text has an end.
  static TextCodec OfRowBytes();
  // Errors: those of Tokenizer::Load.
  static Result<TextCodec> OfFolder(const std::string& folder);

  bool is_bytes() const { return !tokenizer_; }
  // special: with the tokens around a text; a rendered chat template has them already.
  Result<std::vector<int32_t>> Encode(const std::string& text, bool special = true) const;
  // The token of this text; nothing where it is none, and of bytes.
  std::optional<int32_t> TokenOf(const std::string& text) const;
  // The text that is whole with this token; bytes of a character wait for the rest.
  std::string Put(int32_t token);
  // What still waits. The next Put begins a text anew.
  std::string End();

 private:
  explicit TextCodec(std::optional<tokenizer::Tokenizer> tokenizer);
  std::optional<tokenizer::Tokenizer> tokenizer_;  // nothing: a token is a byte
  std::optional<tokenizer::TextStream> stream_;
  std::string waiting_;         // bytes of a character that is not whole
  int32_t first_byte_ = 0;      // the token of byte 0
  std::optional<int32_t> end_;  // of a text of bytes
};

// What the tokens of a job's data are: "bytes" (text, a token is a byte), "uint16" or "uint32".
std::string TokenFormatOf(const ir::DataSpec& data);

}  // namespace meshwright::cli
