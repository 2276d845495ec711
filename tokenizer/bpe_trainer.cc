#include "tokenizer/bpe_trainer.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <queue>
#include <set>

#include "base/check.h"
#include "base/text.h"
#include "tokenizer/byte_alphabet.h"
#include "tokenizer/pre_tokenizer.h"
#include "tokenizer/unicode.h"

namespace meshwright::tokenizer {
namespace {

using Pair = std::pair<uint32_t, uint32_t>;

struct Word {
  std::vector<uint32_t> ids;
  int64_t count = 0;
};

// A pair that may become a token. The count is that of when it was put into the queue; it may have
// shrunk since.
struct Candidate {
  int64_t count = 0;
  Pair pair;
  bool operator<(const Candidate& other) const {
    return count != other.count ? count < other.count : pair > other.pair;
  }
};

// Texts of tokens by their ids, each once: two pairs may spell one text.
class Tokens {
 public:
  // The id of the text, a new one where it is new.
  uint32_t Add(const std::string& text) {
    const auto [place, fresh] = ids_.emplace(text, static_cast<uint32_t>(texts_.size()));
    if (fresh) texts_.push_back(text);
    return place->second;
  }
  const std::vector<std::string>& texts() const { return texts_; }

 private:
  std::vector<std::string> texts_;
  std::unordered_map<std::string, uint32_t> ids_;
};

// The words, and where each pair of neighbours is in them.
class Learner {
 public:
  Learner(std::vector<Word> words, Tokens tokens)
      : words_(std::move(words)), tokens_(std::move(tokens)) {
    for (size_t i = 0; i < words_.size(); ++i) Count(i, 1);
    std::vector<Candidate> all;
    for (const auto& [key, place] : places_) all.push_back({place.count, PairOf(key)});
    queue_ = std::priority_queue<Candidate>(std::less<Candidate>(), std::move(all));
  }

  // Makes tokens until there are `most`, or no pair is so frequent.
  void Run(size_t most, int64_t least_count) {
    while (tokens_.texts().size() < most && !queue_.empty()) {
      const Candidate best = queue_.top();
      queue_.pop();
      const auto place = places_.find(KeyOf(best.pair));
      const int64_t now = place == places_.end() ? 0 : place->second.count;
      if (now != best.count) {
        if (now > 0) queue_.push({now, best.pair});
        continue;
      }
      if (now < std::max<int64_t>(1, least_count)) break;
      Merge(best.pair);
    }
  }

  const std::vector<std::string>& tokens() const { return tokens_.texts(); }
  const std::vector<Pair>& merges() const { return merges_; }

 private:
  struct Place {
    int64_t count = 0;
    std::vector<size_t> words;  // that have it, or had it
  };
  static uint64_t KeyOf(Pair pair) { return uint64_t{pair.first} << 32 | pair.second; }
  static Pair PairOf(uint64_t key) {
    return {static_cast<uint32_t>(key >> 32), static_cast<uint32_t>(key)};
  }

  // Adds the pairs of a word, or takes them away.
  void Count(size_t index, int64_t sign) {
    const Word& word = words_[index];
    for (size_t i = 0; i + 1 < word.ids.size(); ++i) {
      Place& place = places_[KeyOf({word.ids[i], word.ids[i + 1]})];
      place.count += sign * word.count;
      if (sign > 0 && (place.words.empty() || place.words.back() != index)) {
        place.words.push_back(index);
      }
    }
  }

  void Merge(Pair pair) {
    const uint32_t id = tokens_.Add(tokens()[pair.first] + tokens()[pair.second]);
    merges_.push_back(pair);
    const std::vector<size_t> indices = std::exchange(places_[KeyOf(pair)].words, {});
    std::set<Pair> fresh;
    for (const size_t index : indices) {
      std::vector<uint32_t>& ids = words_[index].ids;
      if (!Has(ids, pair)) continue;  // another merge took it
      Count(index, -1);
      Replace(ids, pair, id);
      Count(index, 1);
      for (size_t i = 0; i + 1 < ids.size(); ++i) {
        if (ids[i] == id || ids[i + 1] == id) fresh.insert({ids[i], ids[i + 1]});
      }
    }
    places_.erase(KeyOf(pair));
    for (const Pair& made : fresh) queue_.push({places_[KeyOf(made)].count, made});
  }

  static bool Has(const std::vector<uint32_t>& ids, Pair pair) {
    for (size_t i = 0; i + 1 < ids.size(); ++i) {
      if (ids[i] == pair.first && ids[i + 1] == pair.second) return true;
    }
    return false;
  }

  static void Replace(std::vector<uint32_t>& ids, Pair pair, uint32_t id) {
    size_t kept = 0;
    for (size_t i = 0; i < ids.size(); ++i) {
      const bool here = ids[i] == pair.first && i + 1 < ids.size() && ids[i + 1] == pair.second;
      ids[kept++] = here ? id : ids[i];
      i += here ? 1 : 0;
    }
    ids.resize(kept);
  }

