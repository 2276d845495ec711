// Kernels that take a matrix row by row: heads, losses, norms. What the op table does not reach:
// each number beside what it must be, NaNs, padding, grids that are too large.
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>

#include "ops/cuda/head_rows.h"
#include "ops/cuda/kernels.h"
#include "tests/unit/ops/cuda_fixture.h"

namespace meshwright::ops {
namespace {

using ir::DType;

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr int32_t kIgnored = -1;

double LogSumExp(const float* x, int64_t count) {
  double sum = 0;
  for (int64_t i = 0; i < count; ++i) sum += std::exp(static_cast<double>(x[i]));
  return std::log(sum);
}

// What rounding to the type and a few steps of f32 may change.
double Tolerance(DType dtype, double value) {
  const double relative = dtype == DType::kF32 ? 1e-5 : dtype == DType::kF16 ? 1e-3 : 5e-3;
  return relative * std::abs(value) + 1e-7;
}

HostTensor Labels(const std::vector<int32_t>& ids) {
  HostTensor tensor{{DType::kI32, {static_cast<int64_t>(ids.size())}}, {}};
  tensor.data.resize(ids.size() * sizeof(int32_t));
  std::memcpy(tensor.data.data(), ids.data(), tensor.data.size());
  return tensor;
}

class CudaRows : public testing::Test {
 protected:
  // In the GPU's memory for as long as the test runs.
  void* Place(const HostTensor& tensor) {
    const int64_t bytes = tensor.type.bytes();
    auto memory = gpu_.device->Allocate({ir::MemoryKind::kOther, bytes});
    EXPECT_TRUE(memory) << memory.error();
    EXPECT_TRUE(gpu_.device->queue().CopyIn((*memory)->data(), tensor.data.data(), bytes).ok());
    places_.push_back(*std::move(memory));
    return places_.back()->data();
  }
  void* Place(const std::vector<float>& values, DType dtype = DType::kF32) {
    return Place(TensorOf(dtype, {static_cast<int64_t>(values.size())}, values));
  }
  HostTensor Get(const void* data, DType dtype, int64_t count) {
    HostTensor tensor{{dtype, {count}}, {}};
    tensor.data.resize(static_cast<size_t>(tensor.type.bytes()));
    device::Queue& queue = gpu_.device->queue();
    EXPECT_TRUE(queue.CopyOut(tensor.data.data(), data, tensor.type.bytes()).ok());
    EXPECT_TRUE(queue.Finish(Deadline::After(60'000)).ok());
    return tensor;
  }
  void* stream() { return gpu_.device->queue().native(); }

  EmulatedGpu gpu_;
  std::vector<std::unique_ptr<device::Memory>> places_;
};

// ---- Rows of a head -----------------------------------------------------------------------------

struct Head {
  int64_t columns = 0;
  std::vector<int32_t> labels;
  DType dtype = DType::kF32;
  bool gradient = true;
};

class CudaHeadRows : public CudaRows {
 protected:
  static constexpr float kDloss = 0.5f;
  static constexpr float kPadding = 77;

  static int64_t PitchOf(const Head& head) { return (head.columns + 15) / 16 * 16; }

  // Rows of logits with padding behind each.
  static std::vector<float> LogitsOf(const Head& head) {
    std::vector<float> logits;
    const auto rows = static_cast<int64_t>(head.labels.size());
    const std::vector<float> values = Spread(rows * head.columns, 4);
    for (int64_t r = 0; r < rows; ++r) {
      const auto row = values.begin() + r * head.columns;
      logits.insert(logits.end(), row, row + head.columns);
      logits.insert(logits.end(), static_cast<size_t>(PitchOf(head) - head.columns), kPadding);
    }
    return logits;
  }

  struct Found {
    std::vector<float> losses;
    std::vector<float> logits;     // of the memory, as f32
    std::vector<float> gradients;  // of the memory, as the gradient's type
  };
  Found Run(const Head& head, const std::vector<float>& logits) {
    const auto rows = static_cast<int64_t>(head.labels.size());
    cuda::HeadBlockRows block;
    block.logits = Place(logits);
    block.labels = static_cast<const int32_t*>(Place(Labels(head.labels)));
    block.losses = static_cast<float*>(Place(std::vector<float>(head.labels.size())));
    block.rows = rows;
    block.columns = head.columns;
    block.pitch = PitchOf(head);
    block.ignored = kIgnored;
    if (head.gradient) block.dloss = static_cast<const float*>(Place(std::vector{kDloss}));
    block.gradient = head.dtype;
    EXPECT_EQ(gpu_.toolkit.head_rows->RunBlock(block, stream()), 0);
    const int64_t count = rows * block.pitch;
    const int64_t narrow = count * 4 / ir::DTypeBytes(head.dtype);
    return {FloatsOf(Get(block.losses, DType::kF32, rows)),
            FloatsOf(Get(block.logits, DType::kF32, count)),
            FloatsOf(Get(block.logits, head.dtype, narrow))};
  }

  static void ExpectRow(const Head& head, int64_t r, const std::vector<float>& logits,
                        const Found& found) {
    const int32_t label = head.labels[static_cast<size_t>(r)];
    const float* const row = logits.data() + r * PitchOf(head);
    const double lse = LogSumExp(row, head.columns);
    const double loss = label == kIgnored ? 0 : lse - static_cast<double>(row[label]);
    EXPECT_NEAR(static_cast<double>(found.losses[static_cast<size_t>(r)]), loss, 1e-5);
    const int64_t first = r * PitchOf(head) * 4 / ir::DTypeBytes(head.dtype);
    for (int64_t i = 0; i < head.columns; ++i) {
      const double share = std::exp(static_cast<double>(row[i]) - lse) - (i == label ? 1 : 0);
      const double want = label == kIgnored ? 0 : static_cast<double>(kDloss) * share;
      ASSERT_NEAR(static_cast<double>(found.gradients[static_cast<size_t>(first + i)]), want,
                  Tolerance(head.dtype, want))
          << "row " << r << ", column " << i;
    }
    for (int64_t i = head.columns; i < PitchOf(head); ++i) {
      EXPECT_EQ(found.logits[static_cast<size_t>(r * PitchOf(head) + i)], kPadding);
    }
  }
};

// One batch of units is 8192 logits: rows without a whole unit, of one batch and of several, with
// ends of all lengths.
TEST_F(CudaHeadRows, EveryGradientIsWhereItsLogitWas) {
  for (const int64_t columns : {1, 3, 4, 7, 16, 2050, 8192, 8193, 8211, 17003, 17008}) {
    const auto last = static_cast<int32_t>(columns - 1);
    for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
      const Head head{columns, {0, last, kIgnored, last / 2}, dtype};
      const std::vector<float> logits = LogitsOf(head);
      const Found found = Run(head, logits);
      SCOPED_TRACE(std::string(ir::DTypeName(dtype)) + ", columns " + std::to_string(columns));
      for (int64_t r = 0; r < 4; ++r) ExpectRow(head, r, logits, found);
    }
  }
}

TEST_F(CudaHeadRows, WithoutAGradientLogitsStay) {
  const Head head{8211, {1, 8210}, DType::kBF16, false};
  const std::vector<float> logits = LogitsOf(head);
  const Found found = Run(head, logits);
  EXPECT_EQ(found.logits, logits);
  for (size_t r = 0; r < 2; ++r) {
    const float* const row = logits.data() + static_cast<int64_t>(r) * PitchOf(head);
    const double loss = LogSumExp(row, 8211) - static_cast<double>(row[head.labels[r]]);
    EXPECT_NEAR(static_cast<double>(found.losses[r]), loss, 1e-5);
  }
}

// Also where it is all that a thread has: in 9 columns, two threads have units and one an end.
TEST_F(CudaHeadRows, NanReachesLossAndGradient) {
  for (const auto [columns, first, count] :
       {std::array{9, 0, 1}, {9, 4, 4}, {9, 5, 1}, {9, 8, 1}, {3, 0, 3}, {8211, 8210, 1}}) {
    Head head{columns, {0, kIgnored, 0}, DType::kF32};
    std::vector<float> logits = LogitsOf(head);
    const auto pitch = static_cast<size_t>(PitchOf(head));
    for (size_t r = 0; r < 2; ++r) {
      for (int i = 0; i < count; ++i) {
        logits[r * pitch + static_cast<size_t>(first + i)] = kNan;
      }
    }
    const Found found = Run(head, logits);
    SCOPED_TRACE(std::to_string(columns) + " columns, NaN at " + std::to_string(first));
    EXPECT_TRUE(std::isnan(found.losses[0]));
    EXPECT_EQ(found.losses[1], 0);
    for (size_t i = 0; i < static_cast<size_t>(columns); ++i) {
      EXPECT_TRUE(std::isnan(found.gradients[i]));
      EXPECT_EQ(found.gradients[pitch + i], 0);
    }
    ExpectRow(head, 2, logits, found);
  }
}

TEST_F(CudaHeadRows, LogitsOfMinusInfinityHaveNoShare) {
  Head head{8211, {1, 4100}, DType::kF32};
  std::vector<float> logits = LogitsOf(head);
  const auto pitch = static_cast<size_t>(PitchOf(head));
  for (size_t i = 0; i < 8211; ++i) {
    if (i != 1 && i != 8000) logits[i] = -kInfinity;
    if (i < 4100) logits[pitch + i] = -kInfinity;
  }
  const Found found = Run(head, logits);
  for (int64_t r = 0; r < 2; ++r) ExpectRow(head, r, logits, found);
}

// ---- Rows of losses -----------------------------------------------------------------------------

class CudaLossRows : public CudaRows {
 protected:
  static constexpr int64_t kRows = 9;  // rows of odd widths begin at each place of a unit

  static cuda::FloatType TypeOf(DType dtype) {
    return dtype == DType::kF32    ? cuda::FloatType::kF32
           : dtype == DType::kBF16 ? cuda::FloatType::kBF16
                                   : cuda::FloatType::kF16;
  }
  // As the type has them.
  static std::vector<float> Rounded(DType dtype, const std::vector<float>& values) {
    return FloatsOf(TensorOf(dtype, {static_cast<int64_t>(values.size())}, values));
  }

  std::vector<float> Lse(DType dtype, const std::vector<float>& x) {
    cuda::LogSumExpArgs args;
    args.x = Place(x, dtype);
    args.lse = static_cast<float*>(Place(std::vector<float>(kRows)));
    args.rows = kRows;
    args.width = static_cast<int64_t>(x.size()) / kRows;
    args.type = TypeOf(dtype);
    EXPECT_EQ(cuda::OwnKernels().LogSumExp(args, stream()), 0);
    return FloatsOf(Get(args.lse, DType::kF32, kRows));
  }
};

TEST_F(CudaLossRows, LogSumExpOfEveryWidth) {
  for (const int64_t width : {1, 3, 7, 8, 13, 40, 259, 8195, 20001}) {
    for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
      const std::vector<float> x = Rounded(dtype, Spread(kRows * width, 4));
      const std::vector<float> found = Lse(dtype, x);
      for (int64_t r = 0; r < kRows; ++r) {
        EXPECT_NEAR(static_cast<double>(found[static_cast<size_t>(r)]),
                    LogSumExp(x.data() + r * width, width), 1e-5)
            << ir::DTypeName(dtype) << ", width " << width << ", row " << r;
      }
    }
  }
}

TEST_F(CudaLossRows, LogSumExpKeepsWhatIsNoNumber) {
  constexpr size_t kWidth = 37;
  for (size_t at = 0; at < kWidth; ++at) {
    std::vector<float> x = Spread(kRows * kWidth);
    x[4 * kWidth + at] = kNan;
    x[5 * kWidth + at] = kInfinity;
    for (size_t i = 0; i < kWidth; ++i) x[6 * kWidth + i] = -kInfinity;
    for (size_t i = 0; i < kWidth; ++i) x[7 * kWidth + i] = i == at ? 2.0f : -kInfinity;
    const std::vector<float> found = Lse(DType::kF32, x);
    EXPECT_TRUE(std::isnan(found[4])) << at;
    EXPECT_EQ(found[5], kInfinity) << at;
    EXPECT_EQ(found[6], -kInfinity) << at;
    EXPECT_EQ(found[7], 2.0f) << at;
    EXPECT_TRUE(std::isfinite(found[3]) && std::isfinite(found[8])) << at;
  }
}

// A shard of a vocabulary: its columns start at 100, and the last ones are padding, which may be
// anything.
TEST_F(CudaLossRows, GradientOfAShardEndsWithItsColumns) {
  constexpr float kDloss = 0.5f;
  for (const int64_t width : {3, 37, 259, 8195}) {
    for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
      const int64_t valid = width - width / 3;
      const auto end = static_cast<int32_t>(100 + valid);
      const std::vector<int32_t> labels = {100, end - 1, 99,      end + 5,  kIgnored,
                                           101, end - 2, end / 2, INT32_MAX};
      std::vector<float> x = Rounded(dtype, Spread(kRows * width));
      for (int64_t i = 0; i < kRows * width; ++i) {
        if (i % width >= valid) x[static_cast<size_t>(i)] = kNan;
      }
      std::vector<float> lse;
      for (int64_t r = 0; r < kRows; ++r) lse.push_back(static_cast<float>(r) / 4);
      cuda::CrossEntropyGradArgs args;
      args.logits = Place(x, dtype);
      args.labels = static_cast<const int32_t*>(Place(Labels(labels)));
      args.lse = static_cast<const float*>(Place(lse));
      args.dloss = static_cast<const float*>(Place(std::vector{kDloss}));
      args.to = Place(std::vector<float>(x.size(), kNan), dtype);
      args.rows = kRows;
      args.width = width;
      args.first_column = 100;
      args.valid_columns = valid;
      args.ignore = kIgnored;
      args.type = TypeOf(dtype);
      ASSERT_EQ(cuda::OwnKernels().CrossEntropyGrad(args, stream()), 0);
      const std::vector<float> found = FloatsOf(Get(args.to, dtype, kRows * width));
      for (int64_t i = 0; i < kRows * width; ++i) {
        const auto r = static_cast<size_t>(i / width);
        const auto at = static_cast<size_t>(i);
        const bool counts = labels[r] != kIgnored && i % width < valid;
        const double target = i % width + 100 == labels[r] ? 1 : 0;
        const double want = counts ? static_cast<double>(kDloss) *
                                         (std::exp(static_cast<double>(x[at] - lse[r])) - target)
                                   : 0;
        ASSERT_NEAR(static_cast<double>(found[at]), want, Tolerance(dtype, want))
            << ir::DTypeName(dtype) << ", width " << width << ", element " << i;
      }
    }
  }
}

// ---- Grids --------------------------------------------------------------------------------------

// More blocks than a grid has, which in 32 bits would be one.
TEST_F(CudaRows, MoreRowsThanAGridHoldsAreRefused) {
  constexpr int64_t kMany = (int64_t{1} << 32) + 1;
  cuda::Kernels& kernels = cuda::OwnKernels();
  cuda::NormArgs norm;
  norm.rows = kMany * 8;
  norm.width = 8;
  EXPECT_EQ(kernels.Norm(norm, stream()), cuda::kTooManyBlocks);
  cuda::LogSumExpArgs lse;
  lse.rows = kMany;
  lse.width = 8;
  EXPECT_EQ(kernels.LogSumExp(lse, stream()), cuda::kTooManyBlocks);
  cuda::CrossEntropyGradArgs gradient;
  gradient.rows = kMany;
  gradient.width = 8;
  EXPECT_EQ(kernels.CrossEntropyGrad(gradient, stream()), cuda::kTooManyBlocks);
  cuda::PickArgs pick;
  pick.rows = kMany * 256;
  pick.width = 8;
  EXPECT_EQ(kernels.Pick(pick, stream()), cuda::kTooManyBlocks);
  cuda::HeadBlockRows head;
  head.rows = kMany;
  head.columns = head.pitch = 16;
  EXPECT_EQ(gpu_.toolkit.head_rows->RunBlock(head, stream()), cuda::kTooManyBlocks);
}

}  // namespace
}  // namespace meshwright::ops
