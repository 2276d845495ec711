#include "planner/reduce_in_place.h"

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

#include "base/check.h"
#include "ir/builder.h"
#include "ir/rewrite.h"

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

// When the last input that each node needs is made.
std::vector<int64_t> MadeBefore(const Graph& graph, std::span<const int64_t> made) {
  std::vector<int64_t> before(graph.nodes.size(), 0);
  size_t inputs = 0;
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    if (graph.nodes[i].op == Op::kInput) {
      MW_CHECK(made.empty() || inputs < made.size()) << made.size() << " inputs are dated";
      if (!made.empty()) before[i] = made[inputs++];
      continue;
    }
    for (ValueId input : graph.nodes[i].inputs) {
      before[i] = std::max(before[i], before[graph.value(input).producer.index()]);
    }
  }
  return before;
}

// The all_reduces, by when their operands are made.
std::vector<size_t> InOrderMade(const Graph& graph, const std::vector<int64_t>& made_before) {
  std::vector<size_t> reduces;
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    if (graph.nodes[i].op == Op::kAllReduce) reduces.push_back(i);
  }
  std::stable_sort(reduces.begin(), reduces.end(),
                   [&](size_t a, size_t b) { return made_before[a] < made_before[b]; });
  return reduces;
}

// bucket[i]: the bucket of node i, -1 for other ops. Buckets are numbered in the order of
// `reduces`.
std::vector<int> AssignBuckets(const Graph& graph, const std::vector<size_t>& reduces,
                               int64_t bucket_bytes) {
  const std::vector<int> depth = ReduceDepths(graph);
  struct Open {
    int bucket = -1;
    int64_t bytes = 0;
  };
  std::map<BucketClass, Open> open;
  std::vector<int> bucket(graph.nodes.size(), -1);
  int count = 0;
  for (const size_t i : reduces) {
    const Node& node = graph.nodes[i];
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
  // first: nodes that are wanted as early as can be, in this order.
  Merger(const Graph& graph, std::vector<int> bucket, std::vector<size_t> first)
      : graph_(graph),
        bucket_(std::move(bucket)),
        first_(std::move(first)),
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
    for (const size_t i : first_) Visit(i);
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
    ir::CopyNode(builder_, graph_, graph_.nodes[index], map_);
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
  const std::vector<size_t> first_;
  ir::Builder builder_;
  IdVector<ValueId, ValueId> map_;
  std::vector<bool> done_;
  std::map<int, std::vector<size_t>> members_;
};

}  // namespace

Result<Graph> CoalesceAllReduces(const Graph& graph, int64_t bucket_bytes,
                                 std::span<const int64_t> made) {
  std::vector<size_t> reduces = InOrderMade(graph, MadeBefore(graph, made));
  std::vector<int> bucket = AssignBuckets(graph, reduces, bucket_bytes);
  // A bucket comes when its last operand does: in the order of those.
  std::map<int, size_t> last_of;
  for (size_t i = 0; i < reduces.size(); ++i) last_of[bucket[reduces[i]]] = i;
  std::vector<std::pair<size_t, size_t>> buckets;
  for (const auto& [number, last] : last_of) buckets.emplace_back(last, reduces[last]);
  std::sort(buckets.begin(), buckets.end());
  std::vector<size_t> first;
  for (const auto& [last, node] : buckets) {
    if (!made.empty()) first.push_back(node);
  }
  return Merger(graph, std::move(bucket), std::move(first)).Run();
}

namespace {

class PieceDonor {
 public:
  PieceDonor(const Partition& partition, const std::map<TensorIndex, int>& uses,
             const std::set<TensorIndex>& crossing, std::map<TensorIndex, TensorIndex>& renamed)
      : partition_(partition), uses_(uses), crossing_(crossing), renamed_(renamed) {}

