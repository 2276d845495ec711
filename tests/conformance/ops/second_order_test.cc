// Gradients of gradients: every op that has a gradient can be differentiated twice, but attention,
// convolution and fused nodes, which are refused by name.
#include <gtest/gtest.h>

#include <cmath>

#include "ir/autodiff.h"
#include "ir/builder.h"
#include "tests/conformance/ops/op_harness.h"

namespace meshwright::ops {
namespace {

RunContext StepContext() {
  RunContext context;
  context.seed = 7;
  context.step = 3;
  return context;
}

bool IsRefused(ir::Op op) {
  switch (op) {
    case ir::Op::kAttention:
    case ir::Op::kAttentionQkv:
    case ir::Op::kConv2d:
      return true;
    default:
      return false;
  }
}

constexpr int64_t kMostElements = 700;  // of operands: a step of a difference evaluates all of them

std::vector<OpCase> CasesWhere(bool refused) {
  std::vector<OpCase> cases;
  for (const OpCase& op_case : AllCases()) {
    int64_t elements = 0;
    for (const Arg& arg : op_case.args) elements += ir::TensorType{{}, arg.dims}.elements();
    if (op_case.has_gradient && elements <= kMostElements && IsRefused(op_case.op) == refused) {
      cases.push_back(op_case);
    }
  }
  return cases;
}

// s(x, dy) = sum_i <u_i, dx_i> where dx are the gradients of <dy, op(x)>, and its gradients.
class Twice {
 public:
  static Result<Twice> Make(const OpCase& op_case) {
    Twice twice;
    MW_ASSIGN_OR_RETURN(twice.first_, GradientGraphOf(op_case, ir::DType::kF64));
    twice.inputs_ = DataOf(op_case, 11);
    ir::Builder builder(twice.first_);
    std::vector<ir::Seed> seeds;
    for (const ir::NamedValue& output : twice.first_.outputs) {
      const ir::TensorType type = builder.type(output.value);
      twice.weights_.push_back(RandomTensor(type.dims, 41 + seeds.size()));
      seeds.push_back({output.value,
                       builder.AddOne(ir::Op::kInput, {}, {{"name", "u" + output.name}}, {type})});
    }
    std::vector<ValueId> wrt;
    for (const NodeId id : twice.first_.NodesOf(ir::Op::kInput)) {
      const ValueId value = twice.first_.node(id).outputs[0];
      if (twice.inputs_.size() == wrt.size()) {  // the cotangent
        twice.inputs_.push_back(RandomTensor(builder.type(value).dims, 23));
      }
      wrt.push_back(value);
    }
    MW_ASSIGN_OR_RETURN(twice.grads_, ir::BackPropagate(builder, seeds, wrt));
    for (size_t i = 0; i < wrt.size(); ++i) {
      if (twice.grads_[i].valid()) builder.SetOutput(std::to_string(i), twice.grads_[i]);
    }
    MW_ASSIGN_OR_RETURN(twice.second_, builder.Finish());
    return twice;
  }

  size_t operands() const { return grads_.size(); }
  bool is_float(size_t operand) const { return ir::IsFloating(inputs_[operand].type.dtype); }

  // The derivative of s along a random direction of one operand, by the graph and by a difference.
  struct Slopes {
    double analytic = 0;
    double numeric = 0;
    double scale = 1;
  };
  Result<Slopes> SlopesAlong(size_t operand, uint64_t seed) const {
    const std::vector<double> u = ValuesOf(RandomTensor(inputs_[operand].type.dims, seed));
    Slopes slopes;
    if (grads_[operand].valid()) {
      std::vector<HostTensor> data = inputs_;
      data.insert(data.end(), weights_.begin(), weights_.end());
      MW_ASSIGN_OR_RETURN(const std::vector<HostTensor> results,
                          EvaluateWith(second_, {Backend::kReference, StepContext()}, data));
      size_t at = 0;
      for (size_t i = 0; i < operand; ++i) at += grads_[i].valid() ? 1 : 0;
      const std::vector<double> g = ValuesOf(results[at + first_.outputs.size()]);
      for (size_t i = 0; i < u.size(); ++i) {
        slopes.analytic += u[i] * g[i];
        slopes.scale += std::abs(u[i] * g[i]);
      }
    }
    constexpr double kStep = 1e-5;
    MW_ASSIGN_OR_RETURN(const double above, SumAt(operand, u, kStep));
    MW_ASSIGN_OR_RETURN(const double below, SumAt(operand, u, -kStep));
    slopes.numeric = (above - below) / (2 * kStep);
    return slopes;
  }

 private:
  Result<double> SumAt(size_t operand, const std::vector<double>& u, double t) const {
    std::vector<HostTensor> data = inputs_;
    std::vector<double> x = ValuesOf(data[operand]);
    for (size_t i = 0; i < x.size(); ++i) x[i] += t * u[i];
    data[operand] = FromValues(data[operand].type.dims, x, ir::DType::kF64);
    MW_ASSIGN_OR_RETURN(const std::vector<HostTensor> results,
                        EvaluateWith(first_, {Backend::kReference, StepContext()}, data));
    double sum = 0;
    for (size_t r = 0; r < results.size(); ++r) {
      const std::vector<double> dx = ValuesOf(results[r]);
      const std::vector<double> weights = ValuesOf(weights_[r]);
      for (size_t i = 0; i < dx.size(); ++i) sum += dx[i] * weights[i];
    }
    return sum;
  }

  ir::Graph first_;
  ir::Graph second_;
  std::vector<HostTensor> inputs_;
  std::vector<HostTensor> weights_;
  std::vector<ValueId> grads_;
};

class SecondOrder : public testing::TestWithParam<OpCase> {};

TEST_P(SecondOrder, GradientOfTheGradientEqualsFiniteDifference) {
  const auto twice = Twice::Make(GetParam());
  ASSERT_TRUE(twice) << twice.error();
  for (size_t operand = 0; operand < twice->operands(); ++operand) {
    if (!twice->is_float(operand)) continue;
    const auto slopes = twice->SlopesAlong(operand, 31);
    ASSERT_TRUE(slopes) << slopes.error();
    EXPECT_NEAR(slopes->analytic, slopes->numeric, 2e-6 * slopes->scale) << "operand " << operand;
  }
}

TEST(SecondOrderItself, RefusesAttentionAndConvolutionByName) {
  for (const OpCase& op_case : CasesWhere(true)) {
    const auto twice = Twice::Make(op_case);
    ASSERT_FALSE(twice) << op_case.name;
    EXPECT_EQ(twice.error().code(), StatusCode::kUnimplemented) << op_case.name;
    EXPECT_NE(twice.error().message().find(std::string(ir::OpName(op_case.op)) + "_grad"),
              std::string::npos)
        << twice.error();
  }
}

INSTANTIATE_TEST_SUITE_P(All, SecondOrder, testing::ValuesIn(CasesWhere(false)),
                         [](const auto& test) { return test.param.name; });

}  // namespace
}  // namespace meshwright::ops
