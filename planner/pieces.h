// A plan cut into local SPMD pieces.
//
// A piece is what one stage computes in one RUN: per microbatch the forward and the backward of
// each of its parts (where the schedule splits it: B, and W for the gradients of weights), and one
// or more update rounds (per step; a round ends where a value of another stage is needed). A
// piece's graph has local shapes and explicit collectives; its `input` nodes and outputs are
// StageTensors, which live between pieces. An Import is a StageTensor that another stage sends.
#pragma once

#include <compare>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "base/id_vector.h"
#include "base/result.h"
#include "ir/graph.h"
#include "ir/program.h"
#include "mesh/sharding.h"
#include "planner/stages.h"
#include "planner/strategy.h"

namespace meshwright::planner {

// The round of what a stage runs once, before the forwards of a step: accumulators become zero,
// weights are cast to the type that the microbatches compute in.
inline constexpr int kOncePerStep = -2;
// The round of forwards that pass all microbatches before the first one of the step and find sums
// over the whole batch (planner/router_sweep.h).
inline constexpr int kSweep = -1;
inline constexpr char kSweepAttr[] = "sweep";  // of its nodes

// Ordered by stage, then as a microbatch passes the stage.
struct PieceKey {
  int stage = 0;
  ir::Phase phase = ir::Phase::kForward;
  int round = 0;         // of the update; of the forward 0, kSweep or kOncePerStep
  int chunk = 0;         // of forward and backward: which of the stage's parts
  bool weights = false;  // W of a backward that is split

  friend bool operator==(const PieceKey&, const PieceKey&) = default;
  friend auto operator<=>(const PieceKey& a, const PieceKey& b) { return a.Order() <=> b.Order(); }
  // The backward comes through the parts downwards.
  std::tuple<int, ir::Phase, int, int, bool> Order() const {
    return {stage, phase, round, phase == ir::Phase::kBackward ? -chunk : chunk, weights};
  }
};

enum class TensorRole : uint8_t {
  kParam,        // persistent
  kAccumulator,  // summed over the microbatches of a step
  kMicrobatch,   // one instance per microbatch
  kStep,         // one instance per step
};

using TensorIndex = Id<struct StageTensorTag>;  // of Partition::tensors

// What a param of the graph is of the state with this name and these dims: rows that a stage holds
// (planner/vocabulary_blocks.h), or all of it with padding behind (planner/padding.h).
struct StateBlock {
  std::string name;
  ir::Dims whole_dims;
  int64_t first_row = 0;
};

struct StageTensor {
  int stage = 0;
  TensorRole role = TensorRole::kMicrobatch;
  ir::MemoryKind kind = ir::MemoryKind::kActivations;
  std::string name;  // of the state, or "%12" of the step graph; equal at both ends of an import
  ir::TensorType global_type;
  mesh::Sharding sharding;  // over the planning mesh
  ir::TensorType local_type;
  std::optional<StateBlock> block = {};  // of a param that is not the state as it is kept
  ir::Space space = ir::Space::kDevice;  // of a param
};

struct Piece {
  PieceKey key;
  std::shared_ptr<const ir::Graph> graph;
  std::vector<TensorIndex> inputs;  // per `input` node, in order
  std::vector<TensorIndex>
      outputs;           // per graph output; an index that is also an input is updated in place
  bool on_host = false;  // the host runs it, on what is in its memory (planner/host_update.h)
};

struct Import {
  TensorIndex source;
  TensorIndex destination;
  PieceKey after;   // the source is ready when this piece has run
  PieceKey before;  // the first piece that reads the destination
};

// A scalar of the update, or a tensor that a program gives out: of the last stage.
struct Report {
  std::string name;
  TensorIndex tensor;
};

struct Partition {
  IdVector<TensorIndex, StageTensor> tensors;
  std::vector<Piece> pieces;    // ordered by stage, phase, round
  std::vector<Import> imports;  // in order of first use
  std::vector<Report> reports;  // scalars
  std::vector<Report> outputs;  // tensors, split as they are made
};

// What the slot of a param counts as.
ir::MemoryKind MemoryKindOf(const ir::Node& param);

// "s1/z" (once per step), "s1/c" (the sweep), "s1/f", "s1/b", "s1/w", "s0/u2"; of chunk 1 "s1/f.1".
std::string PieceName(const PieceKey& key);

}  // namespace meshwright::planner
