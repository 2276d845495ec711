#include "mesh/sharding.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>

#include "base/check.h"

namespace meshwright::mesh {
namespace {

std::string MeshText(const Mesh& mesh) {
  std::vector<std::string> parts;
  for (const ir::MeshAxis& axis : mesh.axes) {
    parts.push_back(fmt::format("{}={}", axis.name, axis.size));
  }
  return parts.empty() ? "(no axes)" : fmt::format("{}", fmt::join(parts, " "));
}

bool HasAxis(const Mesh& mesh, const std::string& name) {
  return std::any_of(mesh.axes.begin(), mesh.axes.end(),
                     [&](const ir::MeshAxis& axis) { return axis.name == name; });
}

// "{1, 2, 4, 8}": the divisors of n, the first few when there are many.
std::string DivisorsText(int64_t n) {
  std::vector<int64_t> low, high;
  for (int64_t d = 1; d * d <= n; ++d) {
    if (n % d != 0) continue;
    low.push_back(d);
    if (d != n / d) high.push_back(n / d);
  }
  low.insert(low.end(), high.rbegin(), high.rend());
  constexpr size_t kShown = 8;
  const bool more = low.size() > kShown;
  if (more) low.resize(kShown);
  return fmt::format("{{{}{}}}", fmt::join(low, ", "), more ? ", ..." : "");
}

Status ValidateMesh(const Mesh& mesh) {
  std::set<std::string> names;
  for (const ir::MeshAxis& axis : mesh.axes) {
    if (axis.size < 1) {
      return Fail(InvalidArgument(fmt::format("mesh {}: axis {} has size {}; sizes start at 1",
                                              MeshText(mesh), axis.name, axis.size)));
    }
    if (!names.insert(axis.name).second) {
      return Fail(InvalidArgument(
          fmt::format("mesh {}: axis {} is listed twice; rename one", MeshText(mesh), axis.name)));
    }
  }
  return OkStatus();
}

// One validation: the sharding as text for messages, and the axes met so far.
class Validator {
 public:
  Validator(const ir::TensorType& type, const Sharding& sharding, const Mesh& mesh)
      : type_(type), sharding_(sharding), mesh_(mesh) {}

  Status Run() {
    if (sharding_.dims.size() != type_.dims.size()) {
      return Fail(
          InvalidArgument(fmt::format("sharding of {}: it describes {} dims, the tensor has {}",
                                      type_.ToString(), sharding_.dims.size(), type_.dims.size())));
    }
    for (size_t d = 0; d < sharding_.dims.size(); ++d) MW_TRY(CheckDim(d));
    for (const auto& [axis, kind] : sharding_.partial) {
      MW_TRY(UseAxis(axis, "partial"));
      if (kind == sharding_.partial.begin()->second) continue;
      return Fail(InvalidArgument(fmt::format(
          "{}: partial mixes kinds; a maximum of sums is not a sum of maxima, so reduce "
          "one kind before the other arises",
          What())));
    }
    return OkStatus();
  }

 private:
  std::string What() const {
    return fmt::format("sharding {} over mesh {}", FormatSharding(type_, sharding_),
                       MeshText(mesh_));
  }

  Status UseAxis(const std::string& axis, const std::string& place) {
    if (!HasAxis(mesh_, axis)) {
      return Fail(InvalidArgument(
          fmt::format("{}: {} names axis {}, which the mesh does not have", What(), place, axis)));
    }
    const auto [it, fresh] = used_.emplace(axis, place);
    if (!fresh) {
      return Fail(InvalidArgument(
          fmt::format("{}: axis {} is used by {} and again by {}; an axis serves one purpose",
                      What(), axis, it->second, place)));
    }
    return OkStatus();
  }

  Status CheckDim(size_t d) {
    int64_t rest = type_.dims[d];
    if (rest < 0) {
      return Fail(InvalidArgument(fmt::format("{}: dim {} has size {}", What(), d, rest)));
    }
    for (const std::string& axis : sharding_.dims[d]) {
      MW_TRY(UseAxis(axis, fmt::format("dim {}", d)));
      const int64_t size = mesh_.AxisSize(axis);
      if (rest % size != 0) {
        const std::string whole =
            rest == type_.dims[d]
                ? fmt::format("dim {} of size {}", d, rest)
                : fmt::format("the {} left of dim {} of size {}", rest, d, type_.dims[d]);
        return Fail(InvalidArgument(
            fmt::format("{}: axis {}={} does not divide {}; pad it or choose {} in {}", What(),
                        axis, size, whole, axis, DivisorsText(rest))));
      }
      rest /= size;
    }
    return OkStatus();
  }

