#include "planner/router_sweep.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "ir/rewrite.h"
#include "planner/pieces.h"
#include "planner/strategy.h"

namespace meshwright::planner {
std::string WholeBatchOf(const ir::JobRequest& job) {
  for (const ir::JobProgram& program : job.programs) {
    for (const ir::Node& node : program.graph.nodes) {
      if (node.attrs.Has(kWholeBatchAttr)) return node.attrs.Str(kWholeBatchAttr);
    }
  }
  return "";
}

Status CheckWholeBatch(const ir::JobRequest& job, const Layout& layout) {
  if (layout.microbatches == 1 || layout.pipeline == 1) return OkStatus();
  const std::string setting = WholeBatchOf(job);
  if (setting.empty()) return OkStatus();
  return InvalidField("parallel.microbatches",
                      fmt::format("is {}, and the loss is made of sums over the whole batch, which "
                                  "microbatches do not have in a pipeline of {} stages; use "
                                  "microbatches=1, pipeline=1, or {}",
                                  layout.microbatches, layout.pipeline, setting));
}

namespace {

using ir::Graph;
using ir::Node;
using ir::Op;

bool IsWholeSum(const Node& node) { return node.attrs.Has(kWholeBatchAttr); }

class Sweeper {
 public:
  explicit Sweeper(const Graph& graph)
      : graph_(graph), swept_(graph.nodes.size(), false), copies_(graph.values.size()) {
    for (const Node& node : graph.nodes) {
      if (IsWholeSum(node)) Mark(node);
    }
  }

  Result<Graph> Run() {
    size_t next = 0;
    return ir::RewriteGraph(
        graph_, [&](ir::Builder& builder, const Node& node, const std::vector<ValueId>& inputs,
                    const std::vector<ir::TensorType>& types) {
          return Emit(builder, node, swept_[next++], inputs, types);
        });
  }

 private:
  // What a node's operands are made of, but for weights and constants, which all pieces can read.
  void Mark(const Node& sum) {
    std::vector<ValueId> open = sum.inputs;
    while (!open.empty()) {
      const size_t index = graph_.value(open.back()).producer.index();
      open.pop_back();
      const Node& node = graph_.nodes[index];
      const bool constant = node.inputs.empty() && node.op != Op::kFeed;
      if (swept_[index] || constant || IsWeightCast(graph_, node)) continue;
      swept_[index] = true;
      open.insert(open.end(), node.inputs.begin(), node.inputs.end());
    }
  }

  std::vector<ValueId> Emit(ir::Builder& builder, const Node& node, bool swept,
                            const std::vector<ValueId>& inputs,
                            const std::vector<ir::TensorType>& types) {
    if (IsWholeSum(node)) return builder.Add(node.op, Copied(node, inputs), node.attrs, types);
    if (!swept) return builder.Add(node.op, inputs, node.attrs, types);
    ir::Attrs attrs = node.attrs;
    attrs.Set(kSweepAttr, int64_t{1});
    if (node.op == Op::kFeed) return builder.Add(node.op, inputs, attrs, types);
    const std::vector<ValueId> copy = builder.Add(node.op, Copied(node, inputs), attrs, types);
    for (size_t i = 0; i < copy.size(); ++i) copies_[node.outputs[i]] = copy[i];
    return builder.Add(node.op, inputs, node.attrs, types);
  }

  // The operands as the sweep has them.
  std::vector<ValueId> Copied(const Node& node, std::vector<ValueId> inputs) const {
    for (size_t i = 0; i < inputs.size(); ++i) {
      const ValueId copy = copies_[node.inputs[i]];
      if (copy.valid()) inputs[i] = copy;
    }
    return inputs;
  }

  const Graph& graph_;
  std::vector<bool> swept_;            // per node
  IdVector<ValueId, ValueId> copies_;  // of its values in the new graph
};

}  // namespace

Result<Graph> WithRouterSweep(Graph graph, const Layout& layout) {
  const bool asked = std::any_of(graph.nodes.begin(), graph.nodes.end(), IsWholeSum);
  if (!asked || layout.microbatches == 1) return graph;
  return Sweeper(graph).Run();
}

}  // namespace meshwright::planner
