// Spans of a text that are hidden, and to be written back: what T5 is trained on before anything
// else.
//
//   the text   The cat sat on the mat .
//   a source   The cat <0> the <1> .         what is hidden is one sentinel for each span
//   a target   <0> sat on <1> mat            the sentinels, and what they stand for
//
// Which tokens are hidden is a function of (seed, stream, sample) and the rules alone: a share
// `density` of them, in spans of `mean` tokens on average. All ways to cut the hidden tokens into
// so many spans are equally likely, and so are those to cut the others into the parts between; the
// first part is not hidden. Both have a token that ends them. Thread rule: pure functions. Source:
// Raffel et al. 2020, section 3.1.4 and its code (random_spans_noise_mask).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace meshwright::data {

struct SpanRules {
  double density = 0.15;
  double mean = 3;
  uint64_t seed = 0;
};

// Of each token of a text of `length`, whether it is hidden. REQUIRES 0 < density < 1, mean >= 1,
// length >= 2.
std::vector<bool> HiddenSpans(int64_t length, const SpanRules& rules, uint64_t stream,
                              uint64_t sample);

struct SpanSizes {
  int64_t text = 0;    // tokens of a text
  int64_t spans = 0;   // of it
  int64_t source = 0;  // what is made of it, with the token that ends it
  int64_t target = 0;
};
// Those of a text of so many tokens. REQUIRES as HiddenSpans.
SpanSizes SizesOfText(int64_t length, const SpanRules& rules);
// Those of the longest text whose source has at most so many tokens; no text: there is none.
SpanSizes SizesOfSource(int64_t most, const SpanRules& rules);

struct SpanPair {
  std::vector<uint32_t> source;
  std::vector<uint32_t> target;
};
// sentinels: of the first span, the second, and so on. REQUIRES as many flags as tokens, and a
// sentinel for each span.
SpanPair HideSpans(std::span<const uint32_t> text, const std::vector<bool>& hidden,
                   std::span<const uint32_t> sentinels, uint32_t end);

}  // namespace meshwright::data
