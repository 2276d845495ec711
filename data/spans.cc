#include "data/spans.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "base/check.h"
#include "base/philox.h"

namespace meshwright::data {
namespace {

struct HiddenCounts {
  int64_t hidden = 0;
  int64_t spans = 0;
};

// A half goes to the even number, as numpy's round has it.
int64_t Rounded(double value) { return static_cast<int64_t>(std::nearbyint(value)); }

HiddenCounts CountsOf(int64_t length, const SpanRules& rules) {
  MW_CHECK(length >= 2 && rules.density > 0 && rules.density < 1 && rules.mean >= 1)
      << length << " tokens, a share of " << rules.density << " in spans of " << rules.mean;
  HiddenCounts counts;
  counts.hidden =
      std::clamp<int64_t>(Rounded(static_cast<double>(length) * rules.density), 1, length - 1);
  counts.spans = std::max<int64_t>(Rounded(static_cast<double>(counts.hidden) / rules.mean), 1);
  // Each span follows a token that is shown.
  counts.spans = std::min(counts.spans, std::min(counts.hidden, length - counts.hidden));
  return counts;
}

// `count` tokens in `parts` parts: the borders are those places with the smallest draws.
std::vector<int64_t> PartsOf(int64_t count, int64_t parts, uint64_t key, uint64_t stream,
                             uint64_t sample, uint64_t first_draw) {
  std::vector<std::pair<uint32_t, int64_t>> draws;
  for (int64_t i = 1; i < count; ++i) {
    draws.emplace_back(PhiloxBits(key, stream, sample, first_draw + static_cast<uint64_t>(i)), i);
  }
  std::sort(draws.begin(), draws.end());
  std::vector<int64_t> borders = {0, count};
  for (int64_t i = 0; i + 1 < parts; ++i) borders.push_back(draws[static_cast<size_t>(i)].second);
  std::sort(borders.begin(), borders.end());
  std::vector<int64_t> sizes;
  for (size_t i = 1; i < borders.size(); ++i) sizes.push_back(borders[i] - borders[i - 1]);
  return sizes;
}

}  // namespace

std::vector<bool> HiddenSpans(int64_t length, const SpanRules& rules, uint64_t stream,
                              uint64_t sample) {
  const HiddenCounts counts = CountsOf(length, rules);
  const int64_t shown = length - counts.hidden;
  const auto after = static_cast<uint64_t>(length);
  const auto of_hidden = PartsOf(counts.hidden, counts.spans, rules.seed, stream, sample, 0);
  const auto of_shown = PartsOf(shown, counts.spans, rules.seed, stream, sample, after);
  std::vector<bool> hidden;
  for (size_t i = 0; i < of_shown.size(); ++i) {
    hidden.insert(hidden.end(), static_cast<size_t>(of_shown[i]), false);
    hidden.insert(hidden.end(), static_cast<size_t>(of_hidden[i]), true);
  }
  MW_CHECK(static_cast<int64_t>(hidden.size()) == length) << hidden.size() << " of " << length;
  return hidden;
}

SpanSizes SizesOfText(int64_t length, const SpanRules& rules) {
  const HiddenCounts counts = CountsOf(length, rules);
  return {length, counts.spans, length - counts.hidden + counts.spans + 1,
          counts.hidden + counts.spans + 1};
}

SpanSizes SizesOfSource(int64_t most, const SpanRules& rules) {
  SpanSizes found;
  // A source never becomes shorter where its text grows by what it hides in a span.
  const auto step = static_cast<int64_t>(2 * rules.mean / rules.density) + 2;
  for (int64_t length = 2, beyond = 0; beyond < step; ++length) {
    const SpanSizes sizes = SizesOfText(length, rules);
    if (sizes.source <= most) {
      found = sizes;
      beyond = 0;
    } else {
      ++beyond;
    }
  }
  return found;
}

SpanPair HideSpans(std::span<const uint32_t> text, const std::vector<bool>& hidden,
                   std::span<const uint32_t> sentinels, uint32_t end) {
  MW_CHECK(text.size() == hidden.size()) << hidden.size() << " flags of " << text.size();
  SpanPair pair;
  size_t spans = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    if (!hidden[i]) {
      pair.source.push_back(text[i]);
      continue;
    }
    if (i == 0 || !hidden[i - 1]) {
      MW_CHECK(spans < sentinels.size()) << "no sentinel for span " << spans;
      pair.source.push_back(sentinels[spans]);
      pair.target.push_back(sentinels[spans]);
      ++spans;
    }
    pair.target.push_back(text[i]);
  }
  pair.source.push_back(end);
  pair.target.push_back(end);
  return pair;
}

}  // namespace meshwright::data
