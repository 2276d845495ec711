#include "planner/padding.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include "base/check.h"
#include "base/id_vector.h"
#include "ir/builder.h"
#include "ir/rewrite.h"
#include "ir/schema.h"
#include "planner/choosing.h"
#include "planner/padded_ops.h"
#include "planner/vocabulary_schedule.h"

namespace meshwright::planner {
namespace {

using ir::Builder;
using ir::Dims;
using ir::FactorIndex;
using ir::FactorRule;
using ir::Graph;
using ir::Node;
using ir::Op;

// Powers of two: one less itself is zero in every type. The smaller one is for 16-bit floats of
// five bits of exponent.
const double kMask = std::ldexp(1.0, 100);
const double kSmallMask = std::ldexp(1.0, 15);
// Of a tensor group; the common multiple of unlike stages may be any number.
constexpr int64_t kMostDevices = 1024;

// What a weight is without padding, for whoever draws, saves or loads it.
void SayLogical(const Dims& logical, const Dims& padded, ir::Attrs& attrs) {
  const ir::ShardedDims dims{logical, std::vector<std::vector<std::string>>(logical.size()),
                             padded};
  dims.ToAttrs(attrs);
}

// The padded size of each factor that has one.
using PaddedFactors = std::map<FactorIndex, int64_t>;

// Dims of a tensor once its factors are padded.
Dims WithFactors(Dims dims, const ir::TensorFactors& factors, const FactorRule& rule,
                 const PaddedFactors& padded) {
  for (size_t d = 0; d < dims.size(); ++d) {
    const auto it = factors[d].empty() ? padded.end() : padded.find(factors[d][0]);
    if (it == padded.end()) continue;
    dims[d] = dims[d] / rule.factors[static_cast<size_t>(it->first)].size * it->second;
  }
  return dims;
}

bool SumsOver(const ir::TensorFactors& operand, const FactorRule& rule,
              const PaddedFactors& padded) {
  return std::any_of(operand.begin(), operand.end(), [&](const ir::DimFactors& dim) {
    return !dim.empty() && padded.contains(dim[0]) &&
           rule.factors[static_cast<size_t>(dim[0])].kind == ir::FactorKind::kReduced;
  });
}

ValueId PadTo(Builder& builder, ValueId value, const Dims& dims) {
  for (size_t d = 0; d < dims.size(); ++d) {
    const int64_t more = dims[d] - builder.type(value).dims[d];
    if (more == 0) continue;
    value =
        builder.AddOne(Op::kPad, {value},
                       {{"dim", static_cast<int64_t>(d)}, {"before", int64_t{0}}, {"after", more}});
  }
  return value;
}

ValueId CutTo(Builder& builder, ValueId value, const Dims& dims) {
  for (size_t d = 0; d < dims.size(); ++d) {
    if (dims[d] == builder.type(value).dims[d]) continue;
    value = builder.AddOne(
        Op::kSlice, {value},
        {{"dim", static_cast<int64_t>(d)}, {"start", int64_t{0}}, {"size", dims[d]}});
  }
  return value;
}

// `inside` where a tensor of the plain dims is, zeros in the padding of `type`, whose last dims it
// has from the first padded one on.
ValueId Inside(Builder& builder, const Dims& plain, const ir::TensorType& type, double inside) {
  size_t first = 0;
  while (first + 1 < plain.size() && plain[first] == type.dims[first]) ++first;
  const auto behind = static_cast<ptrdiff_t>(first);
  const ValueId own = builder.AddOne(Op::kConstant, {}, {{"value", inside}},
                                     {{type.dtype, Dims(plain.begin() + behind, plain.end())}});
  return PadTo(builder, own, Dims(type.dims.begin() + behind, type.dims.end()));
}

class GraphPadder {
 public:
  GraphPadder(const Graph& graph, const PaddedParams& params, double mask)
      : graph_(graph), params_(params), mask_(mask), builder_(graph.name) {
    plain_.assign(graph.values.size(), ValueId());
    padded_.assign(graph.values.size(), Padded{});
  }

  Result<Graph> Run() {
    for (const Node& node : graph_.nodes) {
      builder_.SetLayer(node.layer);
      builder_.SetPhase(node.phase);
      Emit(node);
      MW_TRY(builder_.status());
    }
    for (const ir::NamedValue& output : graph_.outputs) {
      builder_.SetLayer(graph_.producer(output.value).layer);
      builder_.SetOutput(output.name, Plain(output.value), output.reduction);
    }
    return builder_.Finish();
  }

 private:
  struct Padded {
    ValueId value;
    bool zero = false;  // is its padding
  };

