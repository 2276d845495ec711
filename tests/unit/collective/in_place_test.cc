// The parts that groups of one host work in place with.
#include <gtest/gtest.h>

#include <cstring>
#include <thread>
#include <vector>

#include "collective/cpu/board.h"
#include "collective/cpu/host_memory.h"
#include "collective/cpu/sum.h"

namespace meshwright::collective {
namespace {

TEST(HostMemory, FindsWhatLiesInsideAndNothingElse) {
  std::vector<std::byte> first(100);
  std::vector<std::byte> second(50);
  OwnMemory own;
  own.Add({1, 2, 100, {}}, first.data());
  own.Add({1, 3, 50, {}}, second.data());
  EXPECT_EQ(own.Find(first.data(), 100).memory, 0);
  EXPECT_EQ(own.Find(second.data() + 20, 30).memory, 1);
  EXPECT_EQ(own.Find(second.data() + 20, 30).offset, 20);
  EXPECT_EQ(own.Find(second.data() + 20, 31).memory, -1) << "reaches past the end";
  EXPECT_EQ(own.Find(first.data() + 1, 100).memory, -1);
  EXPECT_EQ(own.Find(reinterpret_cast<const std::byte*>(&own), 1).memory, -1);
}

TEST(HostMemory, PlacesOfAPeerAreChecked) {
  Region made = Region::CreateShared(4096).value();
  PeerMemory peer;
  peer.regions.push_back(Region::OpenShared(made.handle()).value());
  EXPECT_EQ(peer.At({0, 96}, 4000), peer.regions[0].data() + 96);
  EXPECT_EQ(peer.At({0, 97}, 4000), nullptr);
  EXPECT_EQ(peer.At({0, 0}, 4097), nullptr);
  EXPECT_EQ(peer.At({0, -1}, 1), nullptr);
  EXPECT_EQ(peer.At({0, INT64_MAX}, 1), nullptr);
  EXPECT_EQ(peer.At({1, 0}, 1), nullptr);
  EXPECT_EQ(peer.At({-1, 0}, 1), nullptr);
}

TEST(Board, OnlyTheLastToReachAStepRingsForSleepers) {
  const Region region = Region::Private(Board::Bytes(3)).value();
  const Board board(region.data(), 3);
  board.bell().waiters.store(1);
  board.Reach(0, 1);
  board.Reach(2, 1);
  EXPECT_EQ(board.bell().value.load(), 0u);
  EXPECT_EQ(board.FirstMissing(1), 1);
  EXPECT_EQ(board.FirstMissing(1, 2), 3);
  board.Reach(1, 1);
  EXPECT_EQ(board.bell().value.load(), 1u);
  EXPECT_EQ(board.FirstMissing(1), 3);
}

TEST(Board, StepsCompareAcrossTheWrap) {
  const Region region = Region::Private(Board::Bytes(2)).value();
  const Board board(region.data(), 2);
  board.Reach(0, 0xffffffffu);
  board.Reach(1, 1);
  EXPECT_EQ(board.FirstMissing(0xffffffffu), 2);
  EXPECT_EQ(board.FirstMissing(1), 0);
}

TEST(Board, NoticesAndSmallBuffersAreUsedInTurn) {
  const Region region = Region::Private(Board::Bytes(2)).value();
  const Board board(region.data(), 2);
  EXPECT_NE(&board.notice(0, 1), &board.notice(0, 2));
  EXPECT_EQ(&board.notice(0, 1), &board.notice(0, 3));
  EXPECT_EQ(board.small(1, 2) + Board::kSmallBytes, board.small(1, 3));
  EXPECT_LE(board.small(1, 3) + Board::kSmallBytes, region.data() + region.bytes());
}

// Every path of the loops, in place and not, at odd lengths.
TEST(SumFloats, AddsInListOrderBitForBit) {
  for (const size_t members : {1u, 2u, 3u, 4u, 5u, 8u}) {
    for (const int64_t count : {int64_t{1}, int64_t{7}, int64_t{513}, int64_t{2050}}) {
      std::vector<std::vector<float>> pieces(members);
      std::vector<float> expected(static_cast<size_t>(count));
      for (size_t m = 0; m < members; ++m) {
        for (int64_t i = 0; i < count; ++i) {
          const float value = 1.0f / static_cast<float>(3 + i * 7 + static_cast<int64_t>(m) * 11);
          pieces[m].push_back(value);
          float& sum = expected[static_cast<size_t>(i)];
          sum = m == 0 ? value : sum + value;
        }
      }
      std::vector<float*> inputs;
      for (auto& piece : pieces) {
        inputs.push_back(piece.data());
      }
      std::vector<float> single(static_cast<size_t>(count));
      float* output = single.data();
      SumFloats(inputs, {&output, 1}, count);
      EXPECT_EQ(single, expected) << members << " members, " << count;
      SumFloats(inputs, inputs, count);
      for (const auto& piece : pieces) {
        EXPECT_EQ(piece, expected) << members << " members, " << count << ", in place";
      }
    }
  }
}

}  // namespace
}  // namespace meshwright::collective
