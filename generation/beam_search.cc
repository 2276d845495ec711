#include "generation/beam_search.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "base/check.h"

namespace meshwright::generation {
namespace {

constexpr double kNoScore = -std::numeric_limits<double>::infinity();
// Under the score of any text: of beams that begin as the first does, and of what must not go on.
constexpr double kFarBelow = 1e9;

// Best first, of equal ones the first.
template <typename Scored>
void KeepBest(std::vector<Scored>& all, size_t count) {
  std::stable_sort(all.begin(), all.end(),
                   [](const Scored& a, const Scored& b) { return a.score > b.score; });
  if (all.size() > count) all.resize(count);
}

// Logits as logarithms of probabilities; where none is left, as they are.
void Normalise(std::vector<double>& logits) {
  const double most = *std::max_element(logits.begin(), logits.end());
  if (most == kNoScore) return;
  double sum = 0;
  for (const double logit : logits) sum += std::exp(logit - most);
  for (double& logit : logits) logit -= most + std::log(sum);
}

}  // namespace

Status CheckBeams(const BeamOptions& options) {
  if (options.beams < 1 || options.beams > kMostBeams) {
    return InvalidArgument(fmt::format("num_beams is {}; from 1 to {}", options.beams, kMostBeams));
  }
  if (std::abs(options.length_penalty) <= 100) return OkStatus();
  return InvalidArgument(
      fmt::format("length_penalty is {}; from -100 to 100", options.length_penalty));
}

Result<EarlyStop> ParseEarlyStop(std::string_view text) {
  if (text == "true") return EarlyStop::kEnough;
  if (text == "false") return EarlyStop::kGuess;
  if (text == "never") return EarlyStop::kNever;
  return Fail(InvalidArgument(
      fmt::format("early_stopping is \"{}\"; \"true\", \"false\" or \"never\"", text)));
}

BeamSearch::BeamSearch(const Request& request, const BeamOptions& options, int64_t longest)
    : options_(options),
      longest_(longest),
      request_(request),
      rules_(request.rules, static_cast<int64_t>(request.prompt.size()), longest, request.stops) {
  MW_CHECK(CheckBeams(options).ok() && longest >= 1) << longest << " tokens at most";
  // All begin alike: only the first one counts.
  beams_.assign(static_cast<size_t>(options.beams), {{}, -kFarBelow});
  beams_[0].score = 0;
}

std::vector<double> BeamSearch::LogProbabilities(const std::vector<double>& logits,
                                                 const Hypothesis& beam) const {
  std::vector<double> logs(logits);
  Normalise(logs);
  std::vector<int32_t> text = request_.prompt;
  text.insert(text.end(), beam.tokens.begin(), beam.tokens.end());
  const double penalty = request_.sampling.repetition_penalty;
  logs = ProcessLogits(logs, text, {.repetition_penalty = penalty}, rules_);
  if (request_.rules.renormalises) Normalise(logs);
  return logs;
}

// The best of all beams with one token more, best first; of equal ones the first.
std::vector<BeamSearch::Candidate> BeamSearch::Best(
    const std::vector<std::vector<double>>& logits) const {
  std::vector<Candidate> all;
  for (size_t i = 0; i < beams_.size(); ++i) {
    const size_t parent = length_ == 0 ? 0 : i;
    const std::vector<double> logs = LogProbabilities(logits[parent], beams_[i]);
    for (size_t token = 0; token < logs.size(); ++token) {
      all.push_back({beams_[i].score + logs[token], static_cast<int64_t>(parent),
                     static_cast<int32_t>(token)});
    }
  }
  // Among so many there are enough that do not end.
  const size_t wanted = beams_.size() * std::max<size_t>(2, 1 + request_.stops.size());
  const auto better = [](const Candidate& a, const Candidate& b) {
    if (a.score != b.score) return a.score > b.score;
    return std::pair(a.parent, a.token) < std::pair(b.parent, b.token);
  };
  const auto end = all.begin() + static_cast<ptrdiff_t>(std::min(wanted, all.size()));
  std::partial_sort(all.begin(), end, all.end(), better);
  all.erase(end, all.end());
  for (Candidate& candidate : all) {
    candidate.ends = length_ + 1 >= longest_ || request_.stops.contains(candidate.token);
  }
  return all;
}

Hypothesis BeamSearch::Grown(const Candidate& candidate) const {
  Hypothesis grown = beams_[static_cast<size_t>(candidate.parent)];
  grown.tokens.push_back(candidate.token);
  grown.score = candidate.score;
  grown.ended = candidate.ends;
  return grown;
}

bool BeamSearch::all_ended() const { return kept_.size() == beams_.size(); }

// A score as it counts among texts of other lengths.
double BeamSearch::Shared(double score, int64_t length) const {
  // 0 / 0 is no score.
  if (score == 0) return 0;
  return score / std::pow(static_cast<double>(length), options_.length_penalty);
}

// Of the first candidates those that end, where they are better than what is kept.
void BeamSearch::Keep(std::span<const Candidate> first) {
  if (!can_improve_ || (all_ended() && options_.early_stopping == EarlyStop::kEnough)) return;
  for (const Candidate& candidate : first) {
    if (!candidate.ends || candidate.score == kNoScore) continue;
    Hypothesis text = Grown(candidate);
    text.score = Shared(text.score, length_ + 1);
    kept_.push_back(std::move(text));
  }
  KeepBest(kept_, beams_.size());
}

bool BeamSearch::GoesOn(bool all_end) {
  const bool far = options_.early_stopping == EarlyStop::kNever && options_.length_penalty > 0;
  const double possible = Shared(beams_[0].score, far ? longest_ : length_);
  can_improve_ = can_improve_ && (!all_ended() || possible > kept_.back().score);
  const bool enough = all_ended() && options_.early_stopping == EarlyStop::kEnough;
  return can_improve_ && !enough && !all_end;
}

std::vector<BeamStep> BeamSearch::Take(const std::vector<std::vector<double>>& logits) {
  MW_CHECK(logits.size() == (length_ == 0 ? 1 : beams_.size()) && length_ < longest_)
      << logits.size() << " logits behind " << length_ << " tokens";
  const std::vector<Candidate> found = Best(logits);
  std::vector<Candidate> next = found;
  for (Candidate& candidate : next) candidate.score -= candidate.ends ? kFarBelow : 0;
  KeepBest(next, beams_.size());
  Keep(std::span(found).first(std::min(beams_.size(), found.size())));
  // Nothing may go on; what does so far is best() where nothing has ended.
  if (next[0].ends || next[0].score == kNoScore) return {};
  std::vector<Hypothesis> beams;
  std::vector<BeamStep> steps;
  for (const Candidate& candidate : next) {
    beams.push_back(Grown(candidate));
    steps.push_back({candidate.parent, candidate.token});
  }
  beams_ = std::move(beams);
  ++length_;
  const bool all_end =
      std::all_of(found.begin(), found.end(), [](const Candidate& one) { return one.ends; });
  return GoesOn(all_end) ? steps : std::vector<BeamStep>();
}

std::vector<Hypothesis> BeamSearch::best() const {
  if (!kept_.empty()) return kept_;
  std::vector<Hypothesis> texts;
  for (const Hypothesis& beam : beams_) {
    if (beam.score <= -kFarBelow) continue;
    texts.push_back(beam);
    texts.back().score = Shared(beam.score, std::max<int64_t>(length_, 1));
  }
  return texts;
}

}  // namespace meshwright::generation
