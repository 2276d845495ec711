// The likeliest texts behind a prompt, searched for with several beams: texts that are written side
// by side, of which the best go on.
//
//   BeamSearch search(request, {.beams = 4}, request.max_new_tokens);
//   std::vector<BeamStep> next = search.Take({logits behind the prompt});
//   while (!next.empty()) next = search.Take(<logits behind each of the beams that `next` makes>);
//   search.best()[0].tokens
//
// Idea: the score of a text is the sum of the log-probabilities of its tokens. Of all beams with
// one token more the best are looked at, about twice as many as there are beams: those that end
// among the first of them are kept by score / length^length_penalty, and the best that do not end
// are the next beams. Pure: logits in, beams out (generation/write_beams.h computes them). Thread
// rule: one thread. Source: transformers, generation/utils.py (_beam_search), to whose texts ours
// are equal.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "generation/write_text.h"

namespace meshwright::generation {

// When the search is over, where beams could go on.
enum class EarlyStop : uint8_t {
  kGuess,   // "false": the best beam, ended now, would be no better than the worst of the best
  kEnough,  // "true": as many texts have ended as there are beams
  kNever    // "never": no beam can become better than the worst of the best
};

struct BeamOptions {
  int64_t beams = 1;
  double length_penalty = 1;  // above 0 long texts are better, below it short ones
  EarlyStop early_stopping = EarlyStop::kGuess;
};

inline constexpr int64_t kMostBeams = 64;

// Errors: kInvalidArgument naming the field.
Status CheckBeams(const BeamOptions& options);
// "true", "false" or "never". Errors: kInvalidArgument.
Result<EarlyStop> ParseEarlyStop(std::string_view text);

// A beam that goes on: the beam of the step before that it is of, and its next token.
struct BeamStep {
  int64_t parent = 0;
  int32_t token = 0;
  friend bool operator==(const BeamStep&, const BeamStep&) = default;
};

struct Hypothesis {
  std::vector<int32_t> tokens;  // without the prompt
  double score = 0;
  bool ended = false;  // by a token of `stops`, or by its length; otherwise the rules left none
};

class BeamSearch {
 public:
  // longest: how many tokens a text may get. Of the request its prompt, its stops, its rules and
  // its penalty of repetitions count. REQUIRES CheckBeams, and `longest` of at least 1.
  BeamSearch(const Request& request, const BeamOptions& options, int64_t longest);

  // What follows on the logits behind each beam, in their order; at first behind the prompt alone.
  // The next beams, best first; none: the search is over. REQUIRES that it was not, and
  // CheckLogits.
  std::vector<BeamStep> Take(const std::vector<std::vector<double>>& logits);

  // Best first, at least one and at most as many as there are beams. Where none has ended since the
  // rules leave no token, what there is so far.
  std::vector<Hypothesis> best() const;

 private:
  struct Candidate {
    double score = 0;
    int64_t parent = 0;
    int32_t token = 0;
    bool ends = false;
  };

  std::vector<Candidate> Best(const std::vector<std::vector<double>>& logits) const;
  std::vector<double> LogProbabilities(const std::vector<double>& logits,
                                       const Hypothesis& beam) const;
  Hypothesis Grown(const Candidate& candidate) const;
  double Shared(double score, int64_t length) const;
  void Keep(std::span<const Candidate> first);
  bool GoesOn(bool all_end);
  bool all_ended() const;

  const BeamOptions options_;
  const int64_t longest_;
  const Request request_;
  const RulesOfText rules_;
  std::vector<Hypothesis> beams_;  // best first
  std::vector<Hypothesis> kept_;   // likewise; texts that have ended
  int64_t length_ = 0;             // of the beams
  bool can_improve_ = true;
};

}  // namespace meshwright::generation
