// Gathers of weights a layer ahead: where they are listed, what bytes they have, what it saves.
#include "planner/early_gathers.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "ir/builder.h"
#include "planner/cost_model.h"
#include "planner/overlap.h"

namespace meshwright::planner {
namespace {

using ir::Builder;
using ir::DType;
using ir::Op;
using ::testing::ElementsAre;

constexpr int64_t kRows = 8, kWide = 16;
constexpr int64_t kWeightBytes = 4 * kWide * kWide;
constexpr int64_t kPassedBytes = 4 * kRows * kWide;

// A forward of layers that gather their weights for each product, as a partition makes it.
class Layers {
 public:
  Layers() : b_("s0/f") { x_ = Input("x", {kRows, kWide}, ir::MemoryKind::kActivations); }

  void SetLayer(int layer) { b_.SetLayer(layer); }
  // The product with a weight of so many blocks, whose gather is right before it.
  void Product(const std::string& name, int64_t blocks = 1,
               ir::MemoryKind kind = ir::MemoryKind::kWeights) {
    const ValueId own = Input(name, {kWide / 2, kWide * blocks}, kind);
    const ValueId whole =
        b_.AddOne(Op::kAllGather, {own}, {{"axes", std::vector<std::string>{"data"}}, {"dim", 0}},
                  {{DType::kF32, {kWide, kWide * blocks}}});
    const ValueId wide = b_.AddOne(Op::kEinsum, {x_, whole}, {{"equation", "mk,kn->mn"}});
    x_ = b_.AddOne(Op::kSlice, {wide}, {{"dim", 1}, {"start", 0}, {"size", kWide}});
  }

  // The piece's graph, which gives out what the last product makes.
  const ir::Graph& Make() {
    b_.SetOutput("y", x_);
    auto graph = b_.Finish();
    EXPECT_TRUE(graph.has_value()) << graph.error();
    piece_.graph = std::make_shared<const ir::Graph>(*std::move(graph));
    piece_.outputs.push_back(Tensor({kRows, kWide}, ir::MemoryKind::kActivations));
    partition_.pieces.push_back(piece_);
    return *piece_.graph;
  }
  const ir::Graph& GatherEarly() {
    const Status status = planner::GatherEarly(partition_);
    EXPECT_TRUE(status.ok()) << status;
    return *partition_.pieces[0].graph;
  }

 private:
  TensorIndex Tensor(ir::Dims dims, ir::MemoryKind kind) {
    StageTensor tensor;
    tensor.kind = kind;
    tensor.local_type = {DType::kF32, std::move(dims)};
    return partition_.tensors.Add(std::move(tensor));
  }
  ValueId Input(const std::string& name, const ir::Dims& dims, ir::MemoryKind kind) {
    piece_.inputs.push_back(Tensor(dims, kind));
    return b_.AddOne(Op::kInput, {}, {{"name", name}}, {{DType::kF32, dims}});
  }

