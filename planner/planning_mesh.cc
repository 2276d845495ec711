// The mesh that shardings refer to, and what they are on the mesh of one stage.
#include <fmt/format.h>

#include <algorithm>

#include "base/check.h"
#include "planner/strategy.h"
#include "planner/zero_levels.h"

namespace meshwright::planner {

using mesh::Sharding;

std::vector<ir::MeshAxis> TensorAxes(const Layout& layout) {
  std::vector<ir::MeshAxis> axes;
  const std::vector<int64_t> one_axis = {layout.tensor()};
  for (const int64_t size : layout.tensor_axes.empty() ? one_axis : layout.tensor_axes) {
    if (size == 1) continue;
    axes.push_back({axes.empty() ? kTensor : fmt::format("{}{}", kTensor, axes.size() + 1), size});
  }
  return axes;
}

std::vector<ir::MeshAxis> StageAxes(const Layout& layout, const Degrees& degrees) {
  std::vector<ir::MeshAxis> axes;
  const auto add = [&](const std::vector<ir::MeshAxis>& own) {
    axes.insert(axes.end(), own.begin(), own.end());
  };
  for (const AxisKind& kind : kAxisKinds) {
    const int64_t size = degrees[kind.axis];
    if (kind.axis == Axis::kData) {
      add(DataAxes(layout, size));
    } else if (kind.axis == Axis::kExpert && layout.expert_hosts > 1 && size > 1) {
      MW_CHECK(size % layout.expert_hosts == 0) << layout.ToString();
      add({{kExpert, layout.expert_hosts}});
      if (size > layout.expert_hosts) add({{kExpertLanes, size / layout.expert_hosts}});
    } else if (kind.axis == Axis::kContext && layout.context_heads > 1 && size > 1) {
      if (size > layout.context_heads) add({{kContext, size / layout.context_heads}});
      add({{kContextHeads, layout.context_heads}});
    } else if (kind.axis == Axis::kTensor && !layout.tensor_axes.empty()) {
      add(TensorAxes(layout));
    } else if (size > 1 || kind.axis == Axis::kTensor) {
      add({{kind.name, size}});
    }
  }
  return axes;
}

namespace {

mesh::Mesh PlanningMesh(const Layout& layout, const Degrees& degrees) {
  mesh::Mesh mesh{{{kMicro, layout.microbatches}}, {}};
  const std::vector<ir::MeshAxis> axes = StageAxes(layout, degrees);
  mesh.axes.insert(mesh.axes.end(), axes.begin(), axes.end());
  std::erase_if(mesh.axes, [](const ir::MeshAxis& axis) { return axis.size == 1; });
  return mesh;
}

}  // namespace

mesh::Mesh PlanningMesh(const Layout& layout) { return PlanningMesh(layout, layout.degrees); }

mesh::Mesh PlanningMesh(const Layout& layout, int stage) {
  return PlanningMesh(layout, layout.DegreesOf(stage));
}

Sharding OnMesh(Sharding sharding, const mesh::Mesh& mesh) {
  const auto lacks = [&](const std::string& axis) { return mesh.AxisSize(axis) == 1; };
  for (mesh::AxisList& dim : sharding.dims) std::erase_if(dim, lacks);
  std::erase_if(sharding.partial, [&](const auto& entry) { return lacks(entry.first); });
  return sharding;
}

Strategies OnMesh(Strategies strategies, const mesh::Mesh& mesh) {
  const auto bring = [&](Sharding& sharding) { sharding = OnMesh(std::move(sharding), mesh); };
  for (NodeStrategy& node : strategies.nodes) {
    std::for_each(node.operands.begin(), node.operands.end(), bring);
    std::for_each(node.results.begin(), node.results.end(), bring);
    node.expansion = OnMesh(node);
  }
  for (auto& [name, sharding] : strategies.params) bring(sharding);
  std::for_each(strategies.values.begin(), strategies.values.end(), bring);
  for (auto& [value, sharding] : strategies.kept_as) bring(sharding);
  for (auto& [reader, sharding] : strategies.forms) bring(sharding);
  return strategies;
}

std::optional<Sharding> FormFor(const Strategies& strategies, ValueId value, ir::Phase phase,
                                const Sharding& have) {
  const auto it = strategies.forms.find({value, phase});
  if (it == strategies.forms.end()) return std::nullopt;
  Sharding form = it->second;
  MW_CHECK(have.dims.size() == form.dims.size()) << "a form of another rank for %" << value;
  for (size_t d = 0; d < form.dims.size(); ++d) {
    if (!have.dims[d].empty() && have.dims[d].front() == kMicro) {
      form.dims[d].insert(form.dims[d].begin(), kMicro);
    }
  }
  if (have.partial.contains(kMicro)) form.partial[kMicro] = have.partial.at(kMicro);
  // What has been reduced meanwhile stays so.
  const bool lost = std::any_of(form.partial.begin(), form.partial.end(),
                                [&](const auto& sum) { return !have.partial.contains(sum.first); });
  if (lost) return std::nullopt;
  return form;
}

Sharding WithoutPartials(Sharding sharding) {
  sharding.partial.clear();
  return sharding;
}

Sharding WithoutAxis(Sharding sharding, const std::string& axis) {
  for (mesh::AxisList& dim : sharding.dims) std::erase(dim, axis);
  sharding.partial.erase(axis);
  return sharding;
}

}  // namespace meshwright::planner
