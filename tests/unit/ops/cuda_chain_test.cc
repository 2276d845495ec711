#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>

#include "ops/cuda/chain_source.h"
#include "ops/cuda/cuda.h"
#include "ops/cuda/library_kernels.h"
#include "ops/global_runs.h"
#include "tests/unit/ops/cuda_fixture.h"

namespace meshwright::ops {
namespace {

using cuda::ChainPlan;
using ir::Dims;
using ir::DType;
using ir::FusedBody;
using ir::Op;

const ir::Attrs kDropout = {{"rate", 0.25}, {"name", "mask"}};
const ir::Attrs kRows = {{"dims", std::vector<int64_t>{0}}};

ChainPlan PlanOf(const KernelSpec& spec) {
  const Result<ir::Graph> body = ir::ExpandFused(spec.attrs, spec.inputs);
  EXPECT_TRUE(body) << body.error();
  Result<std::optional<ChainPlan>> plan = cuda::PlanChain(*body, -1, spec.coords);
  EXPECT_TRUE(plan && *plan);
  return *std::move(*plan);
}

// What differs from chain to chain.
std::string TextOf(const KernelSpec& spec) {
  const std::string text = cuda::ChainSource(PlanOf(spec));
  return text.substr(text.find("struct Arguments"));
}

KernelSpec ResidualSpec(int64_t rows, int64_t width) {
  return FusedSpec(
      {{DType::kBF16, {rows, width}}, {DType::kBF16, {width}}, {DType::kF32, {rows, width}}},
      FusedBody{{{Op::kAdd, {0, 1}, {}},
                 {Op::kDropout, {3}, kDropout},
                 {Op::kCast, {4}, {{"dtype", "f32"}}},
                 {Op::kAdd, {2, 5}, {}}},
                {6}});
}

TEST(ChainSource, FlatChainIsThisText) {
  EXPECT_EQ(TextOf(ResidualSpec(64, 32)), R"cuda(struct Arguments {
  const Bf16* x0;
  const Bf16* x1;
  const float* x2;
  float* y0;
  u64 elements;
  u64 period1;
  const StepState* state;
  u64 key0;
  u64 threshold0;
  u64 offset0;
  double scale0;
  u64 size0_0;
  u64 stride0_0;
};

__device__ inline u64 GlobalIndex0(const Arguments& a, Index i) {
  u64 index = a.offset0;
  return index + i * a.stride0_0;
}

extern "C" __global__ void chain(const Arguments a) {
  const Index stride = (Index)gridDim.x * blockDim.x * kLanes;
  const Index begin = ((Index)blockIdx.x * blockDim.x + threadIdx.x) * kLanes;
  const u64 step = (u64)a.state->step;
  const u64 key0 = a.state->seed ^ a.key0;
  for (Index i = begin; i < a.elements; i += stride) {
    float x0[kLanes];
    Load(a.x0 + i, x0);
    float x1[kLanes];
    Load(a.x1 + i % (Index)a.period1, x1);
    float x2[kLanes];
    Load(a.x2 + i, x2);
    u32 bits0[kLanes];
    const u64 place0 = GlobalIndex0(a, i) >> 2;
#pragma unroll
    for (int j = 0; j < kLanes; j += 4) {
      const Random random = Philox(key0, place0 + j / 4, step);
#pragma unroll
      for (int w = 0; w < 4; ++w) bits0[j + w] = random.words[w];
    }
    float y0[kLanes];
#pragma unroll
    for (int j = 0; j < kLanes; ++j) {
      const float v0 = x0[j];
      const float v1 = x1[j];
      const float v2 = x2[j];
      const float v3 = v0 + v1;
      const float v4 = Drop(v3, bits0[j], a.threshold0, a.scale0);
      const float v5 = v4;
      const float v6 = v2 + v5;
      y0[j] = v6;
    }
    Store(a.y0 + i, y0);
  }
}
)cuda");
}

TEST(ChainSource, ChainWithColumnSumsIsThisText) {
  const KernelSpec spec = FusedSpec(
      {{DType::kF32, {40, 12}}, {DType::kF32, {40, 12}}, {DType::kF32, {12}}},
      FusedBody{{{Op::kGeluGrad, {0, 1}, {}}, {Op::kMul, {3, 2}, {}}, {Op::kReduceSum, {4}, kRows}},
                {4, 5}});
  EXPECT_EQ(TextOf(spec), R"cuda(struct Arguments {
  const float* x0;
  const float* x1;
  const float* x2;
  float* y0;
  float* sum0;
  u64 elements;
  u64 width;
  u64 rows;
  u64 group_rows;
  u64 groups;
};

extern "C" __global__ void chain(const Arguments a) {
  constexpr int kRows = 4;
  const Index thread = (Index)blockIdx.x * blockDim.x + threadIdx.x;
  const Index columns = (Index)a.width / kLanes;
  const Index column = thread % columns * kLanes;
  const Index group = thread / columns;
  if (group >= a.groups) return;
  float total0[kLanes] = {};
  float x2[kLanes];
  Load(a.x2 + column, x2);
  const Index first = group * (Index)a.group_rows;
  const Index last = first + a.group_rows < a.rows ? first + (Index)a.group_rows : (Index)a.rows;
  for (Index row = first; row < last; row += kRows) {
    Index at[kRows];
    float x0[kRows][kLanes];
    float x1[kRows][kLanes];
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      at[r] = (row + r < last ? row + r : last - 1) * (Index)a.width + column;
      Load(a.x0 + at[r], x0[r]);
      Load(a.x1 + at[r], x1[r]);
    }
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
    if (row + r >= last) break;
    float y0[kLanes];
#pragma unroll
    for (int j = 0; j < kLanes; ++j) {
      const float v0 = x0[r][j];
      const float v1 = x1[r][j];
      const float v2 = x2[j];
      const float v3 = GeluGrad(v0, v1);
      const float v4 = v3 * v2;
      y0[j] = v4;
      total0[j] += v4;
    }
    Store(a.y0 + at[r], y0);
    }
  }
  Store(a.sum0 + group * (Index)a.width + column, total0);
}
)cuda");
}

