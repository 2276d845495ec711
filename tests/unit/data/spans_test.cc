// Hidden spans against the reference, and what they are a function of.
#include "data/spans.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/philox.h"

namespace meshwright::data {
namespace {

constexpr uint64_t kStream = 77;

// T5's random_spans_noise_mask as its code has it: flags of the first tokens of parts are shuffled,
// and their running sum numbers the parts. Shuffled is what the draws put in order.
std::vector<int64_t> Segmented(int64_t items, int64_t segments, uint64_t seed, uint64_t sample,
                               uint64_t first_draw) {
  std::vector<size_t> order(static_cast<size_t>(items - 1));
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return PhiloxBits(seed, kStream, sample, first_draw + a + 1) <
           PhiloxBits(seed, kStream, sample, first_draw + b + 1);
  });
  std::vector<bool> begins(static_cast<size_t>(items), false);
  for (size_t i = 0; i < static_cast<size_t>(segments - 1); ++i) begins[order[i] + 1] = true;
  std::vector<int64_t> lengths = {0};
  for (const bool begin : begins) {
    if (begin) lengths.push_back(0);
    ++lengths.back();
  }
  return lengths;
}

std::vector<bool> Reference(int64_t length, const SpanRules& rules, uint64_t sample) {
  const auto rounded = [](double x) { return static_cast<int64_t>(std::nearbyint(x)); };
  int64_t noise = rounded(static_cast<double>(length) * rules.density);
  noise = std::min(std::max<int64_t>(noise, 1), length - 1);
  int64_t spans = std::max<int64_t>(rounded(static_cast<double>(noise) / rules.mean), 1);
  spans = std::min({spans, noise, length - noise});
  const auto hidden = Segmented(noise, spans, rules.seed, sample, 0);
  const auto shown =
      Segmented(length - noise, spans, rules.seed, sample, static_cast<uint64_t>(length));
  std::vector<bool> mask;
  for (size_t i = 0; i < 2 * hidden.size(); ++i) {
    const int64_t count = i % 2 == 0 ? shown[i / 2] : hidden[i / 2];
    for (int64_t j = 0; j < count; ++j) mask.push_back(i % 2 == 1);
  }
  return mask;
}

TEST(HiddenSpans, AreThoseOfTheReference) {
  for (const int64_t length : {2, 3, 7, 20, 64, 568}) {
    for (const auto& [density, mean] : {std::pair(0.15, 3.0), {0.5, 1.0}, {0.9, 5.0}}) {
      for (uint64_t sample = 0; sample < 5; ++sample) {
        const SpanRules rules{density, mean, 3};
        EXPECT_EQ(HiddenSpans(length, rules, kStream, sample), Reference(length, rules, sample))
            << length << " " << density << " " << sample;
      }
    }
  }
}

TEST(HiddenSpans, AreOfTheSeedTheStreamAndTheSample) {
  const SpanRules rules{0.15, 3, 1};
  const auto first = HiddenSpans(100, rules, kStream, 9);
  EXPECT_EQ(HiddenSpans(100, rules, kStream, 9), first);
  EXPECT_NE(HiddenSpans(100, rules, kStream, 10), first);
  EXPECT_NE(HiddenSpans(100, rules, kStream + 1, 9), first);
  EXPECT_NE(HiddenSpans(100, {0.15, 3, 2}, kStream, 9), first);
  EXPECT_EQ(std::count(first.begin(), first.end(), true), 15);
  EXPECT_FALSE(first.front());
}

// Every place but the first is hidden about as often as its share.
TEST(HiddenSpans, AreAnywhere) {
  const SpanRules rules{0.25, 2, 5};
  std::vector<int> often(16);
  for (uint64_t sample = 0; sample < 2000; ++sample) {
    const auto hidden = HiddenSpans(16, rules, kStream, sample);
    for (size_t i = 0; i < often.size(); ++i) often[i] += hidden[i] ? 1 : 0;
  }
  EXPECT_EQ(often[0], 0);
  for (size_t i = 1; i < often.size(); ++i) EXPECT_GT(often[i], 100) << i;
}

// As T5's own numbers are.
TEST(SpanSizes, OfASourceAreThoseOfT5) {
  const SpanSizes sizes = SizesOfSource(512, {});
  EXPECT_EQ(sizes.text, 568);
  EXPECT_EQ(sizes.source, 512);
  EXPECT_EQ(sizes.target, 114);
  EXPECT_EQ(SizesOfSource(2, {}).text, 0);
  for (const int64_t most : {3, 4, 10, 48, 100}) {
    const SpanSizes found = SizesOfSource(most, {});
    EXPECT_LE(found.source, most);
    EXPECT_GT(SizesOfText(found.text + 1, {}).source, most);
  }
}

TEST(SpanPairs, HaveASentinelForEachSpan) {
  const std::vector<uint32_t> text = {10, 11, 12, 13, 14, 15};
  const std::vector<uint32_t> sentinels = {90, 91};
  const SpanPair pair = HideSpans(text, {false, true, true, false, false, true}, sentinels, 1);
  EXPECT_EQ(pair.source, (std::vector<uint32_t>{10, 90, 13, 14, 91, 1}));
  EXPECT_EQ(pair.target, (std::vector<uint32_t>{90, 11, 12, 91, 15, 1}));
}

}  // namespace
}  // namespace meshwright::data
