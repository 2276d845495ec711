// The loss scale of a step that computes in f16.
//
// f16 rounds gradients below 6e-8 to 0. So the loss is multiplied by a scale before it is
// differentiated, and the update divides by it. The scale is state of the optimizer like its
// moments, a scalar "opt.loss_scale" in units of its first value: a step whose gradients are not
// all finite changes no weight and no moment and halves it; `window` finite steps in a row double
// it, which "opt.finite_steps" counts. All of it are ordinary nodes, so every layout has the same.
//
// Thread rule: pure functions. Source: Micikevicius et al., "Mixed precision training", ICLR'18,
// section 3.2; the rule is that of common frameworks (factors 2 and 1/2).
#pragma once

#include <cstdint>

#include "base/result.h"
#include "ir/graph.h"

namespace meshwright::ir {

class Builder;

inline constexpr const char* kLossScaleState = "opt.loss_scale";
inline constexpr const char* kFiniteStepsState = "opt.finite_steps";
// What Differentiate takes for the objective where it is there, instead of "loss_sum".
inline constexpr const char* kScaledLossOutput = "loss_scaled";
// The scale of a step, as the step gives it out.
inline constexpr const char* kLossScaleOutput = "loss_scale";
// Of an optimizer's node: with a multiplier of 0 it leaves all as it is.
inline constexpr const char* kSkipsAttr = "skips";

struct LossScale {
  double first = 65536;   // of the mean loss of a token
  double tokens = 1;      // of a step, in all: gradients are those of the sum
  int64_t window = 2000;  // 0: the scale stays
};

// The loss graph with the state and the output kScaledLossOutput.
Result<Graph> ScaleLoss(const Graph& loss, const LossScale& scale);

// Whether ScaleLoss made the graph.
bool HasLossScale(const Graph& graph);
// Appends the scale of this step, as LossScale::first counts it.
ValueId WholeLossScale(Builder& builder);
// Appends what gradients are divided by beside `count`: count times the scale.
ValueId ScaledCount(Builder& builder, ValueId count);

// Appends the renewal of the state. `multiplier` and `norm`: of clip_multiplier. Returns the
// multiplier, or 0 where the norm is not finite.
ValueId RenewLossScale(Builder& builder, ValueId multiplier, ValueId norm);

}  // namespace meshwright::ir
