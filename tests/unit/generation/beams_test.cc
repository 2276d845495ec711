// Searches with beams: against all texts that there are, and over pages against whole texts.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "base/philox.h"
#include "generation/settings.h"
#include "generation/write_beams.h"

namespace meshwright::generation::searched {
namespace {

using ::testing::HasSubstr;

constexpr int32_t kVocabulary = 7;

// Logits that depend on all of a text, and on its source.
std::vector<double> LogitsOf(std::span<const int32_t> text, std::span<const int32_t> source,
                             int32_t vocabulary) {
  uint64_t hash = 3;
  for (const int32_t token : source) hash = (hash + static_cast<uint64_t>(token)) * 1000003;
  for (const int32_t token : text) hash = (hash ^ static_cast<uint64_t>(token + 1)) * 1099511628211;
  std::vector<double> logits;
  for (int32_t i = 0; i < vocabulary; ++i) {
    logits.push_back(PhiloxNormal(4, hash, static_cast<uint64_t>(i)));
  }
  return logits;
}

double LogProbability(const std::vector<double>& logits, int32_t token) {
  double sum = 0;
  for (const double logit : logits) sum += std::exp(logit);
  return logits[static_cast<size_t>(token)] - std::log(sum);
}

std::vector<Hypothesis> SearchWhole(const Request& request, const BeamOptions& options,
                                    int64_t longest, int32_t vocabulary) {
  BeamSearch search(request, options, longest);
  std::vector<std::vector<int32_t>> texts = {request.prompt};
  while (true) {
    std::vector<std::vector<double>> logits;
    for (const auto& text : texts) logits.push_back(LogitsOf(text, request.source, vocabulary));
    const std::vector<BeamStep> steps = search.Take(logits);
    if (steps.empty()) return search.best();
    std::vector<std::vector<int32_t>> next;
    for (const BeamStep& step : steps) {
      next.push_back(texts[static_cast<size_t>(step.parent)]);
      next.back().push_back(step.token);
    }
    texts = std::move(next);
  }
}

TEST(BeamSearch, WithBeamsForAllTextsFindsTheLikeliest) {
  constexpr int32_t kWords = 3;
  Request request;
  request.prompt = {1, 2};
  double best = -1e9;
  std::vector<int32_t> likeliest;
  for (int32_t code = 0; code < 27; ++code) {
    const std::vector<int32_t> tokens = {code / 9, code / 3 % 3, code % 3};
    std::vector<int32_t> text = request.prompt;
    double score = 0;
    for (const int32_t token : tokens) {
      score += LogProbability(LogitsOf(text, {}, kWords), token);
      text.push_back(token);
    }
    if (score > best) likeliest = tokens;
    best = std::max(best, score);
  }
  for (const double penalty : {0.0, 1.0}) {
    const auto found = SearchWhole(request, {.beams = 27, .length_penalty = penalty}, 3, kWords);
    ASSERT_EQ(found.size(), 27u);
    EXPECT_EQ(found[0].tokens, likeliest);
    EXPECT_NEAR(found[0].score, best / std::pow(3, penalty), 1e-12);
  }
}

TEST(BeamSearch, OneBeamTakesTheLikeliestToken) {
  Request request;
  request.prompt = {4};
  std::vector<int32_t> text = request.prompt;
  for (int i = 0; i < 9; ++i) {
    const auto logits = LogitsOf(text, {}, kVocabulary);
    text.push_back(
        static_cast<int32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin()));
  }
  const auto found = SearchWhole(request, {}, 9, kVocabulary);
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].tokens, std::vector<int32_t>(text.begin() + 1, text.end()));
}

TEST(BeamSearch, EndsEarlyAsItIsTold) {
  Request request;
  request.prompt = {2};
  request.stops = {0, 5};
  const auto lengths = [&](EarlyStop early) {
    size_t longest = 0;
    for (const Hypothesis& text : SearchWhole(request, {3, 1, early}, 60, kVocabulary)) {
      EXPECT_TRUE(request.stops.contains(text.tokens.back()) || text.tokens.size() == 60);
      longest = std::max(longest, text.tokens.size());
    }
    return longest;
  };
  EXPECT_LE(lengths(EarlyStop::kEnough), lengths(EarlyStop::kNever));
  EXPECT_LT(lengths(EarlyStop::kEnough), 60u);
}

// Pages that hold tokens, each with the source of its row.
class Memory {
 public:
  explicit Memory(const BatchLimits& limits)
      : limits_(limits),
        slots_(static_cast<size_t>(limits.pages * limits.page_tokens), -1),
        sources_(static_cast<size_t>(limits.texts)) {}

