#include "compile/groups.h"

#include <algorithm>
#include <string>

#include "ir/elementwise.h"
#include "ir/fused.h"

namespace meshwright::compile {
namespace {

using ir::Node;
using ir::Op;

constexpr int kNoGroup = -1;
// Scalars and the like: a node of its own costs nothing.
constexpr int64_t kSmallestElements = 1024;
// Nodes between two members: what the group reads must live until its last member.
constexpr size_t kLongestWait = 16;

// Columns of the product: the last dims of the result, those that only the second operand has, when
// the dims before them come from the first. 0: it is a product of another form.
int64_t ProductWidth(const Node& node, const ir::Dims& result) {
  const std::string equation = node.attrs.Str("equation");
  const size_t comma = equation.find(',');
  const size_t arrow = equation.find("->");
  if (comma == std::string::npos || arrow == std::string::npos) return 0;
  const std::string a = equation.substr(0, comma);
  const std::string b = equation.substr(comma + 1, arrow - comma - 1);
  const std::string c = equation.substr(arrow + 2);
  if (c.empty() || c.size() != result.size()) return 0;
  const auto has = [](const std::string& labels, char label) {
    return labels.find(label) != std::string::npos;
  };
  int64_t width = 1;
  size_t i = c.size();
  while (i > 0 && has(b, c[i - 1]) && !has(a, c[i - 1])) width *= result[--i];
  for (size_t j = 0; j < i; ++j) {
    if (has(b, c[j])) return 0;  // a batch of products
  }
  return i < c.size() ? width : 0;
}

// Whether one chain may hold both: it computes in f32 what is stored as bf16.
bool MayMix(ir::DType a, ir::DType b) {
  const auto in_f32 = [](ir::DType dtype) {
    return dtype == ir::DType::kF32 || dtype == ir::DType::kBF16;
  };
  return a == b || (in_f32(a) && in_f32(b));
}

// Chains compute with floats; what reads or makes other types stays a node of its own.
bool IsOfFloats(const ir::Graph& graph, const Node& node) {
  const auto is_float = [&](ValueId id) { return ir::IsFloating(graph.type(id).dtype); };
  return std::all_of(node.inputs.begin(), node.inputs.end(), is_float) &&
         std::all_of(node.outputs.begin(), node.outputs.end(), is_float);
}

// Whether operand 1 may repeat along operand 0.
bool MayBeNarrow(const Node& node) {
  const ir::ElementwiseRow* row = ir::ElementwiseRowOf(node.op);
  return row != nullptr && row->operands == 2 && row->takes != ir::Takes::kScalar;
}

class GroupFinder {
 public:
  explicit GroupFinder(const ir::Graph& graph)
      : graph_(graph), users_(graph.Users()), group_of_(graph.nodes.size(), kNoGroup) {
    is_output_.assign(graph.values.size(), false);
    for (const ir::NamedValue& output : graph.outputs) is_output_[output.value] = true;
  }

  std::vector<Group> Run() {
    for (size_t n = 0; n < graph_.nodes.size(); ++n) {
      const Node& node = graph_.nodes[n];
      if (!Join(n) && !StartWithProducer(n) && ir::IsElementwise(node.op) && FitsAlone(node)) {
        Start(n, false, Elements(node.outputs[0]), 0);
        TakeWidths(groups_.back(), node);
      }
    }
    std::vector<Group> found;
    for (Group& group : groups_) {
      if (group.members.size() > 1 && Holds(group)) found.push_back(std::move(group));
    }
    std::sort(found.begin(), found.end(),
              [](const Group& a, const Group& b) { return a.members.back() < b.members.back(); });
    return found;
  }

 private:
  int64_t Elements(ValueId id) const { return graph_.type(id).elements(); }
  size_t ProducerOf(ValueId id) const { return graph_.value(id).producer.index(); }

  void Start(size_t n, bool producer, int64_t elements, int64_t width) {
    group_of_[n] = static_cast<int>(groups_.size());
    groups_.push_back({{n}, producer, elements, width});
  }

  bool StartWithProducer(size_t n) {
    const Node& node = graph_.nodes[n];
    const ir::TensorType& type = graph_.type(node.outputs[0]);
    if (!ir::IsFloating(type.dtype) || type.elements() < kSmallestElements) return false;
    int64_t width = 0;
    if (node.op == Op::kEinsum && node.inputs.size() == 2) width = ProductWidth(node, type.dims);
    if (node.op == Op::kLayerNormGrad || node.op == Op::kRmsNormGrad) width = type.dims.back();
    if (width == 0) return false;
    Start(n, true, type.elements(), width);
    return true;
  }

  // An elementwise node whose other operands are of its size, or narrow.
  bool FitsAlone(const Node& node) const {
    const int64_t elements = Elements(node.outputs[0]);
    if (!IsOfFloats(graph_, node) || elements < kSmallestElements) return false;
    const std::vector<int64_t> narrow = NarrowSizes(node, elements);
    return Elements(node.inputs[0]) == elements &&
           std::all_of(narrow.begin(), narrow.end(),
                       [](int64_t size) { return size >= kSmallestWidth; });
  }

