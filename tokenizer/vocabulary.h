// Texts of tokens and their ids, both ways.
//
// Thread rule: immutable once filled; any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "tokenizer/json.h"

namespace meshwright::tokenizer {

// Hash of a short text. Equal on all machines.
uint64_t HashText(std::string_view text);

// The largest id that a vocabulary may have. A file that names a larger one is refused, since
// there is a place for each id up to the last one.
inline constexpr int64_t kMaxTokenId = (int64_t{1} << 24) - 1;

class Vocabulary {
 public:
  // Makes room for `tokens` texts.
  void Reserve(size_t tokens, size_t bytes);
  // A text that is there gets the new id. REQUIRES: id <= kMaxTokenId.
  void Add(std::string_view text, uint32_t id);

  std::optional<uint32_t> Find(std::string_view text) const { return Find(text, HashText(text)); }
  // hash: HashText(text), where it is known.
  std::optional<uint32_t> Find(std::string_view text, uint64_t hash) const;
  // None for an id that no token has.
  std::optional<std::string_view> TextOf(uint32_t id) const;
  // Different texts.
  size_t size() const { return size_; }
  // One more than the largest id.
  size_t id_end() const { return by_id_.size(); }

 private:
  struct Place {
    uint32_t begin = 0;
    uint32_t length = 0;
    bool there = false;
  };
  struct Slot {
    uint32_t tag = 0;  // of the hash
    uint32_t id_plus_one = 0;
    Place place;
  };
  std::string_view At(const Place& place) const {
    return std::string_view(texts_).substr(place.begin, place.length);
  }
  void Grow(size_t slots);
  // The slot of the text, or the empty one where it belongs.
  size_t SlotOf(std::string_view text, uint64_t hash) const;

  std::string texts_;
  std::vector<Slot> slots_;
  std::vector<Place> by_id_;
  size_t size_ = 0;
};

// {"text": id, ..}. Errors: kInvalidArgument, with the entry that is wrong.
Result<Vocabulary> LoadVocabulary(const JsonNode& node);

}  // namespace meshwright::tokenizer