TEST(ChainSource, EqualChainsOfOtherSizesAreOneText) {
  EXPECT_EQ(cuda::ChainSource(PlanOf(ResidualSpec(64, 32))),
            cuda::ChainSource(PlanOf(ResidualSpec(8, 128))));
  // Sizes that are no whole 16 bytes are another one.
  EXPECT_NE(cuda::ChainSource(PlanOf(ResidualSpec(64, 32))),
            cuda::ChainSource(PlanOf(ResidualSpec(64, 31))));
}

TEST(ChainSource, ArgumentsAreAsManyAsFields) {
  for (const KernelSpec& spec : {ResidualSpec(64, 32), ResidualSpec(5, 7)}) {
    const ChainPlan plan = PlanOf(spec);
    const std::string text = TextOf(spec);
    const std::string fields = text.substr(0, text.find("};"));
    std::vector<Tensor> tensors(3);
    std::vector<uint64_t> words;
    cuda::ChainArguments(plan, {tensors, tensors}, 0, words);
    EXPECT_EQ(words.size(), static_cast<size_t>(std::count(fields.begin(), fields.end(), ';')));
  }
}

ShardBlock BlockOf(const Dims& global, const Dims& local, const Dims& base, const Dims& micro) {
  return {global, local, {base, micro}};
}

