// What it costs to move tokens to experts and back: closed forms of bytes, and two lanes.
#include "planner/expert_ways.h"

#include <gtest/gtest.h>

#include <utility>

namespace meshwright::planner {
namespace {

mesh::GroupShape Group(int64_t hosts, int64_t per_host) {
  mesh::GroupShape group;
  group.members = hosts * per_host;
  group.hosts = hosts;
  group.members_per_host = per_host;
  group.within = {0, 1e-10};
  group.between = {0, 1e-8};
  return group;
}

// 12 rows of all ranks; a rank has 10 slots of a row, a host places for 8 tokens; 4 bytes a slot.
TEST(ExpertWayCost, BytesAreThoseOfTheHeader) {
  const SlotMove move{12, 10, 8, 4};
  for (const auto& [hosts, lanes] : {std::pair<int64_t, int64_t>{2, 2}, {2, 4}, {4, 2}}) {
    const auto h = static_cast<double>(hosts);
    const auto l = static_cast<double>(lanes);
    const double ranks = h * l;
    const MoveCost one = CostInOneStep(move, Group(hosts, lanes));
    EXPECT_NEAR(one.network_bytes * ranks, 12 * 10 * 4 * (ranks - l), 1e-9);
    EXPECT_NEAR(one.host_bytes * ranks, 12 * 10 * 4 * (l - 1), 1e-9);
    const MoveCost two = CostInTwoSteps(move, Group(hosts, 1), Group(1, lanes), 0);
    EXPECT_NEAR(two.network_bytes * ranks, 12 * 8 * 4 * (h - 1), 1e-9);
    EXPECT_NEAR(two.host_bytes * ranks, 12 * 10 * 4 * h * (l - 1), 1e-9);
  }
}

TEST(ExpertWayCost, CopiesCountForTwoSteps) {
  const SlotMove move{12, 10, 8, 4};
  const double plain = CostInTwoSteps(move, Group(2, 1), Group(1, 2), 0).seconds;
  // Of a device 6 rows for each of its lanes' hosts: tokens to their places and from there.
  EXPECT_NEAR(CostInTwoSteps(move, Group(2, 1), Group(1, 2), 1e-3).seconds - plain,
              2 * 12 / 2 * 8 * 4 * 1e-3, 1e-9);
}

TEST(ExpertWayCost, ChunksHideMovesBehindProducts) {
  const ChunkedWork work{.send_s = 4, .compute_s = 8, .back_s = 4};
  EXPECT_DOUBLE_EQ(SecondsInChunks(work, 1, 1), 16);
  EXPECT_DOUBLE_EQ(SecondsInChunks(work, 2, 1), 12) << "the first is sent, the last comes back";
  EXPECT_DOUBLE_EQ(SecondsInChunks(work, 4, 1), 10);
  EXPECT_DOUBLE_EQ(SecondsInChunks(work, 4, 0), 16) << "in turn";
  EXPECT_DOUBLE_EQ(SecondsInChunks(work, 4, 0.5), 13);
  ChunkedWork waits = work;
  waits.back_waits = true;
  EXPECT_DOUBLE_EQ(SecondsInChunks(waits, 4, 1), 13) << "the first is sent, all go back at the end";
  // Where moves are longer than what computes, they are what is waited for.
  EXPECT_DOUBLE_EQ(SecondsInChunks({.send_s = 8, .compute_s = 4, .back_s = 8}, 4, 1), 16);
}

TEST(ExpertWayCost, MessagesCopiesAndLaunchesMakeManyChunksDear) {
  const ChunkedWork work{
      .send_s = 4, .compute_s = 8, .back_s = 4, .message_s = 0.5, .pass_s = 0.1, .launch_s = 0.01};
  double best = SecondsInChunks(work, 1, 1);
  int64_t chunks = 1;
  for (const int64_t n : {2, 4, 8, 16}) {
    const double seconds = SecondsInChunks(work, n, 1);
    if (seconds >= best) continue;
    best = seconds;
    chunks = n;
  }
  EXPECT_GT(chunks, 1);
  EXPECT_LT(chunks, 16);
}

}  // namespace
}  // namespace meshwright::planner
