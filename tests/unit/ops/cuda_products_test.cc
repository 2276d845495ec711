// einsum, fused nodes behind products, and head_loss on an emulated GPU.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "ops/cuda/einsum.h"
#include "ops/cuda/epilogue.h"
#include "tests/unit/ops/cuda_fixture.h"

namespace meshwright::ops {
namespace {

using cuda::BlasEpilogue;
using ir::DType;
using ir::FusedBody;
using ir::FusedStep;
using ir::Op;

const ir::Attrs kProduct = {{"equation", "mk,kn->mn"}};
const ir::Attrs kRows = {{"dims", std::vector<int64_t>{0}}};
const FusedStep kEinsum = {Op::kEinsum, {0, 1}, kProduct};

std::optional<cuda::EpilogueForm> FormOf(DType dtype, const std::vector<ir::Dims>& others,
                                         const FusedBody& body, int64_t columns = 16) {
  std::vector<ir::TensorType> types = {{dtype, {24, 8}}, {dtype, {8, columns}}};
  for (const ir::Dims& dims : others) types.push_back({dtype, dims});
  const KernelSpec spec = FusedSpec(types, body);
  const Result<ir::Graph> graph = ir::ExpandFused(spec.attrs, spec.inputs);
  EXPECT_TRUE(graph) << graph.error();
  return cuda::FindEpilogue(*graph, static_cast<int>(types.size()), columns);
}

BlasEpilogue EpilogueOf(const std::optional<cuda::EpilogueForm>& form) {
  return form ? form->epilogue : BlasEpilogue::kNone;
}

TEST(Epilogue, BodiesThatAreExactlyOneAreFound) {
  const FusedStep bias = {Op::kAdd, {3, 2}, {}};
  const FusedStep gate = {Op::kGelu, {4}, {}};
  EXPECT_EQ(EpilogueOf(FormOf(DType::kBF16, {{16}}, {{kEinsum, bias}, {4}})), BlasEpilogue::kBias);
  EXPECT_EQ(EpilogueOf(FormOf(DType::kBF16, {{16}}, {{kEinsum, bias, gate}, {5}})),
            BlasEpilogue::kBiasGelu);
  const auto kept = FormOf(DType::kBF16, {{16}}, {{kEinsum, bias, gate}, {4, 5}});
  EXPECT_EQ(EpilogueOf(kept), BlasEpilogue::kBiasGeluAux);
  EXPECT_EQ(kept->aux_result, 0);
  EXPECT_EQ(kept->result, 1);
  EXPECT_EQ(kept->bias, 2);
  const FusedStep plain_gate = {Op::kGelu, {2}, {}};
  EXPECT_EQ(EpilogueOf(FormOf(DType::kF32, {}, {{kEinsum, plain_gate}, {3}})), BlasEpilogue::kGelu);
  EXPECT_EQ(EpilogueOf(FormOf(DType::kF32, {}, {{kEinsum, plain_gate}, {2, 3}})),
            BlasEpilogue::kGeluAux);
  const FusedStep grad = {Op::kGeluGrad, {2, 3}, {}};
  const FusedStep sum = {Op::kReduceSum, {4}, kRows};
  EXPECT_EQ(EpilogueOf(FormOf(DType::kBF16, {{24, 16}}, {{kEinsum, grad}, {4}})),
            BlasEpilogue::kGeluGrad);
  const auto sums = FormOf(DType::kBF16, {{24, 16}}, {{kEinsum, grad, sum}, {5, 4}});
  EXPECT_EQ(EpilogueOf(sums), BlasEpilogue::kGeluGradSum);
  EXPECT_EQ(sums->bias_gradient, 0);
  EXPECT_EQ(sums->result, 1);
  EXPECT_EQ(sums->aux_operand, 2);
}

TEST(Epilogue, EverythingElseIsNone) {
  const FusedStep bias = {Op::kAdd, {3, 2}, {}};
  const FusedStep gate = {Op::kGelu, {4}, {}};
  const FusedStep grad = {Op::kGeluGrad, {2, 3}, {}};
  // A residual is no bias; the product itself leaves beside what was added to it.
  EXPECT_FALSE(FormOf(DType::kBF16, {{24, 16}}, {{kEinsum, bias}, {4}}));
  EXPECT_FALSE(FormOf(DType::kBF16, {{16}}, {{kEinsum, bias, gate}, {3, 5}}));
  EXPECT_FALSE(FormOf(DType::kBF16, {{16}},
                      {{kEinsum, bias, gate, {Op::kScale, {5}, {{"factor", 2.0}}}}, {6}}));
  // Operands of the gradient the other way round; rows of the aux that are no whole 16 bytes.
  EXPECT_FALSE(FormOf(DType::kBF16, {{24, 16}}, {{kEinsum, {Op::kGeluGrad, {3, 2}, {}}}, {4}}));
  EXPECT_FALSE(FormOf(DType::kBF16, {{24, 12}}, {{kEinsum, grad}, {4}}, 12));
  // A sum in another type, or of a value that no gradient made.
  const ir::Attrs rows_in_f32 = {{"dims", std::vector<int64_t>{0}}, {"dtype", "f32"}};
  EXPECT_FALSE(FormOf(DType::kBF16, {{24, 16}},
                      {{kEinsum, grad, {Op::kReduceSum, {4}, rows_in_f32}}, {4, 5}}));
  EXPECT_FALSE(
      FormOf(DType::kBF16, {{16}}, {{kEinsum, bias, {Op::kReduceSum, {4}, kRows}}, {4, 5}}));
}

class CudaProducts : public testing::Test {
 protected:
  Result<std::vector<HostTensor>> Run(const KernelSpec& spec,
                                      const std::vector<HostTensor>& inputs) {
    MW_ASSIGN_OR_RETURN(const auto kernel, MakeKernel(gpu_.target(), spec));
    return RunNode(gpu_, *kernel, inputs, spec.outputs, {});
  }
  static KernelSpec Einsum(const std::string& equation, std::vector<ir::TensorType> inputs,
                           ir::TensorType output) {
    return {Op::kEinsum, {{"equation", equation}}, std::move(inputs), {std::move(output)}, {}};
  }

