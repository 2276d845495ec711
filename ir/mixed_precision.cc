#include "ir/mixed_precision.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "base/check.h"
#include "ir/builder.h"
#include "ir/rewrite.h"

namespace meshwright::ir {
namespace {

enum class Precision : uint8_t { kLow, kFollows, kFull };

// Elementwise ops that lose nothing more where their operands are of 16 bits: they compute in f32
// all the same, and their results are no smaller than what went in. exp, log and the like are not.
bool TakesLow(Op op) {
  static constexpr Op kOps[] = {
      Op::kAdd,     Op::kMul,     Op::kSub,     Op::kScale,       Op::kShift,    Op::kMulScalar,
      Op::kSum,     Op::kGelu,    Op::kGeluErf, Op::kSilu,        Op::kGeluGrad, Op::kSiluGrad,
      Op::kDropout, Op::kRelu,    Op::kTanh,    Op::kSigmoid,     Op::kGate,     Op::kAbs,
      Op::kMaximum, Op::kMinimum, Op::kSelect,  Op::kStopGradient};
  return std::find(std::begin(kOps), std::end(kOps), op) != std::end(kOps);
}

Precision PrecisionOf(const Graph& graph, const Node& node) {
  switch (node.op) {
    case Op::kEinsum:
      // A scalar is a sum over everything, as a loss is.
      return graph.type(node.outputs[0]).rank() == 0 ? Precision::kFull : Precision::kLow;
    case Op::kAttention:
    case Op::kAttentionQkv:
    case Op::kPagedAttention:
    case Op::kConv2d:
    case Op::kGroupedMatmul:
    case Op::kCombine:
      return Precision::kLow;
    case Op::kDispatch:
      // Weights of choices, on their way to the host that adds up what they weigh.
      return node.attrs.Int("statistic") != 0 ? Precision::kFull : Precision::kLow;
    case Op::kRotary:
    case Op::kSlice:
    case Op::kPad:
    case Op::kConcat:
    case Op::kReshape:
    case Op::kTranspose:
    case Op::kBroadcast:
    case Op::kGather:
      return Precision::kFollows;
    default:
      return TakesLow(node.op) ? Precision::kFollows : Precision::kFull;
  }
}

// A scalar multiplier, and how much of each expert a token takes.
bool IsStatistic(const Node& node, size_t operand) {
  return (node.op == Op::kMulScalar && operand == 1) || (node.op == Op::kCombine && operand == 2);
}

class Caster {
 public:
  Caster(const Graph& loss, DType compute)
      : loss_(loss), compute_(compute), builder_(loss.name), map_(loss.values.size()) {
    of_weights_.assign(loss.values.size(), false);
  }

  Result<Graph> Run() {
    for (const Node& node : loss_.nodes) {
      builder_.SetLayer(node.layer);
      builder_.SetPhase(node.phase);
      MarkWeights(node);
      Emit(node);
      MW_TRY(builder_.status());
    }
    for (const NamedValue& output : loss_.outputs) {
      builder_.SetLayer(loss_.producer(output.value).layer);
      builder_.SetOutput(output.name, InDType(output.value, loss_.type(output.value).dtype),
                         output.reduction);
    }
    return builder_.Finish();
  }

 private:
  ValueId& Mapped(ValueId id) { return map_[id]; }
  bool IsF32(ValueId id) const { return loss_.type(id).dtype == DType::kF32; }
  bool IsLow(ValueId id) { return builder_.type(Mapped(id)).dtype == compute_; }

  // Layers have casts of their own: a value read in two stages is not sent in two types, and a
  // weight is cast where it is used.
  ValueId InDType(ValueId id, DType dtype) {
    const ValueId value = Mapped(id);
    if (!builder_.status().ok() || builder_.type(value).dtype == dtype) return value;
    // A gradient of a weight is then f32 before it is added to another.
    if (loss_.producer(id).op == Op::kParam) return Cast(value, dtype);
    const auto [it, fresh] = casts_.try_emplace({value, dtype, builder_.layer()});
    if (fresh) it->second = Cast(value, dtype);
    return it->second;
  }

