// Rows of the op table on an emulated GPU: the kernels that are calls of libraries or generated
// code.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "device/cuda/device.h"
#include "ir/fused.h"
#include "ops/cuda/cuda.h"
#include "tests/conformance/ops/op_harness.h"
#include "tests/emulated/driver.h"
#include "tests/emulated/libraries.h"

namespace meshwright::ops {
namespace {

using ir::DType;
using ir::Op;

// One for all rows: each text is compiled once.
struct Gpu {
  emulated::EmulatedDriver driver;
  emulated::EmulatedLibraries libraries;
  std::unique_ptr<device::cuda::CudaDevice> device;
  cuda::Toolkit toolkit;
};

Gpu& TheGpu() {
  static Gpu* const gpu = [] {
    auto* made = new Gpu();
    auto device = device::cuda::CudaDevice::Make(made->driver, 0, {.name = "cuda:0"});
    if (device) made->device = *std::move(device);
    made->libraries.AddTo(made->toolkit);
    return made;
  }();
  return *gpu;
}

bool HasNorm(const OpCase& row) {
  const Result<ir::FusedBody> body = ir::ParseFusedBody(row.attrs);
  return body && std::any_of(body->steps.begin(), body->steps.end(), [](const auto& step) {
           return !ir::IsElementwise(step.op) && step.op != Op::kEinsum &&
                  step.op != Op::kReduceSum;
         });
}

bool IsOurs(const OpCase& row) {
  // GPUs have no kernels for f64 and i64, and a sum of a narrow tensor is no chain.
  if (row.attrs.Str("dtype") == "f64" || row.attrs.Str("dtype") == "i64" ||
      row.name.find("_of_a_narrow_tensor") != std::string::npos) {
    return false;
  }
  if (row.op == Op::kFused) return !HasNorm(row);
  return ir::IsElementwise(row.op) || row.op == Op::kEinsum || row.op == Op::kHeadLoss ||
         row.op == Op::kHeadLossGrad;
}

// Chains of one op are all alike to the libraries: the ops of formula_cases.cc are in GpuTable
// alone.
bool IsFormulaCase(const OpCase& row) {
  static const std::vector<OpCase> cases = FormulaCases();
  return std::any_of(cases.begin(), cases.end(),
                     [&](const OpCase& other) { return other.name == row.name; });
}

std::vector<OpCase> OurCases() {
  std::vector<OpCase> ours;
  for (const std::vector<OpCase>& table : {AllCases(), MixedCases()}) {
    for (const OpCase& row : table) {
      const auto same = [&](const OpCase& other) { return other.name == row.name; };
      if (IsOurs(row) && !IsFormulaCase(row) && std::none_of(ours.begin(), ours.end(), same))
        ours.push_back(row);
    }
  }
  return ours;
}

RunContext ContextOfStep() {
  RunContext context;
  context.seed = 7;
  context.step = 3;
  return context;
}

Result<std::vector<HostTensor>> EvaluateOn(const Target& target, const ir::Graph& graph,
                                           const std::vector<HostTensor>& inputs) {
  const auto bind = [&](const ir::Node& node) -> Result<HostTensor> {
    const size_t i = static_cast<size_t>(std::stoi(node.attrs.Str("name").substr(1)));
    return Convert(inputs[i], graph.type(node.outputs[0]).dtype);
  };
  return Evaluate(target, graph, bind, ContextOfStep());
}

class CudaLibraries : public testing::TestWithParam<OpCase> {
 protected:
  // Within the tolerance of the reference in f64 that sees the operands as they are.
  void ExpectAgreement(DType dtype, double tolerance) {
    const Result<ir::Graph> graph = GraphOf(GetParam(), dtype);
    ASSERT_TRUE(graph) << graph.error();
    const Result<ir::Graph> wide = GraphOf(GetParam(), DType::kF64);
    ASSERT_TRUE(wide) << wide.error();
    std::vector<HostTensor> data = DataOf(GetParam(), 11);
    for (size_t i = 0; i < data.size(); ++i) {
      data[i] = Convert(data[i], graph->type(graph->nodes[i].outputs[0]).dtype);
    }
    const auto oracle = EvaluateOn(Backend::kReference, *wide, data);
    ASSERT_TRUE(oracle) << oracle.error();
    Gpu& gpu = TheGpu();
    const auto found = EvaluateOn(Target(*gpu.device, gpu.toolkit), *graph, data);
    ASSERT_TRUE(found) << found.error();
    const size_t compared = std::min(found->size(), GetParam().compared_results);
    for (size_t i = 0; i < compared; ++i) {
      EXPECT_LE(RelativeError((*found)[i], (*oracle)[i]), tolerance) << "result " << i;
    }
  }
};

TEST_P(CudaLibraries, F32AgreesWithReferenceF64) {
  ExpectAgreement(DType::kF32, GetParam().f32_tolerance);
}

TEST_P(CudaLibraries, Bf16AgreesWithReferenceF64) {
  ExpectAgreement(DType::kBF16, GetParam().bf16_tolerance);
}

class CudaFused : public CudaLibraries {};

TEST_P(CudaFused, Bf16AgreesWithoutEpilogues) {
  TheGpu().libraries.blas.RefuseEpilogues(true);
  ExpectAgreement(DType::kBF16, GetParam().bf16_tolerance);
  TheGpu().libraries.blas.RefuseEpilogues(false);
}

std::vector<OpCase> FusedCases() {
  std::vector<OpCase> rows = OurCases();
  std::erase_if(rows, [](const OpCase& row) { return row.op != Op::kFused; });
  return rows;
}

INSTANTIATE_TEST_SUITE_P(Table, CudaLibraries, testing::ValuesIn(OurCases()),
                         [](const auto& row) { return row.param.name; });
INSTANTIATE_TEST_SUITE_P(Table, CudaFused, testing::ValuesIn(FusedCases()),
                         [](const auto& row) { return row.param.name; });

}  // namespace
}  // namespace meshwright::ops
