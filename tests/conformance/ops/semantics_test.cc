// Values that are known without another implementation: schedules, optimizers by hand, random
// streams, ignored labels, errors.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/half.h"
#include "base/philox.h"
#include "ir/builder.h"
#include "ops/cpu/vec_elementwise.h"
#include "tests/conformance/ops/op_harness.h"
#include "tests/conformance/ops/targets.h"

namespace meshwright::ops {
namespace {

Result<std::vector<HostTensor>> RunCase(const OpCase& op_case, const Target& target,
                                        ir::DType dtype, const std::vector<HostTensor>& data,
                                        const RunContext& context = {}) {
  MW_ASSIGN_OR_RETURN(const ir::Graph graph, GraphOf(op_case, dtype));
  return EvaluateWith(graph, {target, context}, data);
}

HostTensor Scalar(double value) { return FromValues({}, {value}, ir::DType::kF64); }
HostTensor Vector(const std::vector<double>& values) {
  return FromValues({static_cast<int64_t>(values.size())}, values, ir::DType::kF64);
}

double LearningRate(const char* schedule, int64_t step) {
  OpCase op_case{"lr",
                 ir::Op::kLearningRate,
                 {{"lr", 1.0},
                  {"min_lr", 0.1},
                  {"warmup_steps", 4},
                  {"total_steps", 14},
                  {"schedule", schedule}},
                 {},
                 {{}}};
  RunContext context;
  context.step = step;
  const auto result = RunCase(op_case, Backend::kCpu, ir::DType::kF64, {}, context);
  EXPECT_TRUE(result) << result.error();
  return result ? ValuesOf((*result)[0])[0] : -1;
}

TEST(LearningRateOp, WarmsUpLinearlyInEverySchedule) {
  for (const char* schedule :
       {"constant", "linear", "cosine", "polynomial:2", "cosine_with_restarts:3", "inverse_sqrt"}) {
    EXPECT_DOUBLE_EQ(LearningRate(schedule, 0), 0.25);
    EXPECT_DOUBLE_EQ(LearningRate(schedule, 3), 1.0);
    EXPECT_DOUBLE_EQ(LearningRate(schedule, 4), 1.0);
  }
}

TEST(LearningRateOp, DecaysToTheMinimumAtTotalStepsAndStays) {
  EXPECT_DOUBLE_EQ(LearningRate("constant", 1000), 1.0);
  EXPECT_DOUBLE_EQ(LearningRate("linear", 9), 0.55);
  EXPECT_DOUBLE_EQ(LearningRate("cosine", 9), 0.55);
  EXPECT_NEAR(LearningRate("cosine", 6), 0.1 + 0.9 * 0.5 * (1 + std::cos(std::acos(-1.0) * 0.2)),
              1e-15);
  for (const char* schedule : {"linear", "cosine", "polynomial:3", "cosine_with_restarts:2"}) {
    EXPECT_NEAR(LearningRate(schedule, 14), 0.1, 1e-15);
    EXPECT_NEAR(LearningRate(schedule, 99), 0.1, 1e-15);
  }
}

// By hand, from get_polynomial_decay_schedule_with_warmup(optimizer, 4, 14, lr_end=0.1, power) of
// transformers 5.24: (1 - 0.1) * (1 - (t - 4) / 10)^power + 0.1.
TEST(LearningRateOp, FallsWithAPowerOfWhatIsLeft) {
  EXPECT_DOUBLE_EQ(LearningRate("polynomial", 9), 0.55) << "the power 1 is linear";
  EXPECT_NEAR(LearningRate("polynomial:2", 6), 0.676, 1e-15);    // 0.9 * 0.8^2 + 0.1
  EXPECT_NEAR(LearningRate("polynomial:2", 9), 0.325, 1e-15);    // 0.9 * 0.5^2 + 0.1
  EXPECT_NEAR(LearningRate("polynomial:3", 13), 0.1009, 1e-15);  // 0.9 * 0.1^3 + 0.1
  EXPECT_NEAR(LearningRate("polynomial:0.5", 12), 0.1 + 0.9 * std::sqrt(0.2), 1e-15);
}

// By hand, from get_cosine_with_hard_restarts_schedule_with_warmup(optimizer, 4, 14, num_cycles),
// whose rate ends at 0 and here at min_lr: (1 + cos(pi * (num_cycles * (t - 4) / 10 mod 1))) / 2.
TEST(LearningRateOp, BeginsItsCosineAnew) {
  const double kRoot = std::sqrt(5.0);
  EXPECT_DOUBLE_EQ(LearningRate("cosine_with_restarts", 9), 0.55) << "one cycle is a cosine";
  // Two cycles: at 2 of 10 steps cos(0.4 pi) = (sqrt(5) - 1) / 4, at 5 the second begins.
  EXPECT_NEAR(LearningRate("cosine_with_restarts:2", 6), 0.1 + 0.45 * (1 + (kRoot - 1) / 4), 1e-15);
  EXPECT_NEAR(LearningRate("cosine_with_restarts:2", 8), 0.1 + 0.45 * (1 - (kRoot + 1) / 4), 1e-15);
  EXPECT_NEAR(LearningRate("cosine_with_restarts:2", 9), 1, 1e-15);
  EXPECT_NEAR(LearningRate("cosine_with_restarts:2", 11), 0.1 + 0.45 * (1 + (kRoot - 1) / 4),
              1e-15);
  EXPECT_NEAR(LearningRate("cosine_with_restarts:2", 14), 0.1, 1e-15) << "no third one";
}

// Foreign: transformers 5.24, get_inverse_sqrt_schedule(optimizer, 4), whose warm-up of step t is
// t / 4 and not (t + 1) / 4.
TEST(LearningRateOp, FallsWithTheRootBehindItsWarmUp) {
  EXPECT_DOUBLE_EQ(LearningRate("inverse_sqrt", 5), std::sqrt(4.0 / 5));
  EXPECT_DOUBLE_EQ(LearningRate("inverse_sqrt", 16), 0.5);
  EXPECT_DOUBLE_EQ(LearningRate("inverse_sqrt", 400), 0.1);
}

TEST(AdamWOp, FollowsTheFormulaOverSeveralSteps) {
  const OpCase op_case{"adamw",
                       ir::Op::kAdamW,
                       {{"beta1", 0.9}, {"beta2", 0.95}, {"eps", 1e-8}, {"weight_decay", 0.1}},
                       {{{1}}, {{1}}, {{1}}, {{1}}, {{}}, {{}}},
                       {}};
  for (const Target& target : AllTargets()) {
    const bool wide = target.backend == Backend::kReference;
    const ir::DType dtype = wide ? ir::DType::kF64 : ir::DType::kF32;
    const double tolerance = wide ? 1e-14 : 2e-7;
    double p = 0.7, m = 0, v = 0;
    std::vector<HostTensor> state = {Vector({p}), Vector({m}), Vector({v})};
    for (int step = 0; step < 6; ++step) {
      const double raw = 0.3 - 0.2 * step;
      const double lr = 0.01 * (step + 1);
      RunContext context;
      context.step = step;
      const auto result =
          RunCase(op_case, target, dtype,
                  {state[0], Vector({raw}), state[1], state[2], Scalar(0.5), Scalar(lr)}, context);
      ASSERT_TRUE(result) << result.error();
      const double g = raw * 0.5;
      p -= lr * 0.1 * p;
      m = 0.9 * m + 0.1 * g;
      v = 0.95 * v + 0.05 * g * g;
      const double m_hat = m / (1 - std::pow(0.9, step + 1));
      const double v_hat = v / (1 - std::pow(0.95, step + 1));
      p -= lr * m_hat / (std::sqrt(v_hat) + 1e-8);
      EXPECT_NEAR(ValuesOf((*result)[0])[0], p, tolerance) << "step " << step;
      EXPECT_NEAR(ValuesOf((*result)[1])[0], m, tolerance);
      EXPECT_NEAR(ValuesOf((*result)[2])[0], v, tolerance);
      state = *result;
    }
  }
}

double RoundedToBf16(double value) {
  return static_cast<double>(Bf16ToFloat(FloatToBf16(static_cast<float>(value))));
}

// Moments are summed up in f32 and rounded to nearest when they are kept; the param is renewed by
// what they were before.
TEST(AdamWOp, KeepsMomentsInBf16) {
  const auto param = [](ir::Builder& builder, const char* name, ir::DType dtype, ir::Dims dims) {
    return builder.AddOne(ir::Op::kInput, {}, {{"name", std::string(name)}},
                          {ir::TensorType{dtype, std::move(dims)}});
  };
  ir::Builder builder("moments");
  std::vector<ValueId> inputs = {
      param(builder, "p", ir::DType::kF32, {3}),         param(builder, "g", ir::DType::kF32, {3}),
      param(builder, "m", ir::DType::kBF16, {3}),        param(builder, "v", ir::DType::kBF16, {3}),
      param(builder, "multiplier", ir::DType::kF32, {}), param(builder, "lr", ir::DType::kF32, {})};
  const std::vector<ValueId> results =
      builder.Add(ir::Op::kAdamW, inputs,
                  {{"beta1", 0.9}, {"beta2", 0.95}, {"eps", 1e-8}, {"weight_decay", 0.1}});
  for (size_t i = 0; i < 3; ++i) builder.SetOutput("r" + std::to_string(i), results[i]);
  const auto graph = builder.Finish();
  ASSERT_TRUE(graph) << graph.error();
  for (const Target& target : AllTargets()) {
    std::vector<double> p = {0.7, -0.3, 2}, m(3, 0), v(3, 0);
    for (int step = 0; step < 6; ++step) {
      const std::vector<double> raw = {0.3 - 0.2 * step, 0.011 * step, -1.7};
      RunContext context;
      context.step = step;
      const auto result =
          EvaluateWith(*graph, {target, context},
                       {Vector(p), Vector(raw), Vector(m), Vector(v), Scalar(0.5), Scalar(0.1)});
      ASSERT_TRUE(result) << result.error();
      for (size_t i = 0; i < 3; ++i) {
        const double g = 0.5 * raw[i];
        const double mean = 0.9 * m[i] + 0.1 * g;
        const double square = 0.95 * v[i] + 0.05 * g * g;
        const double m_hat = mean / (1 - std::pow(0.9, step + 1));
        const double v_hat = square / (1 - std::pow(0.95, step + 1));
        p[i] = p[i] * (1 - 0.1 * 0.1) - 0.1 * m_hat / (std::sqrt(v_hat) + 1e-8);
        EXPECT_NEAR(ValuesOf((*result)[0])[i], p[i], 3e-6) << "step " << step;
        // Of the two numbers beside a tie either may be kept.
        EXPECT_NEAR(ValuesOf((*result)[1])[i], RoundedToBf16(mean), std::abs(mean) / 256);
        EXPECT_NEAR(ValuesOf((*result)[2])[i], RoundedToBf16(square), square / 256);
        m[i] = ValuesOf((*result)[1])[i];
        v[i] = ValuesOf((*result)[2])[i];
        EXPECT_EQ(m[i], RoundedToBf16(m[i])) << "it lies in bf16";
      }
    }
  }
}

TEST(LearningRateOp, FallsWithTheRootOfTheStep) {
  EXPECT_DOUBLE_EQ(LearningRate("relative", 0), 1e-2);
  EXPECT_DOUBLE_EQ(LearningRate("relative", 39'999), 5e-3);
  EXPECT_DOUBLE_EQ(LearningRate("relative_warmup", 2), 3e-6);
  EXPECT_DOUBLE_EQ(LearningRate("relative_warmup", 39'999), 5e-3);
}

TEST(SgdOp, FollowsTheFormulaOverSeveralSteps) {
  const OpCase op_case{"sgd",
                       ir::Op::kSgd,
                       {{"momentum", 0.9}, {"weight_decay", 0.01}},
                       {{{1}}, {{1}}, {{1}}, {{}}, {{}}},
                       {}};
  for (const Target& target : AllTargets()) {
    double p = 0.7, m = 0;
    std::vector<HostTensor> state = {Vector({p}), Vector({m})};
    for (int step = 0; step < 5; ++step) {
      const double raw = 0.3 - 0.2 * step;
      const auto result = RunCase(op_case, target, ir::DType::kF32,
                                  {state[0], Vector({raw}), state[1], Scalar(2), Scalar(0.1)});
      ASSERT_TRUE(result) << result.error();
      m = 0.9 * m + (2 * raw + 0.01 * p);
      p -= 0.1 * m;
      EXPECT_NEAR(ValuesOf((*result)[0])[0], p, 1e-6);
      EXPECT_NEAR(ValuesOf((*result)[1])[0], m, 1e-6);
      state = *result;
    }
  }
}

// Chen et al., NeurIPS'23, algorithm 2.
TEST(SgdOp, WithASignBetaIsLion) {
  const OpCase op_case{"lion",
                       ir::Op::kSgd,
                       {{"momentum", 0.99}, {"weight_decay", 0.1}, {"sign_beta", 0.9}},
                       {{{1}}, {{1}}, {{1}}, {{}}, {{}}},
                       {}};
  for (const Target& target : AllTargets()) {
    double p = 0.7, m = 0;
    std::vector<HostTensor> state = {Vector({p}), Vector({m})};
    for (int step = 0; step < 6; ++step) {
      const double raw = step == 5 ? 0 : 0.3 - 0.2 * step;
      const auto result = RunCase(op_case, target, ir::DType::kF32,
                                  {state[0], Vector({raw}), state[1], Scalar(2), Scalar(0.1)});
      ASSERT_TRUE(result) << result.error();
      const double g = 2 * raw;
      const double mean = 0.9 * m + 0.1 * g;
      p = (1 - 0.1 * 0.1) * p - 0.1 * (mean > 0 ? 1 : mean < 0 ? -1 : 0);
      m = 0.99 * m + 0.01 * g;
      EXPECT_NEAR(ValuesOf((*result)[0])[0], p, 1e-6) << "step " << step;
      EXPECT_NEAR(ValuesOf((*result)[1])[0], m, 1e-6);
      state = *result;
    }
    const auto still = RunCase(op_case, target, ir::DType::kF32,
                               {Vector({1}), Vector({0}), Vector({0}), Scalar(2), Scalar(0.1)});
    ASSERT_TRUE(still) << still.error();
    EXPECT_NEAR(ValuesOf((*still)[0])[0], 0.99, 1e-6) << "the sign of 0 is 0";
  }
}

TEST(ClipMultiplierOp, DividesByTheCountAndBoundsTheNorm) {
  const OpCase op_case{"clip", ir::Op::kClipMultiplier, {{"max_norm", 1.0}}, {{{}}, {{}}}, {}};
  const auto run = [&](double sum_squares, double count) {
    return RunCase(op_case, Backend::kCpu, ir::DType::kF64, {Scalar(sum_squares), Scalar(count)});
  };
  const auto big = run(400, 4);  // norm 5
  ASSERT_TRUE(big) << big.error();
  EXPECT_NEAR(ValuesOf((*big)[0])[0], 1 / (5 + 1e-6) / 4, 1e-15);
  EXPECT_DOUBLE_EQ(ValuesOf((*big)[1])[0], 5);
  const auto small = run(4, 4);  // norm 0.5
  ASSERT_TRUE(small) << small.error();
  EXPECT_DOUBLE_EQ(ValuesOf((*small)[0])[0], 0.25);
  const auto none = run(0, 0);
  ASSERT_TRUE(none) << none.error();
  EXPECT_EQ(ValuesOf((*none)[0])[0], 0);
  EXPECT_EQ(ValuesOf((*none)[1])[0], 0);
  const auto bad = run(std::numeric_limits<double>::quiet_NaN(), 4);
  ASSERT_TRUE(bad) << bad.error();
  EXPECT_TRUE(std::isnan(ValuesOf((*bad)[0])[0]));
}

TEST(DropoutOp, MaskIsThePhiloxStreamOfItsNameAndStep) {
  const int64_t count = 5003;
  const OpCase op_case{
      "dropout", ir::Op::kDropout, {{"name", "h.0.drop"}, {"rate", 0.25}}, {{{count}}}, {}};
  const HostTensor ones = FromValues({count}, std::vector<double>(count, 1.0), ir::DType::kF64);
  RunContext context;
  context.seed = 0x123456789abcdefull;
  context.step = (int64_t{1} << 33) + 5;
  for (const Target& target : AllTargets()) {
    const auto result = RunCase(op_case, target, ir::DType::kF32, {ones}, context);
    ASSERT_TRUE(result) << result.error();
    const std::vector<double> y = ValuesOf((*result)[0]);
    int64_t kept = 0;
    for (int64_t i = 0; i < count; ++i) {
      const double u = UniformFromBits(PhiloxBits(context.seed, StreamOf("h.0.drop"),
                                                  static_cast<uint64_t>(context.step),
                                                  static_cast<uint64_t>(i)));
      ASSERT_EQ(y[static_cast<size_t>(i)],
                u >= 0.25 ? static_cast<double>(static_cast<float>(1 / 0.75)) : 0.0)
          << i;
      kept += u >= 0.25;
    }
    EXPECT_NEAR(static_cast<double>(kept) / count, 0.75, 0.03);
  }
}

TEST(DropoutOp, HighestRateDropsEverythingAndRateOfZeroNothing) {
  for (const Target& target : AllTargets()) {
    for (const double rate : {0.0, 0.999999}) {
      const OpCase op_case{
          "dropout", ir::Op::kDropout, {{"name", "d"}, {"rate", rate}}, {{{64}}}, {}};
      const HostTensor ones = FromValues({64}, std::vector<double>(64, 1.0), ir::DType::kF64);
      const auto result = RunCase(op_case, target, ir::DType::kF32, {ones});
      ASSERT_TRUE(result) << result.error();
      for (double y : ValuesOf((*result)[0])) EXPECT_EQ(y, rate == 0 ? 1.0 : 0.0);
    }
  }
}

TEST(DropoutOp, DroppedIsZeroEvenAnInfinity) {
  for (const Target& target : AllTargets()) {
    const OpCase op_case{
        "dropout", ir::Op::kDropout, {{"name", "d"}, {"rate", 0.999999}}, {{{64}}}, {}};
    const double infinity = std::numeric_limits<double>::infinity();
    const HostTensor x = FromValues({64}, std::vector<double>(64, infinity), ir::DType::kF64);
    const auto result = RunCase(op_case, target, ir::DType::kF32, {x});
    ASSERT_TRUE(result) << result.error();
    for (double y : ValuesOf((*result)[0])) EXPECT_EQ(y, 0.0);
  }
}

TEST(RandomNormalOp, IsAFunctionOfSeedNameAndIndex) {
  const OpCase op_case{"normal",
                       ir::Op::kRandomNormal,
                       {{"name", "wte"}, {"mean", 1.0}, {"std", 0.5}},
                       {},
                       {{40, 25}}};
  RunContext context;
  context.seed = 9;
  context.step = 77;  // must not matter
  const auto result = RunCase(op_case, Backend::kCpu, ir::DType::kF64, {}, context);
  ASSERT_TRUE(result) << result.error();
  const std::vector<double> y = ValuesOf((*result)[0]);
  double mean = 0;
  for (size_t i = 0; i < y.size(); ++i) {
    ASSERT_EQ(y[i], 1.0 + 0.5 * PhiloxNormal(9, StreamOf("wte"), i));
    mean += y[i] / static_cast<double>(y.size());
  }
  EXPECT_NEAR(mean, 1.0, 0.06);
}

// Numbers of every size, those next to u = 1 and u = 0 included; a block is the same numbers.
TEST(RandomNormalOp, F32AgreesWithTheNumbersInDouble) {
  constexpr int64_t kCount = 200003;
  std::vector<float> all(kCount);
  const uint64_t stream = StreamOf("wte");
  ops::cpu::VecNormal(PhiloxKey(9, stream), kNoStep, 0, 1.0f, 0.5f, all.data(), kCount);
  for (int64_t i = 0; i < kCount; ++i) {
    const double expected = 1.0 + 0.5 * PhiloxNormal(9, stream, static_cast<uint64_t>(i));
    ASSERT_NEAR(all[static_cast<size_t>(i)], expected, 1e-6) << i;
  }
  std::vector<float> part(333);
  ops::cpu::VecNormal(PhiloxKey(9, stream), kNoStep, 1001, 1.0f, 0.5f, part.data(), 333);
  EXPECT_TRUE(std::equal(part.begin(), part.end(), all.begin() + 1001));
}

TEST(CrossEntropyOp, AllLabelsIgnoredGivesZerosAndNoNan) {
  const OpCase forward{"ce",
                       ir::Op::kCrossEntropy,
                       {{"ignore_index", -100}},
                       {{{3, 5}}, {{3}, ArgKind::kIds, 5}},
                       {}};
  const OpCase backward{"ce_grad",
                        ir::Op::kCrossEntropyGrad,
                        {{"ignore_index", -100}},
                        {{{3, 5}}, {{3}, ArgKind::kIds, 5}, {{3}}, {{}}},
                        {}};
  const HostTensor logits = RandomTensor({3, 5}, 4);
  const HostTensor labels = FromIds({3}, {-100, -100, -100});
  for (const Target& target : AllTargets()) {
    const auto result = RunCase(forward, target, ir::DType::kF32, {logits, labels});
    ASSERT_TRUE(result) << result.error();
    EXPECT_EQ(ValuesOf((*result)[0])[0], 0);
    EXPECT_EQ(ValuesOf((*result)[1])[0], 0);
    for (double lse : ValuesOf((*result)[2])) EXPECT_TRUE(std::isfinite(lse));
    const auto grads =
        RunCase(backward, target, ir::DType::kF32, {logits, labels, (*result)[2], Scalar(1)});
    ASSERT_TRUE(grads) << grads.error();
    for (double g : ValuesOf((*grads)[0])) EXPECT_EQ(g, 0);
  }
}

TEST(CrossEntropyOp, IsExactForHugeLogits) {
  const OpCase op_case{"ce",
                       ir::Op::kCrossEntropy,
                       {{"ignore_index", -100}},
                       {{{2, 3}}, {{2}, ArgKind::kIds, 3}},
                       {}};
  const HostTensor logits =
      FromValues({2, 3}, {1e4, 0, -1e4, -3e38, -3e38, -3e38}, ir::DType::kF64);
  for (const Target& target : AllTargets()) {
    const auto result = RunCase(op_case, target, ir::DType::kF32, {logits, FromIds({2}, {0, 1})});
    ASSERT_TRUE(result) << result.error();
    EXPECT_NEAR(ValuesOf((*result)[2])[0], 1e4, 1e-3);
    EXPECT_TRUE(std::isfinite(ValuesOf((*result)[0])[0]));
  }
}

// One bad number in an operand shows up in the first result: divergence must not be hidden.
TEST(NanInOperands, ReachesTheResult) {
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  struct Row {
    OpCase op_case;
    size_t bad_operand;
    int64_t clean_result;  // an element of result 0 that must stay finite, -1: none
  };
  const ir::Attrs ignore = {{"ignore_index", -100}};
  const ir::Dims qkv = {1, 9, 1, 20};
  const std::vector<Row> rows = {
      {{"layer_norm", ir::Op::kLayerNorm, {{"eps", 1e-5}}, {{{2, 20}}, {{20}}, {{20}}}, {}}, 0, 20},
      {{"gelu", ir::Op::kGelu, {}, {{{20}}}, {}}, 0, 0},
      {{"gelu_grad", ir::Op::kGeluGrad, {}, {{{20}}, {{20}}}, {}}, 0, 0},
      {{"silu", ir::Op::kSilu, {}, {{{20}}}, {}}, 0, 0},
      {{"silu_grad", ir::Op::kSiluGrad, {}, {{{20}}, {{20}}}, {}}, 0, 0},
      {{"logsumexp", ir::Op::kLogSumExp, {}, {{{2, 20}}}, {}}, 0, 1},
      {{"cross_entropy", ir::Op::kCrossEntropy, ignore, {{{2, 20}}, {{2}, ArgKind::kIds, 20}}, {}},
       0,
       -1},
      {{"cross_entropy_grad",
        ir::Op::kCrossEntropyGrad,
        ignore,
        {{{2, 20}}, {{2}, ArgKind::kIds, 20}, {{2}}, {{}}},
        {}},
       2,
       20},
      {{"attention_q", ir::Op::kAttention, {}, {{qkv}, {qkv}, {qkv}}, {}}, 0, 20},
      {{"attention_k", ir::Op::kAttention, {{"causal", 0}}, {{qkv}, {qkv}, {qkv}}, {}}, 1, -1},
      {{"attention_v", ir::Op::kAttention, {}, {{qkv}, {qkv}, {qkv}}, {}}, 2, -1}};
  for (const Row& row : rows) {
    for (const Target& target : AllTargets()) {
      std::vector<HostTensor> data = DataOf(row.op_case, 8);
      std::vector<double> bad = ValuesOf(data[row.bad_operand]);
      bad[bad.size() > 3 ? 3 : 0] = kNan;
      data[row.bad_operand] = FromValues(data[row.bad_operand].type.dims, bad, ir::DType::kF64);
      const auto result = RunCase(row.op_case, target, ir::DType::kF32, data);
      ASSERT_TRUE(result) << result.error();
      const std::vector<double> y = ValuesOf((*result)[0]);
      EXPECT_TRUE(std::any_of(y.begin(), y.end(), [](double v) { return std::isnan(v); }))
          << row.op_case.name;
      if (row.clean_result >= 0) {
        EXPECT_TRUE(std::isfinite(y[static_cast<size_t>(row.clean_result)])) << row.op_case.name;
      }
    }
  }
}

// What a data file of another vocabulary causes.
TEST(TokenIds, OutsideTheTableAreAnErrorThatNamesIdPositionAndSize) {
  const std::vector<OpCase> cases = {
      {"embedding", ir::Op::kEmbedding, {}, {{{11, 4}}, {{3}, ArgKind::kIds, 11}}, {}},
      {"ce",
       ir::Op::kCrossEntropy,
       {{"ignore_index", -100}},
       {{{3, 11}}, {{3}, ArgKind::kIds, 11}},
       {}},
      {"pick", ir::Op::kPick, {{"ignore_index", -100}}, {{{3, 11}}, {{3}, ArgKind::kIds, 11}}, {}}};
  for (const OpCase& op_case : cases) {
    for (const int32_t bad : {11, -1, INT32_MAX, INT32_MIN}) {
      for (const Target& target : AllTargets()) {
        const auto result =
            RunCase(op_case, target, ir::DType::kF32,
                    {RandomTensor(op_case.args[0].dims, 1), FromIds({3}, {4, bad, 5})});
        ASSERT_FALSE(result) << op_case.name;
        EXPECT_EQ(result.error().code(), StatusCode::kInvalidArgument);
        const std::string& message = result.error().message();
        EXPECT_NE(message.find("id " + std::to_string(bad) + " at position 1"), std::string::npos)
            << message;
        EXPECT_NE(message.find("11 rows"), std::string::npos) << message;
      }
    }
  }
}

// Sample n is the window n, n+1, ....
class CountingFeed final : public TokenSource {
 public:
  Status ReadSample(const std::string& source, int64_t sample, std::span<int32_t> row) override {
    if (source != "tokens") return NotFound("no source " + source);
    for (size_t i = 0; i < row.size(); ++i)
      row[i] = static_cast<int32_t>(sample * 100 + static_cast<int64_t>(i));
    return {};
  }
};

TEST(FeedOp, ReadsTheRowsOfItsShardMicrobatchAndStep) {
  ir::Builder builder("feed");
  ir::Attrs attrs = {{"source", "tokens"}};
  ir::ShardedDims{{8, 3}, {{"micro", "data"}, {}}}.ToAttrs(attrs);
  const ValueId y = builder.AddOne(ir::Op::kFeed, {}, attrs, {{ir::DType::kI32, {2, 3}}});
  const auto graph = builder.Finish();
  ASSERT_TRUE(graph) << graph.error();
  const DeviceCoords coords{{"data"}, {2}, {1}, 2};
  for (const Target& target : AllTargets()) {
    const auto kernel = MakeKernel(target, *graph, graph->producer(y), coords);
    ASSERT_TRUE(kernel) << kernel.error();
    std::vector<HostTensor> outputs = {{graph->type(y), std::vector<std::byte>(24)}};
    RunContext context;
    context.step = 5;
    context.microbatch = 1;
    std::vector<HostTensor> none;
    EXPECT_EQ(RunKernel(target, **kernel, context, none, outputs).code(),
              StatusCode::kFailedPrecondition);
    CountingFeed feed;
    context.feed = &feed;
    const Status ran = RunKernel(target, **kernel, context, none, outputs);
    ASSERT_TRUE(ran.ok()) << ran;
    // step 5 of 8 rows, microbatch 1 of 2, data 1 of 2: rows 46 and 47.
    EXPECT_EQ(ValuesOf(outputs[0]), (std::vector<double>{4600, 4601, 4602, 4700, 4701, 4702}));
  }
}

TEST(MakeKernelFunction, RefusesWhatIsNotAKernel) {
  ir::Builder builder("g");
  builder.AddOne(ir::Op::kParam, {}, {{"name", "w"}, {"init", "zeros"}}, {{ir::DType::kF32, {2}}});
  const auto graph = builder.Finish();
  ASSERT_TRUE(graph) << graph.error();
  const auto kernel = MakeKernel(Backend::kCpu, *graph, graph->nodes[0], {});
  ASSERT_FALSE(kernel);
  EXPECT_EQ(kernel.error().code(), StatusCode::kUnimplemented);
  EXPECT_NE(kernel.error().message().find("param"), std::string::npos);
}

TEST(EvaluateFunction, RejectsABindingOfAnotherShape) {
  ir::Builder builder("g");
  const ValueId x = builder.AddOne(ir::Op::kInput, {}, {{"name", "x"}}, {{ir::DType::kF32, {2}}});
  builder.SetOutput("y", builder.AddOne(ir::Op::kScale, {x}, {{"factor", 2.0}}));
  const auto graph = builder.Finish();
  ASSERT_TRUE(graph) << graph.error();
  const auto bind = [](const ir::Node&) -> Result<HostTensor> { return Vector({1, 2, 3}); };
  const auto result = Evaluate(Backend::kCpu, *graph, bind, {});
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().code(), StatusCode::kInvalidArgument);
}

TEST(SegmentsOp, CountsSeparatorsBeforeAPlaceOfItsRow) {
  const OpCase op_case{
      "segments", ir::Op::kSegments, {{"separator", int64_t{9}}}, {{{2, 5}, ArgKind::kIds, 10}}, {},
      false};
  for (const Target& target : AllTargets()) {
    const auto result = RunCase(op_case, target, ir::DType::kF32,
                                {FromIds({2, 5}, {9, 1, 2, 9, 9, 3, 9, 4, 5, 6})});
    ASSERT_TRUE(result) << result.error();
    EXPECT_EQ(ValuesOf((*result)[0]), (std::vector<double>{0, 1, 1, 1, 2, 0, 0, 1, 1, 1}));
  }
}

// A second document is what it would be alone; long enough to fill several tiles.
TEST(AttentionOp, ASegmentIsWhatItWouldBeAlone) {
  constexpr int64_t kLength = 150;
  constexpr int64_t kFirst = 70;
  const ir::Dims dims = {1, kLength, 2, 8};
  const ir::Dims alone = {1, kLength - kFirst, 2, 8};
  std::vector<HostTensor> data;
  std::vector<HostTensor> tail;
  for (uint64_t i = 0; i < 3; ++i) {
    data.push_back(RandomTensor(dims, 40 + i));
    tail.push_back(Block(data.back(), {0, kFirst, 0, 0}, alone));
  }
  std::vector<int32_t> ids(kLength, 0);
  std::fill(ids.begin() + kFirst, ids.end(), 1);
  data.push_back(FromIds({1, kLength}, ids));
  const OpCase both{"both",
                    ir::Op::kAttention,
                    {},
                    {{dims}, {dims}, {dims}, {{1, kLength}, ArgKind::kIds, 2}},
                    {}};
  const OpCase second{"second", ir::Op::kAttention, {}, {{alone}, {alone}, {alone}}, {}};
  for (const Target& target : AllTargets()) {
    const auto whole = RunCase(both, target, ir::DType::kF32, data);
    ASSERT_TRUE(whole) << whole.error();
    const auto part = RunCase(second, target, ir::DType::kF32, tail);
    ASSERT_TRUE(part) << part.error();
    EXPECT_LE(RelativeError(Block((*whole)[0], {0, kFirst, 0, 0}, alone), (*part)[0]), 1e-6);
  }
}

}  // namespace
}  // namespace meshwright::ops