  std::vector<Word> words_;
  Tokens tokens_;
  std::vector<Pair> merges_;
  std::unordered_map<uint64_t, Place> places_;
  std::priority_queue<Candidate> queue_;
};

std::string Quoted(std::string_view text) { return fmt::format("\"{}\"", JsonEscape(text)); }

// tokens: the special ones come first. Texts of the others are in the alphabet of bytes.
std::string ToJson(size_t special, const Learner& learner) {
  constexpr std::string_view kByteLevel =
      R"({"type":"ByteLevel","add_prefix_space":false,"trim_offsets":false,"use_regex":true})";
  const std::vector<std::string>& tokens = learner.tokens();
  std::vector<std::string> added;
  std::vector<std::string> vocabulary;
  std::vector<std::string> merges;
  for (size_t id = 0; id < tokens.size(); ++id) {
    vocabulary.push_back(fmt::format("{}:{}", Quoted(tokens[id]), id));
    if (id >= special) continue;
    added.push_back(
        fmt::format(R"({{"id":{},"content":{},"single_word":false,"lstrip":false,"rstrip":false,)"
                    R"("normalized":false,"special":true}})",
                    id, Quoted(tokens[id])));
  }
  for (const auto& [left, right] : learner.merges()) {
    merges.push_back(fmt::format("[{},{}]", Quoted(tokens[left]), Quoted(tokens[right])));
  }
  return fmt::format(
      R"({{"version":"1.0","truncation":null,"padding":null,"added_tokens":[{0}],)"
      R"("normalizer":null,"pre_tokenizer":{1},"post_processor":{1},"decoder":{1},)"
      R"("model":{{"type":"BPE","dropout":null,"unk_token":null,"continuing_subword_prefix":null,)"
      R"("end_of_word_suffix":null,"fuse_unk":false,"byte_fallback":false,"ignore_merges":false,)"
      R"("vocab":{{{2}}},"merges":[{3}]}}}})"
      "\n",
      Join(added, ","), kByteLevel, Join(vocabulary, ","), Join(merges, ","));
}

}  // namespace

Result<BpeTrainer> BpeTrainer::Make(BpeTrainerOptions options) {
  const auto least = static_cast<int64_t>(256 + options.special_tokens.size());
  if (options.vocabulary < least) {
    return Fail(InvalidArgument(
        fmt::format("a vocabulary of {} has no room for 256 bytes and {} special tokens: at least "
                    "{}",
                    options.vocabulary, options.special_tokens.size(), least)));
  }
  std::set<std::string> seen;
  for (const std::string& token : options.special_tokens) {
    if (token.empty() || FindInvalidUtf8(token) != token.size() || !seen.insert(token).second) {
      return Fail(InvalidArgument(
          fmt::format("'{}' is empty, twice or no UTF-8, so it is no special token", token)));
    }
  }
  MW_ASSIGN_OR_RETURN(Regex pattern, Regex::Compile(kGpt2Pattern));
  return BpeTrainer(std::move(options), std::move(pattern));
}

Status BpeTrainer::Feed(std::string_view text) {
  const size_t wrong = FindInvalidUtf8(text);
  if (wrong != text.size()) {
    return InvalidArgument(fmt::format("the text is not UTF-8 at byte {}", wrong));
  }
  std::vector<Match> matches;
  MW_TRY(pattern_.FindAll(text, matches));
  for (const Match& match : matches) {
    ++counts_[std::string(text.substr(match.span.begin, match.span.end - match.span.begin))];
  }
  return OkStatus();
}

std::string BpeTrainer::Train() const {
  // Bytes have ids in the order of their characters, as in files of other trainers.
  Tokens tokens;
  for (const std::string& token : options_.special_tokens) tokens.Add(token);
  std::vector<std::pair<char32_t, size_t>> order;
  for (size_t byte = 0; byte < 256; ++byte) order.emplace_back(ByteAlphabet()[byte], byte);
  std::sort(order.begin(), order.end());
  std::array<uint32_t, 256> of_byte = {};
  for (const auto& [code, byte] : order) {
    std::string text;
    AppendUtf8(code, text);
    of_byte[byte] = tokens.Add(text);
  }
  std::vector<Word> words;
  words.reserve(counts_.size());
  for (const auto& [text, count] : counts_) {
    Word& word = words.emplace_back();
    word.count = count;
    for (const char c : text) word.ids.push_back(of_byte[static_cast<unsigned char>(c)]);
  }
  Learner learner(std::move(words), std::move(tokens));
  learner.Run(static_cast<size_t>(options_.vocabulary), options_.least_count);
  return ToJson(options_.special_tokens.size(), learner);
}

}  // namespace meshwright::tokenizer
