// Promises that hold for every row of the op table.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <optional>

#include "base/thread_team.h"
#include "ir/fused.h"
#include "ir/schema.h"
#include "ops/cpu/half_gemm.h"
#include "ops/cpu/half_tile.h"
#include "ops/kernel_table.h"
#include "tests/conformance/ops/op_harness.h"

namespace meshwright::ops {
namespace {

RunContext ContextOf(ThreadTeam* team = nullptr) {
  RunContext context;
  context.seed = 7;
  context.step = 3;
  context.team = team;
  return context;
}

// With or without the processor's instructions for bf16, while it lives.
class HalfInstructions {
 public:
  explicit HalfInstructions(bool use) : before_(cpu::UsesHalfInstructions()) {
    cpu::SetHalfInstructions(use);
  }
  ~HalfInstructions() { cpu::SetHalfInstructions(before_); }
  HalfInstructions(const HalfInstructions&) = delete;
  HalfInstructions& operator=(const HalfInstructions&) = delete;

 private:
  bool before_;
};

class OpTable : public testing::TestWithParam<OpCase> {
 protected:
  Result<std::vector<HostTensor>> Run(Backend backend, ir::DType dtype,
                                      ThreadTeam* team = nullptr) {
    MW_ASSIGN_OR_RETURN(const ir::Graph graph, GraphOf(GetParam(), dtype));
    return EvaluateWith(graph, {backend, ContextOf(team)}, DataOf(GetParam(), 11));
  }
};

TEST_P(OpTable, CpuF32AgreesWithReferenceF64) {
  const auto oracle = Run(Backend::kReference, ir::DType::kF64);
  ASSERT_TRUE(oracle) << oracle.error();
  const auto cpu = Run(Backend::kCpu, ir::DType::kF32);
  ASSERT_TRUE(cpu) << cpu.error();
  ASSERT_EQ(oracle->size(), cpu->size());
  for (size_t i = 0; i < cpu->size(); ++i) {
    EXPECT_LE(RelativeError((*cpu)[i], (*oracle)[i]), GetParam().f32_tolerance) << "result " << i;
  }
}

TEST_P(OpTable, ReferenceF32AgreesWithReferenceF64) {
  const auto oracle = Run(Backend::kReference, ir::DType::kF64);
  ASSERT_TRUE(oracle) << oracle.error();
  const auto single = Run(Backend::kReference, ir::DType::kF32);
  ASSERT_TRUE(single) << single.error();
  for (size_t i = 0; i < single->size(); ++i) {
    EXPECT_LE(RelativeError((*single)[i], (*oracle)[i]), GetParam().f32_tolerance)
        << "result " << i;
  }
}

// The oracle sees the operands as they are after rounding. Processors without instructions for bf16
// go other ways.
TEST_P(OpTable, Bf16AgreesWithReferenceF64) {
  const auto graph = GraphOf(GetParam(), ir::DType::kBF16);
  ASSERT_TRUE(graph) << graph.error();
  const auto wide = GraphOf(GetParam(), ir::DType::kF64);
  ASSERT_TRUE(wide) << wide.error();
  std::vector<HostTensor> data = DataOf(GetParam(), 11);
  for (size_t i = 0; i < data.size(); ++i) {
    data[i] = Convert(data[i], graph->type(graph->nodes[i].outputs[0]).dtype);
  }
  const auto oracle = EvaluateWith(*wide, {Backend::kReference, ContextOf()}, data);
  ASSERT_TRUE(oracle) << oracle.error();
  struct Way {
    const char* name;
    Backend backend;
    bool instructions;
  };
  for (const Way& way : {Way{"cpu", Backend::kCpu, true}, Way{"plain cpu", Backend::kCpu, false},
                         Way{"reference", Backend::kReference, true}}) {
    const HalfInstructions instructions(way.instructions);
    const auto half = EvaluateWith(*graph, {way.backend, ContextOf()}, data);
    ASSERT_TRUE(half) << way.name << ": " << half.error();
    const size_t compared = std::min(half->size(), GetParam().compared_results);
    for (size_t i = 0; i < compared; ++i) {
      EXPECT_LE(RelativeError((*half)[i], (*oracle)[i]), GetParam().bf16_tolerance)
          << way.name << ", result " << i;
    }
  }
}

// One thread alone may round f32 products in another way (ops/cpu/gemm_plan.h), of which those of
// bf16 are made on processors without products of their own for it.
TEST_P(OpTable, ResultsDoNotDependOnTheNumberOfThreads) {
  ThreadTeam two(2);
  ThreadTeam three(3);
  for (const ir::DType dtype : {ir::DType::kF32, ir::DType::kF64, ir::DType::kBF16}) {
    const auto alone = Run(Backend::kCpu, dtype);
    ASSERT_TRUE(alone) << alone.error();
    const auto pair = Run(Backend::kCpu, dtype, &two);
    ASSERT_TRUE(pair) << pair.error();
    const auto together = Run(Backend::kCpu, dtype, &three);
    ASSERT_TRUE(together) << together.error();
    for (size_t i = 0; i < alone->size(); ++i) {
      EXPECT_EQ((*pair)[i].data, (*together)[i].data) << "result " << i;
      if (dtype == ir::DType::kF32) {
        EXPECT_LE(RelativeError((*alone)[i], (*pair)[i]), GetParam().f32_tolerance)
            << "result " << i;
      } else if (dtype == ir::DType::kBF16 && !cpu::HasHalfTiles()) {
        EXPECT_LE(RelativeError((*alone)[i], (*pair)[i]), GetParam().bf16_tolerance)
            << "result " << i;
      } else {
        EXPECT_EQ((*alone)[i].data, (*pair)[i].data) << "result " << i;
      }
    }
  }
}

// Along a random direction u of one operand: d/dt <f(x + t u), dy> = <grad, u>.
class GradientCheck {
 public:
  explicit GradientCheck(const OpCase& op_case) : op_case_(op_case), data_(DataOf(op_case, 11)) {}