  const Dims& DimsOf(ValueId old) const { return graph_.type(old).dims; }
  Dims PaddedDims(ValueId old) const { return builder_.type(padded_[old].value).dims; }
  bool IsPadded(ValueId old) const { return padded_[old].value.valid(); }

  void Emit(const Node& node) {
    if (node.op == Op::kParam) return EmitParam(node);
    if (std::none_of(node.inputs.begin(), node.inputs.end(),
                     [&](ValueId input) { return IsPadded(input); })) {
      return EmitPlain(node);
    }
    const Result<FactorRule> rule = ir::RuleOf(graph_, node);
    if (!rule.has_value()) return EmitPlain(node);
    const std::optional<PaddedFactors> factors = FactorsOf(node, *rule);
    if (!factors) return EmitPlain(node);
    EmitPadded(node, *rule, *factors);
  }

  void EmitParam(const Node& node) {
    const ValueId old = node.outputs[0];
    const auto it = params_.find(node.attrs.Str("name"));
    if (it == params_.end()) {
      plain_[old] = builder_.AddOne(Op::kParam, {}, node.attrs, {graph_.type(old)});
      return;
    }
    // How it is exported is a matter of what it is without padding.
    ir::Attrs attrs;
    for (const auto& [name, value] : node.attrs.values()) {
      if (!name.starts_with("export_")) attrs.Set(name, value);
    }
    if (attrs.Str("init") == "ones") {
      attrs.Set("init", std::string("normal"));
      attrs.Set("mean", 1.0);
      attrs.Set("std", 0.0);
    }
    SayLogical(DimsOf(old), it->second, attrs);
    padded_[old] = {
        builder_.AddOne(Op::kParam, {}, std::move(attrs), {{graph_.type(old).dtype, it->second}}),
        true};
  }

  void EmitPlain(const Node& node) {
    std::vector<ValueId> inputs;
    for (const ValueId input : node.inputs) inputs.push_back(Plain(input));
    std::vector<ir::TensorType> types;
    for (const ValueId output : node.outputs) types.push_back(graph_.type(output));
    const std::vector<ValueId> made = builder_.Add(node.op, inputs, node.attrs, types);
    for (size_t r = 0; r < made.size(); ++r) plain_[node.outputs[r]] = made[r];
  }

  // Nothing: the node gets its operands without padding.
  std::optional<PaddedFactors> FactorsOf(const Node& node, const FactorRule& rule) const {
    PaddedFactors factors;
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      if (!IsPadded(node.inputs[i])) continue;
      const Dims& plain = DimsOf(node.inputs[i]);
      const Dims padded = PaddedDims(node.inputs[i]);
      for (size_t d = 0; d < plain.size(); ++d) {
        if (plain[d] == padded[d]) continue;
        const ir::DimFactors& of_dim = rule.operands[i][d];
        if (of_dim.empty() || !CarriesPadding(node, rule, of_dim[0])) return std::nullopt;
        const int64_t rest = plain[d] / rule.factors[static_cast<size_t>(of_dim[0])].size;
        if (padded[d] % rest != 0) return std::nullopt;
        const auto [it, fresh] = factors.try_emplace(of_dim[0], padded[d] / rest);
        if (!fresh && it->second != padded[d] / rest) return std::nullopt;
      }
    }
    return CanPadOthers(node, rule, factors) ? std::optional(factors) : std::nullopt;
  }

  // What has no padding yet gets some, if it is of numbers.
  bool CanPadOthers(const Node& node, const FactorRule& rule, const PaddedFactors& factors) const {
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      const ir::TensorType& type = graph_.type(node.inputs[i]);
      if (IsPadded(node.inputs[i]) || ir::IsFloating(type.dtype)) continue;
      if (WithFactors(type.dims, rule.operands[i], rule, factors) != type.dims) return false;
    }
    return true;
  }

