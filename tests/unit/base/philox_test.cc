#include "base/philox.h"

#include <gtest/gtest.h>

#include <cmath>
#include <set>

namespace meshwright {
namespace {

// Known answers of philox4x32-10. Source: Random123 1.14, tests/kat_vectors.
TEST(Philox, GivesThePublishedAnswers) {
  EXPECT_EQ(Philox(0, 0, 0), (PhiloxBlock{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(Philox(~uint64_t{0}, ~uint64_t{0}, ~uint64_t{0}),
            (PhiloxBlock{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  // counter 243f6a88 85a308d3 13198a2e 03707344, key a4093822 299f31d0, lowest word first.
  EXPECT_EQ(Philox(0x299f31d0a4093822, 0x85a308d3243f6a88, 0x0370734413198a2e),
            (PhiloxBlock{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(Philox, IsAConstantExpression) {
  static_assert(Philox(0, 0, 0)[0] == 0x6627e8d5);
  static_assert(PhiloxBits(0, 0, 0, 3) == 0x9b00dbd8);
}

TEST(PhiloxBits, NeighboursAreWordsOfOneBlock) {
  for (uint64_t index = 0; index < 8; ++index) {
    EXPECT_EQ(PhiloxBits(7, 0, 9, index), Philox(7, index / 4, 9)[index % 4]);
  }
}

TEST(PhiloxBits, DiffersBySeedStreamStepAndIndex) {
  std::set<uint32_t> seen;
  for (uint64_t seed = 0; seed < 4; ++seed) {
    for (uint64_t stream = 0; stream < 4; ++stream) {
      for (uint64_t step = 0; step < 4; ++step) {
        for (uint64_t index = 0; index < 16; ++index) {
          seen.insert(PhiloxBits(seed, stream, step, index));
        }
      }
    }
  }
  EXPECT_EQ(seen.size(), 4u * 4 * 4 * 16);
}

TEST(UniformFromBits, CoversZeroToBelowOne) {
  EXPECT_EQ(UniformFromBits(0), 0.0);
  EXPECT_LT(UniformFromBits(0xffffffffu), 1.0);
  EXPECT_EQ(UniformFromBits(0x80000000u), 0.5);
  EXPECT_EQ(static_cast<double>(static_cast<float>(UniformFromBits(0xffffffffu))),
            UniformFromBits(0xffffffffu));
}

TEST(PhiloxNormal, HasTheMomentsOfANormalDistribution) {
  constexpr int kSamples = 200'000;
  double sum = 0, squares = 0, fourth = 0;
  for (int i = 0; i < kSamples; ++i) {
    const double x = PhiloxNormal(1, StreamOf("weights"), static_cast<uint64_t>(i));
    ASSERT_TRUE(std::isfinite(x));
    sum += x;
    squares += x * x;
    fourth += x * x * x * x;
  }
  EXPECT_NEAR(sum / kSamples, 0, 0.01);
  EXPECT_NEAR(squares / kSamples, 1, 0.02);
  EXPECT_NEAR(fourth / kSamples, 3, 0.1);
}

TEST(PhiloxNormal, NeighboursDoNotGoTogether) {
  constexpr uint64_t kSamples = 100'000;
  for (const uint64_t distance : {1, 2, 3, 4}) {
    double products = 0, squares = 0;
    for (uint64_t i = 0; i < kSamples; ++i) {
      const double x = PhiloxNormal(1, 2, i);
      const double y = PhiloxNormal(1, 2, i + distance);
      products += x * y;
      squares += (x * x - 1) * (y * y - 1);
    }
    EXPECT_NEAR(products / kSamples, 0, 0.02) << "distance " << distance;
    EXPECT_NEAR(squares / kSamples, 0, 0.05) << "distance " << distance;
  }
}

TEST(StreamOf, IsFnv1a) {
  // Source: draft-eastlake-fnv-17, test vectors, 64 bit FNV-1a.
  EXPECT_EQ(StreamOf(""), 0xcbf29ce484222325u);
  EXPECT_EQ(StreamOf("a"), 0xaf63dc4c8601ec8cu);
  EXPECT_EQ(StreamOf("foobar"), 0x85944171f73967e8u);
}

}  // namespace
}  // namespace meshwright
