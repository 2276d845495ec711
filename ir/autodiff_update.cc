#include <fmt/format.h>

#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "base/check.h"
#include "ir/autodiff.h"
#include "ir/averages.h"
#include "ir/builder.h"
#include "ir/factored.h"
#include "ir/loss_scale.h"
#include "ir/param_groups.h"
#include "ir/rate_schedule.h"

namespace meshwright::ir {
namespace {

// Below what a gradient is, and no number of its own beside it.
constexpr double kLeastSize = 1e-30;

Status CheckSpec(const OptimizerSpec& spec) {
  if (spec.name != "adamw" && spec.name != "sgd" && spec.name != "lion" &&
      spec.name != "adafactor") {
    return InvalidArgument(
        fmt::format("optimizer '{}' must be adamw, sgd, lion or adafactor", spec.name));
  }
  if (EndsAtTotalSteps(spec.schedule) && spec.total_steps <= 0) {
    return InvalidArgument(fmt::format("optimizer schedule '{}' needs total_steps > 0, has {}",
                                       spec.schedule, spec.total_steps));
  }
  return OkStatus();
}

class UpdateAppender {
 public:
  UpdateAppender(const Graph& graph, const OptimizerSpec& spec)
      : graph_(graph), spec_(spec), builder_(graph) {
    builder_.SetLayer(-1);
    builder_.SetPhase(Phase::kUpdate);
  }

  Result<Graph> Run() {
    MW_TRY(CheckSpec(spec_));
    MW_TRY(FindParams());
    const ValueId count = graph_.Output("count");
    const ValueId loss_sum = graph_.Output("loss_sum");
    if (!count.valid() || !loss_sum.valid()) {
      return Fail(InvalidArgument(
          fmt::format("graph \"{}\" needs the outputs \"loss_sum\" and \"count\"", graph_.name)));
    }
    const bool scales = HasLossScale(graph_);
    const ValueId divisor = scales ? ScaledCount(builder_, count) : count;
    std::vector<ValueId> clip = builder_.Add(Op::kClipMultiplier, {SumOfSquares(), divisor},
                                             {{"max_norm", spec_.max_norm}});
    MW_CHECK(clip.size() == 2) << "clip_multiplier gives a multiplier and a norm";
    // What reads the scale stands before what renews it, in place.
    const ValueId loss_scale = scales ? WholeLossScale(builder_) : ValueId();
    if (scales) {
      clip[0] = RenewLossScale(builder_, clip[0], clip[1]);
      skips_.Set(kSkipsAttr, int64_t{1});
    }
    const ValueId rate = RateOf(1);
    for (const Param& param : params_) {
      if (param.sign_rate) {
        AppendSigned(param, clip[0]);
      } else {
        MW_TRY(AppendParam(param, clip[0], RateOf(param.rate_factor)));
        AppendAverage(param);
      }
    }
    builder_.SetOutput("loss", builder_.AddOne(Op::kDivide, {loss_sum, count}));
    builder_.SetOutput("grad_norm", clip[1]);
    builder_.SetOutput("lr", rate);
    builder_.SetOutput("tokens", count);
    if (scales) builder_.SetOutput(kLossScaleOutput, loss_scale);
    return builder_.Finish();
  }

 private:
  struct Param {
    std::string name;
    ValueId value;
    ValueId grad;
    double weight_decay = 0;
    double rate_factor = 1;
    std::optional<double> sign_rate;
  };

  Status FindParams() {
    bool any = false;
    for (NodeId id : graph_.NodesOf(Op::kParam)) {
      const Node& node = graph_.node(id);
      const std::string name = node.attrs.Str("name");
      if (IsFrozen(node) || name == kLossScaleState) continue;
      const ValueId grad = graph_.Output("grad/" + name);
      if (!grad.valid()) {
        return InvalidArgument(fmt::format(
            "graph \"{}\" has no output \"grad/{}\": differentiate it first", graph_.name, name));
      }
      const double decay = node.attrs.Int("decay") == 1 ? spec_.weight_decay : 0.0;
      params_.push_back({name,
                         node.outputs[0],
                         grad,
                         node.attrs.Real(kWeightDecayAttr, decay),
                         node.attrs.Real(kRateFactorAttr, 1),
                         {}});
      if (node.attrs.Has("sign_rate")) params_.back().sign_rate = node.attrs.Real("sign_rate");
      any = any || !params_.back().sign_rate;
    }
    if (any) return OkStatus();
    return InvalidArgument(fmt::format("graph \"{}\" has no params to train", graph_.name));
  }

