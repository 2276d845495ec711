#include "planner/evaluation.h"

#include "ir/rewrite.h"

namespace meshwright::planner {

Result<ir::Graph> MakeEvaluationGraph(const ir::Graph& loss) {
  const auto emit = [](ir::Builder& builder, const ir::Node& node,
                       const std::vector<ValueId>& inputs,
                       const std::vector<ir::TensorType>& types) {
    if (node.op == ir::Op::kDropout) return std::vector<ValueId>{inputs[0]};
    ir::Attrs attrs = node.attrs;
    if (attrs.Has("dropout")) attrs.Set("dropout", 0.0);  // of attention's probabilities
    if (node.op == ir::Op::kFeed) attrs.Set("source", "validation");
    return builder.Add(node.op, inputs, attrs, types);
  };
  MW_ASSIGN_OR_RETURN(ir::Graph forward, ir::RewriteGraph(loss, emit));
  const ValueId loss_sum = forward.Output("loss_sum");
  const ValueId count = forward.Output("count");
  forward.outputs.clear();
  ir::Builder builder(std::move(forward));
  builder.SetLayer(-1);
  builder.SetPhase(ir::Phase::kUpdate);
  // One-operand sums carry the values into the update phase, where microbatches have been added up.
  builder.SetOutput("loss_sum", builder.AddOne(ir::Op::kSum, {loss_sum}));
  builder.SetOutput("count", builder.AddOne(ir::Op::kSum, {count}));
  return builder.Finish();
}

}  // namespace meshwright::planner
