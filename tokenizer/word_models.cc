// WordPiece and WordLevel: a piece is a word, looked up whole or from its front.
#include <fmt/format.h>

#include "tokenizer/model.h"
#include "tokenizer/unicode.h"
#include "tokenizer/word_cache.h"

namespace meshwright::tokenizer {
namespace {

// The id for words that the vocabulary cannot spell.
Result<uint32_t> UnknownId(const Vocabulary& vocabulary, std::string_view unknown,
                           std::string_view word) {
  if (const auto id = vocabulary.Find(unknown)) return *id;
  return Fail(InvalidArgument(
      fmt::format("the vocabulary has neither '{}' nor the unknown token '{}'", word, unknown)));
}

// The longest token at the front, again and again; a word with a rest is unknown as a whole.
class WordPiece final : public Model {
 public:
  struct Options {
    std::string unknown;
    std::string prefix;  // of tokens that go on a word
    size_t max_characters = 100;
  };

  WordPiece(Options options, Vocabulary vocabulary)
      : options_(std::move(options)),
        vocabulary_(std::move(vocabulary)),
        owner_(WordCache::NewOwner()) {}

  const Vocabulary& vocabulary() const override { return vocabulary_; }

  Status Tokenize(std::string_view piece, std::vector<uint32_t>& ids) const override {
    const uint64_t hash = HashText(piece);
    WordCache& cache = WordCache::OfThread();
    if (const auto known = cache.Find(owner_, piece, hash); !known.empty()) {
      ids.insert(ids.end(), known.begin(), known.end());
      return OkStatus();
    }
    const size_t begin = ids.size();
    if (!Spell(piece, ids)) {
      ids.resize(begin);
      MW_ASSIGN_OR_RETURN(const uint32_t id, UnknownId(vocabulary_, options_.unknown, piece));
      ids.push_back(id);
    }
    cache.Put(owner_, piece, hash, std::span<const uint32_t>(ids).subspan(begin));
    return OkStatus();
  }

 private:
  bool Spell(std::string_view piece, std::vector<uint32_t>& ids) const {
    size_t characters = 0;
    for (size_t at = 0; at < piece.size(); at += CharacterBytes(piece[at])) ++characters;
    if (characters > options_.max_characters) return false;
    std::string text;
    for (size_t begin = 0; begin < piece.size();) {
      text.assign(begin > 0 ? options_.prefix : "");
      const size_t front = text.size();
      text += piece.substr(begin);
      std::optional<uint32_t> id = vocabulary_.Find(text);
      while (!id && text.size() > front) {
        text.resize(LastCharacter(text));
        if (text.size() > front) id = vocabulary_.Find(text);
      }
      if (!id) return false;
      ids.push_back(*id);
      begin += text.size() - front;
    }
    return true;
  }

  const Options options_;
  const Vocabulary vocabulary_;
  const uint64_t owner_;
};

class WordLevel final : public Model {
 public:
  WordLevel(std::string unknown, Vocabulary vocabulary)
      : unknown_(std::move(unknown)), vocabulary_(std::move(vocabulary)) {}

  const Vocabulary& vocabulary() const override { return vocabulary_; }

  Status Tokenize(std::string_view piece, std::vector<uint32_t>& ids) const override {
    if (const auto id = vocabulary_.Find(piece)) {
      ids.push_back(*id);
      return OkStatus();
    }
    MW_ASSIGN_OR_RETURN(const uint32_t id, UnknownId(vocabulary_, unknown_, piece));
    ids.push_back(id);
    return OkStatus();
  }

 private:
  const std::string unknown_;
  const Vocabulary vocabulary_;
};

}  // namespace

Result<std::shared_ptr<const Model>> LoadWordPiece(const JsonNode& node) {
  WordPiece::Options options;
  MW_ASSIGN_OR_RETURN(options.unknown, node.Text("unk_token"));
  MW_ASSIGN_OR_RETURN(options.prefix, node.Text("continuing_subword_prefix"));
  MW_ASSIGN_OR_RETURN(const int64_t most, node.Int("max_input_chars_per_word"));
  options.max_characters = most < 0 ? 0 : static_cast<size_t>(most);
  MW_ASSIGN_OR_RETURN(const JsonNode texts, node.Member("vocab"));
  MW_ASSIGN_OR_RETURN(Vocabulary vocabulary, LoadVocabulary(texts));
  return std::make_shared<const WordPiece>(std::move(options), std::move(vocabulary));
}

Result<std::shared_ptr<const Model>> LoadWordLevel(const JsonNode& node) {
  MW_ASSIGN_OR_RETURN(std::string unknown, node.Text("unk_token"));
  MW_ASSIGN_OR_RETURN(const JsonNode texts, node.Member("vocab"));
  MW_ASSIGN_OR_RETURN(Vocabulary vocabulary, LoadVocabulary(texts));
  return std::make_shared<const WordLevel>(std::move(unknown), std::move(vocabulary));
}

}  // namespace meshwright::tokenizer
