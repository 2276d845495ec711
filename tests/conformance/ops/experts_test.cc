// A layer of experts out of its ops: against plain loops over tokens, its gradients against finite
// differences, backends against each other, and parts of the experts against all.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>

#include "ir/autodiff.h"
#include "ir/builder.h"
#include "ops/cpu/amx_tile.h"
#include "tests/conformance/ops/op_harness.h"
#include "tests/conformance/ops/targets.h"

namespace meshwright::ops {
namespace {

using ir::Op;

struct ExpertCase {
  const char* name;
  int64_t groups = 1;
  int64_t capacity = 0;  // 0: room for all
  bool drop = false;
  bool one_is_hot = false;  // first choices are all expert 2, which leaves others idle
  int64_t hosts = 1;        // above 1: tokens go to each host once, and from there to experts
};
std::ostream& operator<<(std::ostream& out, const ExpertCase& c) { return out << c.name; }

constexpr int64_t kBatchRows = 3;
constexpr int64_t kTokens = 9;
constexpr int64_t kChosen = 2;
constexpr int64_t kExperts = 6;
constexpr int64_t kTokenWidth = 5;
constexpr int64_t kInner = 7;

// x, ids, weights, up [E, d, f], down [E, f, d], c: what the loss multiplies the result with.
std::vector<HostTensor> OperandsOf(const ExpertCase& c, ir::DType dtype) {
  std::vector<int32_t> ids;
  for (int64_t token = 0; token < kBatchRows * kTokens; ++token) {
    const int64_t first = c.one_is_hot ? 2 : (token * 5 + token / 4) % kExperts;
    ids.push_back(static_cast<int32_t>(first));
    ids.push_back(static_cast<int32_t>((first + 1 + (c.one_is_hot ? 0 : token % 4)) % kExperts));
  }
  const ir::Dims x = {kBatchRows, kTokens, kTokenWidth};
  std::vector<HostTensor> operands = {Convert(RandomTensor(x, 1), dtype),
                                      FromIds({kBatchRows, kTokens, kChosen}, ids)};
  uint64_t seed = 2;
  for (const ir::Dims& dims :
       {ir::Dims{kBatchRows, kTokens, kChosen}, ir::Dims{kExperts, kTokenWidth, kInner},
        ir::Dims{kExperts, kInner, kTokenWidth}, x}) {
    operands.push_back(Convert(RandomTensor(dims, seed++), dtype));
  }
  return operands;
}

// Tokens at the slots of their experts, and what experts say to them summed up, by hosts.
struct HostPlaces {
  HostPlaces(ir::Builder& b, const ExpertCase& c, int64_t capacity, ValueId slot) {
    const int64_t places = std::min(kTokens, c.groups / c.hosts * capacity);
    found = b.Add(Op::kExpertSlots, {slot},
                  {{"hosts", c.hosts},
                   {"groups", c.groups},
                   {"capacity", capacity},
                   {"host_capacity", places}});
    to_hosts = {{"groups", c.hosts}, {"capacity", places}};
    to_experts = {{"groups", c.groups / c.hosts}, {"capacity", capacity}};
  }
  ValueId Send(ir::Builder& b, ValueId x) const {
    return b.AddOne(Op::kDispatch, {b.AddOne(Op::kDispatch, {x, found[0]}, to_hosts), found[1]},
                    to_experts);
  }
  ValueId Sum(ir::Builder& b, ValueId y, ValueId weights) const {
    const ValueId sent = b.AddOne(Op::kDispatch, {weights, found[0]}, to_hosts);
    return b.AddOne(Op::kCombine, {b.AddOne(Op::kCombine, {y, found[1], sent}), found[0]});
  }
  std::vector<ValueId> found;
  ir::Attrs to_hosts, to_experts;
};

// Outputs y0: the layer, y1...: the gradients of sum(c * y0) for x, weights, up, down.
Result<ir::Graph> LayerOf(const ExpertCase& c, const std::vector<HostTensor>& operands) {
  ir::Builder b("layer");
  std::vector<ValueId> in;
  for (const HostTensor& operand : operands) {
    in.push_back(
        b.AddOne(Op::kInput, {}, {{"name", "x" + std::to_string(in.size())}}, {operand.type}));
  }
  const int64_t capacity = c.capacity > 0 ? c.capacity : kTokens * kChosen;
  const std::vector<ValueId> routed = b.Add(Op::kExpertSlots, {in[1]},
                                            {{"experts", kExperts},
                                             {"groups", c.groups},
                                             {"capacity", capacity},
                                             {"drop", int64_t{c.drop ? 1 : 0}}});
  std::optional<HostPlaces> hosts;
  if (c.hosts > 1) hosts.emplace(b, c, capacity, routed[0]);
  const ValueId slots = hosts ? hosts->Send(b, in[0])
                              : b.AddOne(Op::kDispatch, {in[0], routed[0]},
                                         {{"groups", c.groups}, {"capacity", capacity}});
  const ValueId inner =
      b.AddOne(Op::kGelu, {b.AddOne(Op::kGroupedMatmul, {slots, routed[1], in[3]})});
  const ValueId outer = b.AddOne(Op::kGroupedMatmul, {inner, routed[1], in[4]});
  const ValueId y =
      hosts ? hosts->Sum(b, outer, in[2]) : b.AddOne(Op::kCombine, {outer, routed[0], in[2]});
  const ValueId loss = b.AddOne(Op::kReduceSum, {b.AddOne(Op::kMul, {y, in[5]})},
                                {{"dims", std::vector<int64_t>{0, 1, 2}}});
  b.SetOutput("y0", y);
  const std::vector<ValueId> wrt = {in[0], in[2], in[3], in[4]};
  MW_ASSIGN_OR_RETURN(const std::vector<ValueId> grads, ir::AppendGradients(b, loss, wrt));
  for (size_t i = 0; i < grads.size(); ++i) b.SetOutput("y" + std::to_string(i + 1), grads[i]);
  b.SetOutput("y5", routed[1]);
  b.SetOutput("y6", routed[2]);
  return b.Finish();
}

double Gelu(double x) {
  return 0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
}

// Which choices have a slot, by plain counting.
std::vector<bool> KeptOf(const ExpertCase& c, const HostTensor& ids) {
  std::vector<bool> kept;
  const auto* choice = reinterpret_cast<const int32_t*>(ids.data.data());
  for (int64_t row = 0; row < kBatchRows; ++row) {
    std::vector<int64_t> used(kExperts, 0);
    for (int64_t i = 0; i < kTokens * kChosen; ++i) {
      const int32_t expert = choice[row * kTokens * kChosen + i];
      kept.push_back(!c.drop || used[static_cast<size_t>(expert)]++ < c.capacity);
    }
  }
  return kept;
}

std::vector<double> PlainLayer(const ExpertCase& c, const std::vector<HostTensor>& operands) {
  const std::vector<double> x = ValuesOf(operands[0]);
  const auto* ids = reinterpret_cast<const int32_t*>(operands[1].data.data());
  const std::vector<double> weights = ValuesOf(operands[2]);
  const std::vector<double> up = ValuesOf(operands[3]);
  const std::vector<double> down = ValuesOf(operands[4]);
  const std::vector<bool> kept = KeptOf(c, operands[1]);
  const auto at = [](const std::vector<double>& v, int64_t i) { return v[static_cast<size_t>(i)]; };
  std::vector<double> y(x.size(), 0.0);
  for (int64_t choice = 0; choice < kBatchRows * kTokens * kChosen; ++choice) {
    if (!kept[static_cast<size_t>(choice)]) continue;
    const int64_t token = choice / kChosen;
    const int64_t expert = ids[choice];
    for (int64_t f = 0; f < kInner; ++f) {
      double sum = 0;
      for (int64_t d = 0; d < kTokenWidth; ++d) {
        sum += at(x, token * kTokenWidth + d) * at(up, (expert * kTokenWidth + d) * kInner + f);
      }
      for (int64_t d = 0; d < kTokenWidth; ++d) {
        y[static_cast<size_t>(token * kTokenWidth + d)] +=
            at(weights, choice) * Gelu(sum) * at(down, (expert * kInner + f) * kTokenWidth + d);
      }
    }
  }
  return y;
}

class ExpertLayer : public ::testing::TestWithParam<ExpertCase> {
 protected:
  std::vector<HostTensor> Run(const std::vector<HostTensor>& operands, const Target& target,
                              ThreadTeam* team = nullptr) {
    const auto graph = LayerOf(GetParam(), operands);
    EXPECT_TRUE(graph.has_value()) << graph.error();
    Evaluation evaluation;
    evaluation.target = target;
    evaluation.context.team = team;
    auto outs = EvaluateWith(*graph, evaluation, operands);
    EXPECT_TRUE(outs.has_value()) << outs.error();
    return *std::move(outs);
  }
};

TEST_P(ExpertLayer, EqualsPlainLoopsOverTokens) {
  const auto operands = OperandsOf(GetParam(), ir::DType::kF64);
  const std::vector<HostTensor> outs = Run(operands, Backend::kReference);
  const HostTensor plain =
      FromValues(outs[0].type.dims, PlainLayer(GetParam(), operands), ir::DType::kF64);
  EXPECT_LT(RelativeError(outs[0], plain), 1e-13);
  // As many choices as were made, and slots as were kept.
  const std::vector<bool> kept = KeptOf(GetParam(), operands[1]);
  const auto sum = [](const HostTensor& counts) {
    const std::vector<double> values = ValuesOf(counts);
    return std::accumulate(values.begin(), values.end(), 0.0);
  };
  EXPECT_EQ(sum(outs[5]), static_cast<double>(std::count(kept.begin(), kept.end(), true)));
  EXPECT_EQ(sum(outs[6]), static_cast<double>(kept.size()));
}

// Of each float operand a few elements.
TEST_P(ExpertLayer, GradientsAreThoseOfFiniteDifferences) {
  auto operands = OperandsOf(GetParam(), ir::DType::kF64);
  const std::vector<HostTensor> outs = Run(operands, Backend::kReference);
  const std::vector<double> c = ValuesOf(operands[5]);
  const auto loss = [&] {
    const std::vector<double> y = PlainLayer(GetParam(), operands);
    double sum = 0;
    for (size_t i = 0; i < y.size(); ++i) sum += c[i] * y[i];
    return sum;
  };
  constexpr double kStep = 1e-6;
  constexpr size_t kOperands[] = {0, 2, 3, 4};
  for (size_t g = 0; g < std::size(kOperands); ++g) {
    HostTensor& operand = operands[kOperands[g]];
    const std::vector<double> gradient = ValuesOf(outs[g + 1]);
    auto* values = reinterpret_cast<double*>(operand.data.data());
    for (size_t i = 0; i < gradient.size(); i += 7) {
      const double kept = values[i];
      values[i] = kept + kStep;
      const double above = loss();
      values[i] = kept - kStep;
      const double below = loss();
      values[i] = kept;
      EXPECT_NEAR(gradient[i], (above - below) / (2 * kStep), 2e-7) << "operand " << g << "[" << i;
    }
  }
}

TEST_P(ExpertLayer, CpusComputeTheSame) {
  const auto exact = Run(OperandsOf(GetParam(), ir::DType::kF64), Backend::kReference);
  const auto operands = OperandsOf(GetParam(), ir::DType::kF32);
  const auto one = Run(operands, Backend::kCpu);
  ThreadTeam team(3);
  const auto three = Run(operands, Backend::kCpu, &team);
  for (size_t i = 0; i < exact.size(); ++i) {
    EXPECT_LT(RelativeError(one[i], exact[i]), 3e-6) << i;
    EXPECT_LT(RelativeError(three[i], exact[i]), 3e-6) << i;
  }
}

TEST_P(ExpertLayer, GpusComputeTheSame) {
  const auto exact = Run(OperandsOf(GetParam(), ir::DType::kF64), Backend::kReference);
  const auto gpu = Run(OperandsOf(GetParam(), ir::DType::kF32), TestedGpu());
  for (size_t i = 0; i < exact.size(); ++i) EXPECT_LT(RelativeError(gpu[i], exact[i]), 3e-6) << i;
}

TEST_P(ExpertLayer, GpusRoundToBf16) {
  std::vector<HostTensor> operands = OperandsOf(GetParam(), ir::DType::kBF16);
  const auto gpu = Run(operands, TestedGpu());
  for (HostTensor& operand : operands) {
    if (ir::IsFloating(operand.type.dtype)) operand = Convert(operand, ir::DType::kF64);
  }
  const auto exact = Run(operands, Backend::kReference);
  for (size_t i = 0; i < exact.size(); ++i) EXPECT_LT(RelativeError(gpu[i], exact[i]), 3e-2) << i;
}

// As mixed precision has it: how much a token takes of its experts is f32, and so is its gradient.
TEST_P(ExpertLayer, WeightsOfTokensStayInF32) {
  std::vector<HostTensor> operands = OperandsOf(GetParam(), ir::DType::kBF16);
  operands[2] = OperandsOf(GetParam(), ir::DType::kF32)[2];
  const auto cpu = Run(operands, Backend::kCpu);
  ThreadTeam team(3);
  const auto three = Run(operands, Backend::kCpu, &team);
  const auto gpu = Run(operands, TestedGpu());
  for (HostTensor& operand : operands) {
    if (ir::IsFloating(operand.type.dtype)) operand = Convert(operand, ir::DType::kF64);
  }
  const auto exact = Run(operands, Backend::kReference);
  EXPECT_EQ(cpu[2].type.dtype, ir::DType::kF32);
  EXPECT_EQ(cpu[3].type.dtype, ir::DType::kBF16);
  for (size_t i = 0; i < exact.size(); ++i) {
    EXPECT_LT(RelativeError(cpu[i], exact[i]), 3e-2) << i;
    EXPECT_EQ(three[i].data, cpu[i].data) << i;
    EXPECT_LT(RelativeError(gpu[i], exact[i]), 3e-2) << i;
  }
}

TEST_P(ExpertLayer, CpusRoundToBf16) {
  std::vector<HostTensor> operands = OperandsOf(GetParam(), ir::DType::kBF16);
  const auto cpu = Run(operands, Backend::kCpu);
  for (HostTensor& operand : operands) {
    if (ir::IsFloating(operand.type.dtype)) operand = Convert(operand, ir::DType::kF64);
  }
  const auto exact = Run(operands, Backend::kReference);
  for (size_t i = 0; i < exact.size(); ++i) EXPECT_LT(RelativeError(cpu[i], exact[i]), 3e-2) << i;
}

// Runs of more rows than a tile has, of a few, and of none: 278 columns are one tile of a CPU and a
// part of one; the second expert crosses a border of tiles of GPUs.
class ExpertProducts : public ::testing::Test {
 protected:
  static constexpr int64_t kSlots = 150;

