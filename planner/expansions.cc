#include "planner/expansions.h"

#include <algorithm>
#include <array>
#include <map>
#include <utility>

#include "base/check.h"
#include "ir/norm_parts.h"
#include "ir/sequence_order.h"
#include "planner/context_attention.h"
#include "planner/local_node.h"
#include "planner/strategy.h"

namespace meshwright::planner {
namespace {

using ir::Attrs;
using ir::Builder;
using ir::Node;
using ir::Op;
using mesh::Sharding;

// ---- A split vocabulary -------------------------------------------------------------------------

// The pieces of a loss ignore what the whole one does; without the attribute kernels have a
// default.
Attrs IgnoreAttrs(const Node& node) {
  Attrs attrs;
  if (node.attrs.Has("ignore_index")) attrs.Set("ignore_index", node.attrs.Int("ignore_index"));
  return attrs;
}

// cross_entropy over a split vocabulary. Reduced are the log-sum-exp and the label's
// logit, two numbers a token.
std::vector<ValueId> EmitSplitCrossEntropy(const ExpandCall& call) {
  const auto& [builder, graph, node, strategy, inputs, mesh] = call;
  // Those behind the rows; microbatches split no vocabulary.
  const std::vector<std::string>& axes = strategy.operands[0].dims.back();
  const ValueId partial_lse = builder.AddOne(Op::kLogSumExp, {inputs[0]});
  const ir::TensorType rows = partial_lse.valid() ? builder.type(partial_lse) : ir::TensorType{};
  const ValueId lse =
      builder.AddOne(Op::kAllReduce, {partial_lse}, {{"axes", axes}, {"kind", "lse"}}, {rows});
  Attrs pick_attrs = IgnoreAttrs(node);
  ir::ShardedDims::FromAttrs(node.attrs).ToAttrs(pick_attrs);
  SetOffsets(pick_attrs, graph.type(node.inputs[0]), strategy.operands[0]);
  const ValueId partial_pick = builder.AddOne(Op::kPick, {inputs[0], inputs[1]}, pick_attrs);
  const ValueId picked =
      builder.AddOne(Op::kAllReduce, {partial_pick}, {{"axes", axes}, {"kind", "sum"}}, {rows});
  const std::vector<ValueId> nll =
      builder.Add(Op::kNll, {lse, picked, inputs[1]}, IgnoreAttrs(node));
  MW_CHECK(nll.size() == 2) << "nll gives a sum and a count";
  return {nll[0], nll[1], lse};
}

// ---- A split width ------------------------------------------------------------------------------

bool IsNorm(Op op) { return op == Op::kLayerNorm || op == Op::kRmsNorm; }

std::vector<ValueId> EmitSplitNorm(const ExpandCall& call) {
  const auto& [builder, graph, node, strategy, inputs, mesh] = call;
  const mesh::AxisList& axes = strategy.operands[0].dims.back();
  ir::NormWidth width{.elements = graph.type(node.inputs[0]).dims.back()};
  width.sum_parts = [&axes](Builder& b, ValueId part) {
    if (!b.status().ok()) return ValueId();
    return b.AddOne(Op::kAllReduce, {part}, {{"axes", axes}, {"kind", "sum"}}, {b.type(part)});
  };
  if (!IsNorm(node.op)) return ir::NormGradInParts(builder, node.op, inputs, width);
  const ir::DType y = graph.type(node.outputs[0]).dtype;
  return ir::NormInParts(builder, node.op, node.attrs, y, inputs, width);
}

// ---- A sum of unlike summands -------------------------------------------------------------------

std::vector<ValueId> EmitGroupedSum(const ExpandCall& call) {
  const auto& [builder, graph, node, strategy, inputs, mesh] = call;
  const ir::TensorType& type = graph.type(node.outputs[0]);
  MW_CHECK(strategy.operands.size() == inputs.size()) << inputs.size() << " summands";
  std::map<Sharding, std::vector<ValueId>> groups;
  for (size_t i = 0; i < inputs.size(); ++i) groups[strategy.operands[i]].push_back(inputs[i]);
  std::vector<ValueId> sums;
  for (const auto& [sharding, values] : groups) {
    const ValueId sum = values.size() == 1 ? values[0] : builder.AddOne(Op::kSum, values);
    Result<ValueId> whole = EmitReshard(builder, type, sum, sharding, strategy.results[0], mesh);
    if (!whole.has_value()) {
      builder.Fail(whole.error());
      return {ValueId()};
    }
    sums.push_back(*whole);
  }
  return {sums.size() == 1 ? sums[0] : builder.AddOne(Op::kSum, sums)};
}

// ---- Attention around a ring --------------------------------------------------------------------

constexpr size_t kTokens = 1;  // the dim of q, k and v

// The attention, or its gradient, of the own queries and the block of keys that has come `shift`
// places round the ring.
class RingAttention {
 public:
  explicit RingAttention(const ExpandCall& call)
      : call_(call),
        builder_(call.builder),
        axes_(call.strategy.operands[0].dims[kTokens]),
        attrs_(LocalAttrs(call.graph, call.node, call.strategy, call.mesh)) {
    for (const std::string& axis : axes_) ranks_ *= call.mesh.AxisSize(axis);
    const bool in_order = ir::SequenceOrder::FromAttrs(attrs_).plain();
    const int64_t tokens = builder_.type(call.inputs[0]).dims[kTokens];
    steps_ = RingSteps(in_order ? attrs_.Int("window") : 0, tokens, ranks_);
  }

