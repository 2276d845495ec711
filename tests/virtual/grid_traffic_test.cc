// Y = X W on grids of devices: what 1D, 2D, 2.5D and 3D tensor parallelism move, with shardings by
// hand, against their closed forms; and the numbers of one device.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <map>
#include <string>
#include <vector>

#include "client/trainer.h"
#include "planner/plan.h"
#include "tests/virtual/virtual_cluster.h"

namespace meshwright::testing {
namespace {

using mesh::AxisList;
using mesh::Sharding;
using planner::NodeStrategy;
using planner::Strategies;

// The matrices of the golden volumes, [32, 16] and [16, 48], made larger: of small ones two
// reductions are made in one, which sends more.
constexpr int64_t kLarger = 16;
constexpr int64_t kM = 32 * kLarger;
constexpr int64_t kK = 16 * kLarger;
constexpr int64_t kN = 48 * kLarger;
constexpr int64_t kX = kM * kK;
constexpr int64_t kW = kK * kN;
constexpr int64_t kY = kM * kN;

// The axes of both dims of X, W and Y.
struct Form {
  AxisList rows, columns;
  Sharding Of(const AxisList& partial = {}) const {
    Sharding sharding = Sharding::Replicated(2);
    sharding.dims = {rows, columns};
    for (const std::string& axis : partial) sharding.partial[axis] = ir::PartialKind::kSum;
    return sharding;
  }
};

// Where the matrices live, and what the product and the products of its gradient take; their
// results are sums over `partial`.
struct Grid {
  std::string name;
  std::string axes;  // parallel.tensor_axes
  int64_t devices = 1;
  Form x, w, y;
  struct Product {
    Form a, b, result;
    AxisList partial;
  };
  Product forward, of_x, of_w;
  int64_t elements = 0;  // that a step moves
  int64_t again = 0;     // of these, to gather for the backward what the forward had gathered
};

bool Is(const ir::TensorType& type, int64_t rows, int64_t columns) {
  return type.dims == ir::Dims{rows, columns};
}

class Hand {
 public:
  Hand(const ir::Graph& graph, const Grid& grid) : graph_(graph), grid_(grid) {}

  Strategies All() {
    for (const ir::Value& value : graph_.values) made_.values.Add(Home(value.type));
    for (const ir::Node& node : graph_.nodes) {
      made_.nodes.push_back(StrategyOf(node));
      for (size_t r = 0; r < node.outputs.size(); ++r) {
        made_.values[node.outputs[r]] = made_.nodes.back().results[r];
      }
      if (node.op == ir::Op::kParam) {
        made_.params[node.attrs.Str("name")] = made_.nodes.back().results[0];
      }
    }
    return made_;
  }

 private:
  Sharding Home(const ir::TensorType& type) const {
    if (Is(type, kM, kK)) return grid_.x.Of();
    if (Is(type, kK, kN)) return grid_.w.Of();
    if (Is(type, kM, kN)) return grid_.y.Of();
    // The weights of a norm, and what it knows of rows.
    if (type.dims == ir::Dims{kK}) return Along(grid_.x.columns);
    if (type.dims == ir::Dims{kM}) return Along(grid_.x.rows);
    return Sharding::Replicated(type.rank());
  }

  static Sharding Along(const AxisList& axes) {
    Sharding sharding = Sharding::Replicated(1);
    sharding.dims = {axes};
    return sharding;
  }

  NodeStrategy StrategyOf(const ir::Node& node) const {
    if (node.op == ir::Op::kEinsum) {
      const ir::TensorType& made = graph_.type(node.outputs[0]);
      if (Is(made, kM, kN)) return Of(grid_.forward);
      return Is(made, kM, kK) ? Of(grid_.of_x) : Of(grid_.of_w);
    }
    NodeStrategy strategy;
    AxisList split;
    for (const ValueId input : node.inputs) {
      strategy.operands.push_back(Home(graph_.type(input)));
      for (const AxisList& axes : strategy.operands.back().dims) {
        split.insert(split.end(), axes.begin(), axes.end());
      }
    }
    for (const ValueId output : node.outputs) {
      Sharding result = Home(graph_.type(output));
      // A sum of all elements; of rows.
      const bool of_all = graph_.type(output).rank() == 0;
      const bool of_rows = IsNorm(node) && graph_.type(output).dims == ir::Dims{kK};
      for (const std::string& axis : of_all ? split : of_rows ? grid_.x.rows : AxisList{}) {
        result.partial[axis] = ir::PartialKind::kSum;
      }
      strategy.results.push_back(std::move(result));
    }
    if (IsNorm(node)) strategy.expansion = planner::Expansion::kSplitWidth;
    return strategy;
  }

