// A text on its way through normalizers, and the pieces that pre-tokenizers cut it into.
//
// Of where a text came from only one thing matters to what follows: whether it begins where the
// user's text begins (Metaspace's "first"). Text counts the bytes for which that holds.
//
// Thread rule: plain values of one call.
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <vector>

#include "tokenizer/regex.h"
#include "tokenizer/unicode.h"

namespace meshwright::tokenizer {

struct Text {
  std::string bytes;
  // So many bytes at the front come from the first character of the user's text.
  size_t of_start = 0;
};

// Writes a text anew, character by character, and keeps Text::of_start.
//
// Source: the rule by which `tokenizers` aligns a normalized text with its original.
class Rewriting {
 public:
  explicit Rewriting(Text& text) : text_(text) { out_.bytes.reserve(text.bytes.size()); }

  // The next character that was not read yet. REQUIRES: !done().
  Character Next() const { return CharacterAt(text_.bytes, read_); }
  bool done() const { return read_ >= text_.bytes.size(); }

  // Leaves out the next character.
  void Drop() { read_ += Next().bytes; }
  // Writes `code` in the place of the next character.
  void Replace(char32_t code) { Put(code, read_), Drop(); }
  void Keep() { Replace(Next().code); }
  // Writes one more, which belongs to the last one read.
  void Insert(char32_t code) { Put(code, read_ == 0 ? 0 : read_ - 1); }

  // Puts what was written, and the rest as it is, into the text.
  void Finish();

 private:
  void Put(char32_t code, size_t aligned);

  Text& text_;
  Text out_;
  size_t read_ = 0;
};

// Writes `front` before the text; nothing where that is empty.
void Prepend(std::string_view front, Text& text);

struct Piece {
  std::string_view bytes;
  size_t of_start = 0;  // as Text::of_start
  int64_t token = -1;   // of an added token, which nothing cuts any more
};

// Pieces in order, none empty, and the memory of those that were written anew.
class Pieces {
 public:
  std::vector<Piece>& list() { return list_; }
  const std::vector<Piece>& list() const { return list_; }

  // Keeps `bytes` as long as the object lives.
  std::string_view Own(std::string bytes) { return owned_.emplace_back(std::move(bytes)); }
  Piece Own(Text text) {
    const size_t of_start = text.of_start;
    return {Own(std::move(text.bytes)), of_start};
  }
  // Adds a part of `piece`, unless it is empty.
  void Add(const Piece& piece, Span span);
  void Add(const Piece& piece) {
    if (!piece.bytes.empty()) list_.push_back(piece);
  }

 private:
  std::vector<Piece> list_;
  std::deque<std::string> owned_;
};

// What becomes of the matches of a pattern that cuts a text.
enum class SplitBehavior : uint8_t {
  kRemoved,
  kIsolated,
  kMergedWithPrevious,
  kMergedWithNext,
  kContiguous,
};

// Adds the parts of `piece` that `matches`, which cover it, leave.
void AddSplit(const Piece& piece, const std::vector<Match>& matches, SplitBehavior behavior,
              Pieces& pieces);

}  // namespace meshwright::tokenizer