TEST(GlobalIndex, IsThatOfGlobalRuns) {
  const std::vector<ShardBlock> blocks = {
      BlockOf({6, 8}, {6, 8}, {0, 0}, {0, 0}),
      BlockOf({6, 8}, {3, 8}, {3, 0}, {0, 0}),
      BlockOf({6, 8}, {6, 4}, {0, 4}, {0, 0}),
      BlockOf({8, 3, 12}, {2, 3, 4}, {0, 0, 8}, {2, 0, 0}),
      BlockOf({8, 3, 12}, {2, 1, 12}, {4, 2, 0}, {2, 0, 0}),
      BlockOf({}, {}, {}, {}),
      BlockOf({1, 1}, {1, 1}, {0, 0}, {0, 0}),
  };
  for (const ShardBlock& block : blocks) {
    const cuda::GlobalIndex index(block);
    const GlobalRuns runs(block);
    for (int32_t microbatch = 0; microbatch < 2; ++microbatch) {
      for (int64_t i = 0; i < runs.runs() * runs.run_length(); ++i) {
        int64_t found = index.offset(microbatch);
        int64_t rest = i;
        for (size_t l = index.loops().size(); l-- > 0;) {
          const int64_t size = l == 0 ? rest + 1 : index.loops()[l].size;
          found += rest % size * index.loops()[l].stride;
          rest /= size;
        }
        const int64_t want =
            runs.At(i / runs.run_length(), microbatch).global_start + i % runs.run_length();
        ASSERT_EQ(found, want) << "element " << i;
      }
    }
  }
}

class CudaChain : public testing::Test {
 protected:
  // The same node on the GPU and, in f32 kernels of the CPU, on the host.
  Result<std::vector<HostTensor>> OnGpu(const KernelSpec& spec,
                                        const std::vector<HostTensor>& inputs,
                                        int32_t microbatch = 0) {
    MW_ASSIGN_OR_RETURN(const auto kernel,
                        spec.op == Op::kFused
                            ? MakeKernel(gpu_.target(), spec)
                            : cuda::MakeChain({spec, *gpu_.device, gpu_.toolkit}));
    return RunNode(gpu_, *kernel, inputs, spec.outputs, ContextAt(microbatch));
  }
  static Result<std::vector<HostTensor>> OnHost(const KernelSpec& spec,
                                                const std::vector<HostTensor>& inputs,
                                                int32_t microbatch = 0) {
    return RunOnReference(spec, inputs, ContextAt(microbatch));
  }
  static RunContext ContextAt(int32_t microbatch) {
    RunContext context;
    context.seed = 77;
    context.step = 5;
    context.microbatch = microbatch;
    return context;
  }

