// Learns a byte-level BPE from text, as GPT-2's tokenizer is one.
//
// The words of the text, cut by GPT-2's pattern, are bytes at first. Again and again the pair of
// neighbours that is most frequent in all words becomes a token, until there are as many as wanted.
// Of pairs that are equally frequent the one with the lower ids comes first, so equal text gives an
// equal file, whatever the order in which it was fed. Source: Sennrich et al. 2016, algorithm 1.
//
// Thread rule: one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/result.h"
#include "tokenizer/regex.h"

namespace meshwright::tokenizer {

struct BpeTrainerOptions {
  int64_t vocabulary = 32'000;  // tokens, the special ones and the 256 bytes among them
  int64_t least_count = 2;      // of a pair that becomes a token
  std::vector<std::string> special_tokens = {"<|endoftext|>"};
};

class BpeTrainer {
 public:
  // Errors: kInvalidArgument where the vocabulary has no room for bytes and special tokens.
  static Result<BpeTrainer> Make(BpeTrainerOptions options);

  // Counts the words of a text, of which no word goes on in the next one. Errors: kInvalidArgument
  // where it is not UTF-8, with the byte.
  Status Feed(std::string_view text);

  // The tokenizer.json. It has fewer tokens than wanted where no pair is frequent enough.
  std::string Train() const;

 private:
  BpeTrainer(BpeTrainerOptions options, Regex pattern)
      : options_(std::move(options)), pattern_(std::move(pattern)) {}

  BpeTrainerOptions options_;
  Regex pattern_;
  std::unordered_map<std::string, int64_t> counts_;
};

}  // namespace meshwright::tokenizer
