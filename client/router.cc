#include "client/router.h"

#include <utility>
#include <variant>

namespace meshwright::client {
namespace {

using ir::Op;

// What is added to the scores of experts that must not be chosen.
constexpr double kNever = 1e30;
// Source: DeepSeek-V3's own code; a sum of sigmoids may underflow.
constexpr double kLeastSum = 1e-20;
constexpr int64_t kBestOfGroup = 2;

class TokenRouter {
 public:
  TokenRouter(Builder& builder, ValueId x, const std::string& name, const ExpertOptions& options)
      : b_(builder), x_(x), name_(name), options_(options) {}

  Routing Route() {
    routing_.logits = Project(Gate(".weight"), {.stored = {.name = options_.stored_gate}});
    std::visit([this](const auto& router) { By(router); }, options_.router);
    return routing_;
  }

 private:
  std::string Gate(const char* part) const { return name_ + "." + options_.gate + part; }

  ValueId Project(const std::string& name, const ParamOptions& param = {}) {
    return b_.Einsum("bsd,ed->bse", x_, b_.Param(name, {options_.experts, b_.dims(x_)[2]}, param));
  }

  ValueId PartsOfSum(ValueId x) { return b_.Div(x, b_.ReduceSum(x, {2}, true)); }

  void By(const TopOfSoftmax& router) {
    routing_.shares = b_.Softmax(routing_.logits);
    const TopValues top = b_.TopK(routing_.shares, options_.chosen);
    routing_.ids = top.ids;
    routing_.weights = router.normalised ? PartsOfSum(top.values) : top.values;
  }

  void By(const SoftmaxOfTop& router) {
    if (router.bias) {
      const ValueId bias = b_.Param(Gate(".bias"), {options_.experts}, {.init = "zeros"});
      routing_.logits = b_.AddTo(routing_.logits, bias);
    }
    ChooseByLogits();
  }

  void By(const NoisyTop&) {
    const ValueId size = b_.Softplus(Project(name_ + ".noise.weight"));
    const ValueId noise = b_.AddOne(
        Op::kNoise, {routing_.logits},
        {{"name", name_ + ".noise"}, {"kind", std::string("normal")}, {"training", int64_t{1}}});
    routing_.logits = b_.AddTo(routing_.logits, b_.MulBy(size, noise));
    ChooseByLogits();
  }

  void ChooseByLogits() {
    const TopValues top = b_.TopK(routing_.logits, options_.chosen);
    routing_.ids = top.ids;
    routing_.weights = b_.Softmax(top.values);
    routing_.shares = b_.Softmax(routing_.logits);
  }

  void By(const TopOfSigmoid& router) {
    const ValueId scores = b_.Sigmoid(routing_.logits);
    routing_.bias = b_.Param(Gate(".e_score_correction_bias"), {options_.experts},
                             {.init = "zeros", .sign_rate = router.bias_rate});
    const ValueId judged = WithoutOtherGroups(b_.AddTo(scores, routing_.bias), router);
    routing_.ids = b_.TopK(judged, options_.chosen).ids;
    const ValueId chosen = b_.Gather(scores, routing_.ids, 2);
    const ValueId weights =
        router.normalised ? b_.Div(chosen, b_.Shift(b_.ReduceSum(chosen, {2}, true), kLeastSum))
                          : chosen;
    routing_.weights = router.scale == 1 ? weights : b_.Scale(weights, router.scale);
    routing_.shares = PartsOfSum(scores);
  }

  void By(const ExpertChoice&) {
    routing_.shares = b_.Softmax(routing_.logits);
    routing_.weights = routing_.shares;
    routing_.scores = routing_.shares;
    const Dims dims = b_.dims(routing_.shares);
    if (dims.size() == 3) routing_.ids = b_.BroadcastTo(b_.Iota(options_.experts), dims);
  }

  // Scores [b, s, experts], far below all others outside of a token's best groups.
  ValueId WithoutOtherGroups(ValueId scores, const TopOfSigmoid& router) {
    if (router.chosen_groups == router.groups) return scores;
    const Dims dims = b_.dims(scores);
    if (dims.size() != 3) return ValueId();
    const Dims grouped = {dims[0], dims[1], router.groups, options_.experts / router.groups};
    const ValueId best = b_.TopK(b_.Reshape(scores, grouped), kBestOfGroup).values;
    const ValueId groups = b_.TopK(b_.ReduceSum(best, {3}), router.chosen_groups).ids;
    const ValueId taken = b_.ReduceSum(b_.OneHot(groups, router.groups), {2}, false);
    const ValueId lowered = b_.Scale(b_.Shift(taken, -1), kNever);  // 0 or very low
    const ValueId of_experts =
        b_.BroadcastTo(b_.Reshape(lowered, {dims[0], dims[1], router.groups, 1}), grouped);
    return b_.AddTo(scores, b_.Reshape(of_experts, dims));
  }

  Builder& b_;
  const ValueId x_;
  const std::string& name_;
  const ExpertOptions& options_;
  Routing routing_;
};

}  // namespace

Routing RouteTokens(Builder& builder, ValueId x, const std::string& name,
                    const ExpertOptions& options) {
  return TokenRouter(builder, x, name, options).Route();
}

}  // namespace meshwright::client