  void EmitPadded(const Node& node, const FactorRule& rule, const PaddedFactors& factors) {
    std::vector<ValueId> inputs;
    std::vector<OperandPadding> paddings;
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      const ValueId old = node.inputs[i];
      const Dims dims = WithFactors(DimsOf(old), rule.operands[i], rule, factors);
      Padded operand = As(old, dims);
      if (SumsOver(rule.operands[i], rule, factors)) {
        operand = Ready(operand, old, ReadyFor(node, i));
      }
      inputs.push_back(operand.value);
      paddings.push_back({dims != DimsOf(old), operand.zero});
    }
    std::vector<ir::TensorType> types;
    for (size_t r = 0; r < node.outputs.size(); ++r) {
      const ir::TensorType& type = graph_.type(node.outputs[r]);
      types.push_back({type.dtype, WithFactors(type.dims, rule.results[r], rule, factors)});
    }
    const std::vector<ValueId> made =
        builder_.Add(node.op, inputs, AttrsOf(node, inputs, types), types);
    if (!builder_.status().ok()) return;
    const bool zeros = GivesZeros(node, paddings);
    for (size_t r = 0; r < made.size(); ++r) {
      const ValueId old = node.outputs[r];
      // Graphs come from users: what this file did not foresee ends their plan and nothing else.
      if (builder_.type(made[r]) != types[r]) {
        return builder_.Fail(
            Internal(fmt::format("{} of padded operands gives {}, not {}", ir::OpName(node.op),
                                 builder_.type(made[r]).ToString(), types[r].ToString())));
      }
      if (types[r].dims == DimsOf(old)) {
        plain_[old] = made[r];
      } else {
        // Statistics of an op are no zeros, whatever its first result is.
        padded_[old] = {made[r], zeros && r == 0};
      }
    }
  }

  // Numbers that are drawn, and ids that are checked, are those of the tensor without padding.
  ir::Attrs AttrsOf(const Node& node, const std::vector<ValueId>& inputs,
                    const std::vector<ir::TensorType>& types) const {
    ir::Attrs attrs = node.attrs;
    std::optional<ir::Positioned> placed = ir::PositionsOf(node);
    if (node.op == Op::kCrossEntropy) placed = ir::Positioned{false, 0};
    // Where only one dim matters it is that of tokens, which have no padding.
    if (!placed || placed->dim) return attrs;
    const size_t i = placed->index;
    const Dims& logical = DimsOf(placed->is_result ? node.outputs[i] : node.inputs[i]);
    const Dims padded = placed->is_result ? types[i].dims : builder_.type(inputs[i]).dims;
    if (logical != padded) SayLogical(logical, padded, attrs);
    return attrs;
  }

  // ---- from padded to plain and back ----

  ValueId Plain(ValueId old) {
    if (plain_[old].valid()) return plain_[old];
    plain_[old] = CutTo(builder_, padded_[old].value, DimsOf(old));
    return plain_[old];
  }

  Padded As(ValueId old, const Dims& dims) {
    if (IsPadded(old) && PaddedDims(old) == dims) return padded_[old];
    if (dims == DimsOf(old)) return {Plain(old), false};
    return {PadTo(builder_, Plain(old), dims), true};
  }

  Padded Ready(const Padded& operand, ValueId old, BeforeSum want) {
    if (want == BeforeSum::kNothing || (want == BeforeSum::kZero && operand.zero)) return operand;
    const ir::TensorType type = builder_.type(operand.value);
    if (want != BeforeSum::kMask) {
      const ValueId ones = Inside(builder_, DimsOf(old), type, 1.0);
      return {builder_.AddOne(Op::kMul, {operand.value, ones}), true};
    }
    const ValueId words = Inside(builder_, DimsOf(old), type, mask_);
    const ValueId mask = builder_.AddOne(Op::kShift, {words}, {{"value", -mask_}});
    return {builder_.AddOne(Op::kAdd, {operand.value, mask}), false};
  }

  const Graph& graph_;
  const PaddedParams& params_;
  const double mask_;
  Builder builder_;
  IdVector<ValueId, ValueId> plain_;  // new, per old value; invalid: not made yet
  IdVector<ValueId, Padded> padded_;
};

// q[b,s,h,e], k[b,s,g,e]: whether g heads are to be as many as devices.
bool NeedsRepeats(const Graph& graph, const Node& node, int64_t tensor) {
  if (node.op != Op::kAttention) return false;
  const int64_t queries = graph.type(node.inputs[0]).dims[2];
  const int64_t keys = graph.type(node.inputs[1]).dims[2];
  return keys < tensor && tensor % keys == 0 && queries % tensor == 0;
}

// Pages have the key heads that there are: where devices do not divide them, each has all heads.
bool NeedsAllHeads(const Graph& graph, const Node& node, int64_t tensor) {
  if (node.op != Op::kPagedAttention) return false;
  return graph.type(node.inputs[1]).dims[2] % tensor != 0 &&
         graph.type(node.inputs[0]).dims[2] % tensor == 0;
}

bool IsRewritten(const Graph& graph, int64_t tensor) {
  return std::any_of(graph.nodes.begin(), graph.nodes.end(), [&](const Node& node) {
    return NeedsRepeats(graph, node, tensor) || NeedsAllHeads(graph, node, tensor);
  });
}

// [b,s,g,e] -> [b,s,tensor,e]: each head as often as there are devices for it.
ValueId Repeated(Builder& builder, ValueId heads, int64_t tensor) {
  const ir::TensorType type = builder.type(heads);
  const int64_t times = tensor / type.dims[2];
  const Dims wide = {type.dims[0], type.dims[1], type.dims[2], times, type.dims[3]};
  const ValueId copies = builder.AddOne(
      Op::kBroadcast, {heads}, {{"dims", std::vector<int64_t>{3}}, {kRepeatsAttr, int64_t{1}}},
      {{type.dtype, wide}});
  return builder.AddOne(Op::kReshape, {copies}, {},
                        {{type.dtype, {type.dims[0], type.dims[1], tensor, type.dims[3]}}});
}

}  // namespace

