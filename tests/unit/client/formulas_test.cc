// Formulas of client::Builder: shapes, choices, attention in parts, and gradients inside of losses.
#include "client/layers.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <numeric>

#include "base/philox.h"
#include "ir/autodiff.h"
#include "ops/kernel.h"

namespace meshwright::client {
namespace {

using ir::DType;
using ops::HostTensor;

using Values = std::vector<double>;

HostTensor TensorOf(const Dims& dims, const Values& values) {
  HostTensor tensor{{DType::kF64, dims}, std::vector<std::byte>(values.size() * sizeof(double))};
  std::memcpy(tensor.data.data(), values.data(), tensor.data.size());
  return tensor;
}

Values Numbers(int64_t count, uint64_t stream) {
  Values values;
  for (int64_t i = 0; i < count; ++i) {
    values.push_back(PhiloxNormal(5, stream, static_cast<uint64_t>(i)));
  }
  return values;
}

Values ValuesOf(const HostTensor& tensor) {
  Values values;
  const auto count = static_cast<size_t>(tensor.type.elements());
  for (size_t i = 0; i < count; ++i) {
    const std::byte* place =
        tensor.data.data() + i * static_cast<size_t>(ir::DTypeBytes(tensor.type.dtype));
    if (tensor.type.dtype == DType::kF64) {
      double value = 0;
      std::memcpy(&value, place, sizeof(value));
      values.push_back(value);
    } else if (tensor.type.dtype == DType::kI32) {
      int32_t value = 0;
      std::memcpy(&value, place, sizeof(value));
      values.push_back(value);
    } else {
      values.push_back(std::to_integer<int>(*place));
    }
  }
  return values;
}

// A graph in f64 whose inputs are bound as they are made.
class Formulas : public testing::Test {
 protected:
  ValueId Input(const Dims& dims, const Values& values) {
    bound_.push_back(TensorOf(dims, values));
    return builder_.AddOne(ir::Op::kInput, {}, {{"name", std::to_string(bound_.size())}},
                           {{DType::kF64, dims}});
  }
  ValueId Input(const Dims& dims, uint64_t stream) {
    return Input(dims, Numbers(ir::TensorType{{}, dims}.elements(), stream));
  }

  std::vector<Values> Run(const std::vector<ValueId>& outputs) {
    ir::Builder graph = builder_;
    for (size_t i = 0; i < outputs.size(); ++i) graph.SetOutput(std::to_string(i), outputs[i]);
    const auto finished = graph.Finish();
    EXPECT_TRUE(finished.has_value()) << finished.error();
    std::vector<Values> results;
    if (!finished.has_value()) return results;
    size_t next = 0;
    const auto evaluated =
        ops::Evaluate(ops::Backend::kReference, *finished,
                      [&](const ir::Node&) -> Result<HostTensor> { return bound_[next++]; }, {});
    EXPECT_TRUE(evaluated.has_value()) << evaluated.error();
    if (!evaluated.has_value()) return results;
    for (const HostTensor& tensor : *evaluated) results.push_back(ValuesOf(tensor));
    return results;
  }
  Values Run(ValueId output) {
    const std::vector<Values> results = Run(std::vector<ValueId>{output});
    return results.empty() ? Values() : results[0];
  }

