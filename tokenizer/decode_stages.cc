#include <algorithm>
#include <array>
#include <optional>

#include "base/check.h"
#include "base/utf8.h"
#include "tokenizer/byte_alphabet.h"
#include "tokenizer/decoder.h"
#include "tokenizer/unicode.h"

namespace meshwright::tokenizer {
namespace {

constexpr std::string_view kReplacement = "\xef\xbf\xbd";

// A decoder whose stage is made from its options.
template <typename Stage, typename Options>
class Made final : public Decoder {
 public:
  explicit Made(Options options) : options_(std::move(options)) {}
  std::unique_ptr<DecodeStage> Start(DecodeOptions how, FragmentSink& next) const override {
    return std::make_unique<Stage>(options_, how, next);
  }
  bool joins() const override { return Stage::kJoins; }
  bool takes_fragments() const override { return Stage::kTakesFragments; }

 private:
  const Options options_;
};

template <typename Stage, typename Options>
std::shared_ptr<const Decoder> Make(Options options) {
  return std::make_shared<const Made<Stage, Options>>(std::move(options));
}

struct NoOptions {};

// `text` with every `from`, left to right, as `to`.
std::string ReplacedAll(std::string_view text, std::string_view from, std::string_view to) {
  std::string out;
  if (from.empty()) {  // stands between all characters
    for (size_t at = 0; at < text.size();) {
      const size_t bytes = CharacterBytes(text[at]);
      out += to;
      out += text.substr(at, bytes);
      at += bytes;
    }
    return out.append(to);
  }
  size_t at = 0;
  for (size_t found; (found = text.find(from, at)) != text.npos; at = found + from.size()) {
    out += text.substr(at, found - at);
    out += to;
  }
  return out.append(text.substr(at));
}

// Takes back what tokenizing did to English punctuation.
std::string CleanedUp(std::string text) {
  static constexpr std::array<std::array<std::string_view, 2>, 11> pairs = {{{" .", "."},
                                                                             {" ?", "?"},
                                                                             {" !", "!"},
                                                                             {" ,", ","},
                                                                             {" ' ", "'"},
                                                                             {" n't", "n't"},
                                                                             {" 'm", "'m"},
                                                                             {" do not", " don't"},
                                                                             {" 's", "'s"},
                                                                             {" 've", "'ve"},
                                                                             {" 're", "'re"}}};
  for (const auto& [from, to] : pairs) text = ReplacedAll(text, from, to);
  return text;
}

class WholeStage final : public DecodeStage {
 public:
  static constexpr bool kJoins = false;
  static constexpr bool kTakesFragments = true;
  WholeStage(const NoOptions& /*options*/, DecodeOptions /*how*/, FragmentSink& next)
      : DecodeStage(next) {}
  void Put(Fragment fragment) override {
    if (fragment.begins) Flush();
    token_ = token_.value_or("").append(fragment.text);
  }
  void End() override {
    Flush();
    next().End();
  }

 private:
  void Flush() {
    if (token_) next().Put({*token_, true});
    token_.reset();
  }
  std::optional<std::string> token_;
};

class FuseStage final : public DecodeStage {
 public:
  static constexpr bool kJoins = true;
  static constexpr bool kTakesFragments = true;
  FuseStage(const NoOptions& /*options*/, DecodeOptions /*how*/, FragmentSink& next)
      : DecodeStage(next) {}
  void Put(Fragment fragment) override {
    next().Put({fragment.text, !begun_});
    begun_ = true;
  }
  void End() override {
    if (!begun_) next().Put({"", true});
    next().End();
  }

 private:
  bool begun_ = false;
};

class ByteLevelStage final : public DecodeStage {
 public:
  static constexpr bool kJoins = true;
  static constexpr bool kTakesFragments = false;
  ByteLevelStage(const NoOptions& /*options*/, DecodeOptions /*how*/, FragmentSink& next)
      : DecodeStage(next) {}
  void Put(Fragment fragment) override {
    const auto bytes = FromByteAlphabet(fragment.text);
    kept_ += bytes ? std::string_view(*bytes) : fragment.text;
    Emit(kept_.size() - IncompleteTail(kept_));
  }
  void End() override {
    Emit(kept_.size());
    next().End();
  }

