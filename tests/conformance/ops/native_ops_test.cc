// The native ops of formulas at the edges of their ranges: zeros, infinities, NaN, the smallest and
// largest numbers. Backends agree there, too.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "ir/builder.h"
#include "ir/elementwise.h"
#include "tests/conformance/ops/op_harness.h"
#include "tests/conformance/ops/targets.h"

namespace meshwright::ops {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

const std::vector<double> kEdges = {0.0,  -0.0, 1.0,   -1.0,  0.5,    -0.5,  kInfinity, -kInfinity,
                                    kNaN, 88.0, -88.0, 104.5, -104.5, 3e38,  -3e38,     1e-30,
                                    2.0,  -2.0, 1e-3,  -1e-3, 30.0,   -30.0, 1e-7,      -1e-7};

// Gates are made for numbers (ops/cpu/vec_elementwise.cc).
bool IsGate(ir::Op op) {
  return op == ir::Op::kGelu || op == ir::Op::kGeluGrad || op == ir::Op::kSilu ||
         op == ir::Op::kSiluGrad;
}

// Below the smallest normal number backends may give 0.
bool Agree(double x, double y) {
  if (std::isnan(x) || std::isnan(y)) return std::isnan(x) && std::isnan(y);
  if (std::isinf(x) || std::isinf(y)) return x == y;
  return std::abs(x - y) <= 1.2e-38 + 1e-5 * std::abs(y);
}

class NativeOps : public testing::TestWithParam<ir::Op> {};

TEST_P(NativeOps, BackendsAgreeAtTheEdges) {
  const ir::ElementwiseRow& row = *ir::ElementwiseRowOf(GetParam());
  const auto n = static_cast<int64_t>(kEdges.size());
  OpCase op_case{"edges", row.op, {{"factor", 2.0}, {"value", 1.0}}, {{{n, n}}}, {}};
  if (row.operands == 2) op_case.args.push_back({{n, n}});
  std::vector<double> x;
  std::vector<double> y;
  for (const double a : kEdges) {
    for (const double b : kEdges) {
      x.push_back(a);
      y.push_back(b);
    }
  }
  std::vector<HostTensor> data = {FromValues({n, n}, x, ir::DType::kF64)};
  if (row.operands == 2) data.push_back(FromValues({n, n}, y, ir::DType::kF64));
  const auto graph = GraphOf(op_case, ir::DType::kF32);
  ASSERT_TRUE(graph) << graph.error();
  const auto expected = EvaluateWith(*graph, {Backend::kReference, {}}, data);
  ASSERT_TRUE(expected) << expected.error();
  const std::vector<double> wanted = ValuesOf((*expected)[0]);
  for (const Target& target : AllTargets()) {
    const auto found = EvaluateWith(*graph, {target, {}}, data);
    ASSERT_TRUE(found) << found.error();
    const std::vector<double> values = ValuesOf((*found)[0]);
    for (size_t i = 0; i < values.size(); ++i) {
      EXPECT_TRUE(Agree(values[i], wanted[i]))
          << ir::OpName(row.op) << "(" << x[i] << ", " << y[i] << ") is " << values[i] << ", not "
          << wanted[i] << ", on backend " << static_cast<int>(target.backend);
    }
  }
}

std::vector<ir::Op> Ops() {
  std::vector<ir::Op> ops;
  for (const ir::ElementwiseRow& row : ir::ElementwiseRows()) {
    const bool of_floats = row.takes == ir::Takes::kFloats || row.takes == ir::Takes::kNumbers ||
                           row.takes == ir::Takes::kCompares;
    if (of_floats && !IsGate(row.op)) ops.push_back(row.op);
  }
  return ops;
}

INSTANTIATE_TEST_SUITE_P(All, NativeOps, testing::ValuesIn(Ops()),
                         [](const auto& test) { return std::string(ir::OpName(test.param)); });

// ---- Choice -------------------------------------------------------------------------------------

Result<std::vector<HostTensor>> RunOn(const Target& target, const OpCase& op_case,
                                      const std::vector<HostTensor>& data) {
  MW_ASSIGN_OR_RETURN(const ir::Graph graph, GraphOf(op_case, ir::DType::kF32));
  return EvaluateWith(graph, {target, {}}, data);
}

TEST(TopK, EqualElementsComeInTheirOrderAndNaNFirst) {
  const OpCase top{"top", ir::Op::kTopK, {{"k", 5}}, {{{2, 6}}}, {}};
  const HostTensor x =
      FromValues({2, 6}, {1, 3, 3, 2, 3, 0, -1, kNaN, -kInfinity, -1, kNaN, -1}, ir::DType::kF32);
  for (const Target& target : AllTargets()) {
    const auto found = RunOn(target, top, {x});
    ASSERT_TRUE(found) << found.error();
    EXPECT_EQ(ValuesOf((*found)[1]), (std::vector<double>{1, 2, 4, 3, 0, 1, 4, 0, 3, 5}));
  }
}

TEST(Gather, NamesAnIdThatIsOutside) {
  const OpCase gather{
      "gather", ir::Op::kGather, {{"dim", 0}}, {{{3}}, {{2}, ArgKind::kIds, 3}}, {}};
  const HostTensor x = FromValues({3}, {1, 2, 3}, ir::DType::kF32);
  for (const Target& target : AllTargets()) {
    const auto found = RunOn(target, gather, {x, FromIds({2}, {1, 3})});
    ASSERT_FALSE(found);
    EXPECT_EQ(found.error().code(), StatusCode::kInvalidArgument);
    EXPECT_NE(found.error().message().find("gather: id 3 at position 1"), std::string::npos)
        << found.error();
  }
}

TEST(Cast, ToIntegersIsTowardsZeroAndKeepsWithinTheirRange) {
  const HostTensor x =
      FromValues({8}, {1.9, -1.9, 0.5, kNaN, kInfinity, -kInfinity, 3e9, -3e9}, ir::DType::kF32);
  const OpCase cast{"cast", ir::Op::kCast, {{"dtype", "i32"}}, {{{8}}}, {}};
  for (const Target& target : AllTargets()) {
    const auto found = RunOn(target, cast, {x});
    ASSERT_TRUE(found) << found.error();
    EXPECT_EQ(ValuesOf((*found)[0]), (std::vector<double>{1, -1, 0, 0, 2147483647, -2147483648.0,
                                                          2147483647, -2147483648.0}));
  }
}

// f32 does not hold all of them.
TEST(Compare, TellsLargeIntegersApart) {
  const Arg ids{{4}, ArgKind::kIds, 3};
  const OpCase less{"less", ir::Op::kLess, {}, {ids, ids}, {}};
  const HostTensor x = FromIds({4}, {16777216, 16777217, 2147483646, -5});
  const HostTensor y = FromIds({4}, {16777217, 16777216, 2147483647, -5});
  for (const Target& target : AllTargets()) {
    const auto found = RunOn(target, less, {x, y});
    ASSERT_TRUE(found) << found.error();
    EXPECT_EQ(ValuesOf((*found)[0]), (std::vector<double>{1, 0, 1, 0}));
  }
}

// Mean 1/2 and variance 1/12; mean 0 and variance 1: within five deviations of what so many numbers
// give. Another step has other numbers.
TEST(Noise, HasItsMomentsAndIsNewInEveryStep) {
  constexpr int64_t kCount = 40000;
  for (const char* kind : {"uniform", "normal"}) {
    const bool normal = std::string(kind) == "normal";
    const OpCase noise{
        "noise", ir::Op::kNoise, {{"name", "n"}, {"kind", std::string(kind)}}, {{{kCount}}}, {}};
    const auto graph = GraphOf(noise, ir::DType::kF32);
    ASSERT_TRUE(graph) << graph.error();
    const std::vector<HostTensor> data = DataOf(noise, 1);
    RunContext context;
    context.seed = 9;
    const auto first = EvaluateWith(*graph, {Backend::kCpu, context}, data);
    ASSERT_TRUE(first) << first.error();
    double mean = 0;
    double square = 0;
    for (const double value : ValuesOf((*first)[0])) {
      mean += value / kCount;
      square += value * value / kCount;
    }
    EXPECT_NEAR(mean, normal ? 0.0 : 0.5, 5 * (normal ? 1.0 : 0.29) / 200);
    EXPECT_NEAR(square - mean * mean, normal ? 1.0 : 1.0 / 12, normal ? 0.036 : 0.002);
    context.step = 1;
    const auto second = EvaluateWith(*graph, {Backend::kCpu, context}, data);
    ASSERT_TRUE(second) << second.error();
    EXPECT_NE((*first)[0].data, (*second)[0].data);
  }
}

}  // namespace
}  // namespace meshwright::ops