  // The narrow values of a node: a repeated second operand, a column sum.
  std::vector<int64_t> NarrowSizes(const Node& node, int64_t elements) const {
    std::vector<int64_t> sizes;
    if (node.op == Op::kReduceSum) sizes.push_back(Elements(node.outputs[0]));
    if (MayBeNarrow(node) && Elements(node.inputs[1]) != elements) {
      sizes.push_back(Elements(node.inputs[1]));
    }
    return sizes;
  }

  void TakeWidths(Group& group, const Node& node) const {
    for (const int64_t size : NarrowSizes(node, group.elements)) group.width = size;
  }

  // Adds node n to the group of one of its operands, the one made last.
  bool Join(size_t n) {
    const Node& node = graph_.nodes[n];
    if (!ir::IsElementwise(node.op) && !ir::IsColumnSum(node)) return false;
    int best = kNoGroup;
    for (ValueId input : node.inputs) {
      const int group = group_of_[ProducerOf(input)];
      if (group == kNoGroup || !MayJoin(groups_[static_cast<size_t>(group)], n)) continue;
      if (best == kNoGroup || groups_[static_cast<size_t>(group)].members.back() >
                                  groups_[static_cast<size_t>(best)].members.back()) {
        best = group;
      }
    }
    if (best == kNoGroup) return false;
    Group& group = groups_[static_cast<size_t>(best)];
    TakeWidths(group, node);
    group.members.push_back(n);
    group_of_[n] = best;
    return true;
  }

  bool MayJoin(const Group& group, size_t n) const {
    const Node& node = graph_.nodes[n];
    const Node& first = graph_.nodes[group.members.front()];
    if (node.phase != first.phase || IsAccumulation(node)) return false;
    if (!IsOfFloats(graph_, node)) return false;
    if (n - group.members.back() > kLongestWait || group.members.size() == ir::kMaxFusedSteps) {
      return false;
    }
    if (!MayMix(graph_.type(node.outputs[0]).dtype, graph_.type(first.outputs[0]).dtype)) {
      return false;
    }
    if (Elements(node.inputs[0]) != group.elements) return false;
    if (node.op != Op::kReduceSum && Elements(node.outputs[0]) != group.elements) return false;
    for (const int64_t size : NarrowSizes(node, group.elements)) {
      if (group.width != 0 ? size != group.width : size < kSmallestWidth) return false;
    }
    return OperandsFit(group, node) && NobodyReadsBefore(group, n);
  }

  // A sum over microbatches is kept in the memory of its first operand.
  bool IsAccumulation(const Node& node) const {
    return node.op == Op::kAdd && graph_.nodes[ProducerOf(node.inputs[0])].op == Op::kInput &&
           is_output_[node.outputs[0]];
  }

  // Results that a member makes beside its first, and column sums, are not read inside.
  bool OperandsFit(const Group& group, const Node& node) const {
    return std::all_of(node.inputs.begin(), node.inputs.end(), [&](ValueId input) {
      const size_t producer = ProducerOf(input);
      const bool inside =
          std::find(group.members.begin(), group.members.end(), producer) != group.members.end();
      const Node& maker = graph_.nodes[producer];
      return !inside || (maker.outputs[0] == input && maker.op != Op::kReduceSum);
    });
  }

  bool NobodyReadsBefore(const Group& group, size_t n) const {
    for (const size_t member : group.members) {
      for (ValueId value : graph_.nodes[member].outputs) {
        for (NodeId user : users_[value]) {
          const auto u = user.index();
          const bool inside =
              std::find(group.members.begin(), group.members.end(), u) != group.members.end();
          if (!inside && u < n) return false;
        }
      }
    }
    return true;
  }

  bool LeavesGroup(const Group& group, ValueId value) const {
    if (is_output_[value]) return true;
    for (NodeId user : users_[value]) {
      const auto u = user.index();
      if (std::find(group.members.begin(), group.members.end(), u) == group.members.end()) {
        return true;
      }
    }
    return false;
  }

  // A product needs memory of its size, or more, from its first write to its last use: a result of
  // the group that is made no earlier.
  bool Holds(const Group& group) const {
    if (!group.has_producer) return true;
    const Node& producer = graph_.nodes[group.members.front()];
    if (producer.op != Op::kEinsum) {
      return std::all_of(producer.outputs.begin() + 1, producer.outputs.end(),
                         [&](ValueId value) { return LeavesGroup(group, value); });
    }
    const ValueId product = producer.outputs[0];
    if (LeavesGroup(group, product)) return true;
    for (size_t i = group.members.size(); i-- > 1;) {
      const Node& node = graph_.nodes[group.members[i]];
      const bool holds = node.op != Op::kReduceSum &&
                         graph_.type(node.outputs[0]).bytes() >= graph_.type(product).bytes();
      if (holds && LeavesGroup(group, node.outputs[0])) return true;
      if (std::find(node.inputs.begin(), node.inputs.end(), product) != node.inputs.end()) {
        return false;
      }
    }
    return false;
  }

  static constexpr int64_t kSmallestWidth = 16;

  const ir::Graph& graph_;
  const IdVector<ValueId, std::vector<NodeId>> users_;
  std::vector<int> group_of_;
  IdVector<ValueId, bool> is_output_;
  std::vector<Group> groups_;
};

}  // namespace

std::vector<Group> FindGroups(const ir::Graph& graph) { return GroupFinder(graph).Run(); }

}  // namespace meshwright::compile