  std::vector<ValueId> Forward() {
    std::vector<ValueId> operands = call_.inputs;
    const ir::DType dtype = builder_.type(operands[0]).dtype;
    std::vector<ValueId> sums = At(0, operands);
    sums[0] = InSums(sums[0], sums[1]);
    for (int64_t shift = 1; shift <= steps_; ++shift) {
      PassOn(operands);
      Add(At(shift, operands), sums);
    }
    sums[0] = InDType(sums[0], dtype);
    return sums;
  }

  std::vector<ValueId> Backward() {
    std::vector<ValueId> operands = call_.inputs;
    const ValueId lse = operands[4];
    std::vector<ValueId> sums;
    std::vector<ir::DType> dtypes;
    for (int64_t shift = 0; shift <= steps_; ++shift) {
      if (shift > 0) PassOn(operands);
      const std::vector<ValueId> parts = At(shift, operands);
      for (size_t i = 0; i < parts.size(); ++i) {
        const ValueId part = InSums(parts[i], lse);
        if (shift == 0) {
          dtypes.push_back(builder_.type(parts[i]).dtype);
          sums.push_back(part);
          continue;
        }
        // Those of keys and values come from the rank before, behind their blocks.
        const ValueId before = i == 0 ? sums[i] : Shifted(sums[i]);
        sums[i] = builder_.AddOne(Op::kAdd, {before, part});
      }
    }
    // Home.
    for (size_t i = 1; i < sums.size() && steps_ > 0; ++i) {
      sums[i] = Shifted(sums[i], ranks_ - steps_);
    }
    for (size_t i = 0; i < sums.size(); ++i) sums[i] = InDType(sums[i], dtypes[i]);
    return sums;
  }

 private:
  std::vector<ValueId> At(int64_t shift, const std::vector<ValueId>& operands) {
    Attrs attrs = attrs_;
    if (shift > 0) attrs.Set("kv_shift", shift);
    return builder_.Add(call_.node.op, operands, attrs);
  }

  ValueId Shifted(ValueId value, int64_t by = 1) {
    return builder_.AddOne(Op::kRingShift, {value}, {{"axes", axes_}, {"by", by}},
                           {builder_.type(value)});
  }

  void PassOn(std::vector<ValueId>& operands) {
    for (const size_t i : {1, 2}) operands[i] = Shifted(operands[i]);
  }

  ValueId InDType(ValueId value, ir::DType dtype) {
    if (builder_.type(value).dtype == dtype) return value;
    return builder_.AddOne(Op::kCast, {value}, {{"dtype", std::string(ir::DTypeName(dtype))}});
  }

  // In the type of the statistics, which is wide enough for sums.
  ValueId InSums(ValueId value, ValueId lse) { return InDType(value, builder_.type(lse).dtype); }

