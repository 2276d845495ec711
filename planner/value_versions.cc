#include "planner/value_versions.h"

#include <algorithm>
#include <tuple>

#include "planner/strategy.h"

namespace meshwright::planner {
namespace {

bool IsElsewhere(const Version& version, const PieceKey& reader) {
  return version.own_piece_only && version.piece != reader && reader.phase != ir::Phase::kUpdate;
}

// Sums of the sweep over all microbatches are there when the other forwards begin.
bool IsBehindSweepOf(const Version& version, const PieceKey& reader) {
  return version.piece && version.piece->round == kSweep && reader.round != kSweep;
}

}  // namespace

bool ValueVersions::HasRows(const mesh::Sharding& sharding) {
  return std::any_of(sharding.dims.begin(), sharding.dims.end(), [](const auto& axes) {
    return std::find(axes.begin(), axes.end(), kMicro) != axes.end();
  });
}

bool ValueVersions::GathersBlocks(const mesh::Sharding& from, const mesh::Sharding& to) {
  return std::any_of(from.dims.begin(), from.dims.end(), [&](const mesh::AxisList& axes) {
    return std::any_of(axes.begin(), axes.end(),
                       [&](const std::string& axis) { return !to.UsesAxis(axis); });
  });
}

bool ValueVersions::IsReadable(const Version& version, const PieceKey& reader) const {
  const bool renews = version.piece && version.of_param && reader.phase == ir::Phase::kUpdate;
  if (renews && version.piece->phase != ir::Phase::kUpdate) return false;
  if (version.piece || reader.phase != ir::Phase::kUpdate || microbatches_ == 1) return true;
  return tensors_[version.tensor].role != TensorRole::kMicrobatch;
}

size_t ValueVersions::FirstReadable(const std::vector<Version>& versions,
                                    const PieceKey& reader) const {
  size_t i = 0;
  while (i < versions.size() && !IsReadable(versions[i], reader)) ++i;
  return i;
}

size_t ValueVersions::Best(const std::vector<Version>& versions, const PieceKey& reader,
                           const mesh::Sharding& required) const {
  const auto rank = [&](const Version& version) {
    const bool same_rows = HasRows(SeenBy(version, reader)) == HasRows(required);
    const bool kept = version.kept && version.piece != reader;
    return std::tuple(kept, same_rows, version.sharding.partial.empty());
  };
  size_t best = FirstReadable(versions, reader);
  for (size_t i = best; i < versions.size(); ++i) {
    if (versions[i].piece && *versions[i].piece > reader) continue;
    if (!IsReadable(versions[i], reader) || IsElsewhere(versions[i], reader)) continue;
    if (SeenBy(versions[i], reader) == required) return i;
    if (rank(versions[i]) > rank(versions[best])) best = i;
  }
  return best;
}

mesh::Sharding ValueVersions::SeenBy(const Version& version, const PieceKey& reader) {
  if (reader.phase == ir::Phase::kUpdate) return WithoutAxis(version.sharding, kMicro);
  mesh::Sharding sharding = version.sharding;
  if (IsBehindSweepOf(version, reader)) sharding.partial.erase(kMicro);
  return sharding;
}

std::optional<mesh::Sharding> ReadInUpdate(const ir::Graph& graph, const StageAssignment& stages,
                                           const Strategies& strategies, int stage, ValueId value) {
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    const ir::Node& node = graph.nodes[i];
    if (node.phase != ir::Phase::kUpdate) continue;
    const auto operand = std::find(node.inputs.begin(), node.inputs.end(), value);
    const std::vector<int>& here = stages.node_stages[i];
    if (operand == node.inputs.end() || std::find(here.begin(), here.end(), stage) == here.end()) {
      continue;
    }
    const auto index = static_cast<size_t>(operand - node.inputs.begin());
    const mesh::Sharding& read = strategies.nodes[i].operands[index];
    if (read.partial.empty()) return read;
  }
  return std::nullopt;
}

bool IsReadHereOnly(const ir::Node& node, const IdVector<ValueId, std::vector<NodeId>>& users,
                    const StageAssignment& stages, int stage) {
  for (const ValueId output : node.outputs) {
    for (const NodeId user : users[output]) {
      for (const int reader : stages.node_stages[user.index()]) {
        if (reader != stage) return false;
      }
    }
  }
  return true;
}

}  // namespace meshwright::planner