  ValueId Cast(ValueId value, DType dtype) {
    return builder_.AddOne(Op::kCast, {value}, {{"dtype", std::string(DTypeName(dtype))}});
  }

  // Whether the op computes in the 16-bit type: no f32 operand comes of the batch. What comes of
  // weights alone, as a bias does, is narrowed, unless it is as large as the result; with fewer
  // dims it is not, however few tokens there are, so that all batches round alike.
  bool FollowsLow(const Node& node) {
    const TensorType& result = loss_.type(node.inputs[0]);
    bool low = false;
    for (ValueId input : node.inputs) {
      const TensorType& type = loss_.type(input);
      const bool large = type.elements() >= result.elements() && type.rank() >= result.rank();
      if (IsLow(input)) {
        low = true;
      } else if (IsF32(input) && (large || !of_weights_[input])) {
        return false;
      }
    }
    return low;
  }

  // Of params and constants alone.
  void MarkWeights(const Node& node) {
    const bool source = node.op == Op::kParam || node.op == Op::kConstant;
    const bool of_weights =
        source ||
        (!node.inputs.empty() && std::all_of(node.inputs.begin(), node.inputs.end(),
                                             [&](ValueId input) { return of_weights_[input]; }));
    for (const ValueId output : node.outputs) of_weights_[output] = of_weights;
  }

  void Emit(const Node& node) {
    const Precision precision = PrecisionOf(loss_, node);
    const bool low = precision == Precision::kLow ||
                     (precision == Precision::kFollows && !node.inputs.empty() && FollowsLow(node));
    std::vector<ValueId> inputs;
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      const ValueId input = node.inputs[i];
      const bool narrow = low && !IsStatistic(node, i);
      inputs.push_back(IsF32(input) ? InDType(input, narrow ? compute_ : DType::kF32)
                                    : Mapped(input));
    }
    std::vector<TensorType> types;
    if (!low || node.op == Op::kReshape || node.op == Op::kBroadcast) {
      for (ValueId output : node.outputs) types.push_back(loss_.type(output));
    }
    if (low && !types.empty()) types[0].dtype = compute_;
    const std::vector<ValueId> outputs = builder_.Add(node.op, inputs, node.attrs, types);
    for (size_t i = 0; i < outputs.size(); ++i) Mapped(node.outputs[i]) = outputs[i];
  }

  const Graph& loss_;
  const DType compute_;
  Builder builder_;
  IdVector<ValueId, ValueId> map_;
  IdVector<ValueId, bool> of_weights_;
  std::map<std::tuple<ValueId, DType, int>, ValueId> casts_;
};

bool TakesDType(Op op) {
  static constexpr Op kOps[] = {Op::kEinsum, Op::kGroupedMatmulGrad, Op::kReduceSum, Op::kLayerNorm,
                                Op::kRmsNorm};
  return std::find(std::begin(kOps), std::end(kOps), op) != std::end(kOps);
}

// Per node, the type that all readers of its result 0 cast it to; empty: they do not.
class CastFolder {
 public:
  explicit CastFolder(const Graph& graph) : graph_(graph), users_(graph.Users()) {
    is_output_.assign(graph.values.size(), false);
    for (const NamedValue& output : graph.outputs) is_output_[output.value] = true;
  }

  Result<Graph> Run() {
    size_t next = 0;
    return RewriteGraph(
        graph_, [&](Builder& builder, const Node& node, const std::vector<ValueId>& inputs,
                    const std::vector<TensorType>& types) {
          const Node& old = graph_.nodes[next++];
          MW_CHECK(old.op == node.op) << OpName(old.op) << " was taken for " << OpName(node.op);
          if (old.op == Op::kCast && !FoldedDType(graph_.producer(old.inputs[0])).empty() &&
              graph_.producer(old.inputs[0]).outputs[0] == old.inputs[0]) {
            return inputs;
          }
          const std::string dtype = FoldedDType(old);
          if (dtype.empty()) return builder.Add(node.op, inputs, node.attrs, types);
          Attrs attrs = node.attrs;
          attrs.Set("dtype", dtype);
          return builder.Add(node.op, inputs, attrs);
        });
  }

