#include "planner/evaluation.h"

#include <algorithm>
#include <utility>

#include "ir/builder.h"
#include "ir/loss_terms.h"
#include "ir/rewrite.h"
#include "ir/schema.h"

namespace meshwright::planner {
namespace {

using ir::Op;

// Of `validated`, inputs of the job's data become those of the validation.
Result<ir::Graph> WithoutNoise(const ir::Graph& graph, const ir::JobProgram* validated) {
  bool without_terms = false;
  const auto emit = [&](ir::Builder& builder, const ir::Node& node,
                        const std::vector<ValueId>& inputs,
                        const std::vector<ir::TensorType>& types) {
    if (node.op == Op::kDropout) return std::vector<ValueId>{inputs[0]};
    if (node.op == Op::kNoise && node.attrs.Int("training") != 0) {
      return builder.Add(Op::kScale, inputs, {{"factor", 0.0}});
    }
    if (node.op == Op::kAdd && node.attrs.Int(ir::kTrainingAttr) != 0) {
      without_terms = true;
      return std::vector<ValueId>{inputs[0]};
    }
    ir::Attrs attrs = node.attrs;
    if (attrs.Has("dropout")) attrs.Set("dropout", 0.0);  // of attention's probabilities
    const bool validates = node.op == Op::kFeed && validated != nullptr &&
                           validated->OriginOf(attrs.Str("source")) == ir::InputFrom::kData;
    if (validates) attrs.Set("source", ir::ValidationFeed(attrs.Str("source")));
    return builder.Add(node.op, inputs, attrs, types);
  };
  MW_ASSIGN_OR_RETURN(ir::Graph forward, ir::RewriteGraph(graph, emit));
  return without_terms ? ir::DropDeadNodes(forward) : forward;
}

std::vector<std::string> NamesOf(const ir::Graph& graph) {
  std::vector<std::string> names;
  for (const ir::NamedValue& output : graph.outputs) names.push_back(output.name);
  return names;
}

}  // namespace

Result<ir::Graph> MakeForwardGraph(const ir::Graph& graph, const ir::JobProgram* validated) {
  MW_ASSIGN_OR_RETURN(ir::Graph forward, WithoutNoise(graph, validated));
  return ReportInUpdate(std::move(forward), NamesOf(graph));
}

Result<ir::Graph> MakeEvaluationGraph(const ir::Graph& loss, const ir::JobProgram& trained) {
  return MakeForwardGraph(loss, &trained);
}

// A sum of one operand, or a reshape to the same shape, carries a value into the update phase.
Result<ir::Graph> ReportInUpdate(ir::Graph graph, const std::vector<std::string>& outputs) {
  ir::Builder builder(std::move(graph));
  builder.SetLayer(-1);
  builder.SetPhase(ir::Phase::kUpdate);
  for (const std::string& name : outputs) {
    const ValueId value = builder.graph().Output(name);
    const ir::TensorType type = builder.type(value);
    const ValueId carried = type.rank() == 0 && ir::IsFloating(type.dtype)
                                ? builder.AddOne(Op::kSum, {value})
                                : builder.AddOne(Op::kReshape, {value}, {}, {type});
    builder.SetOutput(name, carried);
  }
  return builder.Finish();
}

bool GivesTensors(const ir::Graph& graph) {
  return std::any_of(graph.outputs.begin(), graph.outputs.end(), [&](const ir::NamedValue& output) {
    return graph.type(output.value).rank() > 0;
  });
}

int64_t RowsOf(const ir::Graph& graph) {
  for (const NodeId id : graph.NodesOf(Op::kFeed)) {
    const ir::Node& feed = graph.node(id);
    if (ir::IsBatchFeed(feed)) return graph.type(feed.outputs[0]).dims[0];
  }
  return 1;
}

std::vector<std::string> OwnOutputs(const ir::Graph& loss) {
  std::vector<std::string> own;
  for (const std::string& name : NamesOf(loss)) {
    if (name != "loss_sum" && name != "count") own.push_back(name);
  }
  return own;
}

}  // namespace meshwright::planner
