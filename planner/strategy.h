// Shardings of every value, by Redco's two rules on factors.
//
// Batch axes ("micro", the microbatch index in time, then "data") split the rows that feeds produce
// and everything computed from them. The tensor axis starts at contractions with a weight: a weight
// whose input is not split along the contraction is split along an output factor that everything
// downstream can keep split (the attention heads, the FFN width, the vocabulary); one whose input
// is split along the contraction follows it, and its result is partial until somebody needs it
// whole (one all-reduce per attention and per FFN block). All other ops keep what their operands
// have; gradients of a weight are split as the weight. With sequence parallelism, partial results
// become split along the sequence instead of whole.
//
// Source: Redco (Tan et al., 2023), stated on factors: rule 1 alternate non-contracting
// / contracting, rule 2 shard the head factor. Deviation: none in what is split; the sequence
// switch is Megatron's.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/id_vector.h"
#include "base/result.h"
#include "ir/graph.h"
#include "mesh/sharding.h"
#include "planner/expansions.h"
#include "planner/layout.h"
#include "planner/stages.h"

namespace meshwright::planner {

// A forward cast of a param: it is computed once per step, and is split as the param is.
bool IsWeightCast(const ir::Graph& graph, const ir::Node& node);

struct NodeStrategy {
  std::vector<mesh::Sharding> operands;  // required, one per input
  std::vector<mesh::Sharding> results;
  Expansion expansion = Expansion::kNone;
};

struct Strategies {
  std::vector<NodeStrategy> nodes;               // per node
  std::map<std::string, mesh::Sharding> params;  // by name, optimizer state included
  IdVector<ValueId, mesh::Sharding> values;      // per value, as produced
  // The sharding in which later pieces read a value, made where the value is: a gradient that
  // microbatches sum up, the copy of a weight; absent: as it is produced.
  std::map<ValueId, mesh::Sharding> kept_as;
  // The sharding, but for "micro", in which a value is brought to its readers of a phase before
  // each takes what it needs of that; absent: each starts from what there is.
  std::map<std::pair<ValueId, ir::Phase>, mesh::Sharding> forms;
  std::vector<std::string> notes;
};

// The axes of a tensor group, of size > 1.
std::vector<ir::MeshAxis> TensorAxes(const Layout& layout);
// Of the devices that share rows, those that share heads in a ring are the last axis.
inline constexpr char kContextHeads[] = "context2";
// All axes of a stage of these degrees, in the order of kAxisKinds; of size 1 are data and tensor
// at most.
std::vector<ir::MeshAxis> StageAxes(const Layout& layout, const Degrees& degrees);

// The mesh that shardings refer to: axes of size > 1 among micro, data, context, tensor (no
// devices). Where stages differ, what these sizes divide is divided by the sizes of every stage.
mesh::Mesh PlanningMesh(const Layout& layout);
// The one that a stage's blocks are of: without the axes that it has no devices along.
mesh::Mesh PlanningMesh(const Layout& layout, int stage);

// What shardings are on a stage: axes that its mesh does not have split nothing.
mesh::Sharding OnMesh(mesh::Sharding sharding, const mesh::Mesh& mesh);
Strategies OnMesh(Strategies strategies, const mesh::Mesh& mesh);

// known_params fixes the shardings of params decided before (the evaluation graph follows the
// training graph). Errors: kInvalidArgument naming the weight that layout.tensor does not split and
// the degrees up to max_tensor (the most that the cluster has devices for) that split all weights;
// or the operand that microbatches cannot express, with the way out.
Result<Strategies> ChooseStrategies(const ir::Graph& step_graph, const StageAssignment& stages,
                                    const Layout& layout,
                                    const std::map<std::string, mesh::Sharding>& known_params,
                                    int64_t max_tensor);

// The common form of the readers of a phase, for the rows and sums of microbatches that `have` has.
// None: none is named, or it is a sum over devices that `have` is no more.
std::optional<mesh::Sharding> FormFor(const Strategies& strategies, ValueId value, ir::Phase phase,
                                      const mesh::Sharding& have);

// The sharding of the same value once it is summed.
mesh::Sharding WithoutPartials(mesh::Sharding sharding);

// A value's sharding as seen by update nodes: microbatches have been summed into the accumulator.
mesh::Sharding WithoutAxis(mesh::Sharding sharding, const std::string& axis);

}  // namespace meshwright::planner