 private:
  void Emit(size_t bytes) {
    next().Put({Utf8Lossy(std::string_view(kept_).substr(0, bytes)), !begun_});
    kept_.erase(0, bytes);
    begun_ = true;
  }
  std::string kept_;
  bool begun_ = false;
};

// "<0x41>" is the byte 0x41; bytes that stand together are a text, or U+FFFD each.
class ByteFallbackStage final : public DecodeStage {
 public:
  static constexpr bool kJoins = false;
  static constexpr bool kTakesFragments = false;
  ByteFallbackStage(const ByteFallbackOptions& options, DecodeOptions how, FragmentSink& next)
      : DecodeStage(next), eager_(how.eager || !options.whole_runs) {}
  void Put(Fragment fragment) override {
    if (const auto byte = ByteOf(fragment.text)) {
      bytes_ += *byte;
      if (eager_) Emit(bytes_.size() - IncompleteTail(bytes_));
      return;
    }
    Emit(bytes_.size());
    next().Put(fragment);
  }
  void End() override {
    Emit(bytes_.size());
    next().End();
  }

 private:
  static int Digit(char c) {
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
  }
  static std::optional<char> ByteOf(std::string_view token) {
    if (token.size() != 6 || !token.starts_with("<0x") || token[5] != '>') return std::nullopt;
    const int low = Digit(token[4]);
    // What reads the number in `tokenizers` takes a sign, too.
    if (token[3] == '+' && low >= 0) return static_cast<char>(low);
    const int high = Digit(token[3]);
    if (high < 0 || low < 0) return std::nullopt;
    return static_cast<char>(high * 16 + low);
  }
  void Emit(size_t count) {
    if (count == 0) return;
    const std::string_view run = std::string_view(bytes_).substr(0, count);
    const bool whole = FindInvalidUtf8(run) == run.size();
    for (size_t at = 0; at < count;) {
      const size_t length = eager_ || whole ? Utf8Length(run.substr(at)) : 0;
      next().Put({length > 0 ? run.substr(at, length) : kReplacement, true});
      at += std::max<size_t>(1, length);
    }
    bytes_.erase(0, count);
  }
  const bool eager_;
  std::string bytes_;
};

struct MetaspaceHow {
  std::string mark;
  bool drops_first = false;
};

class MetaspaceStage final : public DecodeStage {
 public:
  static constexpr bool kJoins = false;
  static constexpr bool kTakesFragments = true;
  MetaspaceStage(const MetaspaceHow& how, DecodeOptions /*options*/, FragmentSink& next)
      : DecodeStage(next), how_(how) {}
  void Put(Fragment fragment) override {
    tokens_ += fragment.begins ? 1 : 0;
    const bool drops = how_.drops_first && tokens_ <= 1;
    next().Put({ReplacedAll(fragment.text, how_.mark, drops ? "" : " "), fragment.begins});
  }
  void End() override { next().End(); }

 private:
  const MetaspaceHow& how_;
  int64_t tokens_ = 0;
};

// A word's last token has a suffix, which is a space, but not at the end of all.
class BpeStage final : public DecodeStage {
 public:
  static constexpr bool kJoins = false;
  static constexpr bool kTakesFragments = false;
  BpeStage(const std::string& suffix, DecodeOptions /*options*/, FragmentSink& next)
      : DecodeStage(next), suffix_(suffix) {}
  void Put(Fragment fragment) override {
    Flush(" ");
    kept_ = std::string(fragment.text);
  }
  void End() override {
    Flush("");
    next().End();
  }

