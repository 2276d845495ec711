#include "controller/input_rows.h"

#include <algorithm>
#include <optional>

#include "ir/schema.h"

namespace meshwright::controller {
namespace {

// The block of dim 0 that the device has of a feed; nothing: what it reads is no one range.
std::optional<RowRange> BlockOf(const ir::Program& program, const ir::Node& feed,
                                const ir::TensorType& type) {
  const ir::ShardedDims dims = ir::ShardedDims::FromAttrs(feed.attrs);
  if (dims.whole()) return RowRange{0, type.dims[0]};
  int64_t parts = 1;
  int64_t part = 0;
  for (const std::string& name : dims.dim_axes[0]) {
    const auto axis = std::find_if(program.axes.begin(), program.axes.end(),
                                   [&](const ir::MeshAxis& known) { return known.name == name; });
    if (axis == program.axes.end()) return std::nullopt;  // microbatches are an axis of time
    parts *= axis->size;
    part = part * axis->size + program.coords[static_cast<size_t>(axis - program.axes.begin())];
  }
  if (dims.global_dims[0] % parts != 0) return std::nullopt;
  const int64_t rows = dims.global_dims[0] / parts;
  return RowRange{part * rows, rows};
}

RowRange Hull(const RowRange& a, const RowRange& b) {
  if (a.count == 0) return b;
  if (b.count == 0) return a;
  const int64_t first = std::min(a.first, b.first);
  return {first, std::max(a.first + a.count, b.first + b.count) - first};
}

}  // namespace

std::map<uint32_t, RowRange> InputRowsOf(const ir::Program& program,
                                         const std::vector<std::string>& inputs) {
  std::map<uint32_t, RowRange> rows;
  for (uint32_t i = 0; i < inputs.size(); ++i) rows[i] = {};
  for (const ir::Executable& executable : program.executables) {
    const ir::Graph& graph = *executable.graph;
    for (const NodeId id : graph.NodesOf(ir::Op::kFeed)) {
      const ir::Node& feed = graph.node(id);
      const auto at = std::find(inputs.begin(), inputs.end(), feed.attrs.Str("source"));
      const auto entry =
          at == inputs.end() ? rows.end() : rows.find(static_cast<uint32_t>(at - inputs.begin()));
      if (entry == rows.end()) continue;
      const auto block = ir::IsBatchFeed(feed) ? BlockOf(program, feed, graph.type(feed.outputs[0]))
                                               : std::nullopt;
      if (block) {
        entry->second = Hull(entry->second, *block);
      } else {
        rows.erase(entry);
      }
    }
  }
  return rows;
}

std::optional<RowRange> RowsRead(const std::vector<const PlannedDevice*>& devices, uint32_t program,
                                 uint32_t input) {
  RowRange all;
  for (const PlannedDevice* device : devices) {
    const auto rows = device->input_rows.find({program, input});
    if (rows == device->input_rows.end()) return std::nullopt;
    all = Hull(all, rows->second);
  }
  return all;
}

}  // namespace meshwright::controller
