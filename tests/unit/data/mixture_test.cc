#include "data/mixture.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <cmath>
#include <numeric>
#include <set>
#include <vector>

#include "data/counts.h"
#include "data/join.h"
#include "tests/unit/data/data_files.h"

namespace meshwright::data {
namespace {

// Every part gets its share of any first n samples, within one for each part before it, and its own
// samples one after the other.
RC_GTEST_PROP(Mixture, ProportionsAreExactAtEverySample, ()) {
  const auto weights = *rc::gen::container<std::vector<int64_t>>(
      *rc::gen::inRange<size_t>(1, 6), rc::gen::inRange<int64_t>(1, 1000));
  const auto total = static_cast<double>(std::accumulate(weights.begin(), weights.end(), 0ll));
  std::vector<int64_t> counts(weights.size(), 0);
  for (int64_t n = 0; n < 500; ++n) {
    const MixedSample at = SampleOfMixture(weights, n);
    RC_ASSERT(at.part < weights.size());
    RC_ASSERT(at.sample == counts[at.part]);
    ++counts[at.part];
    for (size_t i = 0; i < weights.size(); ++i) {
      const double share = static_cast<double>(n + 1) * static_cast<double>(weights[i]) / total;
      RC_ASSERT(std::abs(static_cast<double>(counts[i]) - share) <= static_cast<double>(i + 1));
    }
  }
}

TEST(Mixture, AWholeRoundHasItsWeights) {
  const std::vector<int64_t> weights = {5, 3, 2};
  std::vector<int64_t> counts(3, 0);
  for (int64_t n = 0; n < 1000; ++n) ++counts[SampleOfMixture(weights, n).part];
  EXPECT_EQ(counts, (std::vector<int64_t>{500, 300, 200}));
  // Far on it is the same rule.
  EXPECT_EQ(SampleOfMixture({1, 1}, int64_t{1} << 60).sample, int64_t{1} << 59);
}

TEST(Mixture, TurnsAreTakenInOrder) {
  EXPECT_EQ(SampleOfTurns({2, 3}, 1), (MixedSample{0, 1}));
  EXPECT_EQ(SampleOfTurns({2, 3}, 2), (MixedSample{1, 0}));
  EXPECT_EQ(SampleOfTurns({2, 3}, 6), (MixedSample{0, 3}));
  EXPECT_EQ(SampleOfTurns({2, 3}, 9), (MixedSample{1, 5}));
}

class MixtureStream : public DataFilesTest {};

TEST_F(MixtureStream, PartsAreReadByTheirWeights) {
  std::vector<NamedStream> sets = {{"a", 3, Describe("uint32", {WriteCounting("a", 101)})},
                                   {"b", 1, Describe("uint32", {WriteCounting("b", 41, 1000)})}};
  const ir::DataStream mixed = JoinStreams(sets, {}).value();
  ASSERT_EQ(mixed.parts.size(), 2u);
  auto source = Open(mixed, {10, 5, 0});
  ASSERT_TRUE(source);
  int64_t of_b = 0;
  std::set<int32_t> seen;
  for (int64_t n = 0; n < 40; ++n) {
    const std::vector<int32_t> row = Window(*source, n, 11);
    // A window is of one part alone.
    ASSERT_EQ(row.back(), row.front() + 10);
    of_b += row.front() >= 1000 ? 1 : 0;
    if (row.front() < 1000 && n < 13) {
      EXPECT_TRUE(seen.insert(row.front()).second);
    }
  }
  EXPECT_EQ(of_b, 10);
  // Alone, a set is what it was.
  const ir::DataStream alone = JoinStreams({sets[0]}, {}).value();
  EXPECT_EQ(alone, sets[0].stream);
}

TEST_F(MixtureStream, TailsAreMixedAndNeverTrainedOn) {
  const ir::DataStream mixed =
      JoinStreams({{"a", 1, Describe("uint32", {WriteCounting("a", 200)}, 0.25)},
                   {"b", 1, Describe("uint32", {WriteCounting("b", 200, 1000)}, 0.25)}},
                  {})
          .value();
  auto source = Open(mixed, {10, 5, 0});
  for (int64_t n = 0; n < 60; ++n) EXPECT_LT(Window(*source, n, 11).back() % 1000, 150);
  int64_t of_b = 0;
  for (int64_t n = 0; n < 8; ++n) {
    const int32_t first = Window(*source, n, 11, "validation:tokens").front();
    EXPECT_GE(first % 1000, 150);
    of_b += first >= 1000 ? 1 : 0;
  }
  EXPECT_EQ(of_b, 4);
}

TEST_F(MixtureStream, ValidationSetsTakeTurns) {
  const ir::DataStream stream =
      JoinStreams({{"t", 1, Describe("uint32", {WriteCounting("t", 101)})}},
                  {{"code", 2, Describe("uint32", {WriteCounting("c", 31, 1000)})},
                   {"news", 2, Describe("uint32", {WriteCounting("n", 21, 2000)})}})
          .value();
  auto source = Open(stream, {10, 5, 0});
  ASSERT_TRUE(source);
  std::vector<int32_t> firsts;
  for (int64_t n = 0; n < 8; ++n) {
    firsts.push_back(Window(*source, n, 11, "validation:tokens").front());
  }
  EXPECT_EQ(firsts, (std::vector<int32_t>{1000, 1010, 2000, 2010, 1020, 1000, 2000, 2010}));
}

// Forms of one text: an epoch is a pass over one of them, and the first one is validated with.
TEST_F(MixtureStream, PartsWithoutWeightsAreReadOneAfterTheOther) {
  std::vector<NamedStream> sets = {
      {"a", 0, Describe("uint32", {WriteCounting("a", 121)}, 0.2)},
      {"b", 0, Describe("uint32", {WriteCounting("b", 121, 1000)}, 0.2)}};
  const ir::DataStream turns = JoinStreams(sets, {}).value();
  auto source = Open(turns, {10, 5, 0});
  ASSERT_TRUE(source);
  const int64_t windows = CountsOf(turns, 10).training_samples / 2;
  ASSERT_GE(windows, 8);
  std::vector<std::vector<int64_t>> orders;
  for (int64_t pass = 0; pass < 4; ++pass) {
    std::set<int64_t> seen;
    std::vector<int64_t> order;
    for (int64_t n = 0; n < windows; ++n) {
      const int32_t first = Window(*source, pass * windows + n, 11).front();
      EXPECT_EQ(first / 1000, pass % 2) << pass;
      order.push_back(first % 1000 / 10);
      EXPECT_TRUE(seen.insert(order.back()).second) << "each window once in a pass";
    }
    orders.push_back(order);
  }
  EXPECT_NE(orders[0], orders[1]);
  EXPECT_NE(orders[0], orders[2]);
  for (int64_t n = 0; n < 4; ++n) {
    EXPECT_LT(Window(*source, n, 11, "validation:tokens").front(), 1000);
  }
  sets[1].weight = 1;
  const ir::DataStream half = JoinStreams(sets, {}).value();
  ir::DataSpec spec;
  spec.streams = {half};
  EXPECT_FALSE(ir::CheckDataSpec(spec).ok()) << "some weigh something";
}

TEST_F(MixtureStream, SetsOfOtherFieldsAreRefused) {
  const auto joined = JoinStreams({{"a", 1, Describe("uint32", {WriteCounting("a", 50)})},
                                   {"b", 1, Describe("bytes", {Write("b", "some text")})}},
                                  {});
  ASSERT_FALSE(joined.has_value());
  EXPECT_THAT(joined.error().message(),
              testing::HasSubstr("data set 'b' has other fields than 'a'"));
}

}  // namespace
}  // namespace meshwright::data