  struct Shape {
    int64_t slots, in, out;
    std::vector<int32_t> used;
  };

  static std::vector<HostTensor> Operands(ir::DType dtype) {
    return OperandsOf({kSlots, 70, 278, {30, 70, 0, 20, 0, 1, 149, 0}}, dtype);
  }
  static std::vector<HostTensor> OperandsOf(const Shape& shape, ir::DType dtype) {
    const auto rows = static_cast<int64_t>(shape.used.size()) / 4;
    std::vector<HostTensor> operands = {RandomTensor({rows, 1, shape.slots, shape.in}, 1),
                                        FromIds({rows, 4}, shape.used),
                                        RandomTensor({4, shape.in, shape.out}, 2),
                                        RandomTensor({rows, 1, shape.slots, shape.out}, 3)};
    for (HostTensor& operand : operands) {
      if (ir::IsFloating(operand.type.dtype)) operand = Convert(operand, dtype);
    }
    return operands;
  }

  // x w, dy w^T, and x^T dy behind itself, in the type of `gradient`.
  static Result<ir::Graph> Products(const std::vector<HostTensor>& operands,
                                    const std::string& gradient) {
    ir::Builder b("products");
    std::vector<ValueId> in;
    for (const HostTensor& operand : operands) {
      in.push_back(
          b.AddOne(Op::kInput, {}, {{"name", "x" + std::to_string(in.size())}}, {operand.type}));
    }
    b.SetOutput("y0", b.AddOne(Op::kGroupedMatmul, {in[0], in[1], in[2]}));
    b.SetOutput("y1",
                b.AddOne(Op::kGroupedMatmul, {in[3], in[1], in[2]}, {{"transposed", int64_t{1}}}));
    const ir::Attrs attrs{{"dtype", gradient}};
    const ValueId once = b.AddOne(Op::kGroupedMatmulGrad, {in[0], in[1], in[3]}, attrs);
    b.SetOutput("y2", once);
    b.SetOutput("y3", b.AddOne(Op::kGroupedMatmulGrad, {in[0], in[1], in[3], once}, attrs));
    return b.Finish();
  }

