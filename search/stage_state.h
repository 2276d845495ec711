// What a stage holds from step to step and does once per step, summed up over its layers.
//
// Weights, gradients and optimizer state stay; ZeRO leaves a block of each that it splits. In the
// update gradients are reduced, those of weights that two stages hold are exchanged, and weights
// renewed: blocks and messages of that live when no microbatch does, so a device needs the larger
// of the two. What kernels of one run hand to one another, and where collectives pack what is not
// one run of memory, is there in either case.
//
// Thread rule: a value; not shared between threads.
#pragma once

#include <cstdint>
#include <span>

#include "mesh/cost.h"
#include "planner/zero_levels.h"
#include "search/layer_probe.h"

namespace meshwright::search {

struct StageCost {
  double forward_s = 0;   // per microbatch, all parts
  double backward_s = 0;  // per microbatch, all parts
  double update_s = 0;
  double sync_s = 0;   // of gradients and weights, per step
  double early_s = 0;  // of these, what could be done while the last backward computes
  int64_t state_bytes = 0;
  int64_t kept_bytes = 0;       // of all microbatches in flight
  int64_t update_bytes = 0;     // in the update, when no microbatch is in flight
  int64_t transient_bytes = 0;  // of the largest run, and of the largest collective's packing
  int64_t memory_bytes() const {
    return state_bytes + (kept_bytes > update_bytes ? kept_bytes : update_bytes) + transient_bytes;
  }
};

// Devices of a stage that hold the same weights: those along the data axis that split the
// optimizer's state; along all of that axis and those of experts and of tokens, too; and along
// these two alone. Weights that the expert axis splits are alike along the data axis and that of
// tokens. Where groups of other sizes split gradients and weights (planner/zero_levels.h): those
// groups, and one device of each group that is in the same one of the optimizer.
struct Replicas {
  mesh::GroupShape data;
  mesh::GroupShape gradients;
  mesh::GroupShape weights;
  mesh::GroupShape between_gradients;
  mesh::GroupShape between_weights;
  mesh::GroupShape between;  // one of each group of the optimizer
  mesh::GroupShape all;
  mesh::GroupShape others;
  mesh::GroupShape of_experts;
  mesh::GroupShape others_of_experts;
};

// Those of a stage's first device. `devices`: of the stage, as its axes lie.
Replicas ReplicasOf(const planner::CostModel& costs, const planner::Degrees& degrees,
                    const planner::ZeroGroups& groups, std::span<const int> devices);

struct StateSetting {
  int64_t data = 1;  // of the data axis
  int64_t tensor = 1;
  int64_t zero = 0;
  planner::ZeroGroups groups;
  int stages = 1;
  bool accumulates = true;   // else a gradient is there from its backward to the update
  int64_t bucket_bytes = 0;  // of gradients that one call reduces
  Replicas replicas;
  int64_t Degree(planner::ZeroKind kind) const {
    return planner::ZeroDegree(data, zero, groups, kind);
  }
};

// Where the owner of the earlier layers' weights that a layer reads is.
enum class SharedOwner : uint8_t { kSamePart, kOtherPart, kOtherStage };

class StageState {
 public:
  explicit StageState(const StateSetting& setting) : setting_(setting) {}

  // `count` equal layers; one that reads weights of earlier layers comes alone.
  void Add(const LayerProbe& probe, const ZeroSplit& zero, SharedOwner owner, int count);
  // A layer of another stage reads weights of this one.
  void AddReader(const LayerProbe& probe, const ZeroSplit& zero);
  // kept_bytes, forward_s and backward_s are left to the schedule.
  StageCost Finish() const;

 private:
  // What is summed over one kind of replicas.
  struct Gradients {
    int64_t bytes = 0;
    int64_t split_bytes = 0;    // of these
    int64_t renewed_bytes = 0;  // what microbatches read of the weights of these: copies
    int split_weights = 0;
    // `weights`: those of which `split` is split.
    void Add(int count, int64_t all, int64_t split, const StateBytes& weights);
  };

  int64_t Block(int64_t bytes, int64_t split, planner::ZeroKind kind) const;
  // Weights, copies and state of the optimizer; of them `split` is split.
  int64_t HeldBytes(const StateBytes& all, const StateBytes& split) const;
  // Whether the update gathers what it renews in blocks.
  bool RenewsBlocks() const { return setting_.zero == 1 || setting_.zero == 2; }
  int64_t SharedBlock(int64_t bytes, const LayerProbe& probe, const ZeroSplit& zero) const;
  int64_t RunBytes(const LayerProbe& probe, const ZeroSplit& zero) const;
  void AddGradients(int64_t bytes);
  void AddShared(const LayerProbe& probe, const ZeroSplit& zero, SharedOwner owner);
  void AddExchange(const LayerProbe& probe, const ZeroSplit& zero, bool sums_into_slot);
  void AddSync(const Gradients& gradients, const mesh::GroupShape& all,
               const mesh::GroupShape& others, StageCost& cost) const;
  int64_t PackedBytes() const;

  const StateSetting setting_;
  StageCost cost_;
  Gradients gradients_;
  Gradients of_experts_;
  int64_t run_bytes_ = 0;      // of the largest run of a microbatch
  int64_t renewal_bytes_ = 0;  // of the largest run of the update
  int64_t packed_bytes_ = 0;
};

// Of one lane that computes and one for what replicas move, both through so many layers: how much
// longer the second makes the first. Of one layer nothing is beside the first lane, of the others
// `share` of what can be (planner/overlap.h).
double ExposedSeconds(double computes_s, double moves_s, size_t layers, double share);

// Of `calls` equal ones that move `bytes` together; bytes as of mesh::CostOfCollective.
double CallsSeconds(mesh::CollectiveKind kind, double bytes, double calls,
                    const mesh::GroupShape& group);

// Gradients of the weights that are a layer's own, or of earlier layers that it reads, too, as they
// wait for the update.
int64_t OwnGradientBytes(const LayerProbe& probe, const ZeroSplit& zero,
                         const StateSetting& setting);
int64_t SharedGradientBytes(const LayerProbe& probe, const ZeroSplit& zero,
                            const StateSetting& setting);

// What one device sends of a layer's shared weights to a stage that has a copy of them: a block of
// the replica, and where the tensor group has them whole, a part for each of its members.
int64_t ExchangedBytes(const LayerProbe& probe, const ZeroSplit& zero, const StateSetting& setting);

}  // namespace meshwright::search
