#include "search/stage_state.h"

#include <algorithm>
#include <vector>

#include "base/check.h"

namespace meshwright::search {
namespace {

using mesh::CollectiveKind;
using planner::ZeroKind;

// A block of what ZeRO splits, all of the rest. Of what is on the host there is nothing to split.
int64_t BlockOf(int64_t bytes, int64_t split, int64_t degree) {
  split = std::min(split, bytes);
  return bytes - split + split / degree;
}

double Share(int64_t part, int64_t whole) {
  return whole == 0 ? 0 : static_cast<double>(part) / static_cast<double>(whole);
}

}  // namespace

Replicas ReplicasOf(const planner::CostModel& costs, const planner::Degrees& degrees,
                    const planner::ZeroGroups& groups, std::span<const int> devices) {
  // Every `step`th of the data axis.
  const auto along = [&](int64_t data, int64_t expert, int64_t context, int64_t step = 1) {
    std::vector<int> members;
    for (int64_t d = 0; d < data; d += step) {
      for (int64_t e = 0; e < expert; ++e) {
        for (int64_t c = 0; c < context; ++c) {
          const int64_t row = (d * degrees.expert() + e) * degrees.context() + c;
          members.push_back(devices[static_cast<size_t>(row * degrees.tensor())]);
        }
      }
    }
    return costs.ShapeOf(members);
  };
  const int64_t data = degrees[planner::Axis::kData];
  const int64_t state = planner::GroupSize(data, groups, ZeroKind::kOptimizer);
  const int64_t gradients = planner::GroupSize(data, groups, ZeroKind::kGradients);
  const int64_t weights = planner::GroupSize(data, groups, ZeroKind::kWeights);
  Replicas replicas;
  replicas.all = along(data, degrees.expert(), degrees.context());
  replicas.data = along(state, 1, 1);
  replicas.gradients = along(gradients, 1, 1);
  replicas.weights = along(weights, 1, 1);
  replicas.between = along(data, 1, 1, state);
  replicas.between_gradients = along(state, 1, 1, gradients);
  replicas.between_weights = along(state, 1, 1, weights);
  if (degrees.expert() == 1 && degrees.context() == 1) {
    replicas.of_experts = replicas.all;
    return replicas;
  }
  replicas.others = along(1, degrees.expert(), degrees.context());
  replicas.of_experts = along(data, 1, degrees.context());
  replicas.others_of_experts = along(1, 1, degrees.context());
  return replicas;
}

double ExposedSeconds(double computes_s, double moves_s, size_t layers, double share) {
  MW_CHECK(share >= 0 && share <= 1) << "a share of " << share;
  if (layers < 2) return moves_s;
  const double inner = static_cast<double>(layers - 1) / static_cast<double>(layers);
  return moves_s - share * inner * std::min(computes_s, moves_s);
}

double CallsSeconds(CollectiveKind kind, double bytes, double calls,
                    const mesh::GroupShape& group) {
  if (group.members == 1 || bytes <= 0 || calls <= 0) return 0;
  return calls * mesh::CostOfCollective(kind, bytes / calls, group).seconds;
}

int64_t ExchangedBytes(const LayerProbe& probe, const ZeroSplit& zero,
                       const StateSetting& setting) {
  const int64_t parts =
      probe.shared.bytes - probe.shared_whole_bytes + probe.shared_whole_bytes / setting.tensor;
  const double split = Share(zero.shared.bytes, probe.shared.bytes);
  const auto degree = static_cast<double>(setting.Degree(ZeroKind::kOptimizer));
  return static_cast<int64_t>(static_cast<double>(parts) * (1 - split + split / degree));
}

int64_t OwnGradientBytes(const LayerProbe& probe, const ZeroSplit& zero,
                         const StateSetting& setting) {
  return BlockOf(probe.own.gradient_bytes, zero.own.gradient_bytes,
                 setting.Degree(ZeroKind::kGradients));
}

int64_t SharedGradientBytes(const LayerProbe& probe, const ZeroSplit& zero,
                            const StateSetting& setting) {
  return BlockOf(probe.shared.bytes, zero.shared.bytes, setting.Degree(ZeroKind::kGradients));
}

int64_t StageState::Block(int64_t bytes, int64_t split, ZeroKind kind) const {
  return BlockOf(bytes, split, setting_.Degree(kind));
}

// Of weights, those that only the optimizer has as they are are split as its state is.
int64_t StageState::HeldBytes(const StateBytes& all, const StateBytes& split) const {
  const int64_t masters = std::min(split.master_bytes, all.bytes);
  return Block(all.bytes - masters, split.bytes - masters, ZeroKind::kWeights) +
         Block(masters, masters, ZeroKind::kOptimizer) +
         Block(all.copy_bytes, split.copy_bytes, ZeroKind::kWeights) +
         Block(all.optimizer_bytes, split.optimizer_bytes, ZeroKind::kOptimizer);
}

void StageState::Gradients::Add(int count, int64_t all, int64_t split, const StateBytes& weights) {
  bytes += count * all;
  split_bytes += count * split;
  renewed_bytes += count * weights.renewed_bytes;
  split_weights += count * weights.weights;
}

void StageState::AddGradients(int64_t bytes) {
  (setting_.accumulates ? cost_.state_bytes : cost_.update_bytes) += bytes;
}

int64_t StageState::SharedBlock(int64_t bytes, const LayerProbe& probe,
                                const ZeroSplit& zero) const {
  const double split = Share(zero.shared.bytes, probe.shared.bytes);
  return Block(bytes, static_cast<int64_t>(split * static_cast<double>(bytes)),
               ZeroKind::kOptimizer);
}

void StageState::Add(const LayerProbe& probe, const ZeroSplit& zero, SharedOwner owner, int count) {
  const double split = Share(zero.own.bytes, probe.own.bytes);
  cost_.state_bytes += count * HeldBytes(probe.own, zero.own);
  if (probe.gradients_stay) AddGradients(count * OwnGradientBytes(probe, zero, setting_));
  gradients_.Add(count, probe.own.gradient_bytes, zero.own.gradient_bytes, zero.own);
  const int64_t of_experts = probe.of_experts.gradient_bytes;
  gradients_.Add(-count, of_experts, zero.of_experts.gradient_bytes, zero.of_experts);
  of_experts_.Add(count, of_experts, zero.of_experts.gradient_bytes, zero.of_experts);
  const auto degree = static_cast<double>(setting_.Degree(ZeroKind::kOptimizer));
  cost_.update_s += count * probe.update_s * (1 - split + split / degree);
  run_bytes_ = std::max(run_bytes_, RunBytes(probe, zero));
  packed_bytes_ =
      std::max({packed_bytes_, probe.packed_bytes, setting_.zero >= 1 ? zero.packed_bytes : 0});
  // Of a weight the block that the optimizer renews before all are gathered.
  if (RenewsBlocks()) {
    renewal_bytes_ = std::max(renewal_bytes_,
                              zero.largest_renewed_bytes / setting_.Degree(ZeroKind::kOptimizer));
  }
  AddShared(probe, zero, owner);
}

// A weight is gathered where it is read, and a gradient whole until it is scattered; a head that is
// one node with its loss does both at once. What is recomputed lives through all of that, other
// results of a backward do not.
int64_t StageState::RunBytes(const LayerProbe& probe, const ZeroSplit& zero) const {
  const int64_t gathered = setting_.zero == 3 ? zero.largest_gathered_bytes : 0;
  const int64_t scattered =
      setting_.zero >= 2
          ? zero.largest_bytes + zero.largest_bytes / setting_.Degree(ZeroKind::kGradients)
          : 0;
  const int64_t blocks =
      probe.makes_loss_gradient ? gathered + scattered : std::max(gathered, scattered);
  if (probe.recomputes) return probe.transient_bytes + probe.largest_made_bytes + blocks;
  return std::max({probe.transient_bytes + probe.largest_made_bytes,
                   probe.transient_bytes + gathered, probe.largest_made_bytes + blocks});
}

void StageState::AddShared(const LayerProbe& probe, const ZeroSplit& zero, SharedOwner owner) {
  if (probe.shared_layer < 0 || owner == SharedOwner::kSamePart) return;
  // Parts sum up gradients of their own.
  AddGradients(SharedGradientBytes(probe, zero, setting_));
  gradients_.Add(1, probe.shared.bytes, zero.shared.bytes, zero.shared);
  if (owner == SharedOwner::kOtherPart) return;
  cost_.state_bytes += HeldBytes(probe.shared, zero.shared);
  AddExchange(probe, zero, /*sums_into_slot=*/true);
}

void StageState::AddReader(const LayerProbe& probe, const ZeroSplit& zero) {
  AddExchange(probe, zero, /*sums_into_slot=*/false);
}

// The gradient of the other stage arrives in parts, is put together, and added to the own one. The
// sum outlives the run where the update waits for norms of other stages' gradients.
void StageState::AddExchange(const LayerProbe& probe, const ZeroSplit& zero, bool sums_into_slot) {
  const int64_t sum = SharedBlock(probe.shared.bytes, probe, zero);
  const int64_t whole =
      setting_.tensor > 1 ? SharedBlock(probe.shared_whole_bytes, probe, zero) : 0;
  packed_bytes_ = std::max(packed_bytes_, whole);
  cost_.update_bytes += ExchangedBytes(probe, zero, setting_) + (sums_into_slot ? sum : 0);
  const int64_t run = sums_into_slot ? whole : sum + std::max(whole, RenewsBlocks() ? sum : 0);
  renewal_bytes_ = std::max(renewal_bytes_, run);
}

StageCost StageState::Finish() const {
  StageCost cost = cost_;
  const Replicas& replicas = setting_.replicas;
  AddSync(gradients_, replicas.all, replicas.others, cost);
  AddSync(of_experts_, replicas.of_experts, replicas.others_of_experts, cost);
  // Blocks of gradients are all made before one is used: the norm is of all. A stage that waits for
  // no other stage's part of it updates in one run.
  const int64_t split_bytes = gradients_.split_bytes + of_experts_.split_bytes;
  const int64_t blocks =
      setting_.zero == 1 ? split_bytes / setting_.Degree(ZeroKind::kOptimizer) : 0;
  const int64_t renewal = renewal_bytes_ + (setting_.stages == 1 ? blocks : 0);
  if (setting_.stages > 1) cost.update_bytes += blocks;
  cost.transient_bytes = std::max(run_bytes_, renewal) + PackedBytes();
  return cost;
}

// Gradients that are summed over replicas together are packed first.
int64_t StageState::PackedBytes() const {
  int64_t summed = 0;
  const auto add = [&](const Gradients& gradients, const mesh::GroupShape& all,
                       const mesh::GroupShape& others) {
    const int64_t split = setting_.zero == 0 ? 0 : gradients.split_bytes;
    if (all.members > 1) summed = std::max(summed, gradients.bytes - split);
    const bool reduces = others.members > 1 && setting_.zero == 1;
    const bool sums = reduces || (setting_.zero >= 1 && setting_.replicas.between.members > 1);
    if (sums) summed = std::max(summed, split / setting_.Degree(ZeroKind::kOptimizer));
  };
  add(gradients_, setting_.replicas.all, setting_.replicas.others);
  add(of_experts_, setting_.replicas.of_experts, setting_.replicas.others_of_experts);
  return std::max(packed_bytes_, std::min(setting_.bucket_bytes, summed));
}

// What ZeRO splits is scattered over the data axis, and the blocks are summed over what else holds
// the same weights: from the second stage on for every microbatch (search/layout_cost.cc), but for
// what is between groups. Of equal calls for gradients all but the last have others to come.
void StageState::AddSync(const Gradients& gradients, const mesh::GroupShape& all,
                         const mesh::GroupShape& others, StageCost& cost) const {
  const auto add = [&](CollectiveKind kind, int64_t bytes, int64_t count,
                       const mesh::GroupShape& group) {
    const double seconds =
        CallsSeconds(kind, static_cast<double>(bytes), static_cast<double>(count), group);
    cost.sync_s += seconds;
    if (kind == CollectiveKind::kAllGather || count < 2) return;
    cost.early_s += seconds * static_cast<double>(count - 1) / static_cast<double>(count);
  };
  const auto buckets = [&](int64_t bytes, const mesh::GroupShape& group) {
    const int64_t count = (bytes + setting_.bucket_bytes - 1) / setting_.bucket_bytes;
    add(CollectiveKind::kAllReduce, bytes, count, group);
  };
  if (setting_.zero == 0) return buckets(gradients.bytes, all);
  const auto calls = [&](CollectiveKind kind, int64_t bytes, const mesh::GroupShape& group) {
    add(kind, bytes, gradients.split_weights, group);
  };
  const Replicas& replicas = setting_.replicas;
  const int64_t state = setting_.Degree(ZeroKind::kOptimizer);
  const int64_t summed = gradients.split_bytes / setting_.Degree(ZeroKind::kGradients);
  const bool late = setting_.zero == 1;  // all of it is summed in the update
  buckets(gradients.bytes - gradients.split_bytes, all);
  calls(CollectiveKind::kReduceScatter, summed, late ? replicas.data : replicas.between_gradients);
  buckets(gradients.split_bytes / state, replicas.between);
  if (late) buckets(gradients.split_bytes / state, others);
  calls(CollectiveKind::kAllGather, gradients.renewed_bytes / state,
        setting_.zero < 3 ? replicas.data : replicas.between_weights);
}

}  // namespace meshwright::search
