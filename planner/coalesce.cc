#include "planner/coalesce.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

#include "base/check.h"
#include "ir/builder.h"

namespace meshwright::planner {
namespace {

using ir::Graph;
using ir::Node;
using ir::Op;

// Nodes that may share a transfer: same group, kind and dtype, and the same number of all_reduces
// before them (so that none depends on another).
using BucketClass = std::tuple<int, std::vector<std::string>, std::string, ir::DType>;

// all_reduces on the longest path before each node.
std::vector<int> ReduceDepths(const Graph& graph) {
  std::vector<int> depth(graph.nodes.size(), 0);
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    for (ValueId input : graph.nodes[i].inputs) {
      const auto producer = graph.value(input).producer.index();
      MW_CHECK(producer < i) << "node " << i << " reads what node " << producer << " makes later";
      const int after = depth[producer] + (graph.nodes[producer].op == Op::kAllReduce ? 1 : 0);
      depth[i] = std::max(depth[i], after);
    }
  }
  return depth;
}

// bucket[i]: the bucket of node i, -1 for other ops.
std::vector<int> AssignBuckets(const Graph& graph, int64_t bucket_bytes) {
  const std::vector<int> depth = ReduceDepths(graph);
  struct Open {
    int bucket = -1;
    int64_t bytes = 0;
  };
  std::map<BucketClass, Open> open;
  std::vector<int> bucket(graph.nodes.size(), -1);
  int count = 0;
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    const Node& node = graph.nodes[i];
    if (node.op != Op::kAllReduce) continue;
    int64_t bytes = 0;
    for (ValueId input : node.inputs) bytes += graph.type(input).bytes();
    const BucketClass key{depth[i], node.attrs.Strs("axes"), node.attrs.Str("kind"),
                          graph.type(node.inputs[0]).dtype};
    Open& current = open[key];
    if (current.bucket < 0 || current.bytes + bytes > bucket_bytes) current = {count++, 0};
    current.bytes += bytes;
    bucket[i] = current.bucket;
  }
  return bucket;
}

class Merger {
 public:
  Merger(const Graph& graph, std::vector<int> bucket)
      : graph_(graph),
        bucket_(std::move(bucket)),
        builder_(graph.name),
        map_(graph.values.size()),
        done_(graph.nodes.size()) {
    MW_CHECK(bucket_.size() == graph.nodes.size()) << bucket_.size() << " buckets of nodes";
    for (size_t i = 0; i < bucket_.size(); ++i) {
      if (bucket_[i] >= 0) members_[bucket_[i]].push_back(i);
    }
  }

  Result<Graph> Run() {
    for (size_t i = 0; i < graph_.nodes.size(); ++i) {
      if (graph_.nodes[i].op == Op::kInput) EmitNode(i);  // operand order of the executable
    }
    for (size_t i = 0; i < graph_.nodes.size(); ++i) Visit(i);
    for (const ir::NamedValue& output : graph_.outputs)
      builder_.SetOutput(output.name, Mapped(output.value));
    return builder_.Finish();
  }

 private:
  ValueId Mapped(ValueId id) const { return map_[id]; }

  // Depth-first: operands before users, a whole bucket at its first member.
  void Visit(size_t index) {
    if (done_[index]) return;
    const std::vector<size_t> group =
        bucket_[index] >= 0 ? members_[bucket_[index]] : std::vector<size_t>{index};
    for (size_t member : group) {
      for (ValueId input : graph_.nodes[member].inputs) {
        Visit(graph_.value(input).producer.index());
      }
    }
    if (bucket_[index] >= 0) {
      EmitBucket(group);
    } else {
      EmitNode(index);
    }
  }

  void EmitNode(size_t index) {
    const Node& node = graph_.nodes[index];
    std::vector<ValueId> inputs;
    std::vector<ir::TensorType> types;
    for (ValueId input : node.inputs) inputs.push_back(Mapped(input));
    for (ValueId output : node.outputs) types.push_back(graph_.type(output));
    builder_.SetLayer(node.layer);
    builder_.SetPhase(node.phase);
    const std::vector<ValueId> outputs = builder_.Add(node.op, inputs, node.attrs, types);
    for (size_t i = 0; i < outputs.size() && i < node.outputs.size(); ++i) {
      map_[node.outputs[i]] = outputs[i];
    }
    done_[index] = true;
  }

  void EmitBucket(const std::vector<size_t>& group) {
    MW_CHECK(!group.empty()) << "a bucket of no reductions";
    std::vector<ValueId> inputs, outputs;
    std::vector<ir::TensorType> types;
    for (size_t member : group) {
      const Node& node = graph_.nodes[member];
      MW_CHECK(node.inputs.size() == node.outputs.size()) << "an all_reduce changes no counts";
      for (size_t i = 0; i < node.inputs.size(); ++i) {
        inputs.push_back(Mapped(node.inputs[i]));
        outputs.push_back(node.outputs[i]);
        types.push_back(graph_.type(node.outputs[i]));
      }
      done_[member] = true;
    }
    builder_.SetLayer(graph_.nodes[group[0]].layer);
    builder_.SetPhase(graph_.nodes[group[0]].phase);
    const std::vector<ValueId> results =
        builder_.Add(Op::kAllReduce, inputs, graph_.nodes[group[0]].attrs, types);
    for (size_t i = 0; i < outputs.size() && i < results.size(); ++i) {
      map_[outputs[i]] = results[i];
    }
  }

  const Graph& graph_;
  std::vector<int> bucket_;
  ir::Builder builder_;
  IdVector<ValueId, ValueId> map_;
  std::vector<bool> done_;
  std::map<int, std::vector<size_t>> members_;
};

}  // namespace

Result<Graph> CoalesceAllReduces(const Graph& graph, int64_t bucket_bytes) {
  return Merger(graph, AssignBuckets(graph, bucket_bytes)).Run();
}

}  // namespace meshwright::planner