  void Run(Piece& piece) const {
    ir::Graph graph = *piece.graph;
    const IdVector<ValueId, std::vector<NodeId>> users = graph.Users();
    const std::vector<NodeId> inputs = graph.NodesOf(Op::kInput);
    MW_CHECK(inputs.size() == piece.inputs.size())
        << graph.name << " reads " << inputs.size() << " values of " << piece.inputs.size();
    std::map<ValueId, TensorIndex> tensors;  // of the values that may be overwritten
    for (size_t i = 0; i < inputs.size(); ++i) {
      const ValueId value = graph.node(inputs[i]).outputs[0];
      const bool read_once = users[value].size() == 1;
      if (read_once && MayOverwrite(piece, piece.inputs[i])) tensors[value] = piece.inputs[i];
    }
    for (const ir::NamedValue& output : graph.outputs) tensors.erase(output.value);
    for (NodeId id : graph.NodesOf(Op::kAllReduce)) {
      const ir::Node& node = graph.node(id);
      for (size_t i = 0; i < node.inputs.size(); ++i) {
        const auto it = tensors.find(node.inputs[i]);
        if (it == tensors.end()) continue;
        if (IsOutput(graph, node.outputs[i])) {
          Rename(piece, graph, node.outputs[i], it->second);
          continue;
        }
        graph.outputs.push_back({NameOf(it->second), node.outputs[i]});
        piece.outputs.push_back(it->second);
        tensors.erase(it);
      }
    }
    piece.graph = std::make_shared<const ir::Graph>(std::move(graph));
  }

 private:
  const std::string& NameOf(TensorIndex tensor) const { return partition_.tensors[tensor].name; }

  // A later piece of the stage reads what was reduced: it finds it where it was summed up. What
  // crosses to another stage keeps its own form.
  void Rename(Piece& piece, ir::Graph& graph, ValueId reduced, TensorIndex summed) const {
    MW_CHECK(graph.outputs.size() == piece.outputs.size())
        << graph.name << " makes " << graph.outputs.size() << " values of " << piece.outputs.size();
    for (size_t o = 0; o < graph.outputs.size(); ++o) {
      const TensorIndex known = piece.outputs[o];
      const bool own =
          graph.outputs[o].value == reduced && TensorOf(known).role == TensorRole::kStep;
      if (!own || crossing_.contains(known)) continue;
      renamed_[known] = summed;
      graph.outputs[o].name = NameOf(summed);
      piece.outputs[o] = summed;
      return;
    }
  }

  const StageTensor& TensorOf(TensorIndex tensor) const { return partition_.tensors[tensor]; }

  // Nothing but this piece reads the tensor, and it does not keep it.
  bool MayOverwrite(const Piece& piece, TensorIndex tensor) const {
    const TensorRole role = partition_.tensors[tensor].role;
    const bool written =
        std::find(piece.outputs.begin(), piece.outputs.end(), tensor) != piece.outputs.end();
    return role != TensorRole::kParam && !written && uses_.at(tensor) == 1;
  }

  static bool IsOutput(const ir::Graph& graph, ValueId value) {
    return std::any_of(graph.outputs.begin(), graph.outputs.end(),
                       [&](const ir::NamedValue& output) { return output.value == value; });
  }

  const Partition& partition_;
  const std::map<TensorIndex, int>& uses_;
  const std::set<TensorIndex>& crossing_;  // sent, received or reported
  std::map<TensorIndex, TensorIndex>& renamed_;
};

}  // namespace

void ReduceInPlace(Partition& partition) {
  std::map<TensorIndex, int> uses;  // readers beside the pieces that accumulate into the tensor
  for (const Piece& piece : partition.pieces) {
    for (TensorIndex tensor : piece.inputs) {
      const bool accumulates =
          std::find(piece.outputs.begin(), piece.outputs.end(), tensor) != piece.outputs.end();
      uses[tensor] += accumulates ? 0 : 1;
    }
  }
  std::set<TensorIndex> crossing;
  for (const Import& import : partition.imports) {
    crossing.insert({import.source, import.destination});
  }
  for (const Report& report : partition.reports) crossing.insert(report.tensor);
  for (const Report& output : partition.outputs) crossing.insert(output.tensor);
  for (const TensorIndex tensor : crossing) uses[tensor] += 1;
  std::map<TensorIndex, TensorIndex> renamed;  // what was reduced: where
  for (Piece& piece : partition.pieces) {
    if (piece.key.phase != ir::Phase::kUpdate) continue;
    for (TensorIndex& input : piece.inputs) {
      if (const auto it = renamed.find(input); it != renamed.end()) input = it->second;
    }
    PieceDonor(partition, uses, crossing, renamed).Run(piece);
  }
}

}  // namespace meshwright::planner