  EmulatedGpu gpu_;
};

TEST_F(CudaProducts, EqualShapesArePlannedOnce) {
  const KernelSpec spec =
      Einsum("bsk,kn->bsn", {{DType::kBF16, {2, 8, 16}}, {DType::kBF16, {16, 24}}},
             {DType::kBF16, {2, 8, 24}});
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(MakeKernel(gpu_.target(), spec));
  EXPECT_EQ(gpu_.libraries.blas.plans(), 1);
}

TEST_F(CudaProducts, BatchOfHeadsIsOneCallPerRowOfTheBatch) {
  const auto runner = cuda::EinsumRunner::Make({"bqhe,bkhe->bhqk",
                                                {DType::kF32, {2, 9, 3, 8}},
                                                {DType::kF32, {2, 10, 3, 8}},
                                                {DType::kF32, {2, 3, 9, 10}},
                                                false},
                                               *gpu_.device, gpu_.toolkit);
  ASSERT_TRUE(runner && *runner);
  EXPECT_FALSE((*runner)->OnlyProduct());
  EXPECT_EQ(gpu_.libraries.blas.plans(), 1);
}

TEST_F(CudaProducts, Tf32IsUsedOnlyWhenAskedFor) {
  const cuda::EinsumRunner::Form form{
      "mk,kn->mn", {DType::kF32, {8, 8}}, {DType::kF32, {8, 8}}, {DType::kF32, {8, 8}}, false};
  const auto exact = cuda::EinsumRunner::Make(form, *gpu_.device, gpu_.toolkit);
  ASSERT_TRUE(exact && *exact);
  EXPECT_FALSE((*exact)->OnlyProduct()->tf32);
  gpu_.toolkit.tf32 = true;
  const auto fast = cuda::EinsumRunner::Make(form, *gpu_.device, gpu_.toolkit);
  ASSERT_TRUE(fast && *fast);
  EXPECT_TRUE((*fast)->OnlyProduct()->tf32);
}

TEST_F(CudaProducts, TypesWithoutProductsHaveNoKernel) {
  const KernelSpec wide =
      Einsum("mk,kn->mn", {{DType::kF64, {2, 2}}, {DType::kF64, {2, 2}}}, {DType::kF64, {2, 2}});
  const auto kernel = MakeKernel(gpu_.target(), wide);
  ASSERT_FALSE(kernel);
  EXPECT_EQ(kernel.error().code(), StatusCode::kUnimplemented);
}

TEST_F(CudaProducts, AccumulatorIsAddedToWhereverItIs) {
  for (const DType dtype : {DType::kF32, DType::kF16}) {
    KernelSpec spec = Einsum("mk,kn->mn", {{dtype, {2, 4}}, {dtype, {4, 8}}}, {dtype, {2, 8}});
    spec.inputs.push_back(spec.outputs[0]);
    const auto found = Run(spec, {TensorOf(dtype, {2, 4}, {1, 0, 0, 0, 0, 1, 0, 0}),
                                  TensorOf(dtype, {4, 8}, Spread(32)),
                                  TensorOf(dtype, {2, 8}, std::vector<float>(16, 100))});
    ASSERT_TRUE(found) << found.error();
    const std::vector<float> want = FloatsOf(TensorOf(dtype, {4, 8}, Spread(32)));
    for (size_t i = 0; i < 16; ++i) EXPECT_NEAR(FloatsOf((*found)[0])[i], 100 + want[i], 0.04f);
  }
}

TEST_F(CudaProducts, EpilogueOfTheProductIsUsedWhereTheBlasHasIt) {
  const KernelSpec spec =
      FusedSpec({{DType::kBF16, {24, 8}}, {DType::kBF16, {8, 16}}, {DType::kBF16, {16}}},
                {{kEinsum, {Op::kAdd, {3, 2}, {}}, {Op::kGelu, {4}, {}}}, {4, 5}});
  const std::vector<HostTensor> inputs = {TensorOf(DType::kBF16, {24, 8}, Spread(192)),
                                          TensorOf(DType::kBF16, {8, 16}, Spread(128)),
                                          TensorOf(DType::kBF16, {16}, Spread(16))};
  const auto whole = Run(spec, inputs);
  ASSERT_TRUE(whole) << whole.error();
  EXPECT_EQ(gpu_.libraries.compiler.launched(), 0);
  EXPECT_EQ(gpu_.libraries.blas.epilogues(), 1);
  gpu_.libraries.blas.RefuseEpilogues(true);
  const auto chain = Run(spec, inputs);
  ASSERT_TRUE(chain) << chain.error();
  EXPECT_EQ(gpu_.libraries.compiler.launched(), 1);
  for (size_t r = 0; r < 2; ++r) {
    const std::vector<float> x = FloatsOf((*whole)[r]);
    const std::vector<float> y = FloatsOf((*chain)[r]);
    for (size_t i = 0; i < x.size(); ++i) {
      EXPECT_NEAR(x[i], y[i], 0.01f * std::max(1.0f, std::abs(x[i])));
    }
  }
}

KernelSpec HeadSpec(DType dtype, bool gradient, int64_t tokens, int64_t width, int64_t words,
                    int64_t block) {
  KernelSpec spec;
  spec.op = gradient ? Op::kHeadLossGrad : Op::kHeadLoss;
  spec.attrs = {{"block_tokens", block}, {"ignore_index", int64_t{-1}}};
  spec.inputs = {{dtype, {tokens, width}}, {dtype, {words, width}}, {DType::kI32, {tokens}}};
  spec.outputs = {{DType::kF32, {}}, {DType::kF32, {}}};
  if (gradient) {
    spec.inputs.push_back({DType::kF32, {}});
    spec.outputs.push_back({DType::kF32, {tokens, width}});
    spec.outputs.push_back({DType::kF32, {words, width}});
  }
  spec.outputs.push_back({DType::kF32, {block, words}});
  return spec;
}

HostTensor Labels(const std::vector<int32_t>& ids) {
  HostTensor tensor{{DType::kI32, {static_cast<int64_t>(ids.size())}}, {}};
  tensor.data.resize(ids.size() * sizeof(int32_t));
  std::memcpy(tensor.data.data(), ids.data(), tensor.data.size());
  return tensor;
}

// Gradients of 16-bit heads are 16-bit between the products; sums are exact in both.
TEST_F(CudaProducts, HalfHeadAgreesWithThatInF32) {
  for (const int64_t words : {1300, 1301, 1312}) {
    for (const DType dtype : {DType::kBF16, DType::kF16}) {
      std::vector<std::vector<HostTensor>> found;
      for (const DType type : {DType::kF32, dtype}) {
        const KernelSpec spec = HeadSpec(type, true, 7, 8, words, 3);
        const auto rounded = [&](const ir::Dims& dims, float scale) {
          const int64_t count = dims[0] * dims[1];
          return TensorOf(type, dims, FloatsOf(TensorOf(dtype, dims, Spread(count, scale))));
        };
        const auto results =
            Run(spec, {rounded({7, 8}, 1), rounded({words, 8}, 0.5f),
                       Labels({0, 5, -1, 1299, 7, 1, 2}), TensorOf(DType::kF32, {}, {0.25f})});
        ASSERT_TRUE(results) << results.error();
        found.push_back(*results);
      }
      EXPECT_NEAR(FloatsOf(found[0][0])[0], FloatsOf(found[1][0])[0], 1e-4);
      EXPECT_EQ(FloatsOf(found[1][1])[0], 6);
      for (const size_t r : {size_t{2}, size_t{3}}) {
        const std::vector<float> x = FloatsOf(found[0][r]);
        const std::vector<float> y = FloatsOf(found[1][r]);
        for (size_t i = 0; i < x.size(); ++i) ASSERT_NEAR(x[i], y[i], 4e-3f) << r << ", " << i;
      }
    }
  }
}

TEST_F(CudaProducts, HeadNamesALabelOutsideOfTheVocabulary) {
  const KernelSpec spec = HeadSpec(DType::kF32, false, 5, 4, 9, 2);
  const auto found =
      Run(spec, {TensorOf(DType::kF32, {5, 4}, Spread(20)),
                 TensorOf(DType::kF32, {9, 4}, Spread(36)), Labels({0, -1, 8, 9, 1})});
  ASSERT_FALSE(found);
  EXPECT_NE(found.error().message().find("head_loss: id 9 at position 3"), std::string::npos)
      << found.error();
}

// Which products need to be fast. Four rows of 9 have room for two that start at multiples of 16.
TEST_F(CudaProducts, RowsOfLogitsStartAtMultiplesOf64Bytes) {
  const KernelSpec spec = HeadSpec(DType::kF32, false, 4, 1, 9, 4);
  const std::vector<float> w = Spread(9);
  const auto found = Run(spec, {TensorOf(DType::kF32, {4, 1}, {1, 2, 3, 4}),
                                TensorOf(DType::kF32, {9, 1}, w), Labels({0, 1, 2, 3})});
  ASSERT_TRUE(found) << found.error();
  const std::vector<float> block = FloatsOf((*found)[2]);
  for (size_t i = 0; i < 9; ++i) {
    EXPECT_EQ(block[i], 3 * w[i]);
    EXPECT_EQ(block[16 + i], 4 * w[i]);
  }
}

// Blocks of 16 rows of 37, for which 24 were meant, and of 24 rows of 48; the last one is shorter.
// The gradient of the weights is added to what it was.
TEST_F(CudaProducts, HeadOfSeveralBlocksIsTheReferences) {
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
    for (const int64_t words : {37, 48}) {
      KernelSpec spec = HeadSpec(dtype, true, 41, 8, words, 24);
      spec.inputs.push_back(spec.outputs[3]);
      std::vector<int32_t> ids;
      for (int32_t i = 0; i < 41; ++i) ids.push_back(i % 5 == 3 ? -1 : (i * 7) % 37);
      const std::vector<HostTensor> inputs = {
          TensorOf(dtype, {41, 8}, Spread(41 * 8)), TensorOf(dtype, {words, 8}, Spread(words * 8)),
          Labels(ids), TensorOf(DType::kF32, {}, {0.25f}),
          TensorOf(DType::kF32, {words, 8}, Spread(words * 8, 2))};
      const auto found = Run(spec, inputs);
      ASSERT_TRUE(found) << found.error();
      const auto want = RunOnReference(spec, inputs, {});
      ASSERT_TRUE(want) << want.error();
      const float tolerance = dtype == DType::kF32 ? 2e-5f : 4e-2f;
      for (size_t r = 0; r < 4; ++r) {
        const std::vector<float> x = FloatsOf((*found)[r]);
        const std::vector<float> y = FloatsOf((*want)[r]);
        for (size_t i = 0; i < x.size(); ++i) {
          ASSERT_NEAR(x[i], y[i], tolerance * std::max(1.0f, std::abs(y[i]))) << r << ", " << i;
        }
      }
    }
  }
}

TEST_F(CudaProducts, LossOfHugeLogitsIsExact) {
  const KernelSpec spec = HeadSpec(DType::kF32, false, 2, 1, 4, 2);
  const auto found = Run(spec, {TensorOf(DType::kF32, {2, 1}, {1000, -1000}),
                                TensorOf(DType::kF32, {4, 1}, {0, 1, -1, 1}), Labels({0, 2})});
  ASSERT_TRUE(found) << found.error();
  // 1000 + log(2) - 0 and 1000 - 1000.
  EXPECT_FLOAT_EQ(FloatsOf((*found)[0])[0], 1000 + std::log(2.0f));
}

}  // namespace
}  // namespace meshwright::ops