  static bool IsNorm(const ir::Node& node) {
    return node.op == ir::Op::kLayerNorm || node.op == ir::Op::kLayerNormGrad ||
           node.op == ir::Op::kRmsNorm || node.op == ir::Op::kRmsNormGrad;
  }

  static NodeStrategy Of(const Grid::Product& product) {
    return {.operands = {product.a.Of(), product.b.Of()},
            .results = {product.result.Of(product.partial)}};
  }

  const ir::Graph& graph_;
  const Grid& grid_;
  Strategies made_;
};

using GridLoss = client::Loss (*)(client::Builder&);

client::Loss SquaresOf(client::Builder& b, ValueId x) {
  return {b.ReduceSum(b.Square(x), {0, 1}), b.Fill({}, kM)};
}

client::Loss ProductLoss(client::Builder& b) {
  b.SetLayer(0);
  const ValueId x = b.Scale(b.Param("x", {kM, kK}), 1);
  const ValueId w = b.Scale(b.Param("w", {kK, kN}), 1);
  return SquaresOf(b, b.Einsum("mk,kn->mn", x, w));
}

// Both norms, each times a matrix, so that rows have gradients that differ.
template <bool kMean>
client::Loss NormLoss(client::Builder& b) {
  const ValueId x = b.Param("x", {kM, kK});
  const ValueId normalized = kMean ? b.LayerNorm(x, "norm") : b.RmsNorm(x, "norm");
  return SquaresOf(b, b.AddTo(b.MulBy(normalized, b.Param("z", {kM, kK})), x));
}

Result<ir::JobRequest> JobOf(GridLoss loss, ir::DType dtype) {
  client::TrainerFunctions functions;
  functions.loss = [loss](client::Builder& b, const client::Batch&) { return loss(b); };
  ir::OptimizerSpec optimizer;
  optimizer.max_norm = 0;
  return client::JobBuilder("grid").Batch(4, 4).Optimizer(optimizer).DType(dtype).Build(functions);
}

// 1D, W by columns: dX is a sum over the group.
Grid ByColumns(int64_t p) {
  const Form whole, w{{}, {"tensor"}};
  return {.name = "1D",
          .axes = "",
          .devices = p,
          .x = whole,
          .w = w,
          .y = w,
          .forward = {whole, w, w, {}},
          .of_x = {w, w, whole, {"tensor"}},
          .of_w = {whole, w, w, {}},
          .elements = 2 * (p - 1) * kX};
}

// 2D (depth 1) and 2.5D: blocks of all three on q x q devices, W the same in each layer of them. X
// is gathered along its row of devices and W along its column, by each of the three products.
Grid Squares(int64_t q, int64_t depth) {
  const bool layers = depth > 1;
  const AxisList rows = layers ? AxisList{"tensor3", "tensor"} : AxisList{"tensor"};
  const AxisList deep = layers ? AxisList{"tensor3"} : AxisList{};
  const AxisList column = {"tensor2"};
  const Form x{rows, column}, w{{"tensor"}, column};
  AxisList sums_of_w = {"tensor"};
  sums_of_w.insert(sums_of_w.end(), deep.begin(), deep.end());
  return {.name = layers ? "2.5D" : "2D",
          .axes = layers ? fmt::format("{0}x{0}x{1}", q, depth) : fmt::format("{0}x{0}", q),
          .devices = q * q * depth,
          .x = x,
          .w = w,
          .y = x,
          .forward = {{rows, {}}, {{}, column}, x, {}},
          .of_x = {x, {{}, column}, {rows, {}}, column},
          .of_w = {{rows, {}}, x, {{}, column}, sums_of_w},
          .elements = 3 * (q - 1) * (kX + depth * kW) + 2 * (depth - 1) * kW,
          .again = (q - 1) * (kX + depth * kW)};
}

// 2.5D of layers of one device each: replicas.
Grid Layers(int64_t depth) {
  const Form whole, rows{{"tensor"}, {}};
  return {.name = "2.5D of single devices",
          .axes = "",
          .devices = depth,
          .x = rows,
          .w = whole,
          .y = rows,
          .forward = {rows, whole, rows, {}},
          .of_x = {rows, whole, rows, {}},
          .of_w = {rows, rows, whole, {"tensor"}},
          .elements = 2 * (depth - 1) * kW};
}

// 3D: axes i, j and l of q devices; each of X, W and Y is split over all three and gathered over
// one.
Grid Cube(int64_t q) {
  const std::string i = "tensor", j = "tensor2", l = "tensor3";
  const Form x{{i, j}, {l}}, w{{l, i}, {j}}, y{{i, l}, {j}};
  const Form x_over_j{{i}, {l}}, w_over_i{{l}, {j}}, y_over_l{{i}, {j}};
  const int64_t again = (q - 1) * (kX + kW);
  return {.name = "3D",
          .axes = fmt::format("{0}x{0}x{0}", q),
          .devices = q * q * q,
          .x = x,
          .w = w,
          .y = y,
          .forward = {x_over_j, w_over_i, y_over_l, {l}},
          .of_x = {y_over_l, w_over_i, x_over_j, {j}},
          .of_w = {x_over_j, y_over_l, w_over_i, {i}},
          .elements = 2 * (q - 1) * (kX + kW + kY) + again,
          .again = again};
}

// The scalars that a step reduces, in bytes that all devices send.
int64_t ScalarBytes(const planner::Plan& plan) {
  int64_t bytes = 0;
  for (const ir::Program& program : plan.Of("step")) {
    for (const ir::Instruction& instruction : program.instructions) {
      if (instruction.op != ir::Opcode::kRun) continue;
      const ir::Graph& graph = *program.executables[instruction.executable.index()].graph;
      for (const ir::Node& node : graph.nodes) {
        if (node.op != ir::Op::kAllReduce || graph.type(node.outputs[0]).rank() > 0) continue;
        const auto group = plan.stages[0].mesh.SizeOf(node.attrs.Strs("axes"));
        bytes += 2 * (group - 1) * graph.type(node.outputs[0]).bytes() *
                 static_cast<int64_t>(node.inputs.size()) / group;
      }
    }
  }
  return bytes;
}

struct GridStep {
  int64_t bytes = 0;  // of matrices, of all devices
  double loss = 0;
  std::map<std::string, LogicalTensor> weights;
};

// On one device without a grid. keeps: what is gathered waits for the backward.
Result<GridStep> StepOnGrid(GridLoss loss, const Grid* grid, ir::DType dtype = ir::DType::kF32,
                            bool keeps = true) {
  MW_ASSIGN_OR_RETURN(ir::JobRequest job, JobOf(loss, dtype));
  job.parallel.recompute = keeps ? "none" : "gathers";
  planner::ShardingChooser choose;
  job.parallel.data = 1;
  job.parallel.pipeline = 1;
  if (grid != nullptr) {
    job.parallel.tensor = grid->devices;
    job.parallel.tensor_axes = grid->axes;
    job.parallel.shardings = "search";
    choose = [grid](const ir::Graph& graph, const planner::StageAssignment&, const planner::Layout&,
                    const std::map<std::string, Sharding>&) -> Result<Strategies> {
      return Hand(graph, *grid).All();
    };
  } else {
    job.parallel.tensor = 1;
  }
  const int devices = grid == nullptr ? 1 : static_cast<int>(grid->devices);
  MW_ASSIGN_OR_RETURN(planner::Plan plan,
                      planner::MakePlan(job, mesh::Topology::Local(devices),
                                        planner::PlanScope::kAllDevices, choose));
  GridStep step;
  step.bytes = -ScalarBytes(plan);
  SyntheticTokens tokens(3);
  MW_ASSIGN_OR_RETURN(
      const std::unique_ptr<VirtualCluster> cluster,
      VirtualCluster::StartPlan(std::move(plan), job.train.seed, &tokens, ops::Backend::kCpu));
  for (const auto& [key, counters] : cluster->Traffic()) step.bytes -= counters.bytes;
  MW_ASSIGN_OR_RETURN(const std::vector<worker::StepReport> reports, cluster->Train(0, 1));
  for (const auto& [key, counters] : cluster->Traffic()) step.bytes += counters.bytes;
  step.loss = reports.at(0).values.at("loss");
  MW_ASSIGN_OR_RETURN(step.weights, cluster->Gather());
  return step;
}

TEST(GridTraffic, ProductsMoveTheirClosedForms) {
  const auto expected = StepOnGrid(ProductLoss, nullptr);
  ASSERT_TRUE(expected.has_value()) << expected.error();
  // With X and W gathered again, as SUMMA does; of 3D with them kept.
  const struct {
    Grid grid;
    int64_t golden;
  } rows[] = {{ByColumns(2), 1024},   {ByColumns(4), 3072},  {ByColumns(8), 7168},
              {ByColumns(16), 15360}, {Squares(2, 1), 3840}, {Squares(4, 1), 11520},
              {Layers(4), 4608},      {Squares(2, 2), 7680}, {Squares(2, 4), 15360},
              {Cube(2), 5632}};
  for (const auto& [grid, golden] : rows) {
    const int64_t own = grid.name == "3D" ? grid.elements - grid.again : grid.elements;
    EXPECT_EQ(own, golden * kLarger * kLarger);
    for (const bool keeps : {false, true}) {
      SCOPED_TRACE(fmt::format("{} on {} devices{}", grid.name, grid.devices,
                               keeps ? "" : ", gathered again"));
      const auto step = StepOnGrid(ProductLoss, &grid, ir::DType::kF32, keeps);
      ASSERT_TRUE(step.has_value()) << step.error();
      // Scalars are sent in whole bytes by each device.
      const int64_t bytes = 4 * (grid.elements - (keeps ? grid.again : 0));
      EXPECT_LE(std::abs(step->bytes - bytes), 4 * grid.devices) << step->bytes << " " << bytes;
      EXPECT_NEAR(step->loss / expected->loss, 1, 1e-5);
      EXPECT_LT(LargestDifference(expected->weights, step->weights), 1e-4);
    }
  }
}

// A norm whose width is split sums up a number or two per row, forward and backward.
TEST(GridTraffic, NormsOverASplitWidthReduceTheirStatistics) {
  const Form columns{{}, {"tensor"}}, blocks{{"tensor"}, {"tensor2"}};
  const struct {
    const char* name;
    GridLoss loss;
    int64_t sums;
  } norms[] = {{"layer_norm", NormLoss<true>, 4}, {"rms_norm", NormLoss<false>, 2}};
  for (const auto& [name, loss, sums] : norms) {
    const auto expected = StepOnGrid(loss, nullptr, ir::DType::kF64);
    ASSERT_TRUE(expected.has_value()) << expected.error();
    for (const auto& [axes, devices, x] :
         {std::tuple{"", int64_t{2}, columns}, {"", 4, columns}, {"2x2", 4, blocks}}) {
      SCOPED_TRACE(fmt::format("{} on {} {}", name, devices, axes));
      Grid grid;
      grid.axes = axes;
      grid.devices = devices;
      grid.x = x;
      const auto step = StepOnGrid(loss, &grid, ir::DType::kF64);
      ASSERT_TRUE(step.has_value()) << step.error();
      EXPECT_NEAR(step->loss / expected->loss, 1, 1e-12);
      EXPECT_LT(LargestDifference(expected->weights, step->weights), 1e-12);
      const int64_t parts = x.rows.empty() ? devices : devices / 2;
      // With rows split, gradients of the weights are sums over the rows of devices, too.
      const int64_t weights = x.rows.empty() ? 0 : 2 * kK * sums / 2;
      EXPECT_EQ(step->bytes, 8 * (sums * 2 * (parts - 1) * kM + weights));
    }
  }
}

}  // namespace
}  // namespace meshwright::testing
