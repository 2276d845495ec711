// From the texts of tokens back to text: the "decoder" of tokenizer.json.
//
// A decoder is a chain of stages through which texts of tokens pass as they come, so a stream and a
// whole list of tokens take one way. What a stage cannot say yet it keeps: the bytes of a character
// that is not whole, a token that is treated otherwise when it is the last one.
//
// Thread rule: a Decoder is immutable; a DecodeRun belongs to one thread.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "tokenizer/json.h"

namespace meshwright::tokenizer {

// A part of a token's text. What comes before the next `begins` belongs to the same token.
struct Fragment {
  std::string_view text;
  bool begins = true;
};

// Where a stage puts what it makes: the next stage, or the end of the chain.
class FragmentSink {
 public:
  virtual ~FragmentSink() = default;
  virtual void Put(Fragment fragment) = 0;
  // No token comes any more.
  virtual void End() = 0;
};

// A stage at work. It hands on to `next`, which outlives it.
class DecodeStage : public FragmentSink {
 public:
  explicit DecodeStage(FragmentSink& next) : next_(next) {}

 protected:
  FragmentSink& next() { return next_; }

 private:
  FragmentSink& next_;
};

struct DecodeOptions {
  // For streams: a byte token is shown as soon as a character is whole, although bytes behind it
  // may show that the run of bytes is no text (in which case a decoder says U+FFFD for each).
  bool eager = false;
};

// Makes stages, one per run.
class Decoder {
 public:
  virtual ~Decoder() = default;
  virtual std::unique_ptr<DecodeStage> Start(DecodeOptions options, FragmentSink& next) const = 0;
  // Whether all tokens leave as one, in fragments.
  virtual bool joins() const { return false; }
  // Whether it reads fragments; others are given whole tokens.
  virtual bool takes_fragments() const { return false; }
};

using Decoders = std::vector<std::shared_ptr<const Decoder>>;

// The chain that `node` says. Errors: kInvalidArgument, with the path of what is unknown, missing
// or of another kind.
Result<Decoders> LoadDecoders(const JsonNode& node);
// The chain of a tokenizer without a decoder: tokens with spaces between.
Decoders SpacedTokens();

// Tokens on their way through a chain.
class DecodeRun {
 public:
  DecodeRun(const Decoders& decoders, DecodeOptions options);
  ~DecodeRun();
  DecodeRun(DecodeRun&&) noexcept;
  DecodeRun& operator=(DecodeRun&&) noexcept;

  void Put(std::string_view token);
  // REQUIRES: called once, after the last Put.
  void End();
  // What has come out since the last call.
  std::string Take();

 private:
  class Output;
  std::unique_ptr<Output> output_;
  std::vector<std::unique_ptr<DecodeStage>> stages_;  // the last one first
};

// One stage per type (decode_stages.cc).
std::shared_ptr<const Decoder> BpeDecoder(std::string suffix);
struct ByteFallbackOptions {
  bool whole_runs = true;  // neighbouring byte tokens are a text together, or none of them is
};
std::shared_ptr<const Decoder> ByteFallbackDecoder(ByteFallbackOptions options);
std::shared_ptr<const Decoder> ByteLevelDecoder();
std::shared_ptr<const Decoder> FuseDecoder();
std::shared_ptr<const Decoder> MetaspaceDecoder(std::string mark, bool drops_first);
std::shared_ptr<const Decoder> StripDecoder(std::string content, size_t start, size_t stop);
std::shared_ptr<const Decoder> WordPieceDecoder(std::string prefix, bool cleanup);
struct CtcOptions {
  std::string pad;
  std::string delimiter;
  bool cleanup = true;
};
std::shared_ptr<const Decoder> CtcDecoder(CtcOptions options);
// Puts the fragments of a token together.
std::shared_ptr<const Decoder> WholeTokens();

}  // namespace meshwright::tokenizer
