// A vocabulary that all stages of a pipeline share: each stage holds a block of the rows of the
// embedding and of the output layer, and of their optimizer state, and computes with it. No stage
// then has more weights, logits or work than another.
//
// The graph is rewritten before stages are assigned; what comes out are ordinary nodes, of layers
// that stand for the chunks of planner/vocabulary_schedule.h. With logits Z = X W' of v columns in
// blocks k, tokens T and width d:
//   embedding  E_k = rows that are of block k, else zeros; X_0 = sum_k E_k at the first stage.
//   S          Z_k = X W_k', l_k = logsumexp(Z_k), t_k = the label's logit or 0,
//              A_k = exp(Z_k - l_k) W_k, G_k = the label's row of W_k or 0. [T, d] each.
//   loss       L = logsumexp_k(l_k), loss = sum (L - sum_k t_k),
//              dX = sum_k exp(l_k - L) A_k - sum_k G_k. The one barrier of a microbatch.
//   T          dZ_k = exp(Z_k - L) - one_hot_k, dW_k = dZ_k' X.
// Per microbatch the last stage sends X and L to the p - 1 others, and gets l_k, t_k, A_k and G_k
// of each: 3 T d + 3 T elements per other stage. A weight that is both is one block on one stage.
//
// What is refused by name: stages that differ, a searched sharding, schedules without these chunks,
// a trained program whose logits are no product of a weight [v, d] or are read by anything but the
// loss.
//
// Thread rule: pure functions.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "base/result.h"
#include "ir/graph.h"
#include "ir/job.h"
#include "planner/layout.h"
#include "planner/pieces.h"

namespace meshwright::planner {

// Layers behind those of the model, which the nodes of a shared vocabulary have.
struct VocabularyLayers {
  int model = 0;
  int stages = 1;
  int Embedding(int stage) const { return model + stage; }
  int Output(int stage) const { return model + stages + stage; }
  int Loss() const { return model + 2 * stages; }
  int count() const { return Loss() + 1; }
  // Of each layer, in the shape of StepShape. `of_model`: of the model's.
  std::vector<int> Parts(const std::vector<int>& of_model) const;
};

// First row of each stage's block, and behind the last their number. As even as can be, in
// multiples of `unit` where that divides.
std::vector<int64_t> VocabularyBounds(int64_t vocabulary, int64_t stages, int64_t unit);

// Errors: kInvalidArgument: the layout's stages share the vocabulary, and the job does not go with
// that; names the schedule and what it is.
Status CheckVocabulary(const ir::JobRequest& job, const Layout& layout);

// The main program's graph, logical and not fused, with split vocabulary; where stages share none,
// the graph as it is. `model_layers`: how many layers it has. Errors: kUnimplemented naming what
// reads or makes logits otherwise.
Result<ir::Graph> SplitVocabulary(ir::Graph graph, const Layout& layout, int model_layers);

// The same of a program that runs forward with the weights of `main`, which SplitVocabulary made.
// What reads logits whole has them on the last stage.
Result<ir::Graph> SplitVocabularyLike(const ir::Graph& main, ir::Graph graph, const Layout& layout,
                                      int model_layers);

// What a `param` node is of the state that is kept: what SplitVocabulary made, or a padded one
// (planner/padding.h); nothing: it is the state.
std::optional<StateBlock> BlockOfParam(const ir::Node& param, const ir::TensorType& type);

}  // namespace meshwright::planner
