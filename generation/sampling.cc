#include "generation/sampling.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <set>

#include "base/philox.h"

namespace meshwright::generation {
namespace {

constexpr double kNever = -std::numeric_limits<double>::infinity();
constexpr uint64_t kStream = StreamOf("generation");

size_t Likeliest(std::span<const double> logits) {
  return static_cast<size_t>(std::max_element(logits.begin(), logits.end()) - logits.begin());
}

std::vector<double> Softmax(std::span<const double> logits) {
  const double most = logits[Likeliest(logits)];
  std::vector<double> shares(logits.size());
  double sum = 0;
  for (size_t i = 0; i < logits.size(); ++i) sum += shares[i] = std::exp(logits[i] - most);
  for (double& share : shares) share /= sum;
  return shares;
}

void Penalise(std::span<const int32_t> text, double penalty, std::vector<double>& logits) {
  if (penalty == 1) return;
  const std::set<int32_t> tokens(text.begin(), text.end());
  for (const int32_t token : tokens) {
    if (token < 0 || static_cast<size_t>(token) >= logits.size()) continue;
    double& logit = logits[static_cast<size_t>(token)];
    logit = logit > 0 ? logit / penalty : logit * penalty;
  }
}

void KeepTopK(int64_t top_k, std::vector<double>& logits) {
  if (top_k == 0 || static_cast<size_t>(top_k) >= logits.size()) return;
  std::vector<double> sorted(logits);
  const auto last = sorted.begin() + (top_k - 1);
  std::nth_element(sorted.begin(), last, sorted.end(), std::greater<>());
  for (double& logit : logits) {
    if (logit < *last) logit = kNever;
  }
}

// The unlikeliest leave as long as they have at most 1 - top_p together.
void KeepTopP(double top_p, std::vector<double>& logits) {
  if (top_p >= 1) return;
  const std::vector<double> shares = Softmax(logits);
  std::vector<size_t> order(logits.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return shares[a] < shares[b]; });
  double sum = 0;
  for (size_t i = 0; i + 1 < order.size(); ++i) {
    sum += shares[order[i]];
    if (sum > 1 - top_p) return;
    logits[order[i]] = kNever;
  }
}

void KeepMinP(double min_p, std::vector<double>& logits) {
  if (min_p == 0) return;
  const std::vector<double> shares = Softmax(logits);
  const double least = min_p * *std::max_element(shares.begin(), shares.end());
  for (size_t i = 0; i < logits.size(); ++i) {
    if (shares[i] < least) logits[i] = kNever;
  }
}

// In [0, 1), of 53 bits.
double Uniform(const DrawKey& key) {
  const PhiloxBlock bits = Philox(PhiloxKey(key.seed, kStream), key.position, key.request);
  const uint64_t word = (uint64_t{bits[0]} << 32) | bits[1];
  return static_cast<double>(word >> 11) * 0x1.0p-53;
}

Status OutOf(const char* field, double value, const char* range) {
  return InvalidArgument(fmt::format("{} is {}; it is {}", field, value, range));
}

}  // namespace

Status CheckSampling(const Sampling& sampling) {
  // Written so that NaN is refused, too.
  if (!(sampling.temperature > 0) || std::isinf(sampling.temperature)) {
    return OutOf("temperature", sampling.temperature, "above 0, or 0: the likeliest token");
  }
  if (sampling.top_k < 0) {
    return OutOf("top_k", static_cast<double>(sampling.top_k), "at least 0, which keeps all");
  }
  if (!(sampling.top_p > 0 && sampling.top_p <= 1)) {
    return OutOf("top_p", sampling.top_p, "above 0 and at most 1");
  }
  if (!(sampling.min_p >= 0 && sampling.min_p <= 1)) {
    return OutOf("min_p", sampling.min_p, "from 0 to 1");
  }
  if (!(sampling.repetition_penalty > 0) || std::isinf(sampling.repetition_penalty)) {
    return OutOf("repetition_penalty", sampling.repetition_penalty, "above 0; 1 does nothing");
  }
  return OkStatus();
}

Status NoNumbers() { return FailedPrecondition("the model's logits are no numbers"); }

Status CheckLogits(std::span<const double> logits) {
  bool any = false;
  for (const double logit : logits) {
    any = any || logit > kNever;
    if (!(logit < -kNever)) return NoNumbers();  // NaN, too
  }
  return any ? OkStatus() : NoNumbers();
}

std::vector<double> ProcessLogits(std::span<const double> logits, std::span<const int32_t> text,
                                  const Sampling& sampling, const RulesOfText& rules) {
  std::vector<double> left(logits.begin(), logits.end());
  Penalise(text, sampling.repetition_penalty, left);
  rules.Apply(text, left);
  if (!sampling.draws || left[Likeliest(left)] == kNever) return left;
  for (double& logit : left) logit /= sampling.temperature;
  KeepTopK(sampling.top_k, left);
  KeepTopP(sampling.top_p, left);
  KeepMinP(sampling.min_p, left);
  return left;
}

bool IsLikeliest(const Sampling& sampling) {
  return !sampling.draws && sampling.repetition_penalty == 1;
}

Result<int32_t> NextToken(std::span<const double> logits, std::span<const int32_t> text,
                          const Sampling& sampling, const DrawKey& key, const RulesOfText& rules) {
  MW_TRY(CheckLogits(logits));
  const std::vector<double> left = ProcessLogits(logits, text, sampling, rules);
  const size_t likeliest = Likeliest(left);
  if (left[likeliest] == kNever) return kNoToken;
  if (!sampling.draws) return static_cast<int32_t>(likeliest);
  const std::vector<double> shares = Softmax(left);
  double rest = Uniform(key);
  size_t last = 0;
  for (size_t i = 0; i < shares.size(); ++i) {
    if (shares[i] == 0) continue;
    last = i;
    if (rest < shares[i]) break;
    rest -= shares[i];
  }
  return static_cast<int32_t>(last);  // also where rounding leaves a little
}

}  // namespace meshwright::generation
