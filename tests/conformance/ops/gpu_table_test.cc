// The op table on an emulated GPU: the kernels of ops/cuda, compiled for the host.
#include <gtest/gtest.h>

#include <algorithm>

#include "ir/gpu_support.h"
#include "ir/schema.h"
#include "ops/kernel_table.h"
#include "tests/conformance/ops/op_harness.h"
#include "tests/conformance/ops/targets.h"

namespace meshwright::ops {
namespace {

RunContext StepContext() {
  RunContext context;
  context.seed = 7;
  context.step = 3;
  return context;
}

std::vector<OpCase> GpuCases() {
  std::vector<OpCase> cases;
  for (const OpCase& op_case : AllCases()) {
    // A GPU has no kernels in f64 and i64.
    const std::string dtype = op_case.attrs.Str("dtype");
    if (dtype == "f64" || dtype == "i64" || !ir::RunsOnGpus(op_case.op)) continue;
    // Nor rotary by positions that a run tells (ir/gpu_support.h).
    if (op_case.op == ir::Op::kRotary && op_case.args.size() > 1) continue;
    cases.push_back(op_case);
  }
  return cases;
}

class GpuTable : public testing::TestWithParam<OpCase> {
 protected:
  // Compares with the oracle, which sees the operands as they are after rounding.
  void ExpectAgrees(ir::DType dtype, double tolerance) {
    const OpCase& op_case = GetParam();
    const auto graph = GraphOf(op_case, dtype);
    ASSERT_TRUE(graph) << graph.error();
    const auto wide = GraphOf(op_case, ir::DType::kF64);
    ASSERT_TRUE(wide) << wide.error();
    std::vector<HostTensor> data = DataOf(op_case, 11);
    for (size_t i = 0; i < data.size(); ++i) {
      data[i] = Convert(data[i], graph->type(graph->nodes[i].outputs[0]).dtype);
    }
    const auto oracle = EvaluateWith(*wide, {Backend::kReference, StepContext()}, data);
    ASSERT_TRUE(oracle) << oracle.error();
    const auto gpu = EvaluateWith(*graph, {TestedGpu(), StepContext()}, data);
    ASSERT_TRUE(gpu) << gpu.error();
    ASSERT_EQ(gpu->size(), oracle->size());
    for (size_t i = 0; i < gpu->size(); ++i) {
      EXPECT_LE(RelativeError((*gpu)[i], (*oracle)[i]), tolerance)
          << ir::DTypeName(dtype) << ", result " << i;
    }
  }
};

TEST_P(GpuTable, F32AgreesWithReferenceF64) {
  ExpectAgrees(ir::DType::kF32, GetParam().f32_tolerance);
}

TEST_P(GpuTable, Bf16AgreesWithReferenceF64) {
  ExpectAgrees(ir::DType::kBF16, GetParam().bf16_tolerance);
}

// Three more bits than bf16 has.
TEST_P(GpuTable, F16AgreesWithReferenceF64) {
  const bool mixes = !GetParam().half_types.empty() || !GetParam().half_attrs.values().empty();
  if (mixes) return;
  ExpectAgrees(ir::DType::kF16, GetParam().bf16_tolerance / 4);
}

// Blocks and threads run in another order each time.
TEST_P(GpuTable, ResultsDoNotDependOnTheOrderOfBlocks) {
  const auto graph = GraphOf(GetParam(), ir::DType::kF32);
  ASSERT_TRUE(graph) << graph.error();
  const std::vector<HostTensor> data = DataOf(GetParam(), 11);
  const Evaluation evaluation{TestedGpu(), StepContext()};
  const auto first = EvaluateWith(*graph, evaluation, data);
  ASSERT_TRUE(first) << first.error();
  const auto second = EvaluateWith(*graph, evaluation, data);
  ASSERT_TRUE(second) << second.error();
  for (size_t i = 0; i < first->size(); ++i) {
    EXPECT_EQ((*first)[i].data, (*second)[i].data) << "result " << i;
  }
}

// The operand that each result replaces, as ir::InPlaceOperand says; -1: none.
std::vector<int> Replaced(const ir::Graph& graph, const ir::Node& node) {
  std::vector<int> replaced;
  for (size_t i = 0; i < node.outputs.size(); ++i) {
    const auto operand = ir::InPlaceOperand(node.op, i);
    const bool there = operand && *operand < node.inputs.size();
    const bool fits =
        there && graph.type(node.inputs[*operand]).bytes() == graph.type(node.outputs[i]).bytes();
    replaced.push_back(fits ? static_cast<int>(*operand) : -1);
  }
  return replaced;
}

TEST_P(GpuTable, InPlaceEqualsOutOfPlace) {
  const auto graph = GraphOf(GetParam(), ir::DType::kF32);
  ASSERT_TRUE(graph) << graph.error();
  const ir::Node& node = graph->nodes.back();
  const std::vector<int> replaced = Replaced(*graph, node);
  if (std::all_of(replaced.begin(), replaced.end(), [](int i) { return i < 0; })) return;
  const Target gpu = TestedGpu();
  const auto kernel = MakeKernel(gpu, *graph, node, {});
  ASSERT_TRUE(kernel) << kernel.error();
  std::vector<HostTensor> results[2];
  for (const bool in_place : {false, true}) {
    std::vector<HostTensor> data = DataOf(GetParam(), 11);
    for (HostTensor& tensor : data) tensor = Convert(tensor, ir::DType::kF32);
    std::vector<HostTensor>& outputs = results[in_place ? 1 : 0];
    for (const ValueId id : node.outputs) {
      const ir::TensorType& type = graph->type(id);
      outputs.push_back({type, std::vector<std::byte>(static_cast<size_t>(type.bytes()))});
    }
    const Status ran = RunKernel(gpu, **kernel, StepContext(), data, outputs,
                                 in_place ? replaced : std::vector<int>());
    ASSERT_TRUE(ran.ok()) << ran;
  }
  for (size_t i = 0; i < replaced.size(); ++i) {
    EXPECT_EQ(results[0][i].data, results[1][i].data) << "result " << i;
  }
}

// What planning refuses for GPUs (ir/gpu_support.h) is what they have no kernel for.
TEST(GpuTableItself, OpsThatPlanningTakesHaveKernels) {
  for (int i = 0; i < ir::kOpCount; ++i) {
    const auto op = static_cast<ir::Op>(i);
    const KernelRow& row = KernelsOf(op);
    if (row.cpu == nullptr && row.reference == nullptr) continue;
    EXPECT_EQ(ir::RunsOnGpus(op), row.cuda != nullptr) << ir::OpName(op);
  }
}

INSTANTIATE_TEST_SUITE_P(All, GpuTable, testing::ValuesIn(GpuCases()),
                         [](const auto& test) { return test.param.name; });

}  // namespace
}  // namespace meshwright::ops
