// Every collective, over every choice of axes and dims of a 2 x 2 mesh, against plain loops over
// all devices' data.
#include <gmock/gmock.h>

#include <cmath>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "tests/unit/worker/program_maker.h"

namespace meshwright::worker {
namespace {

constexpr int kRanks = 4;
const MeshSpec kMesh{{{"a", 2}, {"b", 2}}, {2, 0, 3, 1}, 0};  // positions are not ranks

// Ranks that differ from `rank` only in `axes`, first axis major.
std::vector<int> GroupOf(int rank, const std::vector<std::string>& axes) {
  int position = 0;
  while (kMesh.ranks[static_cast<size_t>(position)] != rank) ++position;
  const int own[2] = {position / 2, position % 2};
  std::vector<int> ranks;
  const int count = 1 << axes.size();
  for (int member = 0; member < count; ++member) {
    int coords[2] = {own[0], own[1]};
    for (size_t i = 0; i < axes.size(); ++i) {
      coords[axes[i] == "a" ? 0 : 1] = member >> (axes.size() - 1 - i) & 1;
    }
    ranks.push_back(kMesh.ranks[static_cast<size_t>(coords[0] * 2 + coords[1])]);
  }
  return ranks;
}

struct Block {
  ir::Dims dims;
  std::vector<float> data;

  size_t Index(const ir::Dims& at) const {
    size_t index = 0;
    for (size_t d = 0; d < dims.size(); ++d)
      index = index * static_cast<size_t>(dims[d]) + static_cast<size_t>(at[d]);
    return index;
  }
};

// Calls visit(position) for every element of dims.
template <typename Visit>
void ForEach(const ir::Dims& dims, const Visit& visit) {
  ir::Dims at(dims.size(), 0);
  for (;;) {
    visit(at);
    size_t d = dims.size();
    while (d-- > 0 && ++at[d] == dims[d]) at[d] = 0;
    if (d == static_cast<size_t>(-1)) return;
  }
}

Block InputOf(int rank, ir::Dims dims) {
  int64_t count = 1;
  for (int64_t d : dims) count *= d;
  return {std::move(dims), Pattern(count, rank)};
}

Block Reduced(const std::vector<int>& group, const ir::Dims& dims, const std::string& kind) {
  Block result = InputOf(group[0], dims);
  for (size_t m = 1; m < group.size(); ++m) {
    const Block other = InputOf(group[m], dims);
    for (size_t i = 0; i < result.data.size(); ++i) {
      float& a = result.data[i];
      const float b = other.data[i];
      if (kind == "sum") a += b;
      if (kind == "max") a = std::max(a, b);
      if (kind == "lse")
        a = static_cast<float>(std::log(std::exp(double{a}) + std::exp(double{b})));
    }
  }
  return result;
}

Block Part(const Block& whole, size_t dim, int64_t index, int64_t parts) {
  Block part{whole.dims, {}};
  part.dims[dim] /= parts;
  part.data.resize(whole.data.size() / static_cast<size_t>(parts));
  ForEach(part.dims, [&](const ir::Dims& at) {
    ir::Dims from = at;
    from[dim] += index * part.dims[dim];
    part.data[part.Index(at)] = whole.data[whole.Index(from)];
  });
  return part;
}

Block Concat(const std::vector<Block>& parts, size_t dim) {
  Block whole{parts[0].dims, {}};
  whole.dims[dim] *= static_cast<int64_t>(parts.size());
  whole.data.resize(parts[0].data.size() * parts.size());
  ForEach(whole.dims, [&](const ir::Dims& at) {
    const Block& part = parts[static_cast<size_t>(at[dim] / parts[0].dims[dim])];
    ir::Dims from = at;
    from[dim] %= parts[0].dims[dim];
    whole.data[whole.Index(at)] = part.data[part.Index(from)];
  });
  return whole;
}

// Runs one collective of x on all ranks; returns y per rank.
std::vector<Block> RunCollective(const std::string& node, const ir::Dims& in, const ir::Dims& out,
                                 int threads = 1) {
  const auto graph = GraphOf(fmt::format(R"(graph "g" {{
    %0 = input {{name="x"}} : f32[{0}]
    %1 = {1} : f32[{2}]
    output "y" %1
  }})",
                                         fmt::join(in, ","), node, fmt::join(out, ",")));
  std::vector<ir::Program> programs;
  for (int rank = 0; rank < kRanks; ++rank) {
    ProgramMaker maker("step", rank, kMesh);
    const SlotId x = maker.Persistent("x", F32(in));
    const SlotId y = maker.Persistent("y", F32(out));
    maker.Run(maker.Executable(graph), {x}, {y});
    programs.push_back(maker.Finish());
  }
  RuntimeOptions options = LocalOptions(kRanks, std::move(programs));
  options.threads_per_device = threads;
  auto runtime = MustLoad(std::move(options));
  for (int rank = 0; rank < kRanks; ++rank) Write(*runtime, rank, "x", InputOf(rank, in).data);
  const auto reports = runtime->Launch({"step", 0, 2});  // twice: scratch is reused
  EXPECT_TRUE(reports.has_value()) << reports.error();
  std::vector<Block> results;
  for (int rank = 0; rank < kRanks; ++rank) {
    results.push_back({out, ReadFloats(*runtime, rank, "y")});
    EXPECT_EQ(ReadFloats(*runtime, rank, "x"), InputOf(rank, in).data) << "operand changed";
  }
  return results;
}