 private:
  std::string FoldedDType(const Node& node) const {
    if (!TakesDType(node.op) || node.attrs.Has("dtype")) return "";
    const ValueId value = node.outputs[0];
    if (is_output_[value] || users_[value].empty()) return "";
    std::string dtype;
    if (!ComputesInF32(graph_.type(value).dtype)) return "";
    for (NodeId id : users_[value]) {
      const Node& user = graph_.node(id);
      const std::string wanted = user.op == Op::kCast ? user.attrs.Str("dtype") : "";
      if (wanted.empty() || (!dtype.empty() && wanted != dtype)) return "";
      if (!ComputesInF32(graph_.type(user.outputs[0]).dtype)) return "";
      dtype = wanted;
    }
    return dtype;
  }

  const Graph& graph_;
  const IdVector<ValueId, std::vector<NodeId>> users_;
  IdVector<ValueId, bool> is_output_;
};

// Whether all that read the param take it in the 16-bit type, or look up rows of it.
bool CanBeHalf(const Graph& graph, const Node& param, const std::vector<NodeId>& users,
               DType compute) {
  if (graph.type(param.outputs[0]).dtype != DType::kF32) return false;
  bool cast = false;
  for (const NodeId id : users) {
    const Node& user = graph.node(id);
    const bool casts = user.op == Op::kCast && graph.type(user.outputs[0]).dtype == compute;
    if (!casts && user.op != Op::kEmbedding) return false;
    cast = cast || casts;
  }
  return cast;
}

}  // namespace

Result<Graph> WithHalfParams(const Graph& mixed, DType compute) {
  MW_CHECK(DTypeBytes(compute) == 2) << DTypeName(compute) << " is no 16-bit float";
  const auto users = mixed.Users();
  IdVector<ValueId, bool> half;
  half.assign(mixed.values.size(), false);
  for (const NodeId id : mixed.NodesOf(Op::kParam)) {
    const ValueId value = mixed.node(id).outputs[0];
    half[value] = CanBeHalf(mixed, mixed.node(id), users[value], compute);
  }
  for (const NamedValue& output : mixed.outputs) half[output.value] = false;
  size_t next = 0;
  return RewriteGraph(
      mixed, [&](Builder& builder, const Node& node, const std::vector<ValueId>& inputs,
                 const std::vector<TensorType>& types) {
        const Node& old = mixed.nodes[next++];
        MW_CHECK(old.op == node.op) << OpName(old.op) << " was taken for " << OpName(node.op);
        if (old.op == Op::kParam && half[old.outputs[0]]) {
          TensorType type = types[0];
          type.dtype = compute;
          return builder.Add(node.op, inputs, node.attrs, {type});
        }
        const bool reads_half = !old.inputs.empty() && half[old.inputs[0]];
        if (!reads_half) return builder.Add(node.op, inputs, node.attrs, types);
        if (old.op == Op::kCast) return inputs;
        const std::vector<ValueId> rows = builder.Add(node.op, inputs, node.attrs);
        if (rows.empty()) return rows;  // the builder keeps the error
        return builder.Add(Op::kCast, rows, {{"dtype", std::string(DTypeName(types[0].dtype))}});
      });
}

Result<Graph> ToMixedPrecision(const Graph& loss, DType compute) {
  if (compute != DType::kBF16 && compute != DType::kF16) {
    return Fail(InvalidArgument(
        fmt::format("mixed precision computes in bf16 or f16, not {}", DTypeName(compute))));
  }
  MW_ASSIGN_OR_RETURN(const Graph cast, Caster(loss, compute).Run());
  return FoldCasts(cast);
}

Result<Graph> FoldCasts(const Graph& graph) { return CastFolder(graph).Run(); }

Result<Graph> NarrowGradients(const Graph& differentiated) {
  Graph narrow = differentiated;
  for (NamedValue& output : narrow.outputs) {
    if (!output.name.starts_with("grad/")) continue;
    const Node& node = narrow.producer(output.value);
    if (node.op != Op::kCast || node.phase != Phase::kBackward) continue;
    if (DTypeBytes(narrow.type(node.inputs[0]).dtype) == 2) output.value = node.inputs[0];
  }
  return DropDeadNodes(narrow);
}

}  // namespace meshwright::ir