  Result<std::vector<std::vector<double>>> Run(const Batch& batch) {
    EXPECT_LE(static_cast<int64_t>(batch.tokens.size()), limits_.tokens);
    if (batch.source) sources_[static_cast<size_t>(batch.source->row)] = batch.source->tokens;
    std::set<size_t> written;
    for (const BatchToken& token : batch.tokens) {
      const size_t slot = SlotOf(batch, token.row, token.position);
      EXPECT_TRUE(written.insert(slot).second) << "two beams write one place";
      slots_[slot] = token.token;
      ++computed_;
    }
    std::vector<std::vector<double>> logits;
    for (const WantedToken& wanted : batch.wanted) {
      const BatchToken& last = batch.tokens[static_cast<size_t>(wanted.place)];
      std::vector<int32_t> text;
      for (int32_t i = 0; i <= last.position; ++i)
        text.push_back(slots_[SlotOf(batch, last.row, i)]);
      logits.push_back(LogitsOf(text, sources_[static_cast<size_t>(last.row)], kVocabulary));
    }
    return logits;
  }

  int64_t computed() const { return computed_; }

 private:
  size_t SlotOf(const Batch& batch, int32_t row, int32_t position) const {
    const int64_t page = batch.table[static_cast<size_t>(row * limits_.text_pages() +
                                                         position / limits_.page_tokens)];
    EXPECT_LT(page, limits_.pages);
    return static_cast<size_t>(page * limits_.page_tokens + position % limits_.page_tokens);
  }

  const BatchLimits limits_;
  std::vector<int32_t> slots_;
  std::vector<std::vector<int32_t>> sources_;
  int64_t computed_ = 0;
};

TEST(WriteBeams, FindsInPagesWhatWholeTextsGive) {
  for (uint64_t seed = 0; seed < 60; ++seed) {
    auto in = [&, next = uint64_t{0}](int64_t low, int64_t high) mutable {
      return low + static_cast<int64_t>(PhiloxBits(seed, 3, next++, 0) %
                                        static_cast<uint64_t>(high - low + 1));
    };
    const BeamOptions options = {in(1, 5), static_cast<double>(in(-2, 4)) / 2,
                                 static_cast<EarlyStop>(in(0, 2))};
    Request request;
    for (int64_t i = in(1, 9); i > 0; --i) {
      request.prompt.push_back(static_cast<int32_t>(in(0, kVocabulary - 1)));
    }
    request.max_new_tokens = in(1, 14);
    if (in(0, 1) == 1) request.stops = {3};
    if (in(0, 1) == 1) request.sampling.repetition_penalty = 1.3;
    BatchLimits limits;
    limits.page_tokens = in(1, 5);
    limits.texts = options.beams + in(0, 2);
    limits.positions = 24;
    limits.tokens = limits.texts + in(0, 3);
    if (in(0, 1) == 1) {
      limits.source_positions = 4;
      request.source = {static_cast<int32_t>(in(1, 6)), 2};
    }
    // As few as may do: no more than the beams need.
    const auto prompt = static_cast<int64_t>(request.prompt.size());
    const int64_t shared = prompt / limits.page_tokens;
    const int64_t each = limits.PagesOf(prompt + request.max_new_tokens - 1) - shared;
    limits.pages = std::max<int64_t>(1, shared + options.beams * each);
    Memory memory(limits);
    const StepLogits steps = [&](const Batch& batch) { return memory.Run(batch); };
    const auto found = WriteBeams(limits, steps, request, options);
    ASSERT_TRUE(found) << found.error();
    const auto whole = SearchWhole(request, options, request.max_new_tokens, kVocabulary);
    ASSERT_EQ(found->size(), whole.size()) << seed;
    for (size_t i = 0; i < whole.size(); ++i) {
      EXPECT_EQ((*found)[i].tokens, whole[i].tokens) << seed;
      EXPECT_EQ((*found)[i].score, whole[i].score) << seed;
    }
  }
}

// A prompt is computed once, whatever grows out of it.
TEST(WriteBeams, ShareWhatTheyHaveInCommon) {
  Request request;
  for (int32_t i = 0; i < 40; ++i) request.prompt.push_back(i % kVocabulary);
  request.max_new_tokens = 6;
  BatchLimits limits;
  limits.page_tokens = 4;
  limits.texts = 4;
  limits.positions = 48;
  limits.tokens = 64;
  limits.pages = 10 + 4 * 2;
  Memory memory(limits);
  const StepLogits steps = [&](const Batch& batch) { return memory.Run(batch); };
  ASSERT_TRUE(WriteBeams(limits, steps, request, {.beams = 4}));
  // Behind it five tokens of four beams, and for each at most what a page holds besides.
  EXPECT_LE(memory.computed(), 40 + 5 * 4 * 4);
}

