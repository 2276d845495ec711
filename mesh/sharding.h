// Where a value is: a mesh with named axes, and a sharding of a tensor over it.
//
// Mesh: devices in row-major order over the axes, major axis first. Sharding: for every dim an
// ordered list of axes (major first) that split it in equal blocks, plus axes over which the value
// is partial (each device holds a summand, or a part of a maximum or log-sum-exp; one kind at a
// time, since they do not commute); all other axes replicate. Axes sizes divide dims exactly; who
// cannot divide replicates.
//
// Text: f32[32{data},128,4096{tensor}] partial(sum: pipe). Order of axes in a dim matters:
// {a,b} != {b,a}.
//
// Thread rule: values, immutable in use. Source: named axes after GSPMD/Shardy.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "base/result.h"
#include "ir/graph.h"
#include "ir/program.h"
#include "ir/schema.h"

namespace meshwright::mesh {

using AxisList = std::vector<std::string>;

struct Mesh {
  std::vector<ir::MeshAxis> axes;
  std::vector<DeviceIndex> devices;  // row-major; size = product of axis sizes

  int64_t AxisSize(const std::string& name) const;        // 1 for an unknown axis
  int64_t SizeOf(const AxisList& names) const;            // product
  std::vector<int64_t> CoordsOf(int64_t position) const;  // one per axis
  int64_t device_count() const { return static_cast<int64_t>(devices.size()); }
  // Devices that differ from `position` only in `names`, in row-major order of `names` (major
  // first).
  std::vector<DeviceIndex> GroupOf(int64_t position, const AxisList& names) const;
  friend bool operator==(const Mesh&, const Mesh&) = default;
};

struct Sharding {
  std::vector<AxisList> dims;
  std::map<std::string, ir::PartialKind> partial;

  static Sharding Replicated(int rank) {
    return {std::vector<AxisList>(static_cast<size_t>(rank)), {}};
  }
  bool UsesAxis(const std::string& axis) const;  // splits a dim or is partial
  friend bool operator==(const Sharding&, const Sharding&) = default;
  friend auto operator<=>(const Sharding&, const Sharding&) = default;
};

// Partial kinds print as sum, max, lse: "partial(sum: data, tensor; max: expert)". Parse(Format(x))
// == x.
std::string FormatSharding(const ir::TensorType& type, const Sharding& sharding);
struct TypedSharding {
  ir::TensorType type;
  Sharding sharding;
};
// Spaces between tokens are free. Errors: kInvalidArgument with the column and what was expected
// there.
Result<TypedSharding> ParseSharding(std::string_view text);

// Axes exist, are used once, divide their dims; one kind of partial. Errors: kInvalidArgument
// naming dim, axis and sizes that would divide.
Status ValidateSharding(const ir::TensorType& type, const Sharding& sharding, const Mesh& mesh);

// Dims of the block that one device holds. REQUIRES: ValidateSharding is OK.
ir::Dims LocalDims(const ir::Dims& global, const Sharding& sharding, const Mesh& mesh);
// The block of the device at `position` of the mesh.
ir::Box LocalBox(const ir::Dims& global, const Sharding& sharding, const Mesh& mesh,
                 int64_t position);

}  // namespace meshwright::mesh
