// Tokens that are cut out of a text before anything else is done with it: "added_tokens".
//
// A token that is not `normalized` is looked for in the text as it is, the others in the normalized
// text, with their own content normalized as well. The leftmost one counts, of those the longest.
//
// Thread rule: immutable once made; any thread.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "tokenizer/json.h"
#include "tokenizer/model.h"
#include "tokenizer/normalizer.h"
#include "tokenizer/prefix_tree.h"
#include "tokenizer/text.h"

namespace meshwright::tokenizer {

struct AddedToken {
  std::string content;
  bool single_word = false;  // not where a word character is beside it
  bool lstrip = false;       // takes the spaces before it
  bool rstrip = false;       // and behind it
  bool normalized = true;
  bool special = false;  // is left out of a decoded text on request
};

class AddedTokens {
 public:
  // A content that the model has gets the model's id, others the next free one: the ids that the
  // list says are not asked, as in `tokenizers`. normalizer: may be null. Errors: kInvalidArgument,
  // with the path.
  static Result<AddedTokens> Load(const JsonNode& list, const Model& model,
                                  const Normalizer* normalizer);

  // Adds what `piece` is cut into: tokens, and the pieces between them. normalized: looks for the
  // tokens that are.
  void Cut(const Piece& piece, bool normalized, Pieces& pieces) const;
  bool any(bool normalized) const { return !finders_[normalized ? 1 : 0].tree.empty(); }

  std::optional<uint32_t> Find(std::string_view content) const;
  // Null where the id is of none.
  const AddedToken* Of(uint32_t id) const;
  // What a decoder gets for an id that Of knows: the content, normalized where that is its way.
  const std::string& DecodedText(uint32_t id) const { return by_id_.at(id).text; }
  // Whether a text is the content of a special token.
  bool IsSpecial(std::string_view text) const { return special_.count(text) != 0; }
  // Every id, in order.
  std::vector<uint32_t> ids() const;

 private:
  struct Entry {
    AddedToken token;
    std::string text;
  };
  // Finds tokens of one kind.
  struct Finder {
    PrefixTree tree;
    std::vector<bool> first_bytes = std::vector<bool>(256);
  };
  struct Found {
    size_t begin = 0;
    size_t end = 0;
    uint32_t id = 0;
  };
  std::optional<Found> FindNext(const Finder& finder, std::string_view text, size_t from) const;
  Status Add(AddedToken token, uint32_t id, const Normalizer* normalizer);

  std::map<std::string, uint32_t, std::less<>> by_content_;
  std::map<uint32_t, Entry> by_id_;
  std::set<std::string, std::less<>> special_;
  Finder finders_[2];
};

}  // namespace meshwright::tokenizer
