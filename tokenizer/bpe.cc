// Byte pair encoding, on characters or on bytes.
#include <fmt/format.h>

#include <array>

#include "tokenizer/byte_alphabet.h"
#include "tokenizer/merges.h"
#include "tokenizer/model.h"
#include "tokenizer/unicode.h"
#include "tokenizer/word_cache.h"

namespace meshwright::tokenizer {
namespace {

struct BpeOptions {
  std::string unknown;  // "" for none
  std::string prefix;   // of what is not first in a word
  std::string suffix;   // of what is last in one
  bool fuse_unknown = false;
  bool byte_fallback = false;
  bool ignore_merges = false;
  bool bytes = false;
};

class Bpe final : public Model {
 public:
  Bpe(BpeOptions options, Vocabulary vocabulary, MergeTable merges)
      : options_(std::move(options)),
        vocabulary_(std::move(vocabulary)),
        merges_(std::move(merges)),
        owner_(WordCache::NewOwner()) {
    if (!options_.unknown.empty()) unknown_id_ = vocabulary_.Find(options_.unknown);
    for (size_t byte = 0; byte < 256; ++byte) {
      std::string text = fmt::format("<0x{:02X}>", byte);
      if (options_.bytes) {
        text.clear();
        AppendUtf8(ByteAlphabet()[byte], text);
      }
      of_byte_[byte] = vocabulary_.Find(text);
    }
  }

  const Vocabulary& vocabulary() const override { return vocabulary_; }

  Status Tokenize(std::string_view piece, std::vector<uint32_t>& ids) const override {
    const uint64_t hash = HashText(piece);
    WordCache& cache = WordCache::OfThread();
    if (const auto known = cache.Find(owner_, piece, hash); !known.empty()) {
      ids.insert(ids.end(), known.begin(), known.end());
      return OkStatus();
    }
    const size_t begin = ids.size();
    if (options_.ignore_merges) {
      const auto whole =
          options_.bytes ? vocabulary_.Find(ToByteAlphabet(piece)) : vocabulary_.Find(piece, hash);
      if (whole) ids.push_back(*whole);
    }
    if (ids.size() == begin) {
      MW_TRY(Spell(piece, ids));
      merges_.Apply(ids, begin);
    }
    cache.Put(owner_, piece, hash, std::span<const uint32_t>(ids).subspan(begin));
    return OkStatus();
  }

 private:
  // Unknown characters that were read and are not among the ids yet.
  struct Pending {
    bool unknown = false;
  };

  // The ids of the characters, or bytes, of a piece.
  Status Spell(std::string_view piece, std::vector<uint32_t>& ids) const {
    Pending pending;
    for (size_t at = 0; at < piece.size();) {
      const size_t length = options_.bytes ? 1 : CharacterBytes(piece[at]);
      const auto known = options_.bytes ? of_byte_[static_cast<unsigned char>(piece[at])]
                                        : FindCharacter(piece, at, length);
      if (known) {
        Flush(pending, ids);
        ids.push_back(*known);
      } else {
        MW_TRY(SpellUnknown(piece, at, length, pending, ids));
      }
      at += length;
    }
    Flush(pending, ids);
    return OkStatus();
  }

  void Flush(Pending& pending, std::vector<uint32_t>& ids) const {
    if (pending.unknown) ids.push_back(*unknown_id_);
    pending.unknown = false;
  }

  // The character as it stands in the vocabulary, with what goes before or behind it.
  std::string WithAffixes(std::string_view piece, size_t at, size_t length) const {
    std::string text = at > 0 ? options_.prefix : "";
    text += piece.substr(at, length);
    if (at + length == piece.size()) text += options_.suffix;
    return text;
  }

  std::optional<uint32_t> FindCharacter(std::string_view piece, size_t at, size_t length) const {
    if (options_.prefix.empty() && options_.suffix.empty()) {
      return vocabulary_.Find(piece.substr(at, length));
    }
    return vocabulary_.Find(WithAffixes(piece, at, length));
  }

  Status SpellUnknown(std::string_view piece, size_t at, size_t length, Pending& pending,
                      std::vector<uint32_t>& ids) const {
    if (options_.byte_fallback) {
      const std::string text = WithAffixes(piece, at, length);
      const size_t before = ids.size();
      for (const char c : text) {
        const auto id = of_byte_[static_cast<unsigned char>(c)];
        if (id) ids.push_back(*id);
      }
      if (ids.size() == before + text.size()) return OkStatus();
      ids.resize(before);
    }
    if (options_.unknown.empty()) return OkStatus();  // the character is lost
    if (!unknown_id_) {
      return InvalidArgument(
          fmt::format("the vocabulary has neither '{}' nor the unknown token '{}'",
                      piece.substr(at, length), options_.unknown));
    }
    if (!options_.fuse_unknown) Flush(pending, ids);
    pending.unknown = true;
    return OkStatus();
  }