TEST(WriteBeams, RefuseByName) {
  BatchLimits limits;
  limits.texts = 2;
  limits.tokens = 4;
  limits.pages = 6;
  limits.positions = 90;
  Request request;
  request.prompt = {1};
  request.max_new_tokens = 80;
  const StepLogits steps = [](const Batch&) -> Result<std::vector<std::vector<double>>> {
    return Fail(Internal("no step is made"));
  };
  const auto refusal = [&](const BeamOptions& options) {
    const auto found = WriteBeams(limits, steps, request, options);
    return found ? std::string() : found.error().ToString();
  };
  EXPECT_THAT(refusal({.beams = 3}), HasSubstr("use fewer beams"));
  EXPECT_THAT(refusal({.beams = 0}), HasSubstr("num_beams is 0"));
  EXPECT_THAT(refusal({.length_penalty = NAN}), HasSubstr("length_penalty is nan"));
  EXPECT_THAT(refusal({.beams = 2}), HasSubstr("need 10 pages; there are 6"));
  request.sampling.draws = true;
  EXPECT_THAT(refusal({.beams = 2}), HasSubstr("draw no tokens"));
}

// Scores of long texts lie far below those of short ones by such a penalty.
TEST(BeamSearch, KeepsTextsWhateverTheirScores) {
  Request request;
  request.prompt = {2};
  for (const double penalty : {-10.0, -40.0, -100.0, 100.0}) {
    const auto found =
        SearchWhole(request, {.beams = 2, .length_penalty = penalty}, 60, kVocabulary);
    ASSERT_FALSE(found.empty()) << penalty;
    EXPECT_EQ(found[0].tokens.size(), 60u);
    EXPECT_TRUE(found[0].ended);
  }
}

// Each pair of three tokens once, and no end: the rules leave nothing behind some token.
TEST(BeamSearch, WhereNothingMayEndThereIsWhatWasWritten) {
  Request request;
  request.prompt = {2};
  request.stops = {0};
  request.rules.no_repeat_ngram = 2;
  request.rules.min_new_tokens = 50;
  const auto found = SearchWhole(request, {.beams = 2}, 60, 3);
  ASSERT_FALSE(found.empty());
  EXPECT_FALSE(found[0].ended);
  EXPECT_LE(found[0].tokens.size(), 5u);
  EXPECT_GE(found[0].tokens.size(), 2u);
  EXPECT_TRUE(std::isfinite(found[0].score));
  request.rules.suppressed = {1, 2};
  const auto none = SearchWhole(request, {.beams = 2}, 60, 3);
  ASSERT_EQ(none.size(), 1u);
  EXPECT_TRUE(none[0].tokens.empty());
}

TEST(WriteBeams, LogitsThatAreNoNumbersAreAnError) {
  BatchLimits limits;
  limits.texts = 2;
  limits.tokens = 4;
  limits.pages = 6;
  limits.positions = 90;
  Request request;
  request.prompt = {1};
  request.max_new_tokens = 3;
  for (const double odd : {NAN, INFINITY}) {
    const auto found =
        WriteBeams(limits,
                   [&](const Batch& batch) -> Result<std::vector<std::vector<double>>> {
                     return std::vector<std::vector<double>>(batch.wanted.size(), {1, odd, 2, 3});
                   },
                   request, {.beams = 2});
    ASSERT_FALSE(found);
    EXPECT_THAT(found.error().ToString(), HasSubstr("the model's logits are no numbers"));
  }
}

TEST(Beams, AreSaidByTheModelsSettings) {
  const auto settings = ParseSettings(
      R"({"num_beams": 4, "length_penalty": 2.0, "early_stopping": true, "max_length": 142})");
  ASSERT_TRUE(settings) << settings.error();
  EXPECT_EQ(settings->beams.beams, 4);
  EXPECT_EQ(settings->beams.length_penalty, 2.0);
  EXPECT_EQ(settings->beams.early_stopping, EarlyStop::kEnough);
  const auto never = ParseSettings(R"({"early_stopping": "never"})");
  ASSERT_TRUE(never) << never.error();
  EXPECT_EQ(never->beams.early_stopping, EarlyStop::kNever);
  const auto odd = ParseSettings(R"({"early_stopping": "soon"})");
  ASSERT_FALSE(odd);
  EXPECT_THAT(odd.error().ToString(), HasSubstr("early_stopping is \"soon\""));
}

}  // namespace
}  // namespace meshwright::generation::searched
