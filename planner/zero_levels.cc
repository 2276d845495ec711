#include "planner/zero_levels.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <numeric>

#include "planner/resolve_layout.h"

namespace meshwright::planner {
namespace {

using mesh::AxisList;
using mesh::Sharding;

constexpr std::array<ZeroLevel, 3> kLevels = {{
    {ZeroKind::kOptimizer, "optimizer", 1, &ZeroGroups::state, &ir::ParallelSpec::zero_shard,
     "parallel.zero_shard"},
    {ZeroKind::kGradients, "gradients", 2, &ZeroGroups::gradients,
     &ir::ParallelSpec::zero_gradients, "parallel.zero_gradients"},
    {ZeroKind::kWeights, "weights", 3, &ZeroGroups::weights, &ir::ParallelSpec::zero_weights,
     "parallel.zero_weights"},
}};

}  // namespace

std::span<const ZeroLevel> ZeroLevels() { return kLevels; }

int64_t GroupSize(int64_t replicas, const ZeroGroups& groups, ZeroKind kind) {
  int64_t size = replicas;
  for (const ZeroLevel& level : kLevels) {
    const int64_t asked = groups.*level.group;
    if (asked > 0) size = asked;
    if (level.kind == kind) break;
  }
  return size;
}

int64_t ZeroDegree(int64_t replicas, int64_t stage, const ZeroGroups& groups, ZeroKind kind) {
  const bool splits = stage >= kLevels[static_cast<size_t>(kind)].first_stage;
  return splits ? GroupSize(replicas, groups, kind) : 1;
}

int64_t ZeroDegree(const Layout& layout, ZeroKind kind) {
  return ZeroDegree(layout.degrees[Axis::kData], layout.zero, layout.zero_groups, kind);
}

std::vector<ir::MeshAxis> DataAxes(const Layout& layout, int64_t data) {
  std::vector<ir::MeshAxis> axes;
  const auto add = [&](int64_t size) {
    axes.push_back({axes.empty() ? kData : fmt::format("{}{}", kData, axes.size() + 1), size});
  };
  int64_t left = data;
  if (layout.zero_groups != ZeroGroups{}) {
    for (const ZeroLevel& level : kLevels) {
      const int64_t degree = ZeroDegree(layout, level.kind);
      if (degree == left) continue;
      add(left / degree);
      left = degree;
    }
  }
  if (left > 1 || axes.empty()) add(left);
  return axes;
}

AxisList ZeroAxes(const Layout& layout, ZeroKind kind) {
  const int64_t degree = ZeroDegree(layout, kind);
  const std::vector<ir::MeshAxis> axes = DataAxes(layout, layout.degrees[Axis::kData]);
  AxisList split;
  int64_t parts = 1;
  for (auto axis = axes.rbegin(); axis != axes.rend() && parts < degree; ++axis) {
    split.push_back(axis->name);
    parts *= axis->size;
  }
  return split;
}

Sharding AsOfKind(Sharding sharding, const Layout& layout, ZeroKind kind) {
  const AxisList own = ZeroAxes(layout, kind);
  for (const std::string& axis : ZeroAxes(layout, ZeroKind::kOptimizer)) {
    if (std::find(own.begin(), own.end(), axis) != own.end()) continue;
    for (AxisList& dim : sharding.dims) std::erase(dim, axis);
  }
  return sharding;
}

Result<ZeroGroups> ZeroGroupsOf(const ir::ParallelSpec& pins) {
  ZeroGroups groups;
  const ZeroLevel* wider = nullptr;
  for (const ZeroLevel& level : kLevels) {
    const int64_t size = pins.*level.pin;
    groups.*level.group = size;
    if (size == 0) continue;
    const char* const other = !pins.stage_meshes.empty()    ? "parallelism.stage_meshes"
                              : pins.shardings == "search"  ? "parallelism.shardings = \"search\""
                              : !pins.sharding_pins.empty() ? "[[parallelism.sharding_pins]]"
                                                            : nullptr;
    if (other != nullptr) {
      return Fail(InvalidField(
          level.field, fmt::format("is {}: groups of replicas need stages of equal meshes and "
                                   "shardings by the rules; leave {} out",
                                   size, other)));
    }
    if (wider != nullptr && pins.*wider->pin % size != 0) {
      return Fail(InvalidField(
          level.field,
          fmt::format("is {}, which does not divide the groups of {} replicas that split the {}; "
                      "choose one of {{{}}}",
                      size, pins.*wider->pin, wider->name,
                      DivisorList(pins.*wider->pin, pins.*wider->pin))));
    }
    wider = &level;
  }
  return groups;
}

Status CheckZeroGroups(const Layout& layout) {
  const int64_t replicas = layout.degrees[Axis::kData];
  for (const ZeroLevel& level : kLevels) {
    const int64_t size = layout.zero_groups.*level.group;
    if (size == 0 || replicas % size == 0) continue;
    return InvalidField(
        level.field,
        fmt::format("is {}, which does not divide the {} replicas{}; choose one of "
                    "{{{}}}",
                    size, replicas, layout.expert() > 1 ? " that hold the same experts" : "",
                    DivisorList(replicas, replicas)));
  }
  return OkStatus();
}

void ShrinkZeroGroups(int64_t replicas, ir::ParallelSpec& pins) {
  int64_t within = replicas;
  for (const ZeroLevel& level : kLevels) {
    int64_t& size = pins.*level.pin;
    if (size == 0) continue;
    size = std::gcd(size, within);
    within = size;
  }
}

std::string FormatZeroLevels(const Layout& layout) {
  std::string text;
  for (const ZeroLevel& level : kLevels) {
    const int64_t degree = ZeroDegree(layout, level.kind);
    if (degree == 1) continue;
    text += fmt::format("{}{} over {} ({})", text.empty() ? "" : ", ", level.name,
                        fmt::join(ZeroAxes(layout, level.kind), ","), degree);
  }
  return text;
}

}  // namespace meshwright::planner
