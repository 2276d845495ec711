#include "mesh/measured_factors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ir/schema.h"

namespace meshwright::mesh {
namespace {

using ::testing::HasSubstr;

MeasuredSteps Steps(double product_s, double other_s) {
  MeasuredSteps steps;
  steps.steps = 3;
  steps.kernels[static_cast<size_t>(KernelClass::kProduct)] = {product_s, 1};
  steps.kernels[static_cast<size_t>(KernelClass::kElementwise)] = {other_s, 1};
  return steps;
}

double FactorOf(const MeasuredFactors& factors, KernelClass kernel) {
  return factors.kernels[static_cast<size_t>(kernel)].value_or(-1);
}

TEST(MeasuredFactors, FirstStepsCountWholeAndLaterOnesHalf) {
  const MeasuredFactors first = Learn({}, Steps(2, 1));
  EXPECT_EQ(first.steps, 3);
  EXPECT_DOUBLE_EQ(FactorOf(first, KernelClass::kProduct), 2);
  EXPECT_DOUBLE_EQ(FactorOf(first, KernelClass::kElementwise), 1);
  EXPECT_DOUBLE_EQ(first.all, 1.5);
  EXPECT_FALSE(first.kernels[static_cast<size_t>(KernelClass::kGather)].has_value());
  const MeasuredFactors second = Learn(first, Steps(0.5, 1));
  EXPECT_DOUBLE_EQ(FactorOf(second, KernelClass::kProduct), 1) << "half way from 2 to 0.5";
  EXPECT_EQ(second.steps, 6);
  EXPECT_EQ(Learn(second, MeasuredSteps()), second) << "of no step nothing is learned";
}

TEST(MeasuredFactors, NoAccidentMakesADeviceUseless) {
  MeasuredFactors factors = Learn({}, Steps(1e6, 1e-9));
  EXPECT_EQ(FactorOf(factors, KernelClass::kProduct), MeasuredFactors::kMost);
  EXPECT_EQ(FactorOf(factors, KernelClass::kElementwise), MeasuredFactors::kLeast);
  EXPECT_TRUE(CheckDeviceProfile(WithFactors(*DefaultDeviceProfile(), factors)).ok());
  for (int i = 0; i < 20; ++i) factors = Learn(factors, Steps(1, 1));
  EXPECT_NEAR(FactorOf(factors, KernelClass::kProduct), 1, 1e-3) << "and it is forgotten";
}

TEST(MeasuredFactors, ScaleAProfileAndSayWhere) {
  const DeviceProfile& base = *DefaultDeviceProfile();
  const DeviceProfile shown = WithFactors(base, Learn({}, Steps(2, 2)));
  EXPECT_EQ(shown.name, base.name);
  const ir::OpCost cost{1e9, 1e6};
  for (const KernelClass kernel : {KernelClass::kProduct, KernelClass::kGather}) {
    EXPECT_NEAR(
        shown.Seconds(kernel, ir::DType::kF32, cost) / base.Seconds(kernel, ir::DType::kF32, cost),
        2, 0.05)
        << "a class that no step had is as the others";
  }
  EXPECT_THAT(MeasuredNote(shown), HasSubstr("profile: measured on 3 steps of '" + base.name));
  EXPECT_THAT(MeasuredNote(shown), HasSubstr("2.00 x"));
  EXPECT_EQ(MeasuredNote(base), "");
  EXPECT_EQ(WithFactors(base, MeasuredFactors()), base);
  // It travels as text.
  const auto again = ParseDeviceProfile(FormatDeviceProfile(shown));
  ASSERT_TRUE(again.has_value()) << again.error();
  EXPECT_EQ(*again, shown);
}

TEST(MeasuredFactors, TextReadsBackAsItWas) {
  FactorsByDevice factors;
  factors["cpu, 2 threads"] = Learn({}, Steps(1.7, 0.3));
  factors["NVIDIA H200"] = Learn(Learn({}, Steps(1.1, 1.2)), Steps(1.3, 0.9));
  const std::string text = FormatFactors(factors);
  const auto again = ParseFactors(text);
  ASSERT_TRUE(again.has_value()) << again.error();
  EXPECT_EQ(*again, factors);
  EXPECT_EQ(FormatFactors(*again), text);
  EXPECT_TRUE(ParseFactors("")->empty());
}

TEST(MeasuredFactors, TextThatIsNoneNamesItsLine) {
  for (const char* const text :
       {"steps 3\n", "device cpu\n", "device \"a\"\ndevice \"a\"\n", "device \"a\"\nall 9\n",
        "device \"a\"\nkernel product\n", "device \"a\"\nkernel other 1\n",
        "device \"a\"\nsteps 0\n", "device \"a\"\nall 2\n", "device \"a\"\nall nan\n", "what\n"}) {
    const auto factors = ParseFactors(text);
    ASSERT_FALSE(factors.has_value()) << text;
    EXPECT_EQ(factors.error().code(), StatusCode::kInvalidArgument);
    EXPECT_THAT(factors.error().message(), HasSubstr("line ")) << text;
  }
}

}  // namespace
}  // namespace meshwright::mesh