  Builder b_;
  ValueId x_;
  Piece piece_;
  Partition partition_;
};

// Gathers and products in their order, by the weight's name: "(a)" is gathered, "a" is read.
std::string OrderOf(const ir::Graph& graph) {
  std::string order;
  for (const ir::Node& node : graph.nodes) {
    if (node.op == Op::kAllGather) {
      order += fmt::format("({})", graph.producer(node.inputs[0]).attrs.Str("name"));
    } else if (node.op == Op::kEinsum) {
      order += graph.producer(graph.producer(node.inputs[1]).inputs[0]).attrs.Str("name");
    }
  }
  return order;
}

// Three layers of two weights.
void AddThree(Layers& layers) {
  for (int layer = 0; layer < 3; ++layer) {
    layers.SetLayer(layer);
    for (const char* name : {"a", "b"}) layers.Product(fmt::format("{}{}", name, layer));
  }
}

TEST(GatherEarly, AWeightIsGatheredWhereThatOfTheLayerBeforeIsRead) {
  Layers layers;
  AddThree(layers);
  EXPECT_EQ(OrderOf(layers.Make()), "(a0)a0(b0)b0(a1)a1(b1)b1(a2)a2(b2)b2");
  EXPECT_EQ(OrderOf(layers.GatherEarly()), "(a0)(b0)(a1)a0(b1)b0(a2)a1(b2)b1a2b2");
}

TEST(GatherEarly, InputsKeepTheirOrderAndComeFirst) {
  Layers layers;
  AddThree(layers);
  layers.Make();
  std::vector<std::string> names;
  const ir::Graph& graph = layers.GatherEarly();
  for (size_t n = 0; n < 7; ++n) {
    ASSERT_EQ(graph.nodes[n].op, Op::kInput) << n;
    names.push_back(graph.nodes[n].attrs.Str("name"));
  }
  EXPECT_THAT(names, ElementsAre("x", "a0", "b0", "a1", "b1", "a2", "b2"));
}

// The bytes of a gather are its own from where it is listed: nothing that is touched between there
// and its reader has them.
TEST(GatherEarly, ItsPlaceInTheWorkspaceIsFreeForALayer) {
  Layers layers;
  AddThree(layers);
  const int64_t in_turn_bytes = ir::PlanWorkspace(layers.Make()).bytes;
  const ir::Graph& graph = layers.GatherEarly();
  const ir::WorkspacePlan plan = ir::PlanWorkspace(graph);
  EXPECT_EQ(in_turn_bytes, kWeightBytes + 2 * kPassedBytes);
  EXPECT_LE(plan.bytes, in_turn_bytes + 2 * kWeightBytes) << "a layer more, and no more";
  const auto users = graph.Users();
  for (const NodeId gather : graph.NodesOf(Op::kAllGather)) {
    const ValueId whole = graph.node(gather).outputs[0];
    const int64_t begin = plan.offset_bytes[whole.index()];
    for (int n = gather.value() + 1; n < users[whole][0].value(); ++n) {
      for (const ValueId other : graph.nodes[static_cast<size_t>(n)].outputs) {
        const int64_t at = plan.offset_bytes[other.index()];
        const bool apart = at < 0 || at >= begin + graph.type(whole).bytes() ||
                           at + graph.type(other).bytes() <= begin;
        EXPECT_TRUE(apart) << "node " << n << " has bytes of " << gather;
      }
    }
  }
}

// A head is larger than a layer: it does not let a layer's weights come from farther away, and
// comes itself a product ahead.
TEST(GatherEarly, ALargeWeightIsGatheredBehindTheReaderBefore) {
  Layers layers;
  AddThree(layers);
  layers.Product("h", 8);
  layers.Make();
  EXPECT_EQ(OrderOf(layers.GatherEarly()), "(a0)(b0)(a1)a0(b1)b0(a2)a1(b2)b1a2(h)b2h");
}

// Where layers in between gather nothing, nobody holds a weight for all of them.
TEST(GatherEarly, NotAheadOfTheLayerBefore) {
  Layers layers;
  for (int layer = 0; layer < 6; ++layer) {
    layers.SetLayer(layer);
    const bool whole = layer > 0 && layer < 5;
    layers.Product(fmt::format("w{}", layer), 1,
                   whole ? ir::MemoryKind::kActivations : ir::MemoryKind::kWeights);
  }
  layers.Make();
  EXPECT_EQ(OrderOf(layers.GatherEarly()), "(w0)w0(w1)w1(w2)w2(w3)w3(w5)(w4)w4w5");
}

// ---- what it saves ----

// A product takes 2 s and a gather 1 s.
double SecondsOf(const ir::Graph& graph) {
  std::vector<double> node_s;
  for (const ir::Node& node : graph.nodes) {
    node_s.push_back(node.op == Op::kEinsum ? 2 : IsCollective(node.op) ? 1 : 0);
  }
  return WalkLanes(graph, node_s).seconds;
}

TEST(WalkLanes, GathersWaitForTheBytesThatTheyWrite) {
  Layers layers;
  AddThree(layers);
  EXPECT_EQ(SecondsOf(layers.Make()), 6 * (2 + 1)) << "all gathers have one place";
  EXPECT_EQ(SecondsOf(layers.GatherEarly()), 6 * 2 + 1) << "all but the first are hidden";
}

}  // namespace
}  // namespace meshwright::planner
