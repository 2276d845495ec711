// What a stage holds and does once per step, by hand.
#include "search/stage_state.h"

#include <gtest/gtest.h>

namespace meshwright::search {
namespace {

// Weights of 800 bytes, of which four replicas divide 640, the largest 512 with packing.
LayerProbe Layer() {
  LayerProbe probe;
  probe.update_s = 8;
  probe.own.bytes = probe.own.gradient_bytes = 800;
  probe.own.optimizer_bytes = 1600;
  probe.transient_bytes = 100;
  return probe;
}

ZeroSplit Split() {
  ZeroSplit split;
  split.own.weights = 2;
  split.own.bytes = split.own.gradient_bytes = 640;
  split.own.optimizer_bytes = 1280;
  split.own.renewed_bytes = 640;
  split.largest_bytes = split.largest_gathered_bytes = split.packed_bytes = 512;
  split.largest_renewed_bytes = 512;
  return split;
}

StateSetting Setting(int64_t zero, int64_t data = 4) {
  StateSetting setting;
  setting.data = data;
  setting.zero = zero;
  setting.stages = 2;
  setting.bucket_bytes = 300;
  mesh::GroupShape replicas;
  replicas.members = data;
  replicas.within = {0, 1};
  replicas.members_per_host = data;
  setting.replicas.data = setting.replicas.all = setting.replicas.of_experts = replicas;
  return setting;
}

StageCost OneLayer(const StateSetting& setting, int count = 1) {
  StageState state(setting);
  state.Add(Layer(), Split(), SharedOwner::kSamePart, count);
  return state.Finish();
}

// Of three buckets, or two weights, all but the last can be reduced before the last gradient is
// there; what is gathered after the update never is.
TEST(StageState, AllButTheLastGradientsAreEarly) {
  const StageCost buckets = OneLayer(Setting(0));
  EXPECT_DOUBLE_EQ(buckets.early_s, buckets.sync_s * 2 / 3);
  const StageCost blocks = OneLayer(Setting(1));
  EXPECT_LT(blocks.early_s, blocks.sync_s / 2);
  EXPECT_GT(blocks.early_s, 0);
  EXPECT_EQ(OneLayer(Setting(3)).early_s, 0);  // each microbatch scatters all of them
  EXPECT_EQ(OneLayer(Setting(0, 1)).early_s, 0);
}

TEST(ExposedSeconds, IsWhatNothingComputesBeside) {
  EXPECT_EQ(ExposedSeconds(10, 4, 1, 1), 4);
  EXPECT_EQ(ExposedSeconds(10, 4, 4, 0), 4);
  EXPECT_DOUBLE_EQ(ExposedSeconds(10, 4, 4, 1), 1);
  EXPECT_DOUBLE_EQ(ExposedSeconds(10, 4, 4, 0.5), 2.5);
  EXPECT_DOUBLE_EQ(ExposedSeconds(4, 10, 4, 1), 7);
}

TEST(StageState, ZeroSplitsOptimizerGradientsAndWeights) {
  EXPECT_EQ(OneLayer(Setting(0)).state_bytes, 800 + 800 + 1600);
  EXPECT_EQ(OneLayer(Setting(1)).state_bytes, 800 + 800 + (320 + 320));
  EXPECT_EQ(OneLayer(Setting(2)).state_bytes, 800 + (160 + 160) + (320 + 320));
  EXPECT_EQ(OneLayer(Setting(3)).state_bytes, (160 + 160) + (160 + 160) + (320 + 320));
  EXPECT_EQ(OneLayer(Setting(0)).update_s, 8);
  EXPECT_DOUBLE_EQ(OneLayer(Setting(1)).update_s, 8 * (0.2 + 0.8 / 4));
  EXPECT_EQ(OneLayer(Setting(3), 3).state_bytes, 3 * OneLayer(Setting(3)).state_bytes);
  EXPECT_EQ(OneLayer(Setting(0, 1)).sync_s, 0);
  EXPECT_GT(OneLayer(Setting(0)).sync_s, 0);
}

TEST(StageState, GroupsSplitEachKindOverTheirOwnReplicas) {
  StateSetting setting = Setting(3, 8);
  setting.groups = {8, 4, 2};
  EXPECT_EQ(OneLayer(setting).state_bytes, (160 + 320) + (160 + 160) + (320 + 160));
  setting.zero = 2;
  EXPECT_EQ(OneLayer(setting).state_bytes, 800 + (160 + 160) + (320 + 160));
  setting.groups = {2, 0, 0};
  EXPECT_EQ(OneLayer(setting).state_bytes, 800 + (160 + 320) + (320 + 640));
}

// Of what is split, 512 bytes are read as copies of half the size.
TEST(StageState, WeightsThatAreReadAsCopiesAreStateOfTheOptimizer) {
  LayerProbe probe = Layer();
  probe.own.copy_bytes = 256;
  ZeroSplit split = Split();
  split.own.master_bytes = 512;
  split.own.copy_bytes = 256;
  split.own.renewed_bytes = 128 + 256;
  split.largest_renewed_bytes = 128;
  const auto of = [&](int64_t zero) {
    StageState state(Setting(zero));
    state.Add(probe, split, SharedOwner::kSamePart, 1);
    return state.Finish();
  };
  EXPECT_EQ(of(0).state_bytes, 800 + 256 + 800 + 1600);
  EXPECT_EQ(of(1).state_bytes, (288 + 128) + 256 + 800 + (320 + 320));
  EXPECT_EQ(of(3).state_bytes, (160 + 160) + 64 + (160 + 160) + (320 + 320));
  split.own.renewed_bytes = 640;
  const double wide_s = of(1).sync_s;
  split.own.renewed_bytes = 128 + 256;
  EXPECT_LT(of(1).sync_s, wide_s);
}

// Of four replicas two share experts: a weight that these split is summed over the two others.
TEST(StageState, WeightsOfExpertsAreSummedOverFewerReplicas) {
  StateSetting setting = Setting(0);
  setting.data = 2;
  setting.replicas.data = setting.replicas.of_experts = Setting(0, 2).replicas.all;
  LayerProbe probe = Layer();
  const auto sync_s = [&] {
    StageState state(setting);
    state.Add(probe, {}, SharedOwner::kSamePart, 1);
    return state.Finish().sync_s;
  };
  const double by_all_s = sync_s();
  probe.of_experts.gradient_bytes = probe.own.gradient_bytes;
  EXPECT_LT(sync_s(), by_all_s);
  EXPECT_GT(sync_s(), 0);
}

TEST(StageState, TheUpdateHoldsBlocksAndRunsHoldWhatIsGathered) {
  EXPECT_EQ(OneLayer(Setting(0)).update_bytes, 0);
  EXPECT_EQ(OneLayer(Setting(1)).update_bytes, 640 / 4) << "blocks wait for the norm of all";
  EXPECT_EQ(OneLayer(Setting(0)).transient_bytes, 100 + 300) << "a bucket is packed";
  EXPECT_EQ(OneLayer(Setting(1)).transient_bytes, 512 / 4 + 512) << "a block that is renewed";
  EXPECT_EQ(OneLayer(Setting(2)).transient_bytes, 512 + 512 / 4 + 512) << "a whole gradient";
  LayerProbe head = Layer();
  head.makes_loss_gradient = true;
  StageState state(Setting(3));
  state.Add(head, Split(), SharedOwner::kSamePart, 1);
  EXPECT_EQ(state.Finish().transient_bytes, 512 + 512 + 512 / 4 + 512) << "and its weight";
}

TEST(StageState, AGradientThatIsNotSummedUpWaitsInTheUpdate) {
  StateSetting setting = Setting(0);
  setting.accumulates = false;
  const StageCost cost = OneLayer(setting);
  EXPECT_EQ(cost.state_bytes, 800 + 1600);
  EXPECT_EQ(cost.update_bytes, 800);
  EXPECT_EQ(cost.memory_bytes(), cost.state_bytes + 800 + cost.transient_bytes);
}

TEST(StageState, CopiesOfAnotherStagesWeightsAreHeldAndExchanged) {
  LayerProbe head;
  head.shared_layer = 0;
  head.shared.bytes = 400;
  head.shared.optimizer_bytes = 800;
  const ZeroSplit whole;  // ZeroSplit of a weight that nothing divides
  const auto state_bytes = [&](SharedOwner owner) {
    StageState state(Setting(0));
    state.Add(head, whole, owner, 1);
    return state.Finish().state_bytes;
  };
  EXPECT_EQ(state_bytes(SharedOwner::kSamePart), 0);
  EXPECT_EQ(state_bytes(SharedOwner::kOtherPart), 400) << "each part sums up its own gradient";
  EXPECT_EQ(state_bytes(SharedOwner::kOtherStage), 400 + 400 + 800);
  StageState reader(Setting(0));
  reader.Add(head, whole, SharedOwner::kOtherStage, 1);
  EXPECT_EQ(reader.Finish().update_bytes, 400 + 400) << "what arrives, and the sum";
  StageState owner(Setting(0));
  owner.AddReader(head, whole);
  EXPECT_EQ(owner.Finish().update_bytes, 400);
}

TEST(ExchangedBytes, AreABlockOfAReplicaAndAPartOfATensorGroup) {
  LayerProbe head;
  head.shared.bytes = 400;
  StateSetting setting = Setting(0);
  EXPECT_EQ(ExchangedBytes(head, {}, setting), 400);
  head.shared_whole_bytes = 400;
  setting.tensor = 2;
  EXPECT_EQ(ExchangedBytes(head, {}, setting), 200);
  setting.zero = 1;
  ZeroSplit split;
  split.shared.bytes = 400;
  EXPECT_EQ(ExchangedBytes(head, split, setting), 50);
}

}  // namespace
}  // namespace meshwright::search
