#include "ir/sequence_order.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

namespace meshwright::ir {
namespace {

std::vector<int64_t> PositionsOf(const std::vector<TokenRun>& runs) {
  std::vector<int64_t> positions;
  for (const TokenRun& run : runs) {
    EXPECT_EQ(run.place, static_cast<int64_t>(positions.size()));
    for (int64_t i = 0; i < run.count; ++i) positions.push_back(run.position + i);
  }
  return positions;
}

TEST(SequenceOrder, PlainPlacesArePositions) {
  EXPECT_THAT(RunsAt({}, 12, 4, 5), ::testing::ElementsAre(TokenRun{0, 4, 5}));
}

TEST(SequenceOrder, ABlockHasAnEarlyAndALateChunk) {
  EXPECT_THAT(PositionsOf(RunsAt({2}, 16, 0, 8)),
              ::testing::ElementsAre(0, 1, 2, 3, 12, 13, 14, 15));
  // Its chunks are neighbours.
  EXPECT_THAT(RunsAt({2}, 16, 8, 8), ::testing::ElementsAre(TokenRun{0, 4, 8}));
  EXPECT_THAT(PositionsOf(RunsAt({2}, 16, 6, 4)), ::testing::ElementsAre(14, 15, 4, 5));
}

// Of sixteen tokens on four ranks every one has 34 pairs of a query and a key that it sees; in
// plain order they have 10, 26, 42 and 58.
TEST(SequenceOrder, EveryBlockIsAsMuchCausalWork) {
  for (int64_t rank = 0; rank < 4; ++rank) {
    int64_t zigzag = 0;
    int64_t plain = 0;
    for (const int64_t position : PositionsOf(RunsAt({4}, 16, 4 * rank, 4))) zigzag += position + 1;
    for (const int64_t position : PositionsOf(RunsAt({}, 16, 4 * rank, 4))) plain += position + 1;
    EXPECT_EQ(zigzag, 34);
    EXPECT_EQ(plain, 10 + 16 * rank);
  }
}

TEST(SequenceOrder, EveryTokenIsSomewhereOnce) {
  for (const int64_t parts : {1, 2, 3, 8}) {
    std::vector<int64_t> positions = PositionsOf(RunsAt({parts}, 48, 0, 48));
    std::sort(positions.begin(), positions.end());
    for (int64_t i = 0; i < 48; ++i) ASSERT_EQ(positions[static_cast<size_t>(i)], i);
  }
}

TEST(SequenceOrder, ComesBackFromAttributes) {
  for (const int64_t parts : {1, 4}) {
    Attrs attrs;
    SequenceOrder{parts}.ToAttrs(attrs);
    EXPECT_EQ(attrs.Has("zigzag"), parts > 1);
    EXPECT_EQ(SequenceOrder::FromAttrs(attrs), SequenceOrder{parts});
  }
}

}  // namespace
}  // namespace meshwright::ir