  ValueId SumOfSquares() {
    std::vector<ValueId> squares;
    for (const Param& param : params_) {
      if (param.sign_rate) continue;
      squares.push_back(builder_.AddOne(Op::kSumSquares, {param.grad}));
    }
    return builder_.AddOne(Op::kSum, squares);
  }

  // One node for all params of a factor.
  ValueId RateOf(double factor) {
    const auto [it, fresh] = rates_.try_emplace(factor);
    if (fresh) {
      it->second = LearningRate({{"lr", spec_.lr * factor},
                                 {"min_lr", spec_.min_lr * factor},
                                 {"warmup_steps", spec_.warmup_steps},
                                 {"total_steps", spec_.total_steps},
                                 {"schedule", spec_.schedule}});
    }
    return it->second;
  }

  // In the widest dtype of the params, so that an f64 run is f64 throughout.
  ValueId LearningRate(Attrs attrs) {
    DType dtype = DType::kF32;
    for (const Param& param : params_) {
      if (graph_.type(param.value).dtype == DType::kF64) dtype = DType::kF64;
    }
    return builder_.AddOne(Op::kLearningRate, {}, std::move(attrs), {TensorType{dtype, {}}});
  }

  // A zero-initialised tensor like the param, kept between steps; at least f32, unless the job says
  // that moments are bf16.
  ValueId State(const std::string& name, ValueId like) {
    TensorType type = graph_.type(like);
    if (type.dtype != DType::kF64) type.dtype = spec_.moments_dtype;
    // What is padding of the param is that of its state.
    return StateOf(name, type, ShardedDims::FromAttrs(graph_.producer(like).attrs));
  }

  ValueId StateOf(const std::string& name, const TensorType& type,
                  const ShardedDims& logical = {}) {
    Attrs attrs = {{"name", name}, {"init", std::string("zeros")}, {"state", int64_t{1}}};
    logical.ToAttrs(attrs);
    return builder_.AddOne(Op::kParam, {}, std::move(attrs), {type});
  }

  Status AppendParam(const Param& param, ValueId multiplier, ValueId rate) {
    Attrs attrs = skips_;
    attrs.Set("weight_decay", param.weight_decay);
    if (spec_.name == "adafactor") return AppendAdafactor(param, multiplier, rate, attrs);
    if (spec_.name != "adamw") {
      const std::string m_name = "opt.m/" + param.name;
      const bool lion = spec_.name == "lion";
      attrs.Set("momentum", lion ? spec_.beta2 : spec_.momentum);
      if (lion) attrs.Set("sign_beta", spec_.beta1);
      const std::vector<ValueId> results = builder_.Add(
          Op::kSgd, {param.value, param.grad, State(m_name, param.value), multiplier, rate}, attrs);
      builder_.SetOutput("update/" + param.name, results[0]);
      builder_.SetOutput("update/" + m_name, results[1]);
      return OkStatus();
    }
    attrs.Set("beta1", spec_.beta1);
    attrs.Set("beta2", spec_.beta2);
    attrs.Set("eps", spec_.eps);
    AppendAdamW(param, multiplier, rate, attrs);
    return OkStatus();
  }