  Builder builder_{"formulas", DType::kF64};
  std::vector<HostTensor> bound_;
};

void ExpectNear(const Values& found, const Values& wanted, double tolerance = 1e-12) {
  ASSERT_EQ(found.size(), wanted.size());
  for (size_t i = 0; i < found.size(); ++i) EXPECT_NEAR(found[i], wanted[i], tolerance) << i;
}

TEST_F(Formulas, ShapesRepeatAsInNumPy) {
  const ValueId column = Input({2, 1}, {1, 2});
  const ValueId row = Input({3}, {10, 20, 30});
  EXPECT_EQ(Run(builder_.AddTo(column, row)), (Values{11, 21, 31, 12, 22, 32}));
  EXPECT_EQ(Run(builder_.Sub(row, column)), (Values{9, 19, 29, 8, 18, 28}));
  EXPECT_EQ(Run(builder_.Less(row, builder_.Scale(column, 10))), (Values{0, 0, 0, 1, 0, 0}));
  const ValueId one = Input({1, 3}, {1, 2, 3});
  EXPECT_EQ(Run(builder_.MulBy(builder_.AddTo(column, row), one)),
            (Values{11, 42, 93, 12, 44, 96}));
  const ValueId picked = builder_.Where(builder_.Greater(row, builder_.Fill({}, 15)), column, row);
  EXPECT_EQ(Run(picked), (Values{10, 1, 1, 10, 2, 2}));
}

TEST_F(Formulas, NameShapesThatDoNotFit) {
  (void)builder_.AddTo(Input({2, 3}, 1), Input({2}, 2));
  EXPECT_EQ(builder_.status().code(), StatusCode::kInvalidArgument);
  EXPECT_NE(builder_.status().message().find("add of [2,3] and [2]"), std::string::npos)
      << builder_.status();
}

TEST_F(Formulas, ReductionsTakeDimsFromTheEndAndMayKeepThem) {
  const ValueId x = Input({2, 3}, {3, 1, 2, -5, 9, 4});
  EXPECT_EQ(Run(builder_.ReduceMean(x, {-1})), (Values{2, 8.0 / 3}));
  EXPECT_EQ(Run(builder_.ReduceMin(x, {0, 1})), (Values{-5}));
  const ValueId largest = builder_.ReduceMax(x, {1}, true);
  EXPECT_EQ(builder_.dims(largest), (Dims{2, 1}));
  EXPECT_EQ(Run(builder_.Sub(x, largest)), (Values{0, -2, -1, -14, 0, -5}));
}

TEST_F(Formulas, ChoicesFollowTheirIds) {
  const ValueId x = Input({2, 3}, {3, 7, 7, -5, 9, 4});
  EXPECT_EQ(Run(builder_.ArgMax(x, -1)), (Values{1, 1}));
  EXPECT_EQ(Run(builder_.ArgMax(x, 0)), (Values{0, 1, 0}));
  EXPECT_EQ(Run(builder_.Iota(4)), (Values{0, 1, 2, 3}));
  const TopValues top = builder_.TopK(x, 2);
  EXPECT_EQ(Run(builder_.Gather(x, top.ids, 1)), Run(top.values));
  EXPECT_EQ(Run(builder_.OneHot(builder_.ArgMax(x, 1), 3)), (Values{0, 1, 0, 0, 1, 0}));
  EXPECT_EQ(Run(builder_.Concat({x, builder_.Slice(x, -1, 0, 1)}, 1)),
            (Values{3, 7, 7, 3, -5, 9, 4, -5}));
}

TEST_F(Formulas, DrawsFollowTheirProbabilities) {
  const ValueId p = builder_.Fill({20000}, 0.3);
  const Values drawn = Run(builder_.Cast(builder_.Bernoulli(p, "coin"), DType::kF64));
  EXPECT_NEAR(std::accumulate(drawn.begin(), drawn.end(), 0.0) / 20000, 0.3, 0.02);
  const ValueId logits =
      builder_.BroadcastTo(Input({3}, {0.0, std::log(2.0), std::log(5.0)}), {20000, 3});
  Values counts(3, 0.0);
  for (const double id : Run(builder_.Categorical(logits, "dice"))) {
    counts[static_cast<size_t>(id)] += 1.0 / 20000;
  }
  ExpectNear(counts, {1.0 / 8, 2.0 / 8, 5.0 / 8}, 0.02);
}

TEST_F(Formulas, AttentionInPartsEqualsTheOp) {
  const ValueId q = Input({2, 5, 6, 4}, 1);
  const ValueId k = Input({2, 5, 2, 4}, 2);
  const ValueId v = Input({2, 5, 2, 4}, 3);
  const ValueId nothing = builder_.Fill({1, 1, 5, 5}, 0);
  for (const bool causal : {true, false}) {
    const ValueId op = builder_.Attention(q, k, v, {.causal = causal});
    const ValueId parts = builder_.Attention(q, k, v, {.causal = causal, .bias = nothing});
    EXPECT_EQ(builder_.graph().producer(op).op, ir::Op::kAttention);
    EXPECT_NE(builder_.graph().producer(parts).op, ir::Op::kAttention);
    ExpectNear(Run(parts), Run(op));
  }
}

// What hides keys is the same in both forms; a cap far above all scores changes nothing.
TEST_F(Formulas, AttentionInPartsKnowsWindowsAndSegments) {
  const ValueId q = Input({2, 5, 6, 4}, 1);
  const ValueId k = Input({2, 5, 2, 4}, 2);
  const ValueId v = Input({2, 5, 2, 4}, 3);
  const ValueId rows = builder_.Reshape(builder_.Iota(10), {2, 5});
  const ValueId segments = builder_.Segments(rows, 6);  // the second row is two documents
  for (const int64_t window : {0, 2}) {
    for (const ValueId of : {ValueId(), segments}) {
      AttentionOptions options;
      options.window = window;
      options.segments = of;
      options.scale = 0.3;
      const ValueId op = builder_.Attention(q, k, v, options);
      options.score_cap = 1e6;
      ExpectNear(Run(builder_.Attention(q, k, v, options)), Run(op), 1e-9);
    }
  }
}

// One query and two keys: the softmax of cap * tanh(score / cap).
TEST_F(Formulas, AttentionCapsItsScores) {
  const ValueId q = Input({1, 2, 1, 2}, {0, 0, 3, 0});
  const ValueId k = Input({1, 2, 1, 2}, {2, 0, -1, 0});
  const ValueId v = Input({1, 2, 1, 2}, {1, 0, 0, 1});
  AttentionOptions options;
  options.scale = 0.5;
  options.score_cap = 2;
  const double a = std::exp(2 * std::tanh(1.5));
  const double b = std::exp(2 * std::tanh(-0.75));
  ExpectNear(Run(builder_.Attention(q, k, v, options)), {1, 0, a / (a + b), b / (a + b)});
}

// The softmax over two keys whose scores are the biases.
TEST_F(Formulas, AttentionAcrossLengthsAddsItsBias) {
  const ValueId q = builder_.Fill({1, 3, 2, 4}, 0);
  const ValueId k = Input({1, 2, 2, 4}, 2);
  const ValueId v = Input({1, 2, 2, 1}, {1, 10, 2, 20});
  const ValueId bias =
      Input({1, 2, 3, 2}, {0, 0, 0, std::log(3.0), -50, 50, 0, 0, std::log(3.0), 0, 50, -50});
  const ValueId wide = builder_.BroadcastTo(v, {1, 2, 2, 4});
  const ValueId y = builder_.Attention(q, k, wide, {.causal = false, .bias = bias});
  EXPECT_EQ(builder_.dims(y), (Dims{1, 3, 2, 4}));
  ExpectNear(Run(builder_.Slice(y, -1, 0, 1)), {1.5, 15, 1.75, 12.5, 2, 10});
  // The gradient of the mean score's bias: sums to nothing, since shares do not change together.
  const ValueId grad = builder_.Grad(builder_.ReduceSum(y, {0, 1, 2, 3}), {bias})[0];
  const Values g = Run(builder_.ReduceSum(grad, {3}));
  ExpectNear(g, Values(6, 0.0), 1e-9);
}

TEST_F(Formulas, PoolingTakesTheLargestAndTheMean) {
  Values image(16);
  std::iota(image.begin(), image.end(), 0.0);
  const ValueId x = Input({1, 4, 4, 1}, image);
  const WindowOptions steps{.strides = {2, 2}};
  EXPECT_EQ(Run(builder_.MaxPool(x, {2, 2}, steps)), (Values{5, 7, 13, 15}));
  EXPECT_EQ(Run(builder_.AvgPool(x, {2, 2}, steps)), (Values{2.5, 4.5, 10.5, 12.5}));
  const ValueId sum = builder_.ReduceSum(builder_.MaxPool(x, {2, 2}, steps), {0, 1, 2, 3});
  EXPECT_EQ(Run(builder_.Grad(sum, {x})[0]),
            (Values{0, 0, 0, 0, 0, 1, 0, 1, 0, 0, 0, 0, 0, 1, 0, 1}));
}

TEST_F(Formulas, GradIsZeroWhereNothingDepends) {
  const ValueId x = Input({2}, {3, 4});
  const ValueId loss = builder_.ReduceSum(builder_.StopGradient(builder_.Square(x)), {0});
  EXPECT_EQ(Run(builder_.Grad(loss, {x})[0]), (Values{0, 0}));
}

TEST_F(Formulas, GradRefusesALossThatIsNoScalar) {
  const ValueId x = Input({2}, {3, 4});
  (void)builder_.Grad(x, {x});
  EXPECT_NE(builder_.status().message().find("must be a scalar"), std::string::npos);
}

// Linear regression by one inner step w' = w - a L'(w), L(w) = mean((w x - y)^2)/2, and the outer
// loss M(w') = mean((w' u - v)^2)/2: dM/dw = (w' mean(u^2) - mean(u v)) (1 - a mean(x^2)). Without
// the second order the last factor is missing.
TEST_F(Formulas, MamlOfLinearRegressionHasItsClosedForm) {
  constexpr double kRate = 0.3;
  const Values x = Numbers(7, 1), y = Numbers(7, 2), u = Numbers(9, 3), v = Numbers(9, 4);
  const auto mean = [](const Values& a, const Values& b) {
    return std::inner_product(a.begin(), a.end(), b.begin(), 0.0) / static_cast<double>(a.size());
  };
  const auto loss = [&](ValueId w, ValueId in, ValueId out) {
    const ValueId error = builder_.Sub(builder_.MulBy(in, w), out);
    return builder_.Scale(builder_.ReduceMean(builder_.Square(error), {0}), 0.5);
  };
  const ValueId w = Input({}, Values{0.7});
  const ValueId in_x = Input({7}, x), in_y = Input({7}, y), in_u = Input({9}, u),
                in_v = Input({9}, v);
  const ValueId slope = builder_.Grad(loss(w, in_x, in_y), {w})[0];
  const ValueId adapted = builder_.Sub(w, builder_.Scale(slope, kRate));
  const ValueId first_order = builder_.Sub(w, builder_.StopGradient(builder_.Scale(slope, kRate)));
  const ValueId full = builder_.Grad(loss(adapted, in_u, in_v), {w})[0];
  const ValueId cut = builder_.Grad(loss(first_order, in_u, in_v), {w})[0];
  const std::vector<Values> found = Run({full, cut});
  const double moved = 0.7 - kRate * (0.7 * mean(x, x) - mean(x, y));
  const double outer = moved * mean(u, u) - mean(u, v);
  EXPECT_NEAR(found[0][0], outer * (1 - kRate * mean(x, x)), 1e-12);
  EXPECT_NEAR(found[1][0], outer, 1e-12);
}

// A trained model: the gradients that the training step takes through an inner gradient of a
// network with a norm, a gelu and a softmax equal finite differences.
TEST_F(Formulas, TrainingThroughAnInnerGradientEqualsFiniteDifferences) {
  const ValueId x = Input({4, 3}, 1);
  const ValueId ids = builder_.ArgMax(Input({4, 5}, 2), -1);
  const auto network = [&](ValueId a, ValueId b) {
    ValueId h = builder_.Einsum("bi,io->bo", x, a);
    h = builder_.AddOne(ir::Op::kRmsNorm, {h, builder_.Fill({6}, 1)}, {{"eps", 1e-5}});
    h = builder_.Einsum("bi,io->bo", builder_.Gelu(h), b);
    return builder_.CrossEntropy(h, ids);
  };
  const ValueId a = builder_.Param("a", {3, 6}, {.std_dev = 0.5});
  const ValueId b = builder_.Param("b", {6, 5}, {.std_dev = 0.5});
  const Loss inner = network(a, b);
  const std::vector<ValueId> slopes =
      builder_.Grad(builder_.Div(inner.loss_sum, inner.count), {a, b});
  const Loss outer = network(builder_.Sub(a, builder_.Scale(slopes[0], 0.5)),
                             builder_.Sub(b, builder_.Scale(slopes[1], 0.5)));
  builder_.SetOutput("loss_sum", outer.loss_sum);
  builder_.SetOutput("count", outer.count);
  const auto graph = ir::Differentiate(*builder_.Finish());
  ASSERT_TRUE(graph.has_value()) << graph.error();
  std::vector<Values> params = {Numbers(18, 7), Numbers(30, 8)};
  const auto evaluate = [&](const char* output) {
    ir::Graph one = *graph;
    one.outputs = {{output, graph->Output(output)}};
    size_t next = 0;
    const auto result =
        ops::Evaluate(ops::Backend::kReference, one,
                      [&](const ir::Node& node) -> Result<HostTensor> {
                        if (node.op == ir::Op::kInput) return bound_[next++];
                        const size_t which = node.attrs.Str("name") == "a" ? 0 : 1;
                        return TensorOf(one.type(node.outputs[0]).dims, params[which]);
                      },
                      {});
    EXPECT_TRUE(result.has_value()) << result.error();
    return ValuesOf((*result)[0]);
  };
  for (size_t which = 0; which < 2; ++which) {
    const Values grads = evaluate(which == 0 ? "grad/a" : "grad/b");
    for (size_t i = 0; i < grads.size(); i += 5) {
      const double kept = params[which][i];
      params[which][i] = kept + 1e-5;
      const double above = evaluate("loss_sum")[0];
      params[which][i] = kept - 1e-5;
      const double below = evaluate("loss_sum")[0];
      params[which][i] = kept;
      EXPECT_NEAR(grads[i], (above - below) / 2e-5, 1e-7) << which << "/" << i;
    }
  }
}

}  // namespace
}  // namespace meshwright::client