  static std::vector<HostTensor> Run(const std::vector<HostTensor>& operands,
                                     const std::string& gradient, const Target& target,
                                     ThreadTeam* team = nullptr) {
    Evaluation evaluation;
    evaluation.target = target;
    evaluation.context.team = team;
    const auto made = Products(operands, gradient);
    EXPECT_TRUE(made.has_value()) << made.error();
    auto outs = EvaluateWith(*made, evaluation, operands);
    EXPECT_TRUE(outs.has_value()) << outs.error();
    return *std::move(outs);
  }
};

TEST_F(ExpertProducts, OfRunsOfAllLengths) {
  const auto exact = Run(Operands(ir::DType::kF64), "f64", Backend::kReference);
  for (const Target& target : {Target(Backend::kCpu), TestedGpu()}) {
    const auto outs = Run(Operands(ir::DType::kF32), "f32", target);
    for (size_t i = 0; i < exact.size(); ++i) {
      EXPECT_LT(RelativeError(outs[i], exact[i]), 3e-6) << i;
    }
  }
}

// An element of a product that is alone is what it is whatever rows the expert has beside it.
TEST_F(ExpertProducts, MayBeAlone) {
  const auto product = [&](const HostTensor& x, std::vector<int32_t> used, const HostTensor& w,
                           bool transposed, Backend backend) {
    const std::vector<HostTensor> operands = {x, FromIds({x.type.dims[0], 4}, std::move(used)), w};
    ir::Builder b("alone");
    std::vector<ValueId> in;
    for (const HostTensor& operand : operands) {
      in.push_back(
          b.AddOne(Op::kInput, {}, {{"name", "x" + std::to_string(in.size())}}, {operand.type}));
    }
    b.SetOutput("y0", b.AddOne(Op::kGroupedMatmul, in,
                               {{"alone", int64_t{1}}, {"transposed", int64_t{transposed}}}));
    Evaluation evaluation;
    evaluation.target = backend;
    auto outs = EvaluateWith(b.Finish().value(), evaluation, operands);
    EXPECT_TRUE(outs.has_value()) << outs.error();
    return std::move(outs->at(0));
  };
  for (const ir::DType dtype : {ir::DType::kF32, ir::DType::kBF16}) {
    const std::vector<HostTensor> all = Operands(dtype);
    for (const bool transposed : {false, true}) {
      const HostTensor& x = all[transposed ? 3 : 0];
      const std::vector<int32_t> used = {30, 70, 0, 20, 0, 1, 149, 0};
      const HostTensor y = product(x, used, all[2], transposed, Backend::kCpu);
      const HostTensor exact =
          product(Convert(x, ir::DType::kF64), used, Convert(all[2], ir::DType::kF64), transposed,
                  Backend::kReference);
      EXPECT_LT(RelativeError(y, exact), dtype == ir::DType::kF32 ? 3e-6 : 8e-3);
      // The 38th row of the first row of the batch is the second expert's ninth.
      const auto in = static_cast<size_t>(x.type.bytes() / (2 * kSlots));
      const auto out = static_cast<size_t>(y.type.bytes() / (2 * kSlots));
      HostTensor one{{dtype, {1, 1, 1, x.type.dims[3]}},
                     {x.data.begin() + static_cast<ptrdiff_t>(38 * in),
                      x.data.begin() + static_cast<ptrdiff_t>(39 * in)}};
      const HostTensor alone = product(one, {0, 1, 0, 0}, all[2], transposed, Backend::kCpu);
      EXPECT_TRUE(std::equal(alone.data.begin(), alone.data.end(),
                             y.data.begin() + static_cast<ptrdiff_t>(38 * out)));
    }
  }
}

// Products round once to bf16; gradients of weights leave in f32 and are as exact as its sums.
TEST_F(ExpertProducts, OfBf16LeaveGradientsInF32) {
  std::vector<HostTensor> operands = Operands(ir::DType::kBF16);
  const auto cpu = Run(operands, "f32", Backend::kCpu);
  const auto gpu = Run(operands, "f32", TestedGpu());
  for (HostTensor& operand : operands) {
    if (ir::IsFloating(operand.type.dtype)) operand = Convert(operand, ir::DType::kF64);
  }
  const auto exact = Run(operands, "f64", Backend::kReference);
  for (size_t i = 0; i < exact.size(); ++i) {
    const double bound = i < 2 ? 8e-3 : 3e-6;
    EXPECT_EQ(cpu[i].type.dtype, i < 2 ? ir::DType::kBF16 : ir::DType::kF32);
    EXPECT_LT(RelativeError(cpu[i], exact[i]), bound) << i;
    EXPECT_LT(RelativeError(gpu[i], exact[i]), bound) << i;
  }
}

// Processors with matrix tiles: each tile's ends within the rows, the depth and the columns, and
// what is deeper than is packed at a time; with tiles and without.
TEST_F(ExpertProducts, OfBf16OnTilesAndWithout) {
  ThreadTeam team(3);
  for (const Shape& shape :
       {Shape{150, 70, 278, {30, 70, 0, 20, 0, 1, 149, 0}}, Shape{560, 544, 288, {0, 556, 3, 1}},
        Shape{64, 32, 32, {64, 0, 0, 0}}, Shape{3, 1, 1, {1, 0, 1, 1}}}) {
    std::vector<HostTensor> operands = OperandsOf(shape, ir::DType::kBF16);
    const auto first = Run(operands, "f32", Backend::kCpu);
    const auto three = Run(operands, "f32", Backend::kCpu, &team);
    cpu::SetAmxTiles(false);
    const auto without = Run(operands, "f32", Backend::kCpu);
    cpu::SetAmxTiles(true);
    for (HostTensor& operand : operands) {
      if (ir::IsFloating(operand.type.dtype)) operand = Convert(operand, ir::DType::kF64);
    }
    const auto exact = Run(operands, "f64", Backend::kReference);
    for (size_t i = 0; i < exact.size(); ++i) {
      const double bound = i < 2 ? 8e-3 : 3e-6;
      EXPECT_LT(RelativeError(first[i], exact[i]), bound) << shape.slots << ", " << i;
      EXPECT_LT(RelativeError(without[i], exact[i]), bound) << shape.slots << ", " << i;
      EXPECT_EQ(three[i].data, first[i].data) << shape.slots << ", " << i;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Cases, ExpertLayer,
                         ::testing::Values(ExpertCase{"one_group"}, ExpertCase{"three_groups", 3},
                                           ExpertCase{"a_group_each", 6},
                                           ExpertCase{"some_are_dropped", 6, 2, true},
                                           ExpertCase{.name = "one_is_hot", .one_is_hot = true},
                                           ExpertCase{"one_is_hot_and_full", 6, 4, true, true},
                                           ExpertCase{.name = "two_hosts", .groups = 2, .hosts = 2},
                                           ExpertCase{"three_hosts_and_full", 6, 2, true, true, 3}),
                         [](const auto& each) { return std::string(each.param.name); });

}  // namespace
}  // namespace meshwright::ops
