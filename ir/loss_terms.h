// Terms beside the cross entropy of a loss, as a rewrite of the graph: label smoothing and z-loss.
//
//   loss_sum += label_smoothing * sum over counted tokens of (picked - mean of the logits)
//             + z_loss * sum over counted tokens of logsumexp(logits)^2
//
// which makes the first (1 - e) * nll + e * mean over all labels of -log p, as PyTorch's
// CrossEntropyLoss has it. They are terms of training: the loss of a validation is without them
// (attribute kTrainingAttr on the sum that adds them; planner/evaluation.h takes its operand).
//
// Thread rule: pure functions. Source: Szegedy et al., CVPR'16, section 7; Chowdhery et al.,
// "PaLM", 2022, section 5 (z-loss 1e-4).
#pragma once

#include "base/result.h"
#include "ir/graph.h"

namespace meshwright::ir {

struct LossTerms {
  double label_smoothing = 0;  // in [0, 1)
  double z_loss = 0;           // at least 0
  bool any() const { return label_smoothing != 0 || z_loss != 0; }
  friend bool operator==(const LossTerms&, const LossTerms&) = default;
};

// int 1, on an add: a validation takes its first operand instead.
inline constexpr char kTrainingAttr[] = "training";

// Errors: kInvalidArgument: a value out of its range, or a loss graph with another number of cross
// entropies than one.
Result<Graph> WithLossTerms(const Graph& loss, const LossTerms& terms);

}  // namespace meshwright::ir
