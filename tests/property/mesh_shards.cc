#include "tests/property/mesh_shards.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

namespace meshwright::mesh {
namespace {

int64_t Product(const ir::Dims& dims) {
  int64_t n = 1;
  for (int64_t d : dims) n *= d;
  return n;
}

// Calls visit(index) for every index of `dims`, row-major.
void ForEachIndex(const ir::Dims& dims, const std::function<void(const ir::Dims&)>& visit) {
  ir::Dims index(dims.size(), 0);
  const int64_t count = Product(dims);
  for (int64_t n = 0; n < count; ++n) {
    int64_t rest = n;
    for (size_t d = dims.size(); d-- > 0;) {
      index[d] = rest % dims[d];
      rest /= dims[d];
    }
    visit(index);
  }
}

int64_t Offset(const ir::Dims& dims, const ir::Dims& index) {
  int64_t offset = 0;
  for (size_t d = 0; d < dims.size(); ++d) offset = offset * dims[d] + index[d];
  return offset;
}

std::map<std::string, int64_t> CoordsByName(const Mesh& mesh, size_t position) {
  std::map<std::string, int64_t> coords;
  auto rest = static_cast<int64_t>(position);
  for (size_t a = mesh.axes.size(); a-- > 0;) {
    coords[mesh.axes[a].name] = rest % mesh.axes[a].size;
    rest /= mesh.axes[a].size;
  }
  return coords;
}

size_t PositionCount(const Mesh& mesh) {
  int64_t count = 1;
  for (const ir::MeshAxis& axis : mesh.axes) count *= axis.size;
  return static_cast<size_t>(count);
}

int64_t SizeOfAxis(const Mesh& mesh, const std::string& name) {
  for (const ir::MeshAxis& axis : mesh.axes) {
    if (axis.name == name) return axis.size;
  }
  return 0;
}

// Positions that agree with `position` outside `axes`, ordered by their coordinates in `axes`.
std::vector<size_t> Group(const Mesh& mesh, size_t position, const AxisList& axes) {
  const auto rest_of = [&](size_t p) {
    auto coords = CoordsByName(mesh, p);
    for (const std::string& axis : axes) coords.erase(axis);
    return coords;
  };
  std::map<std::vector<int64_t>, size_t> members;
  for (size_t p = 0; p < PositionCount(mesh); ++p) {
    if (rest_of(p) != rest_of(position)) continue;
    std::vector<int64_t> key;
    for (const std::string& axis : axes) key.push_back(CoordsByName(mesh, p).at(axis));
    members[key] = p;
  }
  std::vector<size_t> group;
  for (const auto& [key, p] : members) group.push_back(p);
  return group;
}

IntTensor Block(const IntTensor& global, const Sharding& sharding, const Mesh& mesh,
                size_t position) {
  const auto coords = CoordsByName(mesh, position);
  ir::Dims begin, size;
  for (size_t d = 0; d < global.dims.size(); ++d) {
    int64_t first = 0, extent = global.dims[d];
    for (const std::string& axis : sharding.dims[d]) {
      extent /= SizeOfAxis(mesh, axis);
      first += coords.at(axis) * extent;
    }
    begin.push_back(first);
    size.push_back(extent);
  }
  return SubTensor(global, begin, size);
}

IntTensor Concat(const std::vector<IntTensor>& parts, size_t dim) {
  IntTensor out;
  out.dims = parts[0].dims;
  out.dims[dim] = 0;
  for (const IntTensor& part : parts) out.dims[dim] += part.dims[dim];
  out.data.resize(static_cast<size_t>(Product(out.dims)));
  int64_t base = 0;
  for (const IntTensor& part : parts) {
    ForEachIndex(part.dims, [&](ir::Dims index) {
      const int64_t value = part.data[static_cast<size_t>(Offset(part.dims, index))];
      index[dim] += base;
      out.data[static_cast<size_t>(Offset(out.dims, index))] = value;
    });
    base += part.dims[dim];
  }
  return out;
}

// Piece `i` of `count` equal ones along `dim`.
IntTensor Piece(const IntTensor& tensor, size_t dim, size_t i, size_t count) {
  ir::Dims begin(tensor.dims.size(), 0), size = tensor.dims;
  size[dim] /= static_cast<int64_t>(count);
  begin[dim] = static_cast<int64_t>(i) * size[dim];
  return SubTensor(tensor, begin, size);
}

int64_t Combine(int64_t a, int64_t b, ir::PartialKind kind) {
  return kind == ir::PartialKind::kSum ? a + b : std::max(a, b);  // log-sum-exp: as its limit
}

IntTensor Reduce(const Shards& shards, const std::vector<size_t>& group, ir::PartialKind kind) {
  IntTensor out = shards[group[0]];
  for (size_t m = 1; m < group.size(); ++m) {
    for (size_t i = 0; i < out.data.size(); ++i) {
      out.data[i] = Combine(out.data[i], shards[group[m]].data[i], kind);
    }
  }
  return out;
}

AxisList PartialAxes(const Sharding& sharding) {
  AxisList axes;
  for (const auto& [axis, kind] : sharding.partial) axes.push_back(axis);
  return axes;
}

// Replaces the equal blocks of a group by random parts of them.
void SplitIntoParts(Shards& shards, const std::vector<size_t>& group, ir::PartialKind kind,
                    std::mt19937_64& random) {
  for (size_t i = 0; i < shards[group[0]].data.size(); ++i) {
    const int64_t whole = shards[group[0]].data[i];
    const size_t holder = random() % group.size();
    int64_t rest = whole;
    for (size_t m = 0; m < group.size(); ++m) {
      const auto part = static_cast<int64_t>(random() % 1000);
      const bool sum = kind == ir::PartialKind::kSum;
      shards[group[m]].data[i] = sum ? part : whole - part;
      rest -= part;
    }
    int64_t& at_holder = shards[group[holder]].data[i];
    at_holder = kind == ir::PartialKind::kSum ? at_holder + rest : whole;
  }
}

}  // namespace

IntTensor RandomTensor(const ir::Dims& dims, std::mt19937_64& random) {
  IntTensor tensor{dims, {}};
  for (int64_t i = 0; i < Product(dims); ++i) {
    tensor.data.push_back(static_cast<int64_t>(random() % 1000000));
  }
  return tensor;
}

IntTensor SubTensor(const IntTensor& tensor, const ir::Dims& begin, const ir::Dims& size) {
  IntTensor out{size, {}};
  ForEachIndex(size, [&](ir::Dims index) {
    for (size_t d = 0; d < index.size(); ++d) index[d] += begin[d];
    out.data.push_back(tensor.data[static_cast<size_t>(Offset(tensor.dims, index))]);
  });
  return out;
}

Shards Scatter(const IntTensor& global, const Sharding& sharding, const Mesh& mesh,
               std::mt19937_64& random) {
  Shards shards;
  for (size_t p = 0; p < PositionCount(mesh); ++p)
    shards.push_back(Block(global, sharding, mesh, p));
  if (sharding.partial.empty()) return shards;
  for (size_t p = 0; p < shards.size(); ++p) {
    const std::vector<size_t> group = Group(mesh, p, PartialAxes(sharding));
    if (group[0] == p) SplitIntoParts(shards, group, sharding.partial.begin()->second, random);
  }
  return shards;
}

Shards Execute(const Shards& before, const ReshardStep& step, const Mesh& mesh) {
  Shards after;
  const auto dim = static_cast<size_t>(std::max(step.dim, 0));
  for (size_t p = 0; p < before.size(); ++p) {
    const std::vector<size_t> group = Group(mesh, p, step.axes);
    const size_t count = group.size();
    const auto me = static_cast<size_t>(std::find(group.begin(), group.end(), p) - group.begin());
    std::vector<IntTensor> parts;
    switch (step.kind) {
      case StepKind::kShardSlice:
        after.push_back(Piece(before[p], dim, me, count));
        break;
      case StepKind::kAllGather:
        for (size_t m : group) parts.push_back(before[m]);
        after.push_back(Concat(parts, dim));
        break;
      case StepKind::kAllToAll:
        for (size_t m : group) parts.push_back(Piece(before[m], dim, me, count));
        after.push_back(Concat(parts, static_cast<size_t>(step.from_dim)));
        break;
      case StepKind::kReduceScatter:
        after.push_back(Piece(Reduce(before, group, step.partial), dim, me, count));
        break;
      case StepKind::kAllReduce:
        after.push_back(Reduce(before, group, step.partial));
        break;
      case StepKind::kMakePartial:
        after.push_back(before[p]);
        if (me > 0) std::fill(after[p].data.begin(), after[p].data.end(), 0);
        break;
    }
  }
  return after;
}

std::string Difference(const Shards& shards, const IntTensor& global, const Sharding& sharding,
                       const Mesh& mesh) {
  for (size_t p = 0; p < shards.size(); ++p) {
    const IntTensor want = Block(global, sharding, mesh, p);
    if (shards[p].dims != want.dims) return fmt::format("position {}: another shape", p);
    IntTensor got = shards[p];
    if (!sharding.partial.empty()) {
      got = Reduce(shards, Group(mesh, p, PartialAxes(sharding)), sharding.partial.begin()->second);
    }
    if (got != want) return fmt::format("position {}: other elements", p);
  }
  return "";
}

std::vector<Sharding> AllShardings(int rank, const Mesh& mesh, bool with_partial) {
  std::set<Sharding> all{Sharding::Replicated(rank)};
  for (const ir::MeshAxis& axis : mesh.axes) {
    std::set<Sharding> next = all;  // this axis replicates
    for (const Sharding& sharding : all) {
      if (with_partial) {
        Sharding with = sharding;
        with.partial[axis.name] = ir::PartialKind::kSum;
        next.insert(with);
      }
      for (size_t d = 0; d < sharding.dims.size(); ++d) {
        for (size_t at = 0; at <= sharding.dims[d].size(); ++at) {
          Sharding with = sharding;
          with.dims[d].insert(with.dims[d].begin() + static_cast<std::ptrdiff_t>(at), axis.name);
          next.insert(with);
        }
      }
    }
    all = std::move(next);
  }
  return {all.begin(), all.end()};
}

}  // namespace meshwright::mesh
