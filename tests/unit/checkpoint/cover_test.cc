#include "checkpoint/cover.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/checkpoint/random_state.h"

namespace meshwright::checkpoint {
namespace {

using ::testing::HasSubstr;

ir::Box Box(ir::Dims offset, ir::Dims size) { return {std::move(offset), std::move(size)}; }

TEST(Cover, TheWholeTensorIsACoverOfItself) {
  EXPECT_TRUE(CheckExactCover({4, 4}, std::vector<ir::Box>{{}}).ok());
  EXPECT_TRUE(CheckExactCover({}, std::vector<ir::Box>{{}}).ok());
  EXPECT_FALSE(CheckExactCover({}, std::vector<ir::Box>{{}, {}}).ok());
  EXPECT_FALSE(CheckExactCover({4}, std::vector<ir::Box>{}).ok());
}

TEST(Cover, AHoleIsNamed) {
  const std::vector<ir::Box> boxes = {Box({0, 0}, {4, 2}), Box({0, 2}, {3, 2})};
  const Status status = CheckExactCover({4, 4}, boxes);
  EXPECT_EQ(status.code(), StatusCode::kDataLoss);
  EXPECT_THAT(status.message(), HasSubstr("2 of 16 elements are in no box, one at [3,2]"));
}

TEST(Cover, AnOverlapIsNamedAlthoughTheVolumeIsRight) {
  const std::vector<ir::Box> boxes = {Box({0, 0}, {4, 2}), Box({0, 1}, {4, 2})};
  const Status status = CheckExactCover({4, 4}, boxes);
  EXPECT_THAT(status.message(), HasSubstr("boxes [0,0:4,2] and [0,1:4,2] overlap"));
}

TEST(Cover, ABoxThatLeavesTheTensorIsNamed) {
  for (const ir::Box& box : {Box({0, 1}, {4, 4}), Box({-1, 0}, {4, 4}), Box({0}, {4}),
                             Box({0, INT64_MAX}, {4, INT64_MAX})}) {
    const Status status = CheckExactCover({4, 4}, std::vector<ir::Box>{box});
    EXPECT_THAT(status.message(), HasSubstr("leaves the tensor [4,4]")) << ToText(box);
  }
}

TEST(Cover, RandomCoversAreTakenAndDamagedOnesAreNot) {
  Random random(20261125);
  for (int round = 0; round < 2000; ++round) {
    const ir::Dims dims = RandomDims(random);
    std::vector<ir::Box> boxes =
        RandomCover(random, dims, static_cast<size_t>(Between(random, 1, 60)));
    std::shuffle(boxes.begin(), boxes.end(), random);
    ASSERT_TRUE(CheckExactCover(dims, boxes).ok()) << "round " << round;
    std::vector<ir::Box> damaged = boxes;
    switch (round % 4) {
      case 0:
        damaged.pop_back();
        break;
      case 1:
        damaged.push_back(damaged[random() % damaged.size()]);
        break;
      case 2:
        damaged.push_back(RandomBox(random, dims));
        break;
      default:
        // Another of the same volume as one that is gone, so that only the place is wrong.
        if (boxes.size() < 2) continue;
        damaged[0] = damaged[1];
        if (Volume(boxes[0]) != Volume(boxes[1])) continue;
        break;
    }
    EXPECT_EQ(CheckExactCover(dims, damaged).code(), StatusCode::kDataLoss) << "round " << round;
  }
}

TEST(Cover, OneOfManyBoxesInTheWrongPlaceIsFound) {
  std::vector<ir::Box> boxes;
  for (int64_t i = 0; i < 100; ++i) {
    for (int64_t j = 0; j < 100; ++j) boxes.push_back(Box({i * 3, j * 5}, {3, 5}));
  }
  EXPECT_TRUE(CheckExactCover({300, 500}, boxes).ok());
  boxes[7777] = Box({boxes[7777].offset[0] + 1, boxes[7777].offset[1]}, {3, 5});
  EXPECT_THAT(CheckExactCover({300, 500}, boxes).message(), HasSubstr("overlap"));
}

TEST(Cover, OverlappingBoxesAreThoseWithACommonElement) {
  const std::vector<ir::Box> boxes = {Box({0}, {4}), Box({4}, {4}), Box({8}, {0})};
  EXPECT_EQ(Overlapping(Box({3}, {1}), boxes), std::vector<size_t>{0});
  EXPECT_EQ(Overlapping(Box({3}, {2}), boxes), (std::vector<size_t>{0, 1}));
}

}  // namespace
}  // namespace meshwright::checkpoint