 private:
  void Flush(std::string_view space) {
    if (kept_) next().Put({ReplacedAll(*kept_, suffix_, space), true});
    kept_.reset();
  }
  const std::string& suffix_;
  std::optional<std::string> kept_;
};

struct StripHow {
  std::string content;  // one character
  size_t start = 0;
  size_t stop = 0;
};

// Takes so many characters off both ends of each token.
class StripStage final : public DecodeStage {
 public:
  static constexpr bool kJoins = false;
  static constexpr bool kTakesFragments = true;
  StripStage(const StripHow& how, DecodeOptions /*options*/, FragmentSink& next)
      : DecodeStage(next), how_(how) {}
  void Put(Fragment fragment) override {
    if (fragment.begins) Begin();
    std::string_view text = fragment.text;
    while (left_ > 0 && text.starts_with(how_.content)) {
      text.remove_prefix(how_.content.size());
      --left_;
    }
    if (!text.empty()) left_ = 0;
    // What could be the end of the token waits.
    std::string all = Repeated(waiting_);
    all += text;
    waiting_ = 0;
    std::string_view rest = all;
    while (waiting_ < how_.stop && rest.ends_with(how_.content)) {
      rest.remove_suffix(how_.content.size());
      ++waiting_;
    }
    next().Put({rest, fragment.begins});
  }
  void End() override { next().End(); }

 private:
  void Begin() {
    left_ = how_.start;
    waiting_ = 0;  // of the token before, whose end they were
  }
  std::string Repeated(size_t count) const {
    std::string text;
    for (size_t i = 0; i < count; ++i) text += how_.content;
    return text;
  }
  const StripHow& how_;
  size_t left_ = 0;
  size_t waiting_ = 0;
};

struct WordPieceHow {
  std::string prefix;
  bool cleanup = true;
};

class WordPieceStage final : public DecodeStage {
 public:
  static constexpr bool kJoins = false;
  static constexpr bool kTakesFragments = false;
  WordPieceStage(const WordPieceHow& how, DecodeOptions /*options*/, FragmentSink& next)
      : DecodeStage(next), how_(how) {}
  void Put(Fragment fragment) override {
    std::string text(fragment.text);
    if (begun_) {
      if (text.starts_with(how_.prefix)) {
        text.erase(0, how_.prefix.size());
      } else {
        text.insert(text.begin(), ' ');
      }
    }
    begun_ = true;
    next().Put({how_.cleanup ? CleanedUp(std::move(text)) : text, true});
  }
  void End() override { next().End(); }

 private:
  const WordPieceHow& how_;
  bool begun_ = false;
};

// Of speech: a token that comes again at once is one, and padding is none.
class CtcStage final : public DecodeStage {
 public:
  static constexpr bool kJoins = false;
  static constexpr bool kTakesFragments = false;
  CtcStage(const CtcOptions& how, DecodeOptions /*options*/, FragmentSink& next)
      : DecodeStage(next), how_(how) {}
  void Put(Fragment fragment) override {
    if (last_ == fragment.text) return;
    last_ = std::string(fragment.text);
    std::string text = ReplacedAll(fragment.text, how_.pad, "");
    if (how_.cleanup) text = ReplacedAll(CleanedUp(std::move(text)), how_.delimiter, " ");
    if (!text.empty()) next().Put({text, true});
  }
  void End() override { next().End(); }

 private:
  const CtcOptions& how_;
  std::optional<std::string> last_;
};

}  // namespace

std::shared_ptr<const Decoder> BpeDecoder(std::string suffix) {
  return Make<BpeStage>(std::move(suffix));
}
std::shared_ptr<const Decoder> ByteFallbackDecoder(ByteFallbackOptions options) {
  return Make<ByteFallbackStage>(options);
}
std::shared_ptr<const Decoder> ByteLevelDecoder() { return Make<ByteLevelStage>(NoOptions()); }
std::shared_ptr<const Decoder> FuseDecoder() { return Make<FuseStage>(NoOptions()); }
std::shared_ptr<const Decoder> MetaspaceDecoder(std::string mark, bool drops_first) {
  return Make<MetaspaceStage>(MetaspaceHow{std::move(mark), drops_first});
}
std::shared_ptr<const Decoder> StripDecoder(std::string content, size_t start, size_t stop) {
  MW_CHECK(!content.empty());
  return Make<StripStage>(StripHow{std::move(content), start, stop});
}
std::shared_ptr<const Decoder> WordPieceDecoder(std::string prefix, bool cleanup) {
  return Make<WordPieceStage>(WordPieceHow{std::move(prefix), cleanup});
}
std::shared_ptr<const Decoder> CtcDecoder(CtcOptions options) {
  return Make<CtcStage>(std::move(options));
}
std::shared_ptr<const Decoder> WholeTokens() { return Make<WholeStage>(NoOptions()); }

}  // namespace meshwright::tokenizer
