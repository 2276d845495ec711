#include "collective/cpu/reduce.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "base/half.h"

namespace meshwright::collective {
namespace {

using ir::DType;

template <typename T>
std::vector<T> Combine(DType dtype, Reduction reduction,
                       const std::vector<std::vector<T>>& pieces) {
  const ReduceKernel kernel = FindReduceKernel(dtype, reduction).value();
  const auto count = static_cast<int64_t>(pieces[0].size());
  Accumulator accumulator(count * static_cast<int64_t>(sizeof(T)));
  for (size_t i = 0; i < pieces.size(); ++i) {
    accumulator.Add(kernel, pieces[i].data(), count, i == 0);
  }
  std::vector<T> result(pieces[0].size());
  accumulator.Store(kernel, result.data(), count);
  return result;
}

TEST(Reduce, SumFollowsTheOrderOfThePieces) {
  // 1e8 + 1 - 1e8 is 0 in this order and 1 in the other: f32 has 24 bits.
  EXPECT_EQ(Combine<float>(DType::kF32, Reduction::kSum, {{1e8f}, {1.0f}, {-1e8f}})[0], 0.0f);
  EXPECT_EQ(Combine<float>(DType::kF32, Reduction::kSum, {{1e8f}, {-1e8f}, {1.0f}})[0], 1.0f);
}

TEST(Reduce, SixteenBitDtypesRoundOnceAtTheEnd) {
  // 256 + 1 + 1 rounds to 256 after every bf16 addition, but 258 is representable.
  const std::vector<uint16_t> big{FloatToBf16(256.0f)};
  const std::vector<uint16_t> one{FloatToBf16(1.0f)};
  const auto sum = Combine<uint16_t>(DType::kBF16, Reduction::kSum, {big, one, one});
  EXPECT_EQ(Bf16ToFloat(sum[0]), 258.0f);
  const std::vector<uint16_t> big_half{FloatToF16(2048.0f)};
  const std::vector<uint16_t> one_half{FloatToF16(1.0f)};
  const auto half_sum =
      Combine<uint16_t>(DType::kF16, Reduction::kSum, {big_half, one_half, one_half});
  EXPECT_EQ(F16ToFloat(half_sum[0]), 2050.0f);
}

TEST(Reduce, IntegerSumsWrap) {
  const int32_t most = std::numeric_limits<int32_t>::max();
  EXPECT_EQ(Combine<int32_t>(DType::kI32, Reduction::kSum, {{most}, {1}})[0],
            std::numeric_limits<int32_t>::min());
  EXPECT_EQ(Combine<int64_t>(DType::kI64, Reduction::kMax, {{-5}, {-7}})[0], -5);
}

TEST(Reduce, NanIsContagiousInEveryPosition) {
  const double nan = std::nan("");
  for (const Reduction reduction : {Reduction::kSum, Reduction::kMax, Reduction::kLogSumExp}) {
    EXPECT_TRUE(std::isnan(Combine<double>(DType::kF64, reduction, {{nan}, {1.0}})[0]));
    EXPECT_TRUE(std::isnan(Combine<double>(DType::kF64, reduction, {{1.0}, {nan}})[0]));
    EXPECT_TRUE(std::isnan(Combine<double>(DType::kF64, reduction, {{1.0}, {nan}, {2.0}})[0]));
  }
}

TEST(Reduce, LogSumExpHasMinusInfinityAsZeroAndDoesNotOverflow) {
  const double zero = -std::numeric_limits<double>::infinity();
  const auto combine = [](double a, double b) {
    return Combine<double>(DType::kF64, Reduction::kLogSumExp, {{a}, {b}})[0];
  };
  EXPECT_EQ(combine(zero, zero), zero);
  EXPECT_EQ(combine(zero, 3.5), 3.5);
  EXPECT_EQ(combine(3.5, zero), 3.5);
  EXPECT_EQ(combine(-zero, 1.0), -zero);
  EXPECT_NEAR(combine(1000.0, 1000.0), 1000.0 + std::log(2.0), 1e-12);
  EXPECT_NEAR(combine(0.1, -0.3), std::log(std::exp(0.1) + std::exp(-0.3)), 1e-15);
}

TEST(Reduce, MeaninglessPairsAreInvalidArguments) {
  EXPECT_EQ(FindReduceKernel(DType::kBool, Reduction::kSum).error().code(),
            StatusCode::kInvalidArgument);
  EXPECT_EQ(FindReduceKernel(DType::kI32, Reduction::kLogSumExp).error().code(),
            StatusCode::kInvalidArgument);
}

TEST(Half, EveryF16ValueSurvivesTheRoundTrip) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const auto value = static_cast<uint16_t>(bits);
    const float wide = F16ToFloat(value);
    if (std::isnan(wide)) {
      EXPECT_TRUE(std::isnan(F16ToFloat(FloatToF16(wide))));
    } else {
      ASSERT_EQ(FloatToF16(wide), value) << bits;
    }
  }
}

TEST(Half, NarrowingRoundsToNearestEven) {
  EXPECT_EQ(F16ToFloat(FloatToF16(2049.0f)), 2048.0f);
  EXPECT_EQ(F16ToFloat(FloatToF16(2051.0f)), 2052.0f);
  EXPECT_EQ(F16ToFloat(FloatToF16(65519.0f)), 65504.0f);
  EXPECT_TRUE(std::isinf(F16ToFloat(FloatToF16(65520.0f))));
  EXPECT_EQ(F16ToFloat(FloatToF16(0x1.8p-24f)), 0x1p-23f);  // a tie between subnormals
  EXPECT_EQ(F16ToFloat(FloatToF16(0x1p-25f)), 0.0f);
  EXPECT_EQ(Bf16ToFloat(FloatToBf16(257.0f)), 256.0f);
  EXPECT_EQ(Bf16ToFloat(FloatToBf16(259.0f)), 260.0f);
  EXPECT_TRUE(std::isnan(Bf16ToFloat(FloatToBf16(std::nanf("")))));
}

TEST(Half, NarrowingPicksTheNearestOfItsNeighbours) {
  for (uint32_t bits = 0x33000000u; bits < 0x47800000u; bits += 12'347) {  // 2^-25 .. 65536
    const float value = std::bit_cast<float>(bits);
    const uint16_t narrow = FloatToF16(value);
    if (narrow >= 0x7c00u) {
      EXPECT_GE(value, 65520.0f);
      continue;
    }
    const float error = std::fabs(F16ToFloat(narrow) - value);
    EXPECT_LE(error, std::fabs(F16ToFloat(static_cast<uint16_t>(narrow + 1)) - value)) << value;
    if (narrow > 0) {
      EXPECT_LE(error, std::fabs(F16ToFloat(static_cast<uint16_t>(narrow - 1)) - value)) << value;
    }
  }
}

}  // namespace
}  // namespace meshwright::collective
