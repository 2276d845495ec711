#include <gtest/gtest.h>

#include <random>

#include "ir/builder.h"
#include "ir/lifetime.h"
#include "ir/program.h"

namespace meshwright::ir {
namespace {

TensorType F32(Dims dims) { return {DType::kF32, std::move(dims)}; }

bool Overlap(int64_t a_begin, int64_t a_size, int64_t b_begin, int64_t b_size) {
  return a_begin < b_begin + b_size && b_begin < a_begin + a_size;
}

TEST(PlaceLifetimes, NeverOverlapsWhatLivesTogether) {
  std::mt19937_64 random(11);
  for (int round = 0; round < 300; ++round) {
    std::vector<Lifetime> lives(1 + random() % 40);
    int64_t densest = 0;
    for (Lifetime& life : lives) {
      life.bytes = static_cast<int64_t>(random() % 500);
      life.first = static_cast<int>(random() % 20);
      life.last = life.first + static_cast<int>(random() % 6);
    }
    const Placement placement = PlaceLifetimes(lives);
    for (size_t i = 0; i < lives.size(); ++i) {
      EXPECT_EQ(placement.offset_bytes[i] % 64, 0);
      EXPECT_LE(placement.offset_bytes[i] + lives[i].bytes, placement.bytes);
      for (size_t j = 0; j < i; ++j) {
        if (lives[i].last < lives[j].first || lives[j].last < lives[i].first) continue;
        if (lives[i].bytes == 0 || lives[j].bytes == 0) continue;
        ASSERT_FALSE(Overlap(placement.offset_bytes[i], lives[i].bytes, placement.offset_bytes[j],
                             lives[j].bytes));
      }
    }
    for (int instant = 0; instant < 26; ++instant) {
      int64_t live = 0;
      for (const Lifetime& life : lives) {
        if (life.first <= instant && instant <= life.last) live += (life.bytes + 63) / 64 * 64;
      }
      densest = std::max(densest, live);
    }
    EXPECT_LE(densest, placement.bytes);
    EXPECT_LE(placement.bytes, 2 * densest) << "round " << round << ": wastes more than half";
  }
}

TEST(PlaceLifetimes, ReusesBytesOfTheDead) {
  const Placement placement = PlaceLifetimes({{100, 0, 1}, {100, 2, 3}, {100, 1, 2}});
  EXPECT_EQ(placement.offset_bytes, (std::vector<int64_t>{0, 0, 128}));
  EXPECT_EQ(placement.bytes, 256);
  EXPECT_EQ(PlaceLifetimes({}).bytes, 0);
}

// Each is dense in one order alone.
TEST(PlaceLifetimes, TakesTheOrderThatLeavesNoGaps) {
  const std::vector<Lifetime> by_beginning = {{128, 3, 5}, {256, 6, 11}, {64, 5, 8}, {192, 1, 3}};
  const std::vector<Lifetime> by_size = {{192, 0, 2}, {128, 2, 5}, {256, 4, 5}};
  const std::vector<Lifetime> by_area = {{192, 2, 3}, {128, 6, 9}, {192, 2, 7}, {128, 5, 8}};
  for (const auto& lives : {by_beginning, by_size, by_area}) {
    EXPECT_EQ(PlaceLifetimes(lives).bytes, MostLiveBytes(lives)) << lives[0].bytes;
  }
}

TEST(PlanWorkspace, BindsInputsAndOutputsAndReusesTheRest) {
  Builder b("g");
  ValueId x = b.AddOne(Op::kInput, {}, {{"name", std::string("x")}}, {F32({64})});
  std::vector<ValueId> chain = {x};
  for (int i = 0; i < 6; ++i) {
    chain.push_back(b.AddOne(Op::kTranspose, {chain.back()}, {{"perm", std::vector<int64_t>{0}}}));
  }
  b.SetOutput("y", chain.back());
  const WorkspacePlan plan = PlanWorkspace(*b.Finish());
  EXPECT_EQ(plan.offset_bytes.front(), -1);
  EXPECT_EQ(plan.offset_bytes.back(), -1);
  EXPECT_EQ(plan.bytes, 2 * 256) << "a chain needs its operand and its result";
  for (size_t i = 1; i + 2 < chain.size(); ++i) {
    EXPECT_NE(plan.offset_bytes[i], plan.offset_bytes[i + 1]);
  }
}

TEST(PlanWorkspace, ValuesMadeInPlaceShareTheirBytes) {
  Builder b("g");
  const ValueId x = b.AddOne(Op::kInput, {}, {{"name", std::string("x")}}, {F32({64})});
  const ValueId one = b.AddOne(Op::kGelu, {x});
  const ValueId two = b.AddOne(Op::kGelu, {one});
  const ValueId kept = b.AddOne(Op::kGelu, {two});
  const ValueId three = b.AddOne(Op::kMul, {kept, two});
  b.SetOutput("y", b.AddOne(Op::kGelu, {three}));
  const Graph graph = *b.Finish();
  const InPlaceChains chains = FindInPlaceChains(graph);
  EXPECT_EQ(chains.last[1], two) << "nothing reads it later";
  EXPECT_EQ(chains.last[2], two) << "still read behind its gelu";
  EXPECT_EQ(chains.last[3], three);
  EXPECT_EQ(chains.last[4], three) << "an output is written apart";
  EXPECT_EQ(chains.first[4], kept);
  const WorkspacePlan plan = PlanWorkspace(graph);
  EXPECT_EQ(plan.offset_bytes[1], plan.offset_bytes[2]);
  EXPECT_EQ(plan.offset_bytes[3], plan.offset_bytes[4]);
  EXPECT_EQ(plan.bytes, 2 * 256);
}

TEST(PlanWorkspace, WhatAnOutputAccumulatesIsMadeInItsPlace) {
  Builder b("g");
  const auto input = [&](const char* name, Dims dims) {
    return b.AddOne(Op::kInput, {}, {{"name", std::string(name)}}, {F32(std::move(dims))});
  };
  const ValueId x = input("x", {8, 4}), y = input("y", {8, 6}), total = input("total", {4, 6});
  const Attrs product = {{"equation", std::string("km,kn->mn")}};
  const ValueId first = b.AddOne(Op::kEinsum, {x, y, total}, product);
  const ValueId second = b.AddOne(Op::kEinsum, {x, y, first}, product);
  b.SetOutput("total", second);
  const Graph graph = *b.Finish();
  EXPECT_EQ(FindInPlaceChains(graph).first[4], first);
  EXPECT_EQ(PlanWorkspace(graph).offset_bytes[3], -1);
  EXPECT_EQ(PlanWorkspace(graph).bytes, 0);
  const OperandTimes times = TimesOf(graph);
  EXPECT_EQ(times.last_read, (std::vector<int>{4, 4, 3}));
  EXPECT_EQ(times.first_write, (std::vector<int>{3}));
}

TEST(PlanWorkspace, ResultsThatNobodyReadsStillHaveAPlace) {
  Builder b("g");
  const ValueId x = b.AddOne(Op::kInput, {}, {{"name", std::string("x")}}, {F32({4, 16})});
  const ValueId w = b.AddOne(Op::kInput, {}, {{"name", std::string("w")}}, {F32({16})});
  const std::vector<ValueId> norm = b.Add(Op::kLayerNorm, {x, w, w});
  b.SetOutput("y", norm[0]);
  const WorkspacePlan plan = PlanWorkspace(*b.Finish());
  EXPECT_EQ(plan.offset_bytes[2], -1);
  EXPECT_NE(plan.offset_bytes[3], plan.offset_bytes[4]) << "mean and rstd are written by one node";
  EXPECT_EQ(plan.bytes, 128);
}

TEST(MemoryKind, NamesAreDistinct) {
  EXPECT_STREQ(MemoryKindName(MemoryKind::kWeights), "weights");
  EXPECT_STREQ(MemoryKindName(MemoryKind::kOptimizer), "optimizer");
  EXPECT_STREQ(MemoryKindName(static_cast<MemoryKind>(99)), "invalid");
}

}  // namespace
}  // namespace meshwright::ir
