// What only GPUs have to get right: shapes that reach every path of our kernels, updates of many
// tensors, recorded steps, errors of launches.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "base/philox.h"
#include "ops/kernel_spec.h"
#include "tests/conformance/ops/op_harness.h"
#include "tests/conformance/ops/targets.h"
#include "tests/emulated/gpu.h"
#include "tests/machine_gpu.h"

namespace meshwright::ops {
namespace {

using ir::Op;

void AddNormWidths(std::vector<OpCase>& cases) {
  const ir::Attrs eps = {{"eps", 1e-5}};
  // Blocks take a second turn where there are that many rows: several rows of 264 at a time, one of
  // 4096 (in f32), one that is not kept of 301. 8192 is what 1024 threads hold in 16 bits.
  for (const auto [width, rows] : {std::array<int64_t, 2>{256, 700},
                                   {264, 2201},
                                   {301, 1060},
                                   {768, 9},
                                   {1024, 9},
                                   {4096, 135},
                                   {8192, 9},
                                   {9000, 9},
                                   {20000, 9}}) {
    const std::string at = "_" + std::to_string(width);
    const ir::Dims x = {rows, width};
    cases.push_back({"layer_norm" + at, Op::kLayerNorm, eps, {{x}, {{width}}, {{width}}}, {}});
    cases.push_back({"layer_norm_grad" + at,
                     Op::kLayerNormGrad,
                     {},
                     {{x}, {{width}}, {{rows}}, {{rows}, ArgKind::kPositive}, {x}},
                     {}});
    cases.push_back({"rms_norm_grad" + at,
                     Op::kRmsNormGrad,
                     {},
                     {{x}, {{width}}, {{rows}, ArgKind::kPositive}, {x}},
                     {}});
  }
}

// Rows that start at any place of a unit.
void AddLossWidths(std::vector<OpCase>& cases) {
  for (const int64_t width : {3, 13, 20001}) {
    const std::string at = "_" + std::to_string(width);
    cases.push_back({"logsumexp_odd" + at, Op::kLogSumExp, {}, {{{9, width}}}, {}});
    cases.push_back(
        {"cross_entropy_grad_odd" + at,
         Op::kCrossEntropyGrad,
         {{"ignore_index", -1}},
         {{{9, width}}, {{9}, ArgKind::kIds, width, -1}, {{9}, ArgKind::kPositive}, {{}}},
         {}});
  }
}

// More than a GPU's table can hold on a CPU's budget in every dtype: rows that are too long for
// registers, sums that are cut into parts, tiles with batch dims, whole units of every size.
std::vector<OpCase> LargeCases() {
  using Dims = std::vector<int64_t>;
  std::vector<OpCase> cases;
  AddNormWidths(cases);
  const auto reduce = [&](const char* name, ir::Dims dims, Dims reduced) {
    cases.push_back({name, Op::kReduceSum, {{"dims", reduced}}, {{dims}}, {}});
  };
  reduce("reduce_all_in_parts", {70, 1100}, {0, 1});
  reduce("reduce_rows_in_parts", {3, 20000}, {1});
  reduce("reduce_odd_rows_in_parts", {3, 20001}, {1});
  reduce("reduce_columns_in_parts", {5000, 40}, {0});
  reduce("reduce_odd_columns_in_parts", {1500, 3, 13}, {0});
  reduce("reduce_around", {70, 3, 40, 8}, {0, 2});
  reduce("reduce_between", {40, 6, 24}, {1});
  reduce("reduce_nothing", {40, 6}, {});
  const auto transpose = [&](const char* name, ir::Dims dims, Dims perm) {
    cases.push_back({name, Op::kTranspose, {{"perm", perm}}, {{dims}}, {}});
  };
  transpose("transpose_tiles_of_batches", {3, 70, 5, 66}, {2, 3, 0, 1});
  transpose("transpose_runs", {6, 5, 4, 32}, {2, 1, 0, 3});
  transpose("transpose_with_ones", {1, 40, 1, 33}, {3, 2, 1, 0});
  cases.push_back(
      {"slice_units", Op::kSlice, {{"dim", 1}, {"start", 8}, {"size", 16}}, {{{40, 32, 8}}}, {}});
  cases.push_back(
      {"pad_units", Op::kPad, {{"dim", 1}, {"before", 8}, {"after", 24}}, {{{40, 32}}}, {}});
  cases.push_back({"embedding_grad_one_id",
                   Op::kEmbeddingGrad,
                   {{"rows", 1}},
                   {{{700}, ArgKind::kIds, 1}, {{700, 64}}},
                   {}});
  cases.push_back({"embedding_grad_many_rows",
                   Op::kEmbeddingGrad,
                   {{"rows", 3000}},
                   {{{50}, ArgKind::kIds, 3000}, {{50, 8}}},
                   {}});
  cases.push_back({"rotary_far", Op::kRotary, {{"base", 500000.0}}, {{{1, 3000, 1, 16}}}, {}});
  cases.push_back({"logsumexp_units", Op::kLogSumExp, {}, {{{5, 20000}}}, {}});
  AddLossWidths(cases);
  cases.push_back({"cross_entropy_units",
                   Op::kCrossEntropy,
                   {{"ignore_index", -1}},
                   {{{1100, 32}}, {{1100}, ArgKind::kIds, 32, -1}},
                   {}});
  cases.push_back({"attention_large_heads",
                   Op::kAttention,
                   {},
                   {{{1, 40, 1, 256}}, {{1, 40, 1, 256}}, {{1, 40, 1, 256}}},
                   {}});
  return cases;
}

class GpuShapes : public testing::TestWithParam<OpCase> {};

TEST_P(GpuShapes, AgreeWithReference) {
  for (const ir::DType dtype : {ir::DType::kF32, ir::DType::kBF16}) {
    const auto graph = GraphOf(GetParam(), dtype);
    ASSERT_TRUE(graph) << graph.error();
    const auto wide = GraphOf(GetParam(), ir::DType::kF64);
    ASSERT_TRUE(wide) << wide.error();
    std::vector<HostTensor> data = DataOf(GetParam(), 11);
    for (size_t i = 0; i < data.size(); ++i) {
      data[i] = Convert(data[i], graph->type(graph->nodes[i].outputs[0]).dtype);
    }
    const auto oracle = EvaluateWith(*wide, {Backend::kReference, {}}, data);
    ASSERT_TRUE(oracle) << oracle.error();
    const auto gpu = EvaluateWith(*graph, {TestedGpu(), {}}, data);
    ASSERT_TRUE(gpu) << gpu.error();
    for (size_t i = 0; i < gpu->size(); ++i) {
      EXPECT_LE(RelativeError((*gpu)[i], (*oracle)[i]), dtype == ir::DType::kF32 ? 5e-6 : 1e-2)
          << ir::DTypeName(dtype) << ", result " << i;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, GpuShapes, testing::ValuesIn(LargeCases()),
                         [](const auto& test) { return test.param.name; });

// Three groups of operands, then three of results; more than one launch holds.
TEST(GpuOptimizer, OneNodeUpdatesManyTensors) {
  constexpr int64_t kGroups = 45;
  const Target gpu = TestedGpu();
  KernelSpec spec;
  spec.op = Op::kAdamW;
  spec.attrs = {{"beta1", 0.9}, {"beta2", 0.95}, {"eps", 1e-8}, {"weight_decay", 0.1}};
  const OpCase one{"adamw", Op::kAdamW, spec.attrs, {}, {}};
  std::vector<HostTensor> inputs;
  std::vector<HostTensor> outputs;
  std::vector<HostTensor> expected;
  for (int64_t i = 0; i < kGroups; ++i) {
    const ir::Dims dims = {i == 7 ? 40000 : 3 + i};
    OpCase row = one;
    row.args = {{dims}, {dims}, {dims}, {dims, ArgKind::kPositive}, {{}}, {{}}};
    const auto graph = GraphOf(row, ir::DType::kF32);
    ASSERT_TRUE(graph) << graph.error();
    for (HostTensor& tensor : DataOf(row, 100 + static_cast<uint64_t>(i))) {
      inputs.push_back(Convert(tensor, ir::DType::kF32));
    }
    const std::vector<HostTensor> own(inputs.end() - 6, inputs.end());
    const auto results = EvaluateWith(*graph, {Backend::kCpu, {}}, own);
    ASSERT_TRUE(results) << results.error();
    for (const HostTensor& result : *results) {
      expected.push_back(result);
      outputs.push_back({result.type, std::vector<std::byte>(result.data.size())});
    }
  }
  for (const HostTensor& tensor : inputs) spec.inputs.push_back(tensor.type);
  for (const HostTensor& tensor : outputs) spec.outputs.push_back(tensor.type);
  const auto kernel = MakeKernel(gpu, spec);
  ASSERT_TRUE(kernel) << kernel.error();
  const Status ran = RunKernel(gpu, **kernel, {}, inputs, outputs);
  ASSERT_TRUE(ran.ok()) << ran;
  for (size_t i = 0; i < outputs.size(); ++i) {
    EXPECT_LE(RelativeError(outputs[i], expected[i]), 1e-6) << "result " << i;
  }
}

// A recording reads seed and step where they are when it is replayed.
TEST(GpuRecording, KernelsFollowTheStepOfTheReplay) {
  const Target gpu = TestedGpu();
  device::Queue& queue = gpu.device->queue();
  KernelSpec spec;
  spec.op = Op::kDropout;
  spec.attrs = {{"rate", 0.5}, {"name", "d"}};
  spec.inputs = spec.outputs = {{ir::DType::kF32, {64}}};
  const auto kernel = MakeKernel(gpu, spec);
  ASSERT_TRUE(kernel) << kernel.error();
  const auto memory = gpu.device->Allocate({ir::MemoryKind::kOther, 1024});
  ASSERT_TRUE(memory) << memory.error();
  std::byte* const data = (*memory)->data();
  const std::vector<float> ones(64, 1.0f);
  ASSERT_TRUE(queue.CopyIn(data, ones.data(), 256).ok());
  ASSERT_TRUE(queue.Finish(Deadline::After(60'000)).ok());
  RunContext context;
  context.queue = &queue;
  context.state = reinterpret_cast<const StepState*>(data + 512);
  const Tensor x{data, spec.inputs.data()};
  const Tensor y{data + 256, spec.outputs.data()};
  ASSERT_TRUE(queue.StartRecording().ok());
  ASSERT_TRUE((*kernel)->Run(context, std::span(&x, 1), std::span(&y, 1)).ok());
  auto recording = queue.FinishRecording();
  ASSERT_TRUE(recording) << recording.error();
  for (const StepState state : {StepState{7, 1}, StepState{7, 2}, StepState{8, 2}}) {
    std::vector<float> out(64);
    ASSERT_TRUE(queue.CopyIn(data + 512, &state, sizeof(state)).ok());
    ASSERT_TRUE(queue.Replay(**recording).ok());
    ASSERT_TRUE(queue.CopyOut(out.data(), data + 256, 256).ok());
    ASSERT_TRUE(queue.Finish(Deadline::After(60'000)).ok());
    for (size_t i = 0; i < out.size(); ++i) {
      const uint32_t bits =
          PhiloxBits(state.seed, StreamOf("d"), static_cast<uint64_t>(state.step), i);
      EXPECT_EQ(out[i], UniformFromBits(bits) >= 0.5 ? 2.0f : 0.0f) << i;
    }
  }
}

TEST(GpuRandomNormal, EqualsTheHostsNumbers) {
  const OpCase row{"normal", Op::kRandomNormal, {{"name", "wte"}, {"std", 0.02}}, {}, {{40, 25}}};
  const auto graph = GraphOf(row, ir::DType::kF32);
  ASSERT_TRUE(graph) << graph.error();
  RunContext context;
  context.seed = 9;
  const auto gpu = EvaluateWith(*graph, {TestedGpu(), context}, {});
  ASSERT_TRUE(gpu) << gpu.error();
  const std::vector<double> values = ValuesOf((*gpu)[0]);
  for (size_t i = 0; i < values.size(); ++i) {
    ASSERT_EQ(values[i], static_cast<float>(0.02 * PhiloxNormal(9, StreamOf("wte"), i))) << i;
  }
}

TEST(GpuLearningRate, IsTheReferences) {
  for (const char* schedule :
       {"constant", "linear", "cosine", "polynomial:2", "cosine_with_restarts:3", "inverse_sqrt"}) {
    const OpCase row{"lr",
                     Op::kLearningRate,
                     {{"lr", 1.0},
                      {"min_lr", 0.1},
                      {"warmup_steps", 4},
                      {"total_steps", 14},
                      {"schedule", schedule}},
                     {},
                     {{}}};
    const auto graph = GraphOf(row, ir::DType::kF32);
    ASSERT_TRUE(graph) << graph.error();
    for (const int64_t step : {0, 3, 4, 6, 9, 14, 99}) {
      RunContext context;
      context.step = step;
      const auto expected = EvaluateWith(*graph, {Backend::kReference, context}, {});
      const auto gpu = EvaluateWith(*graph, {TestedGpu(), context}, {});
      ASSERT_TRUE(expected && gpu);
      EXPECT_EQ((*gpu)[0].data, (*expected)[0].data) << schedule << " " << step;
    }
  }
}

TEST(GpuConstant, FillsEveryElement) {
  for (const ir::DType dtype : {ir::DType::kF32, ir::DType::kBF16, ir::DType::kF16}) {
    const OpCase row{"constant", Op::kConstant, {{"value", -1.5}}, {}, {{7, 29}}};
    const auto graph = GraphOf(row, dtype);
    ASSERT_TRUE(graph) << graph.error();
    const auto gpu = EvaluateWith(*graph, {TestedGpu(), {}}, {});
    ASSERT_TRUE(gpu) << gpu.error();
    EXPECT_EQ(ValuesOf((*gpu)[0]), std::vector<double>(203, -1.5));
  }
}

TEST(GpuErrors, ALaunchOnALostDeviceNamesTheOp) {
  MW_NEEDS_EMULATION();
  emulated::EmulatedGpu gpu;
  KernelSpec spec;
  spec.op = Op::kConstant;
  spec.attrs = {{"value", 1.0}};
  spec.outputs = {{ir::DType::kF32, {64}}};
  const auto kernel = MakeKernel(gpu.target(), spec);
  ASSERT_TRUE(kernel) << kernel.error();
  const auto memory = gpu.device().Allocate({ir::MemoryKind::kOther, 256});
  ASSERT_TRUE(memory) << memory.error();
  RunContext context;
  context.queue = &gpu.device().queue();
  const Tensor y{(*memory)->data(), spec.outputs.data()};
  ASSERT_TRUE((*kernel)->Run(context, {}, std::span(&y, 1)).ok());
  gpu.driver().SpoilDevice(0, device::cuda::kIllegalAddress);
  (void)gpu.driver().QueryStream(context.queue->native());
  const Status lost = (*kernel)->Run(context, {}, std::span(&y, 1));
  EXPECT_EQ(lost.code(), StatusCode::kUnavailable);
  EXPECT_NE(lost.message().find("constant"), std::string::npos) << lost;
}

}  // namespace
}  // namespace meshwright::ops
