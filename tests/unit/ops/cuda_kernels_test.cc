// Paths of our own kernels that the op table is too small for. Operands are whole numbers, so that
// every sum of them is exact, or their order is what is tested.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>

#include "ops/kernel_spec.h"
#include "tests/unit/ops/cuda_fixture.h"

namespace meshwright::ops {
namespace {

using ir::Dims;
using ir::DType;
using ir::Op;

HostTensor IdsOf(const std::vector<int32_t>& ids) {
  HostTensor tensor{{DType::kI32, {static_cast<int64_t>(ids.size())}}, {}};
  const auto bytes = std::as_bytes(std::span(ids));
  tensor.data.assign(bytes.begin(), bytes.end());
  return tensor;
}

// From -8 to 8, no two neighbours equal.
std::vector<float> WholeNumbers(int64_t count, int64_t seed) {
  std::vector<float> values;
  for (int64_t i = 0; i < count; ++i) {
    values.push_back(static_cast<float>((i * 7919 + seed * 31) % 17) - 8);
  }
  return values;
}

RunContext StepContext() {
  RunContext context;
  context.seed = 77;
  context.step = 5;
  return context;
}

Result<std::vector<HostTensor>> OnGpu(const KernelSpec& spec, const std::vector<HostTensor>& inputs,
                                      uint64_t seed = 1) {
  EmulatedGpu gpu({.seed = seed});
  MW_ASSIGN_OR_RETURN(const auto kernel, MakeKernel(gpu.target(), spec));
  return RunNode(gpu, *kernel, inputs, spec.outputs, StepContext());
}

// ---- embedding_grad -----------------------------------------------------------------------------

struct Positions {
  const char* name;
  int64_t rows;
  std::vector<int32_t> ids;
};

std::vector<int32_t> Ids(int64_t count, const std::function<int64_t(int64_t)>& id) {
  std::vector<int32_t> ids;
  for (int64_t i = 0; i < count; ++i) ids.push_back(static_cast<int32_t>(id(i)));
  return ids;
}

// A bucket of more than 256 positions is put in order by going through all ids, one of more than 64
// is added up in parts, and of more than 512 by all rows of threads.
std::vector<Positions> AllPositions() {
  return {
      {"none", 5, {}},
      {"one", 5, {3}},
      {"a part", 3, Ids(64, [](int64_t) { return 1; })},
      {"a part and one", 3, Ids(65, [](int64_t) { return 1; })},
      {"one id", 3, Ids(1500, [](int64_t) { return 2; })},
      {"few ids", 5, Ids(1999, [](int64_t i) { return i * i % 5; })},
      {"one is everywhere", 50, Ids(1400, [](int64_t i) { return i % 3 != 0 ? 7 : i % 50; })},
      {"all different", 700, Ids(700, [](int64_t i) { return i * 299 % 700; })},
      {"runs over the ends of parts", 30, Ids(1000, [](int64_t i) { return i / 40; })},
      {"more ids than a block has threads", 5000,
       Ids(900, [](int64_t i) { return i * 37 % 4999; })},
  };
}

KernelSpec EmbeddingGradSpec(const Positions& positions, DType dtype, int64_t width,
                             bool accumulates) {
  KernelSpec spec;
  spec.op = Op::kEmbeddingGrad;
  spec.attrs = {{"rows", positions.rows}};
  const int64_t count = static_cast<int64_t>(positions.ids.size());
  spec.inputs = {{DType::kI32, {count}}, {dtype, {count, width}}};
  if (accumulates) spec.inputs.push_back({dtype, {positions.rows, width}});
  spec.outputs = {{dtype, {positions.rows, width}}};
  return spec;
}

TEST(CudaEmbeddingGrad, AddsUpTheRowsOfEveryId) {
  for (const Positions& positions : AllPositions()) {
    for (const int64_t width : {1, 20, 24, 300}) {
      if (width == 300 && positions.rows > 1000) continue;
      const DType dtype = width == 20 ? DType::kF16 : width == 24 ? DType::kBF16 : DType::kF32;
      const bool accumulates = width != 1;
      const KernelSpec spec = EmbeddingGradSpec(positions, dtype, width, accumulates);
      const std::vector<float> dy = WholeNumbers(spec.inputs[1].elements(), 1);
      std::vector<float> want(static_cast<size_t>(positions.rows * width));
      std::vector<HostTensor> inputs = {IdsOf(positions.ids),
                                        TensorOf(dtype, spec.inputs[1].dims, dy)};
      if (accumulates) {
        want = WholeNumbers(positions.rows * width, 2);
        inputs.push_back(TensorOf(dtype, spec.inputs[2].dims, want));
      }
      for (size_t i = 0; i < dy.size(); ++i) {
        const size_t columns = static_cast<size_t>(width);
        const auto row = static_cast<size_t>(positions.ids[i / columns]);
        want[row * columns + i % columns] += dy[i];
      }
      const auto got = OnGpu(spec, inputs);
      ASSERT_TRUE(got) << got.error();
      EXPECT_EQ(FloatsOf((*got)[0]), FloatsOf(TensorOf(dtype, spec.outputs[0].dims, want)))
          << positions.name << ", width " << width;
    }
  }
}

// Sums of these in another order have other bits.
TEST(CudaEmbeddingGrad, HasTheSameBitsWhateverRunsFirst) {
  for (const Positions& positions : AllPositions()) {
    const KernelSpec spec = EmbeddingGradSpec(positions, DType::kF32, 4, false);
    std::vector<float> dy;
    for (int64_t i = 0; i < spec.inputs[1].elements(); ++i) {
      dy.push_back(std::ldexp(static_cast<float>(i * 7919 % 1009) - 504, static_cast<int>(i % 24)));
    }
    const std::vector<HostTensor> inputs = {IdsOf(positions.ids),
                                            TensorOf(DType::kF32, spec.inputs[1].dims, dy)};
    const auto first = OnGpu(spec, inputs, 1);
    ASSERT_TRUE(first) << first.error();
    for (const uint64_t seed : {2, 3}) {
      const auto other = OnGpu(spec, inputs, seed);
      ASSERT_TRUE(other) << other.error();
      EXPECT_EQ((*first)[0].data, (*other)[0].data) << positions.name;
    }
  }
}

TEST(CudaEmbeddingGrad, LeavesRowsOfOthersAloneAndReportsIdsOfNobody) {
  // Rows 8 .. 15 of 16.
  KernelSpec spec;
  spec.op = Op::kEmbeddingGrad;
  spec.attrs = {{"rows", 16}};
  spec.attrs.Set("global_dims", std::vector<int64_t>{16, 4});
  spec.attrs.Set("dim_axes", std::vector<std::string>{"model", ""});
  spec.coords = {{"model"}, {2}, {1}, 1};
  spec.inputs = {{DType::kI32, {600}}, {DType::kF32, {600, 4}}};
  spec.outputs = {{DType::kF32, {8, 4}}};
  std::vector<int32_t> ids = Ids(600, [](int64_t i) { return i % 2 == 0 ? 9 : i % 16; });
  const std::vector<float> dy = WholeNumbers(2400, 1);
  std::vector<float> want(32);
  for (size_t i = 0; i < dy.size(); ++i) {
    if (ids[i / 4] >= 8) want[(static_cast<size_t>(ids[i / 4]) - 8) * 4 + i % 4] += dy[i];
  }
  const auto got = OnGpu(spec, {IdsOf(ids), TensorOf(DType::kF32, {600, 4}, dy)});
  ASSERT_TRUE(got) << got.error();
  EXPECT_EQ(FloatsOf((*got)[0]), want);
  ids[77] = 16;
  EXPECT_FALSE(OnGpu(spec, {IdsOf(ids), TensorOf(DType::kF32, {600, 4}, dy)}));
}

// Units of 16, 4 and 2 bytes, more of them than a warp loads at once; ids of others give zeros.
TEST(CudaEmbedding, CopiesWideRows) {
  const std::vector<int32_t> ids = Ids(21, [](int64_t i) { return i % 8; });
  for (const int64_t width : {4, 600, 601}) {
    for (const DType dtype : {DType::kF32, DType::kBF16}) {
      KernelSpec spec;
      spec.op = Op::kEmbedding;
      spec.attrs.Set("global_dims", std::vector<int64_t>{8, width});
      spec.attrs.Set("dim_axes", std::vector<std::string>{"model", ""});
      spec.coords = {{"model"}, {2}, {1}, 1};
      spec.inputs = {{dtype, {4, width}}, {DType::kI32, {21}}};
      spec.outputs = {{dtype, {21, width}}};
      const std::vector<HostTensor> inputs = {
          TensorOf(dtype, {4, width}, WholeNumbers(4 * width, 1)), IdsOf(ids)};
      const auto got = OnGpu(spec, inputs);
      ASSERT_TRUE(got) << got.error();
      const auto want = RunOnReference(spec, inputs, StepContext());
      ASSERT_TRUE(want) << want.error();
      EXPECT_EQ((*got)[0].data, (*want)[0].data) << width;
    }
  }
}

// ---- reduce_sum ---------------------------------------------------------------------------------

TEST(CudaReduceSum, OfNothingIsZeroAndTheSumsOfNoColumnsAreNone) {
  for (const Dims& dims : {Dims{0, 5}, Dims{5, 0}, Dims{0, 0}}) {
    for (const int64_t reduced : {0, 1}) {
      KernelSpec spec;
      spec.op = Op::kReduceSum;
      spec.attrs = {{"dims", std::vector<int64_t>{reduced}}};
      spec.inputs = {{DType::kF32, dims}};
      spec.outputs = {{DType::kF32, {dims[static_cast<size_t>(1 - reduced)]}}};
      const auto got = OnGpu(spec, {TensorOf(DType::kF32, dims, {})});
      ASSERT_TRUE(got) << got.error();
      EXPECT_EQ(FloatsOf((*got)[0]),
                std::vector<float>(static_cast<size_t>(spec.outputs[0].elements())));
    }
  }
}

// Of one dim and of several, in more parts than a block has rows of threads.
TEST(CudaReduceSum, AddsUpManyPartsOfEveryType) {
  struct Form {
    Dims dims;
    std::vector<int64_t> reduced;
  };
  for (const Form& form :
       {Form{{7000, 40}, {0}}, Form{{7000, 3}, {0}}, Form{{700, 3, 10, 8}, {0, 2}},
        Form{{150'000}, {0}}, Form{{3, 40'001}, {1}}}) {
    for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
      KernelSpec spec;
      spec.op = Op::kReduceSum;
      spec.attrs = {{"dims", form.reduced}};
      spec.inputs = {{dtype, form.dims}};
      Dims kept;
      for (size_t d = 0; d < form.dims.size(); ++d) {
        const bool reduces = std::count(form.reduced.begin(), form.reduced.end(), d) != 0;
        if (!reduces) kept.push_back(form.dims[d]);
      }
      spec.outputs = {{dtype, kept}};
      const std::vector<HostTensor> x = {
          TensorOf(dtype, form.dims, WholeNumbers(spec.inputs[0].elements(), 3))};
      const auto got = OnGpu(spec, x);
      ASSERT_TRUE(got) << got.error();
      const auto want = RunOnReference(spec, x, StepContext());
      ASSERT_TRUE(want) << want.error();
      EXPECT_EQ(FloatsOf((*got)[0]), FloatsOf((*want)[0])) << spec.ToString();
    }
  }
}

// ---- rotary -------------------------------------------------------------------------------------

// The last 16 of 131072 positions, where an f32 angle is off by 2^-7.
TEST(CudaRotary, IsExactAtFarPositions) {
  constexpr int64_t kPositions = 131072;
  constexpr int64_t kHead = 256;
  for (const int64_t inverse : {0, 1}) {
    KernelSpec spec;
    spec.op = Op::kRotary;
    spec.attrs = {{"base", 500000.0}, {"inverse", inverse}};
    spec.attrs.Set("global_dims", std::vector<int64_t>{1, kPositions, 1, kHead});
    spec.attrs.Set("dim_axes", std::vector<std::string>{"", "seq", "", ""});
    spec.coords = {{"seq"}, {kPositions / 16}, {kPositions / 16 - 1}, 1};
    spec.inputs = {{DType::kF32, {1, 16, 1, kHead}}};
    spec.outputs = spec.inputs;
    const std::vector<float> x = WholeNumbers(16 * kHead, 1);
    const auto got = OnGpu(spec, {TensorOf(DType::kF32, spec.inputs[0].dims, x)});
    ASSERT_TRUE(got) << got.error();
    const std::vector<float> y = FloatsOf((*got)[0]);
    for (size_t i = 0; i < y.size(); ++i) {
      const size_t pair = i % (kHead / 2);
      const bool high = i % kHead >= kHead / 2;
      const double angle = static_cast<double>(kPositions - 16 + static_cast<int64_t>(i) / kHead) *
                           std::pow(500000.0, -2.0 * static_cast<double>(pair) / kHead);
      const double sine = (inverse != 0 ? -1 : 1) * (high ? 1 : -1) * std::sin(angle);
      const double other = x[high ? i - kHead / 2 : i + kHead / 2];
      // Both terms have up to 8 times the error of a sine.
      ASSERT_NEAR(y[i], x[i] * std::cos(angle) + other * sine, 8 * 4e-7) << "element " << i;
    }
  }
}

TEST(CudaRotary, RefusesHeadsWithMorePairsThanArgumentsHold) {
  KernelSpec spec;
  spec.op = Op::kRotary;
  spec.inputs = {{DType::kF32, {1, 2, 1, 258}}};
  spec.outputs = spec.inputs;
  const auto got = OnGpu(spec, {TensorOf(DType::kF32, spec.inputs[0].dims, WholeNumbers(516, 1))});
  ASSERT_FALSE(got);
  EXPECT_EQ(got.error().code(), StatusCode::kUnimplemented) << got.error();
}

// ---- adamw --------------------------------------------------------------------------------------

// Of more than a block, and no whole number of units.
TEST(CudaAdamW, UpdatesEveryElementOfALongTensorOnce) {
  constexpr int64_t kCount = 9003;
  KernelSpec spec;
  spec.op = Op::kAdamW;
  spec.attrs = {{"beta1", 0.9}, {"beta2", 0.95}, {"eps", 1e-8}, {"weight_decay", 0.1}};
  const ir::TensorType many{DType::kF32, {kCount}};
  const ir::TensorType one{DType::kF32, {}};
  spec.inputs = {many, many, many, many, one, one};
  spec.outputs = {many, many, many};
  const std::vector<float> squares(static_cast<size_t>(kCount), 0.25f);
  const std::vector<HostTensor> inputs = {TensorOf(DType::kF32, {kCount}, Spread(kCount)),
                                          TensorOf(DType::kF32, {kCount}, WholeNumbers(kCount, 1)),
                                          TensorOf(DType::kF32, {kCount}, Spread(kCount, 0.1f)),
                                          TensorOf(DType::kF32, {kCount}, squares),
                                          TensorOf(DType::kF32, {}, {0.5f}),
                                          TensorOf(DType::kF32, {}, {0.125f})};
  const auto got = OnGpu(spec, inputs);
  ASSERT_TRUE(got) << got.error();
  const auto want = RunOnReference(spec, inputs, StepContext());
  ASSERT_TRUE(want) << want.error();
  for (size_t r = 0; r < 3; ++r) {
    const std::vector<float> x = FloatsOf((*got)[r]);
    const std::vector<float> y = FloatsOf((*want)[r]);
    for (size_t i = 0; i < x.size(); ++i) {
      ASSERT_NEAR(x[i], y[i], 3e-6f * std::max(1.0f, std::abs(y[i]))) << r << ", element " << i;
    }
  }
}

// ---- dropout, copies ----------------------------------------------------------------------------

// One run of the whole, and many of a shard, which must have the whole's mask.
TEST(CudaDropout, HasTheReferencesMaskInEveryLayout) {
  for (const std::vector<std::string>& axes :
       {std::vector<std::string>{"", ""}, {"data", ""}, {"", "data"}}) {
    for (const int64_t width : {24, 26}) {
      KernelSpec spec;
      spec.op = Op::kDropout;
      spec.attrs = {{"rate", 0.25}, {"name", "mask"}};
      spec.attrs.Set("global_dims", std::vector<int64_t>{40, width});
      spec.attrs.Set("dim_axes", axes);
      spec.coords = {{"data"}, {2}, {1}, 1};
      spec.inputs = {
          {DType::kF32, {axes[0].empty() ? 40 : 20, axes[1].empty() ? width : width / 2}}};
      spec.outputs = spec.inputs;
      const std::vector<HostTensor> x = {
          TensorOf(DType::kF32, spec.inputs[0].dims, Spread(spec.inputs[0].elements()))};
      const auto got = OnGpu(spec, x);
      ASSERT_TRUE(got) << got.error();
      const auto want = RunOnReference(spec, x, StepContext());
      ASSERT_TRUE(want) << want.error();
      EXPECT_EQ((*got)[0].data, (*want)[0].data) << axes[0] << "|" << axes[1] << " " << width;
    }
  }
}

// Units of 16, 8, 4 and 2 bytes.
TEST(CudaTranspose, MovesRunsOfEveryUnit) {
  for (const int64_t run : {16, 12, 6, 5}) {
    for (const DType dtype : {DType::kF32, DType::kBF16}) {
      KernelSpec spec;
      spec.op = Op::kTranspose;
      spec.attrs = {{"perm", std::vector<int64_t>{2, 0, 1, 3}}};
      spec.inputs = {{dtype, {3, 4, 5, run}}};
      spec.outputs = {{dtype, {5, 3, 4, run}}};
      const std::vector<HostTensor> x = {
          TensorOf(dtype, spec.inputs[0].dims, Spread(spec.inputs[0].elements()))};
      const auto got = OnGpu(spec, x);
      ASSERT_TRUE(got) << got.error();
      const auto want = RunOnReference(spec, x, StepContext());
      ASSERT_TRUE(want) << want.error();
      EXPECT_EQ((*got)[0].data, (*want)[0].data) << run;
    }
  }
}

}  // namespace
}  // namespace meshwright::ops