  Status AppendAdafactor(const Param& param, ValueId multiplier, ValueId rate, Attrs attrs) {
    const TensorType type = graph_.type(param.value);
    MW_ASSIGN_OR_RETURN(const Factored factored, FactoredOf(graph_.producer(param.value), type));
    attrs.Set(kMatrixDimsAttr, factored.matrix_dims);
    attrs.Set(kRowDimsAttr, factored.row_dims);
    attrs.Set("scale_parameter", static_cast<int64_t>(spec_.scale_parameter));
    attrs.Set("decay_rate", spec_.decay_rate);
    attrs.Set("clip_threshold", spec_.clip_threshold);
    const DType dtype = type.dtype == DType::kF64 ? DType::kF64 : DType::kF32;
    const std::string rows = kRowsPrefix + param.name;
    const std::string columns = kColumnsPrefix + param.name;
    const std::vector<ValueId> results =
        builder_.Add(Op::kAdamW,
                     {param.value, param.grad, StateOf(rows, {dtype, factored.RowsOf(type.dims)}),
                      StateOf(columns, {dtype, factored.ColumnsOf(type.dims)}), multiplier, rate},
                     attrs);
    MW_CHECK(results.size() == 3) << "adafactor renews a param and two states";
    builder_.SetOutput("update/" + param.name, results[0]);
    builder_.SetOutput("update/" + rows, results[1]);
    builder_.SetOutput("update/" + columns, results[2]);
    return OkStatus();
  }

  // The mean starts as the param does.
  void AppendAverage(const Param& param) {
    const Attrs& of = graph_.producer(param.value).attrs;
    const double decay = of.Real(kAverageAttr);
    if (decay == 0) return;
    Attrs attrs = {{"name", kAveragePrefix + param.name},
                   {"init", of.Str("init", "zeros")},
                   {"mean", of.Real("mean", 0)},
                   {"std", of.Real("std", 1)},
                   {"state", int64_t{1}},
                   {kAverageOfAttr, param.name},
                   {kDrawnAsAttr, param.name}};
    ShardedDims::FromAttrs(of).ToAttrs(attrs);
    const ValueId mean =
        builder_.AddOne(Op::kParam, {}, std::move(attrs), {graph_.type(param.value)});
    const ValueId renewed = builder_.graph().Output("update/" + param.name);
    const ValueId kept = builder_.AddOne(Op::kScale, {mean}, {{"factor", decay}});
    const ValueId more = builder_.AddOne(Op::kScale, {renewed}, {{"factor", 1 - decay}});
    builder_.SetOutput(fmt::format("update/{}{}", kAveragePrefix, param.name),
                       builder_.AddOne(Op::kAdd, {kept, more}));
  }

  // AdamW that remembers nothing divides the gradient by its size.
  void AppendSigned(const Param& param, ValueId multiplier) {
    const ValueId rate = LearningRate({{"lr", *param.sign_rate},
                                       {"min_lr", 0.0},
                                       {"warmup_steps", int64_t{0}},
                                       {"total_steps", int64_t{0}},
                                       {"schedule", std::string("constant")}});
    Attrs attrs = skips_;
    attrs.Set("weight_decay", 0.0);
    attrs.Set("beta1", 0.0);
    attrs.Set("beta2", 0.0);
    attrs.Set("eps", kLeastSize);
    AppendAdamW(param, multiplier, rate, attrs);
  }

  void AppendAdamW(const Param& param, ValueId multiplier, ValueId rate, const Attrs& attrs) {
    const std::string m_name = "opt.m/" + param.name;
    const std::string v_name = "opt.v/" + param.name;
    const ValueId m = State(m_name, param.value);
    const ValueId v = State(v_name, param.value);
    const std::vector<ValueId> results =
        builder_.Add(Op::kAdamW, {param.value, param.grad, m, v, multiplier, rate}, attrs);
    MW_CHECK(results.size() == 3) << "adamw renews a param and two states";
    builder_.SetOutput("update/" + param.name, results[0]);
    builder_.SetOutput("update/" + m_name, results[1]);
    builder_.SetOutput("update/" + v_name, results[2]);
  }

  const Graph& graph_;
  const OptimizerSpec& spec_;
  Builder builder_;
  std::vector<Param> params_;
  std::map<double, ValueId> rates_;  // by factor
  Attrs skips_;                      // of all optimizer nodes
};

}  // namespace

Result<Graph> AppendUpdate(const Graph& differentiated, const OptimizerSpec& optimizer) {
  return UpdateAppender(differentiated, optimizer).Run();
}

}  // namespace meshwright::ir
