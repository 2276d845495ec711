// The unigram model: of all ways to cut a text the one whose tokens have the largest sum of scores.
//
// Source: Kudo 2018, section 3.2; the order in which equal sums are judged is that of `tokenizers`.
#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "tokenizer/model.h"
#include "tokenizer/prefix_tree.h"
#include "tokenizer/unicode.h"
#include "tokenizer/word_cache.h"

namespace meshwright::tokenizer {
namespace {

constexpr double kUnknownPenalty = 10;

class Unigram final : public Model {
 public:
  struct Entry {
    std::string_view text;
    double score = 0;
  };

  Unigram(const std::vector<Entry>& entries, std::optional<uint32_t> unknown, bool byte_fallback)
      : unknown_(unknown), size_(entries.size()), owner_(WordCache::NewOwner()) {
    double least = std::numeric_limits<double>::infinity();
    size_t bytes = 0;
    for (const Entry& entry : entries) bytes += entry.text.size();
    vocabulary_.Reserve(entries.size(), bytes);
    tree_.Reserve(bytes);
    for (const Entry& entry : entries) {
      const auto id = static_cast<uint32_t>(scores_.size());
      vocabulary_.Add(entry.text, id);
      if (!entry.text.empty()) tree_.Add(entry.text, id);
      scores_.push_back(entry.score);
      least = std::min(least, entry.score);
    }
    unknown_score_ = least - kUnknownPenalty;
    if (!byte_fallback) return;
    for (size_t byte = 0; byte < 256; ++byte) {
      of_byte_.push_back(vocabulary_.Find(fmt::format("<0x{:02X}>", byte)));
    }
  }

  const Vocabulary& vocabulary() const override { return vocabulary_; }
  size_t size() const override { return size_; }

  Status Tokenize(std::string_view piece, std::vector<uint32_t>& ids) const override {
    const uint64_t hash = HashText(piece);
    WordCache& cache = WordCache::OfThread();
    if (const auto known = cache.Find(owner_, piece, hash); !known.empty()) {
      ids.insert(ids.end(), known.begin(), known.end());
      return OkStatus();
    }
    const size_t begin = ids.size();
    std::vector<Step> best(piece.size() + 1);
    MW_TRY(FindBest(piece, best));
    MW_TRY(Emit(piece, best, ids));
    cache.Put(owner_, piece, hash, std::span<const uint32_t>(ids).subspan(begin));
    return OkStatus();
  }

 private:
  // The best way to a place of the text: its last token.
  struct Step {
    double score = 0;
    size_t begin = kNowhere;
    uint32_t id = 0;
  };
  static constexpr size_t kNowhere = SIZE_MAX;

  static void Improve(Step& step, double score, size_t begin, uint32_t id) {
    if (step.begin == kNowhere || score > step.score) step = {score, begin, id};
  }

  Status FindBest(std::string_view piece, std::vector<Step>& best) const {
    for (size_t at = 0; at < piece.size();) {
      const size_t character = CharacterBytes(piece[at]);
      const double here = best[at].score;
      bool single = false;
      tree_.ForEachPrefix(piece.substr(at), [&](size_t length, uint32_t id) {
        Improve(best[at + length], scores_[id] + here, at, id);
        single = single || length == character;
      });
      if (!single) {
        if (!unknown_) return NoToken(piece.substr(at, character));
        Improve(best[at + character], unknown_score_ + here, at, *unknown_);
      }
      at += character;
    }
    return OkStatus();
  }

  Status NoToken(std::string_view text) const {
    return InvalidArgument(
        fmt::format("the vocabulary has no token for '{}', and no unk_id", text));
  }

  // The tokens of the best way; neighbours that are unknown are one.
  Status Emit(std::string_view piece, const std::vector<Step>& best,
              std::vector<uint32_t>& ids) const {
    std::vector<std::string_view> parts;
    size_t end = piece.size();
    while (end > 0) {
      size_t begin = best[end].begin;
      while (begin > 0 && IsUnknown(best[end]) && IsUnknown(best[begin])) {
        begin = best[begin].begin;
      }
      parts.push_back(piece.substr(begin, end - begin));
      end = begin;
    }
    for (size_t i = parts.size(); i-- > 0;) {
      if (const auto id = vocabulary_.Find(parts[i])) {
        ids.push_back(*id);
      } else if (!EmitBytes(parts[i], ids)) {
        if (!unknown_) return NoToken(parts[i]);
        ids.push_back(*unknown_);
      }
    }
    return OkStatus();
  }

  bool IsUnknown(const Step& step) const { return unknown_ && step.id == *unknown_; }

  bool EmitBytes(std::string_view text, std::vector<uint32_t>& ids) const {
    if (of_byte_.empty()) return false;
    const size_t before = ids.size();
    for (const char c : text) {
      const auto id = of_byte_[static_cast<unsigned char>(c)];
      if (!id) {
        ids.resize(before);
        return false;
      }
      ids.push_back(*id);
    }
    return true;
  }

  Vocabulary vocabulary_;
  PrefixTree tree_;
  std::vector<double> scores_;
  const std::optional<uint32_t> unknown_;
  const size_t size_;
  const uint64_t owner_;
  double unknown_score_ = 0;
  std::vector<std::optional<uint32_t>> of_byte_;  // empty: bytes are not spelt
};

// ["text", score].
Result<Unigram::Entry> EntryOf(const JsonNode& node) {
  Unigram::Entry entry;
  size_t count = 0;
  MW_TRY(node.ForEachItem([&](size_t index, const JsonNode& part) -> Status {
    if (index == 0) {
      MW_ASSIGN_OR_RETURN(entry.text, part.AsText());
    } else {
      MW_ASSIGN_OR_RETURN(entry.score, part.AsNumber());
    }
    ++count;
    return OkStatus();
  }));
  if (count != 2) return Fail(InvalidArgument("is not a text and a score"));
  return entry;
}

}  // namespace

Result<std::shared_ptr<const Model>> LoadUnigram(const JsonNode& node) {
  MW_ASSIGN_OR_RETURN(const JsonNode list, node.Member("vocab"));
  std::vector<Unigram::Entry> entries;
  MW_TRY(list.ForEachItem([&](size_t index, const JsonNode& item) -> Status {
    const Result<Unigram::Entry> entry = EntryOf(item);
    if (!entry.has_value()) {
      return entry.error().WithContext(fmt::format("{}[{}]", list.path(), index));
    }
    entries.push_back(*entry);
    return OkStatus();
  }));
  if (static_cast<int64_t>(entries.size()) > kMaxTokenId) {
    return Fail(list.Wrong(fmt::format("has more than {} tokens", kMaxTokenId)));
  }
  std::optional<uint32_t> unknown;
  if (const auto id = node.Find("unk_id")) {
    MW_ASSIGN_OR_RETURN(const int64_t value, id->AsInt());
    if (value < 0 || value >= static_cast<int64_t>(entries.size())) {
      return Fail(id->Wrong(fmt::format("is {}; there are {} tokens", value, entries.size())));
    }
    unknown = static_cast<uint32_t>(value);
  }
  MW_ASSIGN_OR_RETURN(const bool fallback, node.BoolOr("byte_fallback", false));
  return std::make_shared<const Unigram>(entries, unknown, fallback);
}

}  // namespace meshwright::tokenizer
