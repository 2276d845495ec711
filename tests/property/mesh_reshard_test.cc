#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <algorithm>
#include <map>
#include <random>
#include <tuple>

#include "mesh/reshard.h"
#include "tests/property/mesh_shards.h"

namespace meshwright::mesh {
namespace {

constexpr ReshardCostModel kBytesOnly{.alpha_s = 0, .seconds_per_byte = 1};

Mesh TwoAxes(int64_t a, int64_t b) { return {{{"a", a}, {"b", b}}, {}}; }

double LocalBytes(const ir::TensorType& type, const Sharding& sharding, const Mesh& mesh) {
  double share = static_cast<double>(type.bytes());
  for (const AxisList& dim : sharding.dims) {
    for (const std::string& axis : dim) share /= static_cast<double>(mesh.AxisSize(axis));
  }
  return share;
}

// Runs the path on real shards; empty when every step leaves exactly what it says and the end is
// `to`.
std::string ExecutionError(const ReshardPath& path, const ir::Dims& dims, const Sharding& from,
                           const Sharding& to, const Mesh& mesh, std::mt19937_64& random) {
  const IntTensor global = RandomTensor(dims, random);
  Shards shards = Scatter(global, from, mesh, random);
  for (size_t i = 0; i < path.steps.size(); ++i) {
    shards = Execute(shards, path.steps[i], mesh);
    const std::string difference = Difference(shards, global, path.steps[i].result, mesh);
    if (!difference.empty()) return "after step " + std::to_string(i) + ": " + difference;
  }
  return Difference(shards, global, to, mesh);
}

// Every pair that can be resharded, executed on every device.
void CheckAllPairs(int rank, const Mesh& mesh, const ReshardCostModel& model) {
  const ir::TensorType type{ir::DType::kI64, ir::Dims(static_cast<size_t>(rank), 8)};
  const std::vector<Sharding> shardings = AllShardings(rank, mesh, /*with_partial=*/true);
  std::mt19937_64 random(20260801);
  for (const Sharding& from : shardings) {
    for (const Sharding& to : shardings) {
      bool reachable = true;
      for (const auto& [axis, kind] : to.partial) {
        const auto it = from.partial.find(axis);
        reachable &= it == from.partial.end() ? kind == ir::PartialKind::kSum : it->second == kind;
      }
      const Result<ReshardPath> path = FindReshardPath(type, from, to, mesh, model);
      ASSERT_EQ(path.has_value(), reachable)
          << FormatSharding(type, from) << " -> " << FormatSharding(type, to);
      if (!reachable) continue;
      ASSERT_EQ(ExecutionError(*path, type.dims, from, to, mesh, random), "")
          << FormatSharding(type, from) << " -> " << FormatSharding(type, to);
    }
  }
}

TEST(ReshardProperty, EveryPairOfRankTwoExecutesToTheTarget) {
  CheckAllPairs(2, TwoAxes(2, 2), {});
  CheckAllPairs(2, TwoAxes(2, 4), kBytesOnly);
}

TEST(ReshardProperty, EveryPairOfRankThreeExecutesToTheTarget) {
  CheckAllPairs(3, TwoAxes(2, 2), kBytesOnly);
}

// Gather every dim that differs, then slice: what a system without a search does.
double GreedyBytes(const ir::TensorType& type, const Sharding& from, const Sharding& to,
                   const Mesh& mesh) {
  Sharding at = from;
  double bytes = 0;
  for (size_t d = 0; d < at.dims.size(); ++d) {
    if (at.dims[d] == to.dims[d]) continue;
    const double before = LocalBytes(type, at, mesh);
    at.dims[d].clear();
    bytes += LocalBytes(type, at, mesh) - before;
  }
  return bytes;
}

struct Move {
  Sharding to;
  double share;  // bytes received per local byte
};

// What one axis can do on its own: split a dim, or leave the minor end of one, alone or for
// another.
std::vector<Move> MovesOfAxis(const Sharding& at, const ir::MeshAxis& axis) {
  std::vector<Move> moves;
  const auto q = static_cast<double>(axis.size);
  for (size_t d = 0; d < at.dims.size(); ++d) {
    Sharding to = at;
    if (!at.UsesAxis(axis.name)) {
      to.dims[d].push_back(axis.name);
      moves.push_back({to, 0});
    } else if (!at.dims[d].empty() && at.dims[d].back() == axis.name) {
      to.dims[d].pop_back();
      moves.push_back({to, q - 1});
      for (size_t other = 0; other < at.dims.size(); ++other) {
        if (other == d) continue;
        moves.push_back({to, (q - 1) / q});
        moves.back().to.dims[other].push_back(axis.name);
      }
    }
  }
  return moves;
}

// Least bytes by moves of one axis at a time, by relaxing until nothing changes.
std::map<Sharding, double> SingleAxisBytes(const ir::TensorType& type, const Sharding& from,
                                           const Mesh& mesh) {
  std::map<Sharding, double> best{{from, 0}};
  std::vector<Sharding> changed{from};
  while (!changed.empty()) {
    const Sharding at = changed.back();
    changed.pop_back();
    for (const ir::MeshAxis& axis : mesh.axes) {
      for (const Move& move : MovesOfAxis(at, axis)) {
        if (!ValidateSharding(type, move.to, mesh).ok()) continue;
        const double bytes = best[at] + move.share * LocalBytes(type, at, mesh);
        const auto [it, fresh] = best.emplace(move.to, bytes);
        if (!fresh && it->second <= bytes) continue;
        it->second = bytes;
        changed.push_back(move.to);
      }
    }
  }
  return best;
}

struct Comparison {
  int pairs = 0;
  int better_than_greedy = 0;
};

Comparison CompareAllPairs(int rank, const Mesh& mesh) {
  Comparison comparison;
  const ir::TensorType type{ir::DType::kF32, ir::Dims(static_cast<size_t>(rank), 64)};
  const std::vector<Sharding> shardings = AllShardings(rank, mesh, /*with_partial=*/false);
  for (const Sharding& from : shardings) {
    const std::map<Sharding, double> single = SingleAxisBytes(type, from, mesh);
    for (const Sharding& to : shardings) {
      const Result<ReshardPath> path = FindReshardPath(type, from, to, mesh, kBytesOnly);
      if (!path.has_value()) {
        ADD_FAILURE() << path.error();
        continue;
      }
      const std::string pair = FormatSharding(type, from) + " -> " + FormatSharding(type, to);
      double sum = 0;
      Sharding at = from;
      for (const ReshardStep& step : path->steps) {
        const double local = LocalBytes(type, at, mesh);
        const auto q = static_cast<double>(mesh.SizeOf(step.axes));
        if (step.kind == StepKind::kAllGather) sum += (q - 1) * local;
        if (step.kind == StepKind::kAllToAll) sum += (q - 1) / q * local;
        at = step.result;
      }
      EXPECT_DOUBLE_EQ(path->bytes_per_device, sum) << pair;
      EXPECT_DOUBLE_EQ(path->cost, path->bytes_per_device) << pair;
      const double greedy = GreedyBytes(type, from, to, mesh);
      EXPECT_LE(path->cost, greedy) << pair;
      EXPECT_LE(path->cost, single.at(to)) << pair;
      ++comparison.pairs;
      comparison.better_than_greedy += path->cost < greedy ? 1 : 0;
    }
  }
  return comparison;
}

TEST(ReshardProperty, NeverDearerThanGreedyOrAnySingleAxisPath) {
  for (const auto& [rank, a, b] : {std::tuple(2, 2, 2), std::tuple(2, 2, 4), std::tuple(3, 2, 2),
                                   std::tuple(3, 2, 4), std::tuple(3, 2, 8), std::tuple(3, 8, 2)}) {
    const Comparison comparison = CompareAllPairs(rank, TwoAxes(a, b));
    EXPECT_GT(comparison.better_than_greedy, comparison.pairs / 10)
        << rank << ": " << a << "x" << b;
  }
}

TEST(ReshardProperty, AnswersDoNotDependOnWhatWasAskedBefore) {
  const Mesh mesh = TwoAxes(2, 4);
  const ir::TensorType type{ir::DType::kF32, {16, 16}};
  const std::vector<Sharding> shardings = AllShardings(2, mesh, true);
  std::vector<ReshardPath> first;
  for (int round = 0; round < 2; ++round) {
    size_t at = 0;
    for (const Sharding& from : shardings) {
      for (const Sharding& to : shardings) {
        const Result<ReshardPath> path = FindReshardPath(type, from, to, mesh);
        if (!path.has_value()) continue;
        if (round == 0) {
          first.push_back(*path);
        } else {
          ASSERT_EQ(path->steps, first[at++].steps);
        }
      }
    }
  }
}

// Random meshes of up to three axes, uneven sizes, every kind of partial.
struct RandomCase {
  Mesh mesh;
  ir::Dims dims;
  Sharding from, to;
};

RandomCase DrawCase(std::mt19937_64& random) {
  RandomCase drawn;
  const size_t axes = 1 + random() % 3;
  for (size_t a = 0; a < axes; ++a) {
    drawn.mesh.axes.push_back(
        {std::string(1, static_cast<char>('a' + a)), static_cast<int64_t>(1 + random() % 3)});
  }
  const int rank = static_cast<int>(1 + random() % 3);
  for (int d = 0; d < rank; ++d) drawn.dims.push_back(random() % 2 == 0 ? 12 : 6);
  const ir::TensorType type{ir::DType::kI64, drawn.dims};
  std::vector<Sharding> valid;
  for (const Sharding& sharding : AllShardings(rank, drawn.mesh, true)) {
    if (ValidateSharding(type, sharding, drawn.mesh).ok()) valid.push_back(sharding);
  }
  drawn.from = valid[random() % valid.size()];
  const auto kind = static_cast<ir::PartialKind>(random() % 3);
  do {
    drawn.to = valid[random() % valid.size()];
  } while (kind != ir::PartialKind::kSum &&
           std::any_of(drawn.to.partial.begin(), drawn.to.partial.end(), [&](const auto& entry) {
             return !drawn.from.partial.contains(entry.first);
           }));
  for (auto& [axis, axis_kind] : drawn.from.partial) axis_kind = kind;
  for (auto& [axis, axis_kind] : drawn.to.partial) axis_kind = kind;
  return drawn;
}

TEST(ReshardProperty, RandomMeshesAndPartialsExecuteToTheTarget) {
  EXPECT_TRUE(rc::check("paths execute to the target", [](uint64_t seed) {
    std::mt19937_64 random(seed);
    const RandomCase drawn = DrawCase(random);
    const ir::TensorType type{ir::DType::kI64, drawn.dims};
    const auto path = FindReshardPath(type, drawn.from, drawn.to, drawn.mesh);
    RC_ASSERT(path.has_value());
    for (const ReshardStep& step : path->steps) {
      RC_ASSERT(step.kind != StepKind::kReduceScatter || step.partial == ir::PartialKind::kSum);
      for (const std::string& axis : step.axes) RC_ASSERT(drawn.mesh.AxisSize(axis) > 1);
    }
    RC_ASSERT(ExecutionError(*path, drawn.dims, drawn.from, drawn.to, drawn.mesh, random) == "");
  }));
}

TEST(ShardingProperty, TextReadsBackEqual) {
  EXPECT_TRUE(rc::check("Parse(Format(x)) == x", [](uint64_t seed) {
    std::mt19937_64 random(seed);
    const RandomCase drawn = DrawCase(random);
    const ir::TensorType type{static_cast<ir::DType>(random() % 7), drawn.dims};
    const auto parsed = ParseSharding(FormatSharding(type, drawn.from));
    RC_ASSERT(parsed.has_value());
    RC_ASSERT(parsed->type == type);
    RC_ASSERT(parsed->sharding == drawn.from);
  }));
}

TEST(ShardingProperty, MutatedTextIsReadOrRefused) {
  EXPECT_TRUE(rc::check("the parser survives any text", [](uint64_t seed) {
    std::mt19937_64 random(seed);
    std::string text = "f32[32{data},128,4096{tensor,b}] partial(sum: pipe; max: x)";
    for (int i = 0; i < 3; ++i) {
      text[random() % text.size()] = static_cast<char>(random() % 256);
      if (random() % 2 == 0) text.erase(random() % text.size());
      if (text.empty()) text = "[";
    }
    const auto parsed = ParseSharding(text);
    if (!parsed.has_value()) return;
    const std::string canonical = FormatSharding(parsed->type, parsed->sharding);
    const auto again = ParseSharding(canonical);
    RC_ASSERT(again.has_value());
    RC_ASSERT(FormatSharding(again->type, again->sharding) == canonical);
  }));
}

}  // namespace
}  // namespace meshwright::mesh