  const ir::TensorType& type_;
  const Sharding& sharding_;
  const Mesh& mesh_;
  std::map<std::string, std::string> used_;  // axis -> where
};

}  // namespace

int64_t Mesh::AxisSize(const std::string& name) const {
  for (const ir::MeshAxis& axis : axes) {
    if (axis.name == name) return axis.size;
  }
  return 1;
}

int64_t Mesh::SizeOf(const AxisList& names) const {
  int64_t size = 1;
  for (const std::string& name : names) size *= AxisSize(name);
  return size;
}

std::vector<int64_t> Mesh::CoordsOf(int64_t position) const {
  std::vector<int64_t> coords(axes.size());
  for (size_t i = axes.size(); i-- > 0;) {
    coords[i] = position % axes[i].size;
    position /= axes[i].size;
  }
  return coords;
}

std::vector<DeviceIndex> Mesh::GroupOf(int64_t position, const AxisList& names) const {
  MW_CHECK(position >= 0 && position < device_count()) << "position " << position;
  // Strides in the row-major order of the mesh, of the named axes and of all the others together.
  std::vector<std::pair<int64_t, int64_t>> named;  // size, stride; major first
  int64_t base = position;
  for (const std::string& name : names) {
    int64_t stride = 1;
    for (size_t i = axes.size(); i-- > 0 && axes[i].name != name;) stride *= axes[i].size;
    if (!HasAxis(*this, name)) continue;
    const int64_t size = AxisSize(name);
    base -= position / stride % size * stride;
    named.emplace_back(size, stride);
  }
  std::vector<DeviceIndex> group;
  const int64_t count = SizeOf(names);
  for (int64_t member = 0; member < count; ++member) {
    int64_t at = base;
    int64_t rest = member;
    for (size_t i = named.size(); i-- > 0;) {
      at += rest % named[i].first * named[i].second;
      rest /= named[i].first;
    }
    MW_CHECK(at >= 0 && static_cast<size_t>(at) < devices.size()) << "member at " << at;
    group.push_back(devices[static_cast<size_t>(at)]);
  }
  return group;
}

bool Sharding::UsesAxis(const std::string& axis) const {
  return partial.contains(axis) || std::any_of(dims.begin(), dims.end(), [&](const AxisList& dim) {
           return std::find(dim.begin(), dim.end(), axis) != dim.end();
         });
}

Status ValidateSharding(const ir::TensorType& type, const Sharding& sharding, const Mesh& mesh) {
  MW_TRY(ValidateMesh(mesh));
  return Validator(type, sharding, mesh).Run();
}

ir::Dims LocalDims(const ir::Dims& global, const Sharding& sharding, const Mesh& mesh) {
  MW_CHECK(sharding.dims.size() == global.size())
      << "a sharding of " << sharding.dims.size() << " dims for " << global.size();
  ir::Dims local = global;
  for (size_t d = 0; d < local.size(); ++d) local[d] /= mesh.SizeOf(sharding.dims[d]);
  return local;
}

ir::Box LocalBox(const ir::Dims& global, const Sharding& sharding, const Mesh& mesh,
                 int64_t position) {
  const std::vector<int64_t> coords = mesh.CoordsOf(position);
  MW_CHECK(position >= 0 && sharding.dims.size() == global.size())
      << "position " << position << ", " << sharding.dims.size() << " dims";
  ir::Box box;
  box.size = LocalDims(global, sharding, mesh);
  box.offset.resize(global.size());
  for (size_t d = 0; d < global.size(); ++d) {
    int64_t block = 0;
    for (const std::string& name : sharding.dims[d]) {
      for (size_t i = 0; i < mesh.axes.size(); ++i) {
        if (mesh.axes[i].name == name) block = block * mesh.axes[i].size + coords[i];
      }
    }
    box.offset[d] = block * box.size[d];
  }
  return box;
}

}  // namespace meshwright::mesh
