#include "planner/job_on_axes.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "ir/builder.h"
#include "ir/rewrite.h"
#include "ir/schema.h"
#include "ir/sequence_order.h"
#include "planner/context_attention.h"
#include "planner/expert_groups.h"
#include "planner/resolve_layout.h"

namespace meshwright::planner {
namespace {

using ir::Builder;
using ir::Graph;
using ir::Node;
using ir::Op;

// q, k and v as tensors of their own.
std::vector<ValueId> EmitUnpacked(Builder& builder, const Node& node,
                                  const std::vector<ValueId>& inputs) {
  const ir::TensorType packed = builder.type(inputs[0]);
  const ir::TensorType one{packed.dtype,
                           {packed.dims[0], packed.dims[1], packed.dims[3], packed.dims[4]}};
  std::vector<ValueId> operands;
  for (int64_t i = 0; i < 3; ++i) {
    const ValueId slice = builder.AddOne(Op::kSlice, {inputs[0]},
                                         {{"dim", int64_t{2}}, {"start", i}, {"size", int64_t{1}}});
    operands.push_back(builder.AddOne(Op::kReshape, {slice}, {}, {one}));
  }
  operands.insert(operands.end(), inputs.begin() + 1, inputs.end());
  return builder.Add(Op::kAttention, operands, node.attrs);
}

Result<Graph> Unpack(const Graph& graph) {
  return ir::RewriteGraph(graph,
                          [](Builder& builder, const Node& node, const std::vector<ValueId>& inputs,
                             const std::vector<ir::TensorType>& types) {
                            if (node.op == Op::kAttentionQkv)
                              return EmitUnpacked(builder, node, inputs);
                            return builder.Add(node.op, inputs, node.attrs, types);
                          });
}

// Chunks of dim `dim`, cut and put together in another order.
ValueId Rearrange(Builder& builder, ValueId x, int64_t dim, const std::vector<int64_t>& chunks) {
  const int64_t size =
      builder.type(x).dims[static_cast<size_t>(dim)] / static_cast<int64_t>(chunks.size());
  std::vector<ValueId> pieces;
  for (const int64_t chunk : chunks) {
    pieces.push_back(
        builder.AddOne(Op::kSlice, {x}, {{"dim", dim}, {"start", chunk * size}, {"size", size}}));
  }
  return builder.AddOne(Op::kConcat, pieces, {{"dim", dim}});
}

class Reorder {
 public:
  Reorder(const Graph& graph, const ir::SequenceOrder& order)
      : graph_(graph), order_(order), tokens_(graph.values.size()) {
    for (int64_t block = 0; block < order.parts; ++block) {
      chunks_.push_back(block);
      chunks_.push_back(2 * order.parts - 1 - block);
    }
    for (size_t place = 0; place < chunks_.size(); ++place) {
      places_.push_back(std::find(chunks_.begin(), chunks_.end(), static_cast<int64_t>(place)) -
                        chunks_.begin());
    }
  }

  Result<Graph> Run() {
    MW_ASSIGN_OR_RETURN(Graph reordered,
                        ir::RewriteGraph(graph_, [this](Builder& builder, const Node& node,
                                                        const std::vector<ValueId>& inputs,
                                                        const std::vector<ir::TensorType>& types) {
                          return Emit(builder, node, inputs, types);
                        }));
    return RestoreOutputs(std::move(reordered));
  }

 private:
  using Dim = std::optional<size_t>;

  Dim TokensOf(ValueId value) const { return tokens_[value.index()]; }

  std::vector<ValueId> Emit(Builder& builder, const Node& node, std::vector<ValueId> inputs,
                            const std::vector<ir::TensorType>& types) {
    if (node.op == Op::kEmbedding && graph_.type(node.inputs[1]).rank() == 2) {
      inputs[1] = Rearrange(builder, inputs[1], 1, chunks_);
      tokens_[node.outputs[0].index()] = 1;
      return builder.Add(node.op, inputs, node.attrs, types);
    }
    const bool any = std::any_of(node.inputs.begin(), node.inputs.end(),
                                 [&](ValueId input) { return TokensOf(input).has_value(); });
    if (!any) return builder.Add(node.op, inputs, node.attrs, types);
    if (node.op == Op::kAttention) return EmitAttention(builder, node, std::move(inputs), types);
    return EmitByFactors(builder, node, std::move(inputs), types);
  }

  std::vector<ValueId> EmitAttention(Builder& builder, const Node& node,
                                     std::vector<ValueId> inputs,
                                     const std::vector<ir::TensorType>& types) {
    for (size_t i = 0; i < inputs.size(); ++i) {
      if (!TokensOf(node.inputs[i])) inputs[i] = Rearrange(builder, inputs[i], 1, chunks_);
    }
    ir::Attrs attrs = node.attrs;
    order_.ToAttrs(attrs);
    tokens_[node.outputs[0].index()] = 1;
    tokens_[node.outputs[1].index()] = 2;
    return builder.Add(node.op, inputs, attrs, types);
  }

  // The factor of the node that reordered tokens are: of an operand where it is a dim of its own
  // that the op does not need whole.
  std::optional<ir::FactorIndex> FactorOf(const ir::FactorRule& rule, const Node& node) const {
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      const Dim dim = TokensOf(node.inputs[i]);
      if (!dim || rule.operands[i][*dim].size() != 1) continue;
      const ir::FactorIndex factor = rule.operands[i][*dim][0];
      if (!ir::NeededWhole(rule.factors[static_cast<size_t>(factor)].kind)) return factor;
    }
    return std::nullopt;
  }