  Status Prepare() {
    MW_ASSIGN_OR_RETURN(forward_, GraphOf(op_case_, ir::DType::kF64));
    MW_ASSIGN_OR_RETURN(backward_, GradientGraphOf(op_case_, ir::DType::kF64));
    cotangent_ = RandomTensor(forward_.type(forward_.outputs[0].value).dims, 23);
    std::vector<HostTensor> inputs = data_;
    inputs.push_back(cotangent_);
    MW_ASSIGN_OR_RETURN(grads_,
                        EvaluateWith(backward_, {Backend::kReference, ContextOf()}, inputs));
    return {};
  }

  size_t gradient_count() const { return grads_.size(); }

  // Relative difference of the analytic and the numeric slope for gradient `index`.
  Result<double> SlopeError(size_t index, uint64_t seed) {
    const size_t operand = static_cast<size_t>(std::stoi(backward_.outputs[index].name.substr(2)));
    const HostTensor direction = RandomTensor(data_[operand].type.dims, seed);
    const std::vector<double> u = ValuesOf(direction);
    const std::vector<double> g = ValuesOf(grads_[index]);
    if (u.size() != g.size()) return Fail(Internal("gradient and operand differ in shape"));
    double slope = 0;
    double scale = 1e-6;
    for (size_t i = 0; i < u.size(); ++i) {
      slope += u[i] * g[i];
      scale += std::abs(u[i] * g[i]);
    }
    MW_ASSIGN_OR_RETURN(const double above, Objective(operand, u, kStep));
    MW_ASSIGN_OR_RETURN(const double below, Objective(operand, u, -kStep));
    return std::abs(slope - (above - below) / (2 * kStep)) / scale;
  }

 private:
  static constexpr double kStep = 1e-5;

  Result<double> Objective(size_t operand, const std::vector<double>& u, double t) {
    std::vector<HostTensor> inputs = data_;
    std::vector<double> x = ValuesOf(inputs[operand]);
    for (size_t i = 0; i < x.size(); ++i) x[i] += t * u[i];
    inputs[operand] = FromValues(inputs[operand].type.dims, x, ir::DType::kF64);
    MW_ASSIGN_OR_RETURN(const std::vector<HostTensor> results,
                        EvaluateWith(forward_, {Backend::kReference, ContextOf()}, inputs));
    const std::vector<double> y = ValuesOf(results[0]);
    const std::vector<double> dy = ValuesOf(cotangent_);
    double total = 0;
    for (size_t i = 0; i < y.size(); ++i) total += y[i] * dy[i];
    return total;
  }