  // Result r < 2 takes the place of operand r.
  Result<std::vector<HostTensor>> InPlace(Kernel& kernel, const std::vector<HostTensor>& inputs,
                                          const std::vector<ir::TensorType>& outputs) {
    device::Queue& queue = gpu_.device->queue();
    std::vector<std::unique_ptr<device::Memory>> places;
    const auto place = [&](const HostTensor& tensor) -> Result<void*> {
      MW_ASSIGN_OR_RETURN(auto memory,
                          gpu_.device->Allocate({ir::MemoryKind::kOther, tensor.type.bytes()}));
      MW_TRY(queue.CopyIn(memory->data(), tensor.data.data(), tensor.type.bytes()));
      places.push_back(std::move(memory));
      return static_cast<void*>(places.back()->data());
    };
    std::vector<HostTensor> results;
    std::vector<Tensor> in;
    std::vector<Tensor> out;
    for (const HostTensor& input : inputs) {
      MW_ASSIGN_OR_RETURN(void* data, place(input));
      in.push_back({data, &input.type});
    }
    const int64_t scratch_bytes = kernel.scratch_bytes();
    const HostTensor scratch{{DType::kF32, {scratch_bytes / 4}},
                             std::vector<std::byte>(static_cast<size_t>(scratch_bytes))};
    RunContext context = ContextAt(0);
    context.queue = &queue;
    MW_ASSIGN_OR_RETURN(void* scratch_place, place(scratch));
    context.scratch = static_cast<std::byte*>(scratch_place);
    for (const ir::TensorType& type : outputs) {
      results.push_back({type, std::vector<std::byte>(static_cast<size_t>(type.bytes()))});
    }
    for (size_t r = 0; r < results.size(); ++r) {
      void* data = in[std::min<size_t>(r, 1)].data;
      if (r >= 2) {
        MW_ASSIGN_OR_RETURN(data, place(results[r]));
      }
      out.push_back({data, &results[r].type});
    }
    MW_TRY(kernel.Run(context, in, out));
    for (size_t r = 0; r < results.size(); ++r) {
      MW_TRY(queue.CopyOut(results[r].data.data(), out[r].data, results[r].type.bytes()));
    }
    MW_TRY(queue.Finish(Deadline::After(60'000)));
    return results;
  }

  EmulatedGpu gpu_;
  std::vector<std::unique_ptr<Kernel>> kept_;
};

TEST_F(CudaChain, DropoutOfAShardHasTheMaskOfTheWhole) {
  struct Form {
    Dims local;
    std::vector<std::string> axes;
  };
  for (const Form& form :
       {Form{{4, 24}, {"micro", ""}}, Form{{8, 12}, {"", "data"}}, Form{{4, 12}, {"micro", "data"}},
        Form{{2, 24}, {"micro,data", ""}}, Form{{8, 6}, {"", "data,micro"}}}) {
    KernelSpec spec;
    spec.op = Op::kDropout;
    spec.attrs = kDropout;
    spec.attrs.Set("global_dims", std::vector<int64_t>{8, 24});
    spec.attrs.Set("dim_axes", form.axes);
    spec.inputs = {{DType::kF32, form.local}};
    spec.outputs = spec.inputs;
    spec.coords = {{"data"}, {2}, {1}, 2};
    const std::vector<HostTensor> x = {
        TensorOf(DType::kF32, form.local, Spread(spec.inputs[0].elements()))};
    for (int32_t microbatch = 0; microbatch < 2; ++microbatch) {
      const auto gpu = OnGpu(spec, x, microbatch);
      ASSERT_TRUE(gpu) << gpu.error();
      const auto host = OnHost(spec, x, microbatch);
      ASSERT_TRUE(host) << host.error();
      EXPECT_EQ((*gpu)[0].data, (*host)[0].data) << form.axes[0] << "|" << form.axes[1];
    }
  }
}

TEST_F(CudaChain, HalvesRoundWhereTheyAreStoredOrCast) {
  for (const DType half : {DType::kBF16, DType::kF16}) {
    const std::string name(ir::DTypeName(half));
    // 1 + 2^-12 is 1 as a half, and so is its double less one.
    const KernelSpec spec = FusedSpec({{DType::kF32, {16}}, {DType::kF32, {16}}},
                                      FusedBody{{{Op::kCast, {0}, {{"dtype", name}}},
                                                 {Op::kCast, {2}, {{"dtype", "f32"}}},
                                                 {Op::kSub, {3, 1}, {}}},
                                                {2, 4}});
    std::vector<float> x;
    for (int i = 0; i < 16; ++i) x.push_back(std::ldexp(1.0f + 0x1p-12f, i * 2 - 20));
    const std::vector<HostTensor> inputs = {TensorOf(DType::kF32, {16}, x),
                                            TensorOf(DType::kF32, {16}, std::vector<float>(16))};
    const auto gpu = OnGpu(spec, inputs);
    ASSERT_TRUE(gpu) << gpu.error();
    const HostTensor want = TensorOf(half, {16}, x);
    EXPECT_EQ((*gpu)[0].data, want.data) << name;
    EXPECT_EQ(FloatsOf((*gpu)[1]), FloatsOf(want)) << name;
  }
}

TEST_F(CudaChain, GatesKeepNansAndSaturate) {
  const float infinity = std::numeric_limits<float>::infinity();
  const std::vector<float> x = {std::nanf(""), 1e30f, -1e30f, 100, -100, infinity, 0, -0.0f};
  const std::vector<HostTensor> inputs = {TensorOf(DType::kF32, {8}, x),
                                          TensorOf(DType::kF32, {8}, std::vector<float>(8, 1))};
  const KernelSpec spec =
      FusedSpec({{DType::kF32, {8}}, {DType::kF32, {8}}},
                FusedBody{{{Op::kGelu, {0}, {}}, {Op::kGeluGrad, {0, 1}, {}}}, {2, 3}});
  const auto gpu = OnGpu(spec, inputs);
  ASSERT_TRUE(gpu) << gpu.error();
  const std::vector<float> gelu = FloatsOf((*gpu)[0]);
  const std::vector<float> grad = FloatsOf((*gpu)[1]);
  EXPECT_TRUE(std::isnan(gelu[0]) && std::isnan(grad[0]));
  EXPECT_EQ(gelu[1], 1e30f);
  EXPECT_EQ(gelu[2], 0);
  EXPECT_EQ(gelu[5], infinity);
  EXPECT_EQ(std::vector<float>(grad.begin() + 1, grad.begin() + 6),
            (std::vector<float>{1, 0, 1, 0, 1}));
  EXPECT_EQ(grad[6], 0.5f);
}

// 70'000 rows are groups of groups of groups.
TEST_F(CudaChain, LongColumnSumsAreExactAndTheSameEveryTime) {
  const int64_t rows = 70'000;
  const KernelSpec spec = FusedSpec(
      {{DType::kF32, {rows, 4}}},
      FusedBody{{{Op::kScale, {0}, {{"factor", 0.5}}}, {Op::kReduceSum, {1}, kRows}}, {2}});
  std::vector<float> x;
  std::vector<double> want(4);
  for (int64_t i = 0; i < rows * 4; ++i) {
    x.push_back(static_cast<float>(i % 1009));
    want[static_cast<size_t>(i % 4)] += 0.5 * static_cast<double>(i % 1009);
  }
  const std::vector<HostTensor> inputs = {TensorOf(DType::kF32, {rows, 4}, x)};
  const auto first = OnGpu(spec, inputs);
  ASSERT_TRUE(first) << first.error();
  for (size_t j = 0; j < 4; ++j) EXPECT_EQ(FloatsOf((*first)[0])[j], static_cast<float>(want[j]));
  const auto second = OnGpu(spec, inputs);
  EXPECT_EQ((*first)[0].data, (*second)[0].data);
}

// Two rows are read at once with two full operands of halves, four otherwise: here the last ones of
// a group are fewer, the results lie in the operands' memory, and there are two sums.
TEST_F(CudaChain, RowsReadAtOnceAreWrittenOnceInPlace) {
  for (const int64_t rows : {1, 2, 9, 11, 83}) {
    for (const int64_t width : {8, 24, 5}) {
      for (const DType dtype : {DType::kF32, DType::kBF16}) {
        const KernelSpec spec =
            FusedSpec({{dtype, {rows, width}}, {dtype, {rows, width}}, {dtype, {width}}},
                      FusedBody{{{Op::kAdd, {0, 1}, {}},
                                 {Op::kAdd, {3, 2}, {}},
                                 {Op::kSub, {4, 1}, {}},
                                 {Op::kReduceSum, {4}, kRows},
                                 {Op::kReduceSum, {5}, kRows}},
                                {4, 5, 6, 7}});
        std::vector<float> x;
        std::vector<float> y;
        std::vector<float> b;
        for (int64_t i = 0; i < rows * width; ++i) x.push_back(static_cast<float>(i % 7));
        for (int64_t i = 0; i < rows * width; ++i) y.push_back(static_cast<float>(i % 5));
        for (int64_t i = 0; i < width; ++i) b.push_back(static_cast<float>(i % 3));
        const std::vector<HostTensor> inputs = {TensorOf(dtype, {rows, width}, x),
                                                TensorOf(dtype, {rows, width}, y),
                                                TensorOf(dtype, {width}, b)};
        const auto made = MakeKernel(gpu_.target(), spec);
        ASSERT_TRUE(made) << made.error();
        const auto got = InPlace(**made, inputs, spec.outputs);
        ASSERT_TRUE(got) << got.error();
        const auto want = OnHost(spec, inputs);
        ASSERT_TRUE(want) << want.error();
        for (size_t r = 0; r < 4; ++r) {
          EXPECT_EQ(FloatsOf((*got)[r]), FloatsOf((*want)[r]))
              << rows << " rows of " << width << ", result " << r;
        }
      }
    }
  }
}

TEST_F(CudaChain, EqualChainsAreCompiledOnce) {
  for (const int64_t rows : {8, 16, 24}) {
    const KernelSpec spec = ResidualSpec(rows, 16);
    const auto kernel = MakeKernel(gpu_.target(), spec);
    ASSERT_TRUE(kernel) << kernel.error();
    kept_.push_back(*MakeKernel(gpu_.target(), spec));
  }
  EXPECT_EQ(gpu_.libraries.compiler.compiled(), 1);
  EXPECT_EQ(gpu_.libraries.compiler.loaded(), 1);
  kept_.clear();
  EXPECT_EQ(gpu_.libraries.compiler.loaded(), 0);
}

// A random body over two full operands, a row and a scalar.
FusedBody RandomBody(std::mt19937& random, const ir::Attrs& rows) {
  FusedBody body;
  std::vector<int> full = {0, 1};
  const auto pick = [&](size_t count) {
    return static_cast<size_t>(
        std::uniform_int_distribution<int>(0, static_cast<int>(count) - 1)(random));
  };
  const auto any = [&] { return full[pick(full.size())]; };
  int next = 4;
  const size_t steps = 2 + pick(6);
  for (size_t s = 0; s < steps; ++s) {
    const std::vector<ir::FusedStep> choices = {{Op::kAdd, {any(), any()}, {}},
                                                {Op::kMul, {any(), 2}, {}},
                                                {Op::kAdd, {any(), 2}, {}},
                                                {Op::kSub, {any(), any()}, {}},
                                                {Op::kScale, {any()}, {{"factor", -0.75}}},
                                                {Op::kMulScalar, {any(), 3}, {}},
                                                {Op::kSum, {any(), any(), any()}, {}},
                                                {Op::kGelu, {any()}, {}},
                                                {Op::kGeluGrad, {any(), any()}, {}},
                                                {Op::kSilu, {any()}, {}},
                                                {Op::kSiluGrad, {any(), any()}, {}},
                                                {Op::kDropout, {any()}, kDropout}};
    body.steps.push_back(choices[pick(choices.size())]);
    full.push_back(next++);
  }
  body.results = {full.back()};
  if (pick(2) == 0 && full[full.size() - 2] > 3) body.results.push_back(full[full.size() - 2]);
  if (pick(2) == 0) {
    body.steps.push_back({Op::kReduceSum, {any()}, rows});
    body.results.push_back(next++);
  }
  return body;
}

TEST_F(CudaChain, RandomChainsAgreeWithTheirStepsOneByOne) {
  std::mt19937 random(20'260'301);
  for (int trial = 0; trial < 24; ++trial) {
    const int64_t width = trial % 3 == 0 ? 13 : 16;
    const FusedBody body = RandomBody(random, {{"dims", std::vector<int64_t>{0, 1}}});
    std::vector<Dims> dims = {{3, 7, width}, {3, 7, width}, {width}, {}};
    std::vector<ir::TensorType> narrow;
    std::vector<HostTensor> inputs;
    for (const Dims& of : dims) {
      narrow.push_back({DType::kF32, of});
      inputs.push_back(TensorOf(DType::kF32, of, Spread(narrow.back().elements(), 0.5f)));
    }
    const KernelSpec spec = FusedSpec(narrow, body);
    ASSERT_FALSE(spec.outputs.empty());
    const auto gpu = OnGpu(spec, inputs);
    ASSERT_TRUE(gpu) << gpu.error();
    const auto host = OnHost(spec, inputs);
    ASSERT_TRUE(host) << host.error();
    for (size_t r = 0; r < gpu->size(); ++r) {
      const std::vector<float> x = FloatsOf((*gpu)[r]);
      const std::vector<float> y = FloatsOf((*host)[r]);
      float largest = 1;
      for (const float value : y) largest = std::max(largest, std::abs(value));
      for (size_t i = 0; i < x.size(); ++i) {
        ASSERT_NEAR(x[i], y[i], 2e-5f * largest)
            << "trial " << trial << " result " << r << " of " << spec.ToString();
      }
    }
  }
}

}  // namespace
}  // namespace meshwright::ops