  const BpeOptions options_;
  const Vocabulary vocabulary_;
  const MergeTable merges_;
  const uint64_t owner_;
  std::optional<uint32_t> unknown_id_;
  std::array<std::optional<uint32_t>, 256> of_byte_;
};

// The two parts of a merge: "a b", or ["a", "b"].
Result<std::array<std::string_view, 2>> PartsOf(const JsonNode& merge) {
  std::array<std::string_view, 2> parts;
  if (merge.IsString()) {
    MW_ASSIGN_OR_RETURN(const std::string_view text, merge.AsText());
    const size_t space = text.find(' ');
    if (space == text.npos || text.find(' ', space + 1) != text.npos) {
      return Fail(InvalidArgument(fmt::format("'{}' is not two texts and one space", text)));
    }
    parts = {text.substr(0, space), text.substr(space + 1)};
    return parts;
  }
  size_t count = 0;
  MW_TRY(merge.ForEachItem([&](size_t index, const JsonNode& part) -> Status {
    MW_ASSIGN_OR_RETURN(const std::string_view text, part.AsText());
    if (index < 2) parts[index] = text;
    ++count;
    return OkStatus();
  }));
  if (count != 2) return Fail(InvalidArgument(fmt::format("has {} parts, not 2", count)));
  return parts;
}

// Adds merge `index`. Errors have no path.
Status AddMerge(const JsonNode& merge, size_t index, size_t prefix_bytes,
                const Vocabulary& vocabulary, std::string& joined, MergeTable& merges) {
  MW_ASSIGN_OR_RETURN(const auto parts, PartsOf(merge));
  if (parts[1].size() < prefix_bytes) {
    return InvalidArgument(fmt::format("'{}' lacks the prefix of what goes on a word", parts[1]));
  }
  joined.assign(parts[0]);
  joined += parts[1].substr(prefix_bytes);
  std::array<uint32_t, 3> ids = {};
  const std::array<std::string_view, 3> texts = {parts[0], parts[1], joined};
  for (size_t i = 0; i < 3; ++i) {
    const auto id = vocabulary.Find(texts[i]);
    if (!id) return InvalidArgument(fmt::format("'{}' is not in the vocabulary", texts[i]));
    ids[i] = *id;
  }
  merges.Add(ids[0], ids[1], {static_cast<uint32_t>(index), ids[2]});
  return OkStatus();
}

Result<MergeTable> LoadMerges(const JsonNode& node, size_t prefix_bytes,
                              const Vocabulary& vocabulary) {
  MergeTable merges;
  MW_ASSIGN_OR_RETURN(const size_t count, node.Count());
  merges.Reserve(count);
  std::string joined;
  MW_TRY(node.ForEachItem([&](size_t index, const JsonNode& merge) {
    Status added = AddMerge(merge, index, prefix_bytes, vocabulary, joined, merges);
    return added.ok() ? added : added.WithContext(fmt::format("{}[{}]", node.path(), index));
  }));
  return merges;
}

}  // namespace

Result<std::shared_ptr<const Model>> LoadBpe(const JsonNode& node, bool bytes) {
  BpeOptions options;
  options.bytes = bytes;
  if (const auto dropout = node.Find("dropout")) {
    MW_ASSIGN_OR_RETURN(const double share, dropout->AsNumber());
    if (share != 0) {
      return Fail(
          dropout->Wrong("leaves merges out by chance, which is for training only; "
                         "remove it, or set it to null"));
    }
  }
  MW_ASSIGN_OR_RETURN(options.unknown, node.TextOr("unk_token", ""));
  MW_ASSIGN_OR_RETURN(options.prefix, node.TextOr("continuing_subword_prefix", ""));
  MW_ASSIGN_OR_RETURN(options.suffix, node.TextOr("end_of_word_suffix", ""));
  MW_ASSIGN_OR_RETURN(options.fuse_unknown, node.BoolOr("fuse_unk", false));
  MW_ASSIGN_OR_RETURN(options.byte_fallback, node.BoolOr("byte_fallback", false));
  MW_ASSIGN_OR_RETURN(options.ignore_merges, node.BoolOr("ignore_merges", false));
  MW_ASSIGN_OR_RETURN(const JsonNode texts, node.Member("vocab"));
  MW_ASSIGN_OR_RETURN(Vocabulary vocabulary, LoadVocabulary(texts));
  MW_ASSIGN_OR_RETURN(const JsonNode pairs, node.Member("merges"));
  MW_ASSIGN_OR_RETURN(MergeTable merges, LoadMerges(pairs, options.prefix.size(), vocabulary));
  return std::make_shared<const Bpe>(std::move(options), std::move(vocabulary), std::move(merges));
}

}  // namespace meshwright::tokenizer