  static Dim DimOf(const ir::TensorFactors& tensor, std::optional<ir::FactorIndex> factor) {
    for (size_t d = 0; factor && d < tensor.size(); ++d) {
      if (tensor[d] == ir::DimFactors{*factor}) return d;
    }
    return std::nullopt;
  }

  std::vector<ValueId> EmitByFactors(Builder& builder, const Node& node,
                                     std::vector<ValueId> inputs,
                                     const std::vector<ir::TensorType>& types) {
    const Result<ir::FactorRule> rule = ir::RuleOf(graph_, node);
    if (!rule.has_value()) {
      builder.Fail(rule.error());
      return std::vector<ValueId>(node.outputs.size());
    }
    const std::optional<ir::FactorIndex> factor = FactorOf(*rule, node);
    for (size_t i = 0; i < inputs.size(); ++i) {
      const Dim wanted = DimOf(rule->operands[i], factor);
      const Dim had = TokensOf(node.inputs[i]);
      if (had == wanted) continue;
      if (had) inputs[i] = Rearrange(builder, inputs[i], static_cast<int64_t>(*had), places_);
      if (wanted) inputs[i] = Rearrange(builder, inputs[i], static_cast<int64_t>(*wanted), chunks_);
    }
    for (size_t r = 0; r < node.outputs.size(); ++r) {
      tokens_[node.outputs[r].index()] = DimOf(rule->results[r], factor);
    }
    ir::Attrs attrs = node.attrs;
    if (node.op == Op::kRotary && factor) order_.ToAttrs(attrs);
    return builder.Add(node.op, inputs, attrs, types);
  }

  // Outputs keep their order: RewriteGraph carries them over one by one.
  Result<Graph> RestoreOutputs(Graph reordered) const {
    Builder builder(std::move(reordered));
    for (const ir::NamedValue& output : graph_.outputs) {
      const Dim dim = TokensOf(output.value);
      if (!dim) continue;
      builder.SetLayer(graph_.producer(output.value).layer);
      builder.SetOutput(output.name, Rearrange(builder, builder.graph().Output(output.name),
                                               static_cast<int64_t>(*dim), places_));
    }
    return builder.Finish();
  }

  const Graph& graph_;
  const ir::SequenceOrder order_;
  std::vector<Dim> tokens_;      // per value: the dim of reordered tokens
  std::vector<int64_t> chunks_;  // the chunk at each place
  std::vector<int64_t> places_;  // the place of each chunk
};

// Tokens of the rows that the graph looks up; 0: it looks up none.
int64_t TokensOfRows(const Graph& graph) {
  for (const NodeId id : graph.NodesOf(Op::kEmbedding)) {
    const ir::TensorType& ids = graph.type(graph.node(id).inputs[1]);
    if (ids.rank() == 2) return ids.dims[1];
  }
  return 0;
}

// "": tokens may lie in zigzag order.
std::string WhyInOrder(const Graph& graph, int64_t tokens, int64_t context) {
  if (tokens % (2 * context) != 0) {
    return fmt::format("{} tokens are not {} equal chunks", tokens, 2 * context);
  }
  const bool masks = std::any_of(graph.nodes.begin(), graph.nodes.end(), [](const Node& node) {
    return (node.op == Op::kDropout && node.attrs.Real("rate") > 0) || node.op == Op::kNoise;
  });
  return masks ? "masks of dropout go by the places of tokens" : "";
}

Result<ir::JobRequest> WithTokenOrder(const ir::JobRequest& job, const Layout& layout,
                                      std::vector<std::string>& notes) {
  ir::JobRequest ordered = job;
  for (ir::JobProgram& program : ordered.programs) {
    const int64_t tokens = TokensOfRows(program.graph);
    MW_ASSIGN_OR_RETURN(program.graph, Unpack(program.graph));
    // Heads of whole rows are the same work wherever tokens lie.
    if (tokens == 0 || layout.context_attention == ContextAttention::kUlysses) continue;
    // So are blocks whose queries see what is near.
    if (HasShortWindows(program.graph, tokens)) continue;
    const int64_t blocks = layout.context() / layout.context_heads;
    const std::string why = WhyInOrder(program.graph, tokens, blocks);
    if (why.empty()) {
      MW_ASSIGN_OR_RETURN(program.graph, Reorder(program.graph, {blocks}).Run());
    } else {
      notes.push_back(
          fmt::format("tokens lie in the order of their positions, so that later blocks "
                      "of a row are more work: {}",
                      why));
    }
  }
  return ordered;
}

}  // namespace

Result<JobOnAxes> PlaceOnAxes(const ir::JobRequest& job, const Layout& layout,
                              const ProgramDevices& devices) {
  JobOnAxes placed{job, layout, {}};
  if (layout.expert() > 1) {
    MW_ASSIGN_OR_RETURN(placed.layout,
                        ResolveExpertWays(placed.job, layout, devices, placed.notes));
    MW_ASSIGN_OR_RETURN(placed.job, WithExpertGroups(placed.job, placed.layout));
  }
  if (layout.context() == 1) return placed;
  MW_ASSIGN_OR_RETURN(placed.layout,
                      ResolveContextAttention(placed.job, placed.layout, placed.notes));
  MW_ASSIGN_OR_RETURN(placed.job, WithTokenOrder(placed.job, placed.layout, placed.notes));
  if (placed.layout.context_attention == ContextAttention::kUlysses) {
    MW_ASSIGN_OR_RETURN(placed.job, WithSharedHeads(placed.job, placed.layout));
  }
  return placed;
}

}  // namespace meshwright::planner
