// The forms (shardings) in which the stages hold each value while a partition is made, and which of
// them a piece starts from.
//
// Thread rule: one thread. Room-internal to planner/partition.
#pragma once

#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "base/id_vector.h"
#include "ir/graph.h"
#include "mesh/sharding.h"
#include "planner/pieces.h"
#include "planner/stages.h"
#include "planner/strategy.h"

namespace meshwright::planner {

inline constexpr TensorIndex kNoTensor;

// One form of a value inside a stage.
struct Version {
  mesh::Sharding sharding;
  std::optional<PieceKey> piece;  // where it is computed; none: param or import
  ValueId local;                  // in that piece
  TensorIndex tensor = kNoTensor;
  TensorIndex accumulator = kNoTensor;  // its sum over microbatches, which the update reads
  // For its own piece alone, and the update. Weights that are stored in blocks are gathered by
  // every piece anew: kept from the forward to the backward they would be whole again for most of
  // the step. T of a shared vocabulary may run behind pieces that are ordered after it.
  bool own_piece_only = false;
  bool of_param = false;
  bool kept = false;  // what pieces behind its own read (Strategies::kept_as)
};

class ValueVersions {
 public:
  // `tensors` grows while versions are added; it outlives this.
  ValueVersions(const IdVector<TensorIndex, StageTensor>& tensors, int64_t microbatches)
      : tensors_(tensors), microbatches_(microbatches) {}

  std::vector<Version>& Of(int stage, ValueId value) { return versions_[{stage, value}]; }

  // The update reads sums: what came from another stage for one microbatch does not serve it, nor
  // what a microbatch made of a weight.
  bool IsReadable(const Version& version, const PieceKey& reader) const;
  // The first that is readable; versions.size(): none is.
  size_t FirstReadable(const std::vector<Version>& versions, const PieceKey& reader) const;
  // The version to start from: the wanted one, else the one that is kept for others, else one with
  // (without) rows as wanted, else one that is not partial, else the first. Versions that a later
  // piece computes do not exist yet.
  size_t Best(const std::vector<Version>& versions, const PieceKey& reader,
              const mesh::Sharding& required) const;

  // Update pieces see what forward and backward left partial over microbatches as summed.
  static mesh::Sharding SeenBy(const Version& version, const PieceKey& reader);
  // Split into the rows of microbatches.
  static bool HasRows(const mesh::Sharding& sharding);
  // Whether `to` has whole what `from` has in blocks.
  static bool GathersBlocks(const mesh::Sharding& from, const mesh::Sharding& to);

 private:
  const IdVector<TensorIndex, StageTensor>& tensors_;
  const int64_t microbatches_;
  std::map<std::pair<int, ValueId>, std::vector<Version>> versions_;
};

// How the update of a stage reads a value that its backward makes, where that is no sum over
// devices any more: what other stages get of it is the same, to the last bit, and made once.
std::optional<mesh::Sharding> ReadInUpdate(const ir::Graph& graph, const StageAssignment& stages,
                                           const Strategies& strategies, int stage, ValueId value);

// Whether no other stage reads what the node makes.
bool IsReadHereOnly(const ir::Node& node, const IdVector<ValueId, std::vector<NodeId>>& users,
                    const StageAssignment& stages, int stage);

}  // namespace meshwright::planner