  OpCase op_case_;
  std::vector<HostTensor> data_;
  ir::Graph forward_;
  ir::Graph backward_;
  HostTensor cotangent_;
  std::vector<HostTensor> grads_;
};

TEST_P(OpTable, GradientEqualsFiniteDifference) {
  if (!GetParam().has_gradient) return;
  GradientCheck check(GetParam());
  const Status prepared = check.Prepare();
  ASSERT_TRUE(prepared.ok()) << prepared;
  // A has_gradient case is differentiable in every floating operand.
  const std::vector<Arg>& args = GetParam().args;
  const int64_t floats = std::count_if(args.begin(), args.end(), [](const Arg& arg) {
    return arg.kind != ArgKind::kIds && arg.kind != ArgKind::kBool;
  });
  EXPECT_EQ(check.gradient_count(), static_cast<size_t>(floats - GetParam().without_gradient));
  for (size_t i = 0; i < check.gradient_count(); ++i) {
    for (uint64_t seed : {31u, 32u}) {
      const auto error = check.SlopeError(i, seed);
      ASSERT_TRUE(error) << error.error();
      EXPECT_LT(*error, 1e-6) << "gradient " << i << ", direction " << seed;
    }
  }
}

TEST_P(OpTable, GradientOnCpuF32AgreesWithReferenceF64) {
  if (!GetParam().has_gradient) return;
  const auto wide = GradientGraphOf(GetParam(), ir::DType::kF64);
  ASSERT_TRUE(wide) << wide.error();
  const auto narrow = GradientGraphOf(GetParam(), ir::DType::kF32);
  ASSERT_TRUE(narrow) << narrow.error();
  std::vector<HostTensor> inputs = DataOf(GetParam(), 11);
  for (const ir::Node& node : wide->nodes) {
    if (node.op == ir::Op::kInput && node.attrs.Str("name") == "dy0") {
      inputs.push_back(Convert(RandomTensor(wide->type(node.outputs[0]).dims, 5), ir::DType::kF32));
    }
  }
  const auto oracle = EvaluateWith(*wide, {Backend::kReference, ContextOf()}, inputs);
  ASSERT_TRUE(oracle) << oracle.error();
  const auto cpu = EvaluateWith(*narrow, {Backend::kCpu, ContextOf()}, inputs);
  ASSERT_TRUE(cpu) << cpu.error();
  for (size_t i = 0; i < cpu->size(); ++i) {
    double largest = 0;
    for (double value : ValuesOf((*oracle)[i])) largest = std::max(largest, std::abs(value));
    // Where there is no gradient (the scores of a single key), what remains of terms that cancel.
    EXPECT_LE(RelativeError((*cpu)[i], (*oracle)[i]), largest < 1e-6 ? 5e-5 : 1e-5)
        << wide->outputs[i].name;
  }
}

// The operand whose memory ir::InPlaceOperand gives to a result.
std::optional<size_t> ReplacedOperand(const ir::Graph& graph, const ir::Node& node, size_t result) {
  const auto operand = ir::InPlaceOperand(node.op, result);
  if (!operand || *operand >= node.inputs.size()) return std::nullopt;
  const ir::TensorType& from = graph.type(node.inputs[*operand]);
  const ir::TensorType& to = graph.type(node.outputs[result]);
  const bool fits = from.dtype == to.dtype && from.elements() == to.elements();
  return fits ? operand : std::nullopt;
}

// Runs the graph's only node with its results where their operands were, and compares those.
void ExpectInPlace(Backend backend, const ir::Graph& graph, std::vector<HostTensor> data) {
  const auto expected = EvaluateWith(graph, {backend, ContextOf()}, data);
  ASSERT_TRUE(expected) << expected.error();
  const ir::Node& node = graph.nodes.back();
  auto kernel = MakeKernel(backend, graph, node, {});
  ASSERT_TRUE(kernel) << kernel.error();
  std::vector<Tensor> inputs;
  for (size_t i = 0; i < data.size(); ++i) {
    data[i] = Convert(data[i], graph.type(node.inputs[i]).dtype);
    inputs.push_back({data[i].data.data(), &graph.type(node.inputs[i])});
  }
  std::vector<std::vector<std::byte>> apart(node.outputs.size());
  std::vector<Tensor> outputs;
  for (size_t i = 0; i < node.outputs.size(); ++i) {
    const ir::TensorType& type = graph.type(node.outputs[i]);
    apart[i].resize(static_cast<size_t>(type.bytes()));
    const auto replaced = ReplacedOperand(graph, node, i);
    outputs.push_back({replaced ? data[*replaced].data.data() : apart[i].data(), &type});
  }
  const Status ran = (*kernel)->Run(ContextOf(), inputs, outputs);
  ASSERT_TRUE(ran.ok()) << ran;
  for (size_t i = 0; i < outputs.size(); ++i) {
    const auto replaced = ReplacedOperand(graph, node, i);
    if (!replaced) continue;
    EXPECT_EQ(data[*replaced].data, (*expected)[i].data) << "result " << i;
  }
}

// Every result in the memory that ir::InPlaceOperand gives it, as a training step does.
TEST_P(OpTable, InPlaceEqualsOutOfPlace) {
  for (const ir::DType dtype : {ir::DType::kF32, ir::DType::kBF16}) {
    const auto graph = GraphOf(GetParam(), dtype);
    ASSERT_TRUE(graph) << graph.error();
    const ir::Node& node = graph->nodes.back();
    bool any = false;
    for (size_t i = 0; i < node.outputs.size(); ++i) {
      any = any || ReplacedOperand(*graph, node, i).has_value();
    }
    if (!any) continue;
    for (const Backend backend : {Backend::kReference, Backend::kCpu}) {
      ExpectInPlace(backend, *graph, DataOf(GetParam(), 11));
    }
  }
}

// What a kernel kept from one run may not reach the next: runs on other data come first and
// between.
void ExpectForgetful(const OpCase& op_case, ir::DType dtype) {
  const auto graph = GraphOf(op_case, dtype);
  ASSERT_TRUE(graph) << graph.error();
  const ir::Node& node = graph->nodes.back();
  auto kernel = MakeKernel(Backend::kCpu, *graph, node, {});
  ASSERT_TRUE(kernel) << kernel.error();
  std::vector<std::vector<std::byte>> results[3];
  for (int run = 0; run < 3; ++run) {
    std::vector<HostTensor> data = DataOf(op_case, run == 1 ? 12 : 11);
    std::vector<Tensor> inputs, outputs;
    for (size_t i = 0; i < data.size(); ++i) {
      data[i] = Convert(data[i], graph->type(node.inputs[i]).dtype);
      inputs.push_back({data[i].data.data(), &graph->type(node.inputs[i])});
    }
    for (ValueId id : node.outputs) {
      results[run].emplace_back(static_cast<size_t>(graph->type(id).bytes()));
      outputs.push_back({results[run].back().data(), &graph->type(id)});
    }
    const Status ran = (*kernel)->Run(ContextOf(), inputs, outputs);
    ASSERT_TRUE(ran.ok()) << op_case.name << ": " << ran;
  }
  for (size_t i = 0; i < std::min(results[0].size(), op_case.compared_results); ++i) {
    EXPECT_EQ(results[0][i], results[2][i]) << op_case.name << " result " << i;
  }
}

TEST(OpTableItself, EarlierRunsLeaveNothingBehind) {
  for (const OpCase& op_case : AllCases()) ExpectForgetful(op_case, ir::DType::kF32);
  for (const OpCase& op_case : MixedCases()) ExpectForgetful(op_case, ir::DType::kBF16);
}

// Whether the CPU backend has a kernel of its own for the row.
Result<bool> HasCpuKernel(const OpCase& op_case, ir::DType dtype) {
  MW_ASSIGN_OR_RETURN(const ir::Graph graph, GraphOf(op_case, dtype));
  const ir::Node& node = graph.nodes.back();
  KernelSpec spec{node.op, node.attrs, {}, {}, {}};
  for (ValueId id : node.inputs) spec.inputs.push_back(graph.type(id));
  for (ValueId id : node.outputs) spec.outputs.push_back(graph.type(id));
  MW_ASSIGN_OR_RETURN(const std::unique_ptr<Kernel> kernel, MakeCpuKernel(spec));
  return kernel != nullptr;
}

TEST(OpTableItself, FusedFormsHaveOnePassKernels) {
  for (const OpCase& op_case : AllCases()) {
    if (op_case.op != ir::Op::kFused) continue;
    const auto has = HasCpuKernel(op_case, ir::DType::kF32);
    ASSERT_TRUE(has) << has.error();
    EXPECT_EQ(*has, RunsInOnePass(op_case)) << op_case.name;
  }
}

// A bf16 product needs the instructions; all else runs in one pass without them, too.
TEST(OpTableItself, FusedFormsOfMixedTypesHaveOnePassKernels) {
  for (const bool use : {true, false}) {
    const HalfInstructions instructions(use);
    const bool products =
        cpu::HalfGemm::Make({{16, 16, 16}, {16, 1}, {16, 1}, {16, 1}}).has_value();
    EXPECT_TRUE(use || (!products && !cpu::HasHalfTiles()));
    for (const OpCase& op_case : MixedCases()) {
      if (op_case.op != ir::Op::kFused) continue;
      const bool product = op_case.half_attrs.Strs("body")[0].starts_with("einsum");
      const auto has = HasCpuKernel(op_case, ir::DType::kBF16);
      ASSERT_TRUE(has) << has.error();
      EXPECT_EQ(*has, RunsInOnePassMixed(op_case) && (products || !product)) << op_case.name;
    }
  }
}

// Products of one row, of one column and of depth one, which have strides of no meaning. All but
// the one that must be packed first.
TEST(OpTableItself, Bf16ProductsOfAnyShapeHaveKernels) {
  if (!cpu::HalfGemm::Make({{16, 16, 16}, {16, 1}, {16, 1}, {16, 1}})) return;
  for (const OpCase& op_case : MixedCases()) {
    if (op_case.op != ir::Op::kEinsum || !op_case.name.ends_with("_to_f32")) continue;
    const auto has = HasCpuKernel(op_case, ir::DType::kBF16);
    ASSERT_TRUE(has) << has.error();
    EXPECT_EQ(*has, op_case.attrs.Str("equation") != "kamb,bkn->nabm") << op_case.name;
  }
}

// x less its own rounding, which is all that the oracle of wide types cannot see.
TEST(OpTableItself, ACastInsideOfAFusedBodyRounds) {
  OpCase row{"rounding", ir::Op::kFused, {}, {{{2600}}}, {}, false};
  ir::SetFusedBody({{{ir::Op::kCast, {0}, {{"dtype", "bf16"}}},
                     {ir::Op::kCast, {1}, {{"dtype", "f32"}}},
                     {ir::Op::kSub, {0, 2}, {}}},
                    {3}},
                   row.attrs);
  const auto graph = GraphOf(row, ir::DType::kF32);
  ASSERT_TRUE(graph) << graph.error();
  const std::vector<HostTensor> x = DataOf(row, 11);
  const auto cpu = EvaluateWith(*graph, {Backend::kCpu, ContextOf()}, x);
  ASSERT_TRUE(cpu) << cpu.error();
  const auto reference = EvaluateWith(*graph, {Backend::kReference, ContextOf()}, x);
  ASSERT_TRUE(reference) << reference.error();
  EXPECT_EQ((*cpu)[0].data, (*reference)[0].data);
  const std::vector<double> lost = ValuesOf((*cpu)[0]);
  EXPECT_GT(std::count_if(lost.begin(), lost.end(), [](double value) { return value != 0; }), 2000);
}

// What the table cannot hold: sources (semantics_test.cc), what needs other devices
// (conformance/collective, sharding_test.cc) and operands that belong together (experts_test.cc).
bool HasNoRow(ir::Op op) {
  switch (op) {
    case ir::Op::kParam:
    case ir::Op::kInput:
    case ir::Op::kFeed:
    case ir::Op::kConstant:
    case ir::Op::kRandomNormal:
    case ir::Op::kLearningRate:
    case ir::Op::kAllReduce:
    case ir::Op::kAllGather:
    case ir::Op::kReduceScatter:
    case ir::Op::kAllToAll:
    case ir::Op::kRingShift:
    case ir::Op::kShardSlice:
    case ir::Op::kExpertSlots:
    case ir::Op::kDispatch:
    case ir::Op::kCombine:
    case ir::Op::kCombineGradWeights:
    case ir::Op::kGroupedMatmul:
    case ir::Op::kGroupedMatmulGrad:
      return true;
    default:
      return false;
  }
}

TEST(OpTableItself, HasARowForEveryOpAndAGradientWhereThereIsOne) {
  for (int i = 0; i < ir::kOpCount; ++i) {
    const auto op = static_cast<ir::Op>(i);
    if (HasNoRow(op)) continue;
    size_t rows = 0;
    bool wants_gradient = false;
    for (const OpCase& op_case : AllCases()) {
      if (op_case.op != op) continue;
      ++rows;
      wants_gradient |= op_case.has_gradient;
    }
    EXPECT_GT(rows, 0u) << ir::OpName(op);
    EXPECT_EQ(wants_gradient, ir::HasGradient(op)) << ir::OpName(op);
  }
}

INSTANTIATE_TEST_SUITE_P(All, OpTable, testing::ValuesIn(AllCases()),
                         [](const auto& test) { return test.param.name; });

}  // namespace
}  // namespace meshwright::ops
