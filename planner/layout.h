// A layout: how a job lies on devices, as a value.
//
// Thread rule: pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "mesh/topology.h"
#include "planner/axes.h"
#include "planner/recompute_modes.h"
#include "planner/schedule.h"

namespace meshwright::planner {

// How the queries of a part of a row come to all keys of it: keys are gathered, or their blocks go
// round a ring, or devices share heads in the place of tokens, or neighbours share heads and their
// groups are a ring. kAuto: by bytes (planner/context_attention.h).
enum class ContextAttention : uint8_t { kAuto, kGather, kRing, kUlysses, kNested };
Result<ContextAttention> ParseContextAttention(const std::string& text);

// Replicas that split each kind of state among them (planner/zero_levels.h); 0: as many as of the
// kind before, the first one all.
struct ZeroGroups {
  int64_t state = 0;  // of the optimizer
  int64_t gradients = 0;
  int64_t weights = 0;
  friend bool operator==(const ZeroGroups&, const ZeroGroups&) = default;
};

// Degrees with every "auto" resolved.
struct Layout {
  // Of every stage; where stages differ the least common multiples of theirs, which is what batch,
  // tokens, weights and heads are divided by.
  Degrees degrees;
  int64_t pipeline = 1;
  int64_t microbatches = 1;
  std::string schedule = "1f1b";
  bool sequence_parallel = false;
  int64_t chunks = 1;                  // parts of the model per stage (planner/schedule.h)
  std::vector<int> part_layers;        // layers of each part, in order; empty: balanced by FLOPs
  int64_t zero = 0;                    // 1, 2, 3: what replicas split among them (planner/zero.h)
  ZeroGroups zero_groups;              // which of them (planner/zero_levels.h)
  std::vector<Recompute> recompute;    // per layer; empty: kNone in all
  std::vector<Degrees> stage_degrees;  // per stage; empty: `degrees` in each
  ContextAttention context_attention = ContextAttention::kAuto;
  // Of kNested: neighbours along the context axis that share heads; the axis is then two, context
  // (of the groups) and context2 (within one).
  int64_t context_heads = 1;
  // Hosts that share the experts of a layer, where tokens go between hosts and within one as two
  // steps: the axis is then two, expert (of the hosts) and expert2 (within one). 1: one step.
  int64_t expert_hosts = 1;
  int64_t expert_chunks = 1;  // of the rows on their way to experts and back
  // Of the rows of a tensor group's products: found with the programs, and no part of the text.
  int64_t tensor_chunks = 1;
  // The tensor group as a grid: {2, 4} are axes tensor and tensor2. Shardings of several axes (2D,
  // 2.5D and 3D tensor parallelism) come from the search alone. Empty: one axis.
  std::vector<int64_t> tensor_axes;
  // The cluster's device that runs each program (TopologyOf); empty: the first ones in their order.
  std::vector<int> devices;
  int64_t data() const { return degrees.data(); }
  int64_t expert() const { return degrees.expert(); }
  int64_t context() const { return degrees.context(); }
  int64_t tensor() const { return degrees.tensor(); }
  const Degrees& DegreesOf(int stage) const;
  int64_t FirstDevice(int stage) const;  // stages follow each other
  int64_t device_count() const;
  PipelineShape shape() const;
  bool SplitsBackward() const;
  // Without what planning decides again: what one layout has in common with the plan of it.
  std::string AskedText() const;
  std::string ToString() const;  // "data=2 tensor=1 pipeline=2 microbatches=4 schedule=1f1b"
};

// The cluster as the programs of the layout see it: device i runs program i. What the layout leaves
// idle comes last. REQUIRES: layout.devices are of the topology, each once.
mesh::Topology TopologyOf(const Layout& layout, const mesh::Topology& topology);

// "2x1,1x1": data x tensor of each stage; "2x4x1,..": data x context x tensor. Errors:
// kInvalidArgument naming the stage's text.
Result<std::vector<Degrees>> ParseStageDegrees(const std::string& text);
std::string FormatStageDegrees(const std::vector<Degrees>& degrees);

// "0-3,7": the cluster's devices that run programs [first, first + count).
std::string FormatDevices(const Layout& layout, int64_t first, int64_t count);

// Of a stage's replicas as many share experts as they have in common with `degree`: common
// multiples of stages that differ then divide what each stage's replicas divide.
void ShareExperts(int64_t degree, Degrees& stage);

// Writes degrees of stages into a layout, with the least common multiples; equal ones are those of
// every stage. REQUIRES: one per stage.
void SetStageDegrees(const std::vector<Degrees>& degrees, Layout& layout);

}  // namespace meshwright::planner
