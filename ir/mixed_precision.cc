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
      : loss_(loss), compute_(compute), builder_(loss.name), map_(loss.values.size()) {}

  Result<Graph> Run() {
    for (const Node& node : loss_.nodes) {
      builder_.SetLayer(node.layer);
      builder_.SetPhase(node.phase);
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

  // Whether the op computes in the 16-bit type: no operand as large as the result is f32.
  bool FollowsLow(const Node& node) {
    const int64_t elements = loss_.type(node.inputs[0]).elements();
    bool low = false;
    for (ValueId input : node.inputs) {
      if (IsLow(input)) {
        low = true;
      } else if (loss_.type(input).elements() >= elements && IsF32(input)) {
        return false;
      }
    }
    return low;
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

}  // namespace

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