Result<Graph> PadGraph(const Graph& graph, const PaddedParams& params, double mask) {
  return GraphPadder(graph, params, mask).Run();
}

Result<Graph> RepeatKeyHeads(const Graph& graph, int64_t tensor) {
  Builder builder(graph.name);
  IdVector<ValueId, ValueId> map(graph.values.size());
  for (const Node& node : graph.nodes) {
    const bool repeats = NeedsRepeats(graph, node, tensor);
    if (!repeats && !NeedsAllHeads(graph, node, tensor)) {
      ir::CopyNode(builder, graph, node, map);
      continue;
    }
    builder.SetLayer(node.layer);
    builder.SetPhase(node.phase);
    std::vector<ValueId> inputs;
    for (const ValueId input : node.inputs) inputs.push_back(map[input]);
    if (repeats) {
      for (const size_t i : {1, 2}) inputs[i] = Repeated(builder, inputs[i], tensor);
    } else {
      // A slice of all of them, which nobody splits.
      const int64_t heads = builder.type(inputs[0]).dims[2];
      inputs[0] = builder.AddOne(Op::kSlice, {inputs[0]},
                                 {{"dim", int64_t{2}}, {"start", int64_t{0}}, {"size", heads}});
    }
    const std::vector<ValueId> made = builder.Add(node.op, inputs, node.attrs);
    for (size_t r = 0; r < made.size(); ++r) map[node.outputs[r]] = made[r];
  }
  for (const ir::NamedValue& output : graph.outputs) {
    builder.SetOutput(output.name, map[output.value], output.reduction);
  }
  return builder.Finish();
}

double PaddingGrowth(const Graph& graph, int64_t tensor) {
  if (tensor == 1) return 1;
  Graph repeated;
  const bool repeats = IsRewritten(graph, tensor);
  if (repeats) {
    Result<Graph> made = RepeatKeyHeads(graph, tensor);
    if (made.has_value()) repeated = *std::move(made);
  }
  const Graph& used = repeats ? repeated : graph;
  std::vector<std::string> notes;
  const PaddedParams params = FindPadding(used, tensor, /*words=*/false, notes);
  double growth = 1;
  for (const NodeId id : used.NodesOf(Op::kParam)) {
    const auto it = params.find(used.node(id).attrs.Str("name"));
    if (it == params.end()) continue;
    double own = 1;
    for (size_t d = 0; d < it->second.size(); ++d) {
      own *= static_cast<double>(it->second[d]) /
             static_cast<double>(used.type(used.node(id).outputs[0]).dims[d]);
    }
    growth = std::max(growth, own);
  }
  return growth;
}

Result<std::optional<PaddedJob>> PadJob(const ir::JobRequest& job, const Layout& layout) {
  const int64_t tensor = layout.tensor();
  const bool rules = job.parallel.shardings == "rules" && layout.tensor_axes.size() < 2;
  if (tensor == 1 || tensor > kMostDevices || !rules) return std::optional<PaddedJob>();
  PaddedJob result;
  const bool words = !SharesVocabulary(layout);
  bool changed = false;
  const Graph& main = job.main().graph;
  for (const ir::JobProgram& program : job.programs) {
    changed = changed || IsRewritten(program.graph, tensor);
  }
  Graph repeated;
  if (changed) {
    MW_ASSIGN_OR_RETURN(repeated, RepeatKeyHeads(main, tensor));
    result.notes.push_back(fmt::format(
        "key heads are fewer than tensor={}: each device computes all of them and keeps one",
        tensor));
  }
  PaddedParams params;
  if (job.optimizer.name != "adafactor" || job.trained() == nullptr) {
    params = FindPadding(changed ? repeated : main, tensor, words, result.notes);
  }
  if (!changed && params.empty()) return std::optional<PaddedJob>();
  result.job = job;
  const double mask = job.train.compute_dtype == ir::DType::kF16 ? kSmallMask : kMask;
  for (ir::JobProgram& program : result.job.programs) {
    if (changed) {
      MW_ASSIGN_OR_RETURN(program.graph, RepeatKeyHeads(program.graph, tensor));
    }
    if (params.empty()) continue;
    MW_ASSIGN_OR_RETURN(program.graph, PadGraph(program.graph, params, mask));
  }
  return std::optional<PaddedJob>(std::move(result));
}

}  // namespace meshwright::planner
