#include "ir/loss_scale.h"

#include <algorithm>

#include "base/check.h"
#include "ir/builder.h"

namespace meshwright::ir {
namespace {

constexpr double kMostNorm = 1e38;  // of what counts as finite
constexpr double kLeastShare = 1e-12;
constexpr const char* kWindowAttr = "window";
constexpr const char* kFirstAttr = "first";
constexpr const char* kOfMeanAttr = "of_mean";

const TensorType kScalar{DType::kF32, {}};

ValueId Constant(Builder& builder, double value) {
  return builder.AddOne(Op::kConstant, {}, {{"value", value}}, {kScalar});
}

const Node* StateNode(const Graph& graph, const char* name) {
  for (const NodeId id : graph.NodesOf(Op::kParam)) {
    if (graph.node(id).attrs.Str("name") == name) return &graph.node(id);
  }
  return nullptr;
}

}  // namespace

Result<Graph> ScaleLoss(const Graph& loss, const LossScale& scale) {
  const ValueId sum = loss.Output("loss_sum");
  if (!sum.valid() || loss.type(sum) != kScalar) {
    return Fail(InvalidArgument("a loss scale needs an output \"loss_sum\" of f32"));
  }
  if (!(scale.first > 0) || !(scale.tokens > 0)) {
    return Fail(InvalidArgument("a loss scale must be above 0"));
  }
  const double first = scale.first / scale.tokens;
  Builder builder(loss);
  builder.SetLayer(loss.producer(sum).layer);
  builder.SetPhase(Phase::kForward);
  const ValueId share = builder.AddOne(Op::kParam, {},
                                       {{"name", std::string(kLossScaleState)},
                                        {"init", std::string("ones")},
                                        {"state", int64_t{1}},
                                        {kFirstAttr, first},
                                        {kOfMeanAttr, scale.first},
                                        {kWindowAttr, scale.window}},
                                       {kScalar});
  const ValueId whole = builder.AddOne(Op::kScale, {share}, {{"factor", first}});
  builder.SetOutput(kScaledLossOutput, builder.AddOne(Op::kMulScalar, {sum, whole}));
  return builder.Finish();
}

bool HasLossScale(const Graph& graph) { return StateNode(graph, kLossScaleState) != nullptr; }

ValueId WholeLossScale(Builder& builder) {
  const Node* const state = StateNode(builder.graph(), kLossScaleState);
  MW_CHECK(state != nullptr) << "no loss scale to give out";
  const double of_mean = state->attrs.Real(kOfMeanAttr);
  return builder.AddOne(Op::kScale, {state->outputs[0]}, {{"factor", of_mean}});
}

ValueId ScaledCount(Builder& builder, ValueId count) {
  const Node* const state = StateNode(builder.graph(), kLossScaleState);
  MW_CHECK(state != nullptr) << "no loss scale to divide by";
  const double first = state->attrs.Real(kFirstAttr);
  const ValueId whole = builder.AddOne(Op::kScale, {state->outputs[0]}, {{"factor", first}});
  return builder.AddOne(Op::kMulScalar, {count, whole});
}

ValueId RenewLossScale(Builder& builder, ValueId multiplier, ValueId norm) {
  const Node* const state = StateNode(builder.graph(), kLossScaleState);
  MW_CHECK(state != nullptr) << "no loss scale to renew";
  const ValueId share = state->outputs[0];
  const int64_t window = state->attrs.Int(kWindowAttr);
  const ValueId zero = Constant(builder, 0);
  const ValueId finite = builder.AddOne(Op::kLess, {norm, Constant(builder, kMostNorm)});
  const ValueId before = builder.AddOne(Op::kParam, {},
                                        {{"name", std::string(kFiniteStepsState)},
                                         {"init", std::string("zeros")},
                                         {"state", int64_t{1}}},
                                        {kScalar});
  // A scale that stays has a window that is never over.
  const ValueId steps = builder.AddOne(Op::kShift, {before}, {{"value", window > 0 ? 1.0 : 0.0}});
  const ValueId enough =
      builder.AddOne(Op::kGreaterEqual,
                     {steps, Constant(builder, static_cast<double>(std::max<int64_t>(window, 1)))});
  const ValueId twice = builder.AddOne(Op::kScale, {share}, {{"factor", 2.0}});
  const ValueId half = builder.AddOne(Op::kScale, {share}, {{"factor", window > 0 ? 0.5 : 1.0}});
  const ValueId least = builder.AddOne(Op::kMaximum, {half, Constant(builder, kLeastShare)});
  const ValueId grown = builder.AddOne(Op::kSelect, {enough, twice, share});
  builder.SetOutput(std::string("update/") + kLossScaleState,
                    builder.AddOne(Op::kSelect, {finite, grown, least}));
  const ValueId counted = builder.AddOne(Op::kSelect, {enough, zero, steps});
  builder.SetOutput(std::string("update/") + kFiniteStepsState,
                    builder.AddOne(Op::kSelect, {finite, counted, zero}));
  return builder.AddOne(Op::kSelect, {finite, multiplier, zero});
}

}  // namespace meshwright::ir