  // sums = (o, lse) of both. Each query sees itself, so that sums[1] is finite; part's may be -inf.
  void Add(const std::vector<ValueId>& part, std::vector<ValueId>& sums) {
    const ValueId most = builder_.AddOne(Op::kMaximum, {sums[1], part[1]});
    const auto weight = [&](ValueId lse) {
      return builder_.AddOne(Op::kExp, {builder_.AddOne(Op::kSub, {lse, most})});
    };
    const ValueId old_weight = weight(sums[1]);
    const ValueId new_weight = weight(part[1]);
    const ValueId total = builder_.AddOne(Op::kAdd, {old_weight, new_weight});
    const auto share = [&](ValueId o, ValueId of) {
      return builder_.AddOne(
          Op::kMul, {o, ByQuery(builder_.AddOne(Op::kDivide, {of, total}), builder_.type(o))});
    };
    sums[0] = builder_.AddOne(
        Op::kAdd, {share(sums[0], old_weight), share(InSums(part[0], part[1]), new_weight)});
    sums[1] = builder_.AddOne(Op::kAdd, {most, builder_.AddOne(Op::kLog, {total})});
  }

  // [b, h, s] along the elements of [b, s, h, e].
  ValueId ByQuery(ValueId weights, ir::TensorType type) {
    const ValueId rows =
        builder_.AddOne(Op::kTranspose, {weights}, {{"perm", std::vector<int64_t>{0, 2, 1}}});
    return builder_.AddOne(Op::kBroadcast, {rows}, {{"dims", std::vector<int64_t>{3}}},
                           {std::move(type)});
  }

  const ExpandCall& call_;
  Builder& builder_;
  const mesh::AxisList& axes_;
  const Attrs attrs_;
  int64_t ranks_ = 1;
  int64_t steps_ = 0;  // that blocks move on: none further on is seen
};

std::vector<ValueId> EmitRingAttention(const ExpandCall& call) {
  const bool backward = call.node.op == Op::kAttentionGrad;
  return backward ? RingAttention(call).Backward() : RingAttention(call).Forward();
}

// ---- The table ----------------------------------------------------------------------------------

struct Row {
  Expansion expansion;
  std::vector<ValueId> (*emit)(const ExpandCall& call);
  bool (*splits)(const NodeStrategy& strategy);  // on a mesh; null: always
};

bool SplitsLastDim(const NodeStrategy& strategy) {
  return !strategy.operands[0].dims.back().empty();
}

constexpr std::array kRows = {
    Row{Expansion::kSplitVocabulary, EmitSplitCrossEntropy, SplitsLastDim},
    Row{Expansion::kSplitWidth, EmitSplitNorm, SplitsLastDim},
    Row{Expansion::kGroupedSum, EmitGroupedSum, nullptr},
    Row{Expansion::kRingAttention, EmitRingAttention,
        [](const NodeStrategy& strategy) { return !strategy.operands[0].dims[kTokens].empty(); }},
};

const Row* RowOf(Expansion expansion) {
  const auto* const row = std::find_if(
      kRows.begin(), kRows.end(), [&](const Row& each) { return each.expansion == expansion; });
  return row == kRows.end() ? nullptr : row;
}

}  // namespace

std::vector<ValueId> Expand(const ExpandCall& call) {
  const Row* const row = RowOf(call.strategy.expansion);
  MW_CHECK(row != nullptr) << ir::OpName(call.node.op) << " has no expansion";
  return row->emit(call);
}

InnerSums InnerSumsOf(const Node& node, const NodeStrategy& strategy) {
  if (strategy.expansion == Expansion::kSplitVocabulary) {
    return {2, node.outputs[2], strategy.results[2], strategy.operands[0].dims.back()};
  }
  if (strategy.expansion != Expansion::kSplitWidth) return {};
  const bool has_mean = node.op == Op::kLayerNorm || node.op == Op::kLayerNormGrad;
  const int count = has_mean ? 2 : 1;
  const mesh::AxisList& axes = strategy.operands[0].dims.back();
  if (IsNorm(node.op)) return {count, node.outputs.back(), strategy.results.back(), axes};
  return {count, node.inputs[2], strategy.operands[2], axes};
}

Expansion OnMesh(const NodeStrategy& strategy) {
  const Row* const row = RowOf(strategy.expansion);
  const bool stays = row != nullptr && (row->splits == nullptr || row->splits(strategy));
  return stays ? strategy.expansion : Expansion::kNone;
}

}  // namespace meshwright::planner