std::string Quoted(const std::vector<std::string>& axes) {
  return fmt::format("[\"{}\"]", fmt::join(axes, "\", \""));
}

class CollectiveOverAxes : public testing::TestWithParam<std::vector<std::string>> {
 protected:
  int64_t parts() const { return int64_t{1} << GetParam().size(); }
};

TEST_P(CollectiveOverAxes, AllReduceCombinesTheGroup) {
  const ir::Dims dims = {3, 5};
  for (const std::string kind : {"sum", "max", "lse"}) {
    const auto results = RunCollective(
        fmt::format(R"(all_reduce(%0) {{axes={}, kind="{}"}})", Quoted(GetParam()), kind), dims,
        dims);
    for (int rank = 0; rank < kRanks; ++rank) {
      const Block want = Reduced(GroupOf(rank, GetParam()), dims, kind);
      for (size_t i = 0; i < want.data.size(); ++i) {
        EXPECT_NEAR(results[static_cast<size_t>(rank)].data[i], want.data[i],
                    kind == "lse" ? 1e-4 : 0)
            << kind << " rank " << rank << " element " << i;
      }
    }
  }
}

TEST_P(CollectiveOverAxes, AllGatherConcatenatesAlongAnyDim) {
  const ir::Dims dims = {2, 3, 4};
  for (size_t dim = 0; dim < 3; ++dim) {
    ir::Dims out = dims;
    out[dim] *= parts();
    const auto results = RunCollective(
        fmt::format("all_gather(%0) {{axes={}, dim={}}}", Quoted(GetParam()), dim), dims, out);
    for (int rank = 0; rank < kRanks; ++rank) {
      std::vector<Block> blocks;
      for (int member : GroupOf(rank, GetParam())) blocks.push_back(InputOf(member, dims));
      EXPECT_EQ(results[static_cast<size_t>(rank)].data, Concat(blocks, dim).data)
          << "dim " << dim << " rank " << rank;
    }
  }
}

TEST_P(CollectiveOverAxes, ReduceScatterLeavesTheOwnBlockOfAnyDim) {
  const ir::Dims dims = {4, 8, 12};
  for (size_t dim = 0; dim < 3; ++dim) {
    ir::Dims out = dims;
    out[dim] /= parts();
    const auto results =
        RunCollective(fmt::format(R"(reduce_scatter(%0) {{axes={}, dim={}, kind="sum"}})",
                                  Quoted(GetParam()), dim),
                      dims, out);
    for (int rank = 0; rank < kRanks; ++rank) {
      const std::vector<int> group = GroupOf(rank, GetParam());
      const auto own = std::find(group.begin(), group.end(), rank) - group.begin();
      EXPECT_EQ(results[static_cast<size_t>(rank)].data,
                Part(Reduced(group, dims, "sum"), dim, own, parts()).data)
          << "dim " << dim << " rank " << rank;
    }
  }
}

TEST_P(CollectiveOverAxes, AllToAllSplitsOneDimAndConcatenatesAnother) {
  const ir::Dims dims = {4, 8, 4};
  for (size_t split = 0; split < 3; ++split) {
    for (size_t concat = 0; concat < 3; ++concat) {
      if (split == concat) continue;
      ir::Dims out = dims;
      out[split] /= parts();
      out[concat] *= parts();
      const auto results =
          RunCollective(fmt::format("all_to_all(%0) {{axes={}, concat_dim={}, split_dim={}}}",
                                    Quoted(GetParam()), concat, split),
                        dims, out);
      for (int rank = 0; rank < kRanks; ++rank) {
        const std::vector<int> group = GroupOf(rank, GetParam());
        const auto own = std::find(group.begin(), group.end(), rank) - group.begin();
        std::vector<Block> blocks;
        for (int member : group) blocks.push_back(Part(InputOf(member, dims), split, own, parts()));
        EXPECT_EQ(results[static_cast<size_t>(rank)].data, Concat(blocks, concat).data)
            << "split " << split << " concat " << concat << " rank " << rank;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    Axes, CollectiveOverAxes,
    testing::Values(std::vector<std::string>{"a"}, std::vector<std::string>{"b"},
                    std::vector<std::string>{"a", "b"}, std::vector<std::string>{"b", "a"}),
    [](const auto& test) { return fmt::format("{}", fmt::join(test.param, "")); });

TEST(CollectiveNode, LargeBlocksArePackedByTheWholeTeam) {
  const ir::Dims dims = {64, 4, 1024};
  const auto results =
      RunCollective(R"(all_gather(%0) {axes=["a"], dim=1})", dims, {64, 8, 1024}, /*threads=*/2);
  for (int rank = 0; rank < kRanks; ++rank) {
    std::vector<Block> blocks;
    for (int member : GroupOf(rank, {"a"})) blocks.push_back(InputOf(member, dims));
    EXPECT_EQ(results[static_cast<size_t>(rank)].data, Concat(blocks, 1).data) << "rank " << rank;
  }
}

TEST(CollectiveNode, ABucketIsOneTransferAndReducesEveryOperand) {
  const auto graph = GraphOf(R"(graph "bucket" {
    %0 = input {name="x"} : f32[3,3]
    %1 = input {name="s"} : f32[]
    %2 = input {name="y"} : f32[5]
    %3, %4, %5 = all_reduce(%0, %1, %2) {axes=["b"], kind="sum"} : f32[3,3], f32[], f32[5]
    output "x" %3
    output "s" %4
    output "y" %5
  })");
  std::vector<ir::Program> programs;
  for (int rank = 0; rank < kRanks; ++rank) {
    ProgramMaker maker("step", rank, kMesh);
    const std::vector<SlotId> slots = {maker.Persistent("x", F32({3, 3})),
                                       maker.Persistent("s", F32({})),
                                       maker.Persistent("y", F32({5}))};
    maker.Run(maker.Executable(graph), slots, slots);  // donated
    programs.push_back(maker.Finish());
  }
  auto runtime = MustLoad(LocalOptions(kRanks, std::move(programs)));
  for (int rank = 0; rank < kRanks; ++rank) {
    Write(*runtime, rank, "x", Pattern(9, rank));
    Write(*runtime, rank, "s", Pattern(1, rank));
    Write(*runtime, rank, "y", Pattern(5, rank));
  }
  ASSERT_TRUE(runtime->Launch({"step", 0, 1}).has_value());
  for (int rank = 0; rank < kRanks; ++rank) {
    const std::vector<int> group = GroupOf(rank, {"b"});
    EXPECT_EQ(ReadFloats(*runtime, rank, "x"), Reduced(group, {9}, "sum").data);
    EXPECT_EQ(ReadFloats(*runtime, rank, "s"), Reduced(group, {1}, "sum").data);
    EXPECT_EQ(ReadFloats(*runtime, rank, "y"), Reduced(group, {5}, "sum").data);
  }
  for (const DeviceStats& stats : runtime->Stats()) {
    ASSERT_EQ(stats.collectives.size(), 1u);
    EXPECT_EQ(stats.collectives[0].axis, "b");
    EXPECT_EQ(stats.collectives[0].kind, collective::Kind::kAllReduce);
    EXPECT_EQ(stats.collectives[0].counters.calls, 1);
  }
}

TEST(CollectiveNode, AGroupOfOneDeviceCopies) {
  const MeshSpec mesh{{{"solo", 1}}, {}, 0};
  ProgramMaker maker("step", 0, mesh);
  const SlotId x = maker.Persistent("x", F32({4}));
  const SlotId y = maker.Persistent("y", F32({4}));
  maker.Run(maker.Executable(R"(graph "g" {
    %0 = input {name="x"} : f32[4]
    %1 = all_reduce(%0) {axes=["solo"], kind="sum"} : f32[4]
    %2 = all_gather(%1) {axes=["solo"], dim=0} : f32[4]
    output "y" %2
  })"),
            {x}, {y});
  auto runtime = MustLoad(LocalOptions(1, {maker.Finish()}));
  Write<float>(*runtime, 0, "x", {1, 2, 3, 4});
  ASSERT_TRUE(runtime->Launch({"step", 0, 1}).has_value());
  EXPECT_THAT(ReadFloats(*runtime, 0, "y"), testing::ElementsAre(1, 2, 3, 4));
}

TEST(CollectiveNode, LoadNamesAxesAndShapesThatDoNotFit) {
  const auto load = [](const std::string& node, const std::string& out) {
    std::vector<ir::Program> programs;
    for (int rank = 0; rank < kRanks; ++rank) {
      ProgramMaker maker("step", rank, kMesh);
      const SlotId x = maker.Persistent("x", F32({4}));
      const SlotId y = maker.Persistent(
          "y",
          ir::ParseGraph("graph \"t\" { %0 = input {name=\"x\"} : " + out + " }")->values[0].type);
      maker.Run(maker.Executable("graph \"g\" { %0 = input {name=\"x\"} : f32[4] %1 = " + node +
                                 " : " + out + " output \"y\" %1 }"),
                {x}, {y});
      programs.push_back(maker.Finish());
    }
    return JobRuntime::Load(LocalOptions(kRanks, std::move(programs)));
  };
  const auto unknown = load(R"(all_reduce(%0) {axes=["c"], kind="sum"})", "f32[4]");
  ASSERT_FALSE(unknown.has_value());
  EXPECT_THAT(unknown.error().message(),
              testing::HasSubstr("axis 'c' is not an axis of the stage's mesh [a=2,b=2]"));
  const auto grown = load(R"(all_gather(%0) {axes=["a"], dim=0})", "f32[16]");
  ASSERT_FALSE(grown.has_value());
  EXPECT_THAT(grown.error().message(),
              testing::HasSubstr(
                  "all_gather over 2 devices, f32[4] -> f32[16]: the result must be f32[8]"));
}

}  // namespace
}  // namespace meshwright::worker
